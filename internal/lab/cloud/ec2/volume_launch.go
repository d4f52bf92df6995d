package ec2

import (
	"cmp"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

type blockDeviceMapping struct {
	DeviceName string
	NoDevice   *string
	Ebs        struct {
		DeleteOnTermination *bool
		Encrypted           bool
		Iops                int
		KmsKeyId            string
		SnapshotId          string
		Throughput          int
		VolumeSize          int
		VolumeType          string
	}
}

// launchVolumes returns the volumes of a new instance of an image, the root volume first.
func (t *tx) launchVolumes(mappings []blockDeviceMapping, image *Image, zone string) ([]*volume, error) {
	root := blockDeviceMapping{DeviceName: rootDevice}
	var others []blockDeviceMapping
	seen := map[string]bool{}
	for _, m := range mappings {
		switch {
		case seen[m.DeviceName]:
			return nil, wire.Refuse("InvalidBlockDeviceMapping", "The device '%s' is used in more than one block-device mapping", m.DeviceName)
		case m.DeviceName == rootDevice && m.NoDevice != nil:
			return nil, wire.Refuse("InvalidBlockDeviceMapping", "The root device %s cannot be left out", rootDevice)
		case m.DeviceName == rootDevice:
			root = m
		case m.NoDevice == nil:
			others = append(others, m)
		}
		seen[m.DeviceName] = true
	}
	v, least := &volume{Snapshot: image.snapshotID()}, image.size()
	root.Ebs.VolumeSize, root.Ebs.VolumeType = cmp.Or(root.Ebs.VolumeSize, least), cmp.Or(root.Ebs.VolumeType, image.VolumeType)
	if root.Ebs.DeleteOnTermination == nil && image.KeepsRoot {
		root.Ebs.DeleteOnTermination = new(bool)
	}
	if s := t.st.Snapshots[v.Snapshot]; s != nil && s.Encrypted { // a volume of an encrypted snapshot is encrypted, whatever is asked
		root.Ebs.Encrypted, root.Ebs.KmsKeyId = true, cmp.Or(root.Ebs.KmsKeyId, s.KMSKeyID)
	}
	if err := t.launchVolume(v, root, zone); err != nil {
		return nil, err
	}
	if v.SizeGiB < least {
		return nil, wire.Refuse("InvalidBlockDeviceMapping", "Volume of size %dGB is smaller than snapshot of the image, expect size >= %dGB", v.SizeGiB, least)
	}
	volumes := []*volume{v}
	for _, m := range others {
		if err := checkDevice(m.DeviceName); err != nil {
			return nil, err
		}
		v := &volume{Snapshot: m.Ebs.SnapshotId, Content: m.Ebs.SnapshotId}
		switch {
		case v.Snapshot != "":
			if err := fromSnapshot(t, v.Snapshot, &m.Ebs.VolumeSize, &m.Ebs.Encrypted, &m.Ebs.KmsKeyId, "InvalidBlockDeviceMapping"); err != nil {
				return nil, err
			}
		case m.Ebs.VolumeSize == 0:
			return nil, missing("size/snapshot")
		}
		if err := t.launchVolume(v, m, zone); err != nil {
			return nil, err
		}
		// The order of the mappings is that of the devices.
		v.Attached = v.Attached.Add(time.Duration(len(volumes)))
		volumes = append(volumes, v)
	}
	if len(volumes) > maxVolumes {
		return nil, tooManyVolumes()
	}
	return volumes, nil
}

// launchVolume fills a volume from its mapping.
func (t *tx) launchVolume(v *volume, m blockDeviceMapping, zone string) error {
	if m.Ebs.KmsKeyId != "" && !m.Ebs.Encrypted {
		return wire.Refuse("InvalidParameterDependency", "The parameter KmsKeyId requires the parameter Encrypted to be set.")
	}
	v.Device, v.Zone, v.Created, v.Attached, v.Ready = m.DeviceName, zone, t.now, t.now, true
	v.SizeGiB, v.Type = m.Ebs.VolumeSize, cmp.Or(m.Ebs.VolumeType, defaultVolType)
	t.encrypt(v, m.Ebs.Encrypted, m.Ebs.KmsKeyId)
	v.DeleteOnTermination = m.Ebs.DeleteOnTermination == nil || *m.Ebs.DeleteOnTermination
	if err := v.checkSize(); err != nil {
		return err
	}
	return v.setPerformance(m.Ebs.Iops, m.Ebs.Throughput)
}
