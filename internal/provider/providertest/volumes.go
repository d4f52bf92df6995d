package providertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

func VolumeConfig(network *Instance) Values {
	return Values{"name": "etcd-0", "network": network.Get("ref"), "size": 8}
}

// ControllerConfig is a controller with the data volume.
func ControllerConfig(network, volume *Instance) Values {
	return Values{"name": "controller-0", "role": "controller", "network": network.Get("ref"), "private_ip": "10.240.0.10",
		"data_volume": Values{"id": volume.Get("id")}}
}

// Volume returns the volume as EC2 describes it.
func (c Cloud) Volume(t *testing.T, id any) types.Volume {
	t.Helper()
	out := Answer[*ec2.DescribeVolumesOutput](t)(c.Client.EC2.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{id.(string)}}))
	return out.Volumes[0]
}

func (c Cloud) VolumeTag(t *testing.T, id any, key string) string {
	t.Helper()
	for _, tag := range c.Volume(t, id).Tags {
		if *tag.Key == key {
			return *tag.Value
		}
	}
	return ""
}

// Detach detaches the volume as somebody else does it, and waits for the end of that.
func (c Cloud) Detach(t *testing.T, id any) {
	t.Helper()
	Answer[*ec2.DetachVolumeOutput](t)(c.Client.EC2.DetachVolume(t.Context(), &ec2.DetachVolumeInput{VolumeId: sdk.String(id.(string))}))
	for range 100 {
		if len(c.Volume(t, id).Attachments) == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("it is not detached")
}

// FileSystem returns the UUID of the file system on a volume, empty if there is none.
func (c Cloud) FileSystem(t *testing.T, id any) string {
	t.Helper()
	out, _ := exec.CommandContext(t.Context(), "/usr/sbin/blkid", "-p", "-s", "UUID", "-o", "value", c.Machines.Disk(id.(string))).Output()
	return strings.TrimSpace(string(out))
}

// Mounts returns what is mounted on the machine.
func (c Cloud) Mounts(t *testing.T, machine *Instance) string {
	t.Helper()
	root := c.Machines.Root(machine.Get("id").(string))
	raw, _ := os.ReadFile(filepath.Join(root, "mounts"))
	return strings.ReplaceAll(strings.TrimSpace(string(raw)), root, "")
}
