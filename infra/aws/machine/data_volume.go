package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/volume"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// fieldDataVolume is the argument with a machine's data volume.
const fieldDataVolume = "data_volume"

// DataVolume is the volume with a machine's data. It stays when the machine ends.
type DataVolume struct {
	ID         string
	MountPoint string // absolute and clean
	// Units are the systemd units that may start only once the volume is mounted. They need not
	// exist.
	Units []string
}

// exampleMountPoint is named in errors.
const exampleMountPoint = "/var/lib/etcd"

// mountsBelow are the directories below which a volume may be mounted. Programs and settings of the
// system are elsewhere.
var mountsBelow = []string{"/data", "/home", "/media", "/mnt", "/opt", "/srv", "/var/lib", "/var/local", "/var/log"}

// mountItself are those of mountsBelow that may be mount points themselves, since nothing of the
// system is in them.
var mountItself = []string{"/data", "/srv"}

// systemData are directories of the system's own programs below mountsBelow.
var systemData = []string{"/var/lib/apt", "/var/lib/cloud", "/var/lib/dbus", "/var/lib/dpkg", "/var/lib/k8s-from-scratch", "/var/lib/pam", "/var/lib/private", "/var/lib/sudo", "/var/lib/systemd", "/var/log/journal"}

// CheckMountPoint reports a mount point that would hide files of the system, or that is no clean
// absolute path.
func CheckMountPoint(point string) (errs invalid.Fields) {
	const field = fieldDataVolume + ".mount_point"
	within := func(dir string) bool { return point == dir || strings.HasPrefix(point, dir+"/") }
	switch {
	case point == "":
	case !strings.HasPrefix(point, "/"):
		errs.Say(field, "Unusable mount point", "%q is not an absolute path, such as %s.", point, exampleMountPoint)
	case path.Clean(point) != point:
		errs.Say(field, "Unusable mount point", "Write %q as %q.", point, path.Clean(point))
	case strings.ContainsFunc(point, func(r rune) bool { return !strings.ContainsRune(mountRunes, r) }):
		errs.Say(field, "Unusable mount point", "%q has a character other than letters, digits and any of /._-", point)
	case slices.ContainsFunc(systemData, within),
		!slices.Contains(mountItself, point) && !slices.ContainsFunc(mountsBelow, func(dir string) bool { return point != dir && within(dir) }):
		errs.Say(field, "Unusable mount point", "A volume at %s would hide files of the system. Choose a directory of its own below one of %s, such as %s.",
			point, strings.Join(mountsBelow, ", "), exampleMountPoint)
	}
	return errs
}

const mountRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-"

const (
	// attachBudget is how long a machine waits for its volume. The predecessor that has it is being
	// terminated, which usually takes less than a minute, and some minutes if its system does not end.
	attachBudget = 10 * time.Minute
)

// attachDataVolume attaches the data volume to the machine, which runs or is stopped. It waits until
// a predecessor that is being terminated has let go of it, and takes it from no other machine. It
// returns the volume.
func attachDataVolume(ctx context.Context, c *aws.Client, id string, spec Spec) (volume.Volume, error) {
	ctx, cancel := patience.Within(ctx, attachBudget)
	defer cancel()
	var v volume.Volume
	err := aws.Poll(ctx, "attach the data volume "+spec.DataVolume.ID, func(ctx context.Context) (ready bool, seen string, err error) {
		if v, err = volume.Find(ctx, c, spec.DataVolume.ID); err == nil {
			err = spec.judgeDataVolume(v)
		}
		if err != nil {
			return false, "", err
		}
		switch {
		case v.InstanceID == id && v.Attachment == string(types.VolumeAttachmentStateAttached):
			if v.DeletedWithInstance {
				return true, "", keepDataVolume(ctx, c, id, v.Device)
			}
			return true, "", nil
		case v.InstanceID != "":
			return false, v.Attachment + " to " + v.InstanceID, mayFree(ctx, c, id, v)
		case v.State == string(types.VolumeStateError):
			return false, "", errors.New("its state is error: EC2 cannot use it")
		}
		return false, v.State, tryAttach(ctx, c, id, v)
	})
	return v, err
}

// judgeDataVolume returns an error unless the volume is one of k8s_volume in the machine's cluster.
func (s Spec) judgeDataVolume(v volume.Volume) error {
	if v.Tags[aws.TagKind] == aws.KindVolume && v.Cluster == s.Cluster {
		return nil
	}
	return &invalid.Field{Field: fieldDataVolume, Problem: "Another's volume", Err: fmt.Errorf("volume %s is no data volume of cluster %s, as its tags %s and %s say: "+
		"use the id of a k8s_volume of the cluster, and import the volume there first if it exists already", v.ID, s.Cluster, aws.TagKind, aws.TagCluster)}
}

