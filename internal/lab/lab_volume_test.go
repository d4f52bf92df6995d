package lab_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// disk is an EBS volume of a running lab.
type disk struct {
	*world
	lab command
	id  string
}

func (w *world) newDisk(t *testing.T, lab command, gib int32) disk {
	t.Helper()
	v := must[*ec2.CreateVolumeOutput](t)(w.CreateVolume(t.Context(), &ec2.CreateVolumeInput{
		AvailabilityZone: aws.String("us-east-1a"), Size: &gib, VolumeType: types.VolumeTypeGp3, Encrypted: aws.Bool(true),
	}))
	return disk{w, lab, *v.VolumeId}
}

func (d disk) link() string {
	return "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_" + strings.ReplaceAll(d.id, "-", "")
}

func (d disk) attach(t *testing.T, instance string) {
	t.Helper()
	must[*ec2.AttachVolumeOutput](t)(d.AttachVolume(t.Context(), &ec2.AttachVolumeInput{VolumeId: &d.id, InstanceId: &instance, Device: aws.String("/dev/sdf")}))
	d.await(t, "attached")
}

func (d disk) detach(t *testing.T, force bool) {
	t.Helper()
	must[*ec2.DetachVolumeOutput](t)(d.DetachVolume(t.Context(), &ec2.DetachVolumeInput{VolumeId: &d.id, Force: &force}))
}

// state is the state of the volume's attachment, or of the volume if it has none.
func (d disk) state(t *testing.T) string {
	t.Helper()
	v := must[*ec2.DescribeVolumesOutput](t)(d.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{d.id}})).Volumes[0]
	if len(v.Attachments) == 0 {
		return string(v.State)
	}
	return string(v.Attachments[0].State)
}

func (d disk) await(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); d.state(t) != want; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the volume is %s, not %s", d.state(t), want)
		}
	}
}

// on runs a script as root on a machine.
func (d disk) on(t *testing.T, machine, script, want string) {
	t.Helper()
	if got := strings.TrimSpace(d.lab.must(t, "exec", machine, "--", "sh", "-euc", script)); got != want {
		t.Errorf("on %s: %s prints %q, want %q", machine, script, got, want)
	}
}

// checkHotPlug attaches a new volume to two running machines in turn, and returns it mounted in the
// first.
func checkHotPlug(t *testing.T, w *world, lab command, first, second string) disk {
	t.Helper()
	d := w.newDisk(t, lab, 1)
	d.attach(t, second)
	d.on(t, second, "readlink -f "+d.link(), "/dev/nvme1n1")
	d.on(t, second, "mkfs.ext4 -q "+d.link()+"; mount UUID=$(blkid -s UUID -o value "+d.link()+") /mnt; echo kept > /mnt/file; findmnt -no FSTYPE /mnt", "ext4")
	d.detach(t, false)
	time.Sleep(1200 * time.Millisecond) // more than a detachment takes
	if got := d.state(t); got != "detaching" {
		t.Errorf("a mounted volume is %s", got)
	}
	d.on(t, second, "cat /mnt/file; umount /mnt", "kept")
	d.await(t, "available")
	d.on(t, second, "ls /dev/nvme* 2> /dev/null || true", "")
	d.attach(t, first)
	d.on(t, first, "mount "+d.link()+" /mnt; cat /mnt/file", "kept")

	must[*ec2.ModifyVolumeOutput](t)(w.ModifyVolume(t.Context(), &ec2.ModifyVolumeInput{VolumeId: &d.id, Size: aws.Int32(2)}))
	for end := time.Now().Add(30 * time.Second); !strings.Contains(lab.must(t, "exec", first, "--", "lsblk", "-bdno", "SIZE", "/dev/nvme1n1"), "2147483648"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the machine does not see the bigger volume")
		}
	}
	return d
}

// checkNoLoops checks that the host has no device of the lab's volumes.
func checkNoLoops(t *testing.T, lab command) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE").Output()
	if err != nil || strings.Contains(string(out), lab.dir) {
		t.Errorf("the host has devices of the lab: %v\n%s", err, out)
	}
}

// volumeFiles lists the lab's files of volumes.
func volumeFiles(t *testing.T, lab command) string {
	t.Helper()
	return fmt.Sprint(must[[]string](t)(filepath.Glob(filepath.Join(lab.dir, "volumes", "*"))))
}