// mayFree returns an error if a volume that is attached elsewhere will not become free without
// help.
func mayFree(ctx context.Context, c *aws.Client, id string, v volume.Volume) error {
	if v.InstanceID == id || v.Attachment == string(types.VolumeAttachmentStateDetaching) {
		return nil
	}
	if ending, err := c.InstanceEnds(ctx, v.InstanceID); err != nil || ending {
		return err
	}
	return &invalid.Field{Field: fieldDataVolume, Problem: "Volume in use", Err: fmt.Errorf("volume %s is attached to %s, which is not being terminated: "+
		"if that machine does not need it any more, stop what uses it there, unmount it and detach it; nothing was changed", v.ID, v.InstanceID)}
}

// tryAttach attaches a free volume. What another call may have changed meanwhile is no error: the next
// look decides.
func tryAttach(ctx context.Context, c *aws.Client, id string, v volume.Volume) error {
	i, err := c.Instance(ctx, id, c.RetryUntilKnown())
	if err != nil {
		return err
	}
	device := freeDevice(i)
	_, err = c.EC2.AttachVolume(ctx, &ec2.AttachVolumeInput{VolumeId: &v.ID, InstanceId: &id, Device: &device}, c.RetryUntilKnown())
	switch {
	case aws.IsCode(err, "VolumeInUse", "IncorrectState"): // taken, or the instance or the volume is just changing
		return nil
	case aws.IsCode(err, "InvalidVolume.ZoneMismatch"):
		return &invalid.Field{Field: fieldDataVolume, Problem: "Another availability zone", Err: fmt.Errorf("the volume is in %s, and the machine is not: "+
			"give k8s_volume the subnet_id of the machine's subnet: %w", v.AvailabilityZone, err)}
	case volume.KMSKeyUnusable(err):
		return &invalid.Field{Field: fieldDataVolume, Problem: "Unusable KMS key", Err: fmt.Errorf("EC2 cannot use the KMS key %s of the volume: the key must be enabled, "+
			"and its policy must allow the caller kms:CreateGrant and kms:Decrypt; without the key the data are lost: %w", v.KMSKeyID, err)}
	}
	return err
}

// freeDevice returns the first name that EC2 recommends for a volume and that the instance does not
// use. The machine does not use the name: a volume is found there by its id.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/device_naming.html
func freeDevice(i types.Instance) string {
	for letter := 'f'; letter <= 'p'; letter++ {
		name := "/dev/sd" + string(letter)
		if !slices.ContainsFunc(i.BlockDeviceMappings, func(m types.InstanceBlockDeviceMapping) bool { return sdk.ToString(m.DeviceName) == name }) {
			return name
		}
	}
	return "/dev/sdf" // EC2 says that it is taken
}

// keepDataVolume makes the volume at a device of an instance stay when the instance ends.
func keepDataVolume(ctx context.Context, c *aws.Client, id, device string) error {
	_, err := c.EC2.ModifyInstanceAttribute(ctx, &ec2.ModifyInstanceAttributeInput{InstanceId: &id,
		BlockDeviceMappings: []types.InstanceBlockDeviceMappingSpecification{{DeviceName: &device, Ebs: &types.EbsInstanceBlockDeviceSpecification{DeleteOnTermination: sdk.Bool(false)}}}})
	if err != nil {
		return fmt.Errorf("make it stay when the instance ends: %w", err)
	}
	return nil
}

// dataVolumeFindings compares the attachment of the data volume with what is wanted. v is the volume,
// nil if it does not exist.
func dataVolumeFindings(spec Spec, id string, v *volume.Volume) []finding.Finding {
	if spec.DataVolume == nil {
		return nil
	}
	f := finding.Finding{Subject: spec.Name, Kind: finding.DataVolume, Target: spec.DataVolume.ID}
	switch {
	case v == nil:
		f.Problem = finding.Missing
	case v.InstanceID == "" || v.Attachment == string(types.VolumeAttachmentStateDetaching):
		f.Problem = finding.Detached
	case v.InstanceID != id:
		f.Problem, f.Found, f.Wanted = finding.Value, v.InstanceID, id
	case v.DeletedWithInstance:
		f.Problem = finding.Ephemeral
	default:
		return nil
	}
	return []finding.Finding{f}
}

// UseDataVolume attaches the machine's data volume, mounts it, and notes in its tags which file system
// it has. The machine runs and answers on SSH. It does nothing for a machine without a data volume.
func UseDataVolume(ctx context.Context, c *aws.Client, m Machine, spec Spec, connect Connect) error {
	if spec.DataVolume == nil {
		return nil
	}
	v, err := attachDataVolume(ctx, c, m.ID, spec)
	if err != nil {
		return err
	}
	made, err := deed.UseDataVolume(ctx, connect(m, []string{m.HostKey}), spec.onMachine(v))
	if err != nil {
		return fmt.Errorf("mount the data volume %s at %s: %w", v.ID, spec.DataVolume.MountPoint, err)
	}
	notes := map[string]string{aws.TagFileSystem: made, aws.TagMountPoint: spec.DataVolume.MountPoint}
	if made == "" || len(aws.DiffTags(notes, v.Tags)) == 0 {
		return nil
	}
	if _, err := c.EC2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{v.ID}, Tags: aws.EC2Tags(notes)}); err != nil {
		return fmt.Errorf("note the file system of the data volume %s in its tags: %w", v.ID, err)
	}
	return nil
}

// onMachine returns the data volume as the machine knows it.
func (s Spec) onMachine(v volume.Volume) deed.DataVolume {
	return deed.DataVolume{ID: v.ID, MountPoint: s.DataVolume.MountPoint, FileSystem: v.FileSystem, Units: s.DataVolume.Units}
}

// InspectDataVolume asks the machine, which runs, how it uses its data volume, and returns what
// differs. m is what Observe has returned. There is nothing to ask while the volume is not
// attached: Observe says that.
func InspectDataVolume(ctx context.Context, m Machine, spec Spec, connect Connect) ([]finding.Finding, error) {
	if spec.DataVolume == nil || m.data == nil || m.data.InstanceID != m.ID {
		return nil, nil
	}
	onMachine := spec.onMachine(*m.data)
	use, err := deed.InspectDataVolume(ctx, connect(m, []string{m.HostKey}), onMachine)
	if err != nil {
		return nil, err
	}
	return finding.About(spec.Name, diffDataVolume(onMachine, use)), nil
}

// diffDataVolume compares how a machine uses its data volume with what is wanted.
func diffDataVolume(v deed.DataVolume, use deed.DataVolumeUse) []finding.Finding {
	var out []finding.Finding
	add := func(f finding.Finding) { out = append(out, f) }
	switch {
	case !use.Device || use.FileSystem == v.FileSystem:
	case use.FileSystem == "":
		add(finding.Finding{Kind: finding.DataFileSystem, Problem: finding.Missing, Wanted: v.FileSystem})
	case v.FileSystem != "":
		add(finding.Finding{Kind: finding.DataFileSystem, Problem: finding.Value, Found: use.FileSystem, Wanted: v.FileSystem})
	default:
		add(finding.Finding{Kind: finding.Tag, Target: aws.TagFileSystem, Problem: finding.Missing, Wanted: use.FileSystem})
	}
	switch use.Mounted {
	case v.ID:
	case "":
		add(finding.Finding{Kind: finding.MountPoint, Target: v.MountPoint, Problem: finding.Missing, Wanted: v.ID})
	default:
		add(finding.Finding{Kind: finding.MountPoint, Target: v.MountPoint, Problem: finding.Value, Found: use.Mounted, Wanted: v.ID})
	}
	for _, at := range use.Elsewhere {
		add(finding.Finding{Kind: finding.MountPoint, Target: at, Problem: finding.Elsewhere, Wanted: v.MountPoint})
	}
	for _, path := range slices.Sorted(maps.Keys(use.Wanted)) {
		switch found, wanted := use.Files[path], use.Wanted[path]; found {
		case wanted:
		case "":
			add(finding.Finding{Kind: finding.File, Target: path, Problem: finding.Missing})
		default:
			add(finding.Finding{Kind: finding.File, Target: path, Problem: finding.Content, Found: found, Wanted: wanted})
		}
	}
	for _, unit := range use.Unlinked {
		add(finding.Finding{Kind: finding.DataVolume, Target: v.ID, Problem: finding.Unbound, Found: unit})
	}
	if use.Small {
		add(finding.Finding{Kind: finding.DataFileSystem, Problem: finding.TooSmall})
	}
	return out
}

// GrowDataVolume grows the file system of a volume that is attached to a running machine of the
// cluster to the size of the volume. It does nothing for one that is not.
func GrowDataVolume(ctx context.Context, c *aws.Client, v volume.Volume, connect Connect) error {
	if v.Attachment != string(types.VolumeAttachmentStateAttached) {
		return nil
	}
	m, err := Describe(ctx, c, v.InstanceID)
	if err != nil || m.Cluster != v.Cluster || m.HostKey == "" || m.State != string(types.InstanceStateNameRunning) {
		return err
	}
	if err := deed.GrowDataVolume(ctx, connect(m, []string{m.HostKey}), v.ID, int64(v.SizeGiB)<<30); err != nil {
		return fmt.Errorf("machine %s (%s): grow the file system of the data volume %s: %w", m.Name, m.ID, v.ID, err)
	}
	return nil
}
