package ec2

import (
	"cmp"
	"regexp"
	"slices"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// maxVolumes is how many volumes an instance can have, with one network interface.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/volume_limits.html
const maxVolumes = 27

func tooManyVolumes() error {
	return wire.Refuse("AttachmentLimitExceeded", "An instance has at most %d volumes.", maxVolumes)
}

// deviceName is what a request may call a device. The machine does not use these names.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/device_naming.html
var deviceName = regexp.MustCompile(`^/dev/(sd[a-z][0-9]{0,2}|xvd[a-d]?[a-z])$`)

func checkDevice(name string) error {
	if !deviceName.MatchString(name) {
		return invalidValue("Value (%s) for parameter device is invalid. %s is not a valid EBS device name.", name, name)
	}
	return nil
}

// attachment returns the state of a volume's attachment, empty if it is detached.
func (v *volume) attachment() string {
	switch {
	case v.Instance == "":
		return ""
	case !v.Detaching.IsZero():
		return "detaching"
	case !v.Ready:
		return "attaching"
	}
	return "attached"
}

// release completes a detachment.
func (v *volume) release() {
	v.Instance, v.Ready, v.Forced, v.Detaching = "", false, false, time.Time{}
}

func (t *tx) volumeAttachment(v *volume) volumeAttachment {
	return volumeAttachment{v.ID, v.Instance, v.Device, v.attachment(), v.Attached, v.DeleteOnTermination}
}

// attachedTo returns the volumes of an instance in the order of their attachment, the root volume
// first.
func (t *tx) attachedTo(i *instance) []*volume {
	var out []*volume
	for _, v := range sorted(t.st.Volumes) {
		if v.Instance == i.ID {
			out = append(out, v)
		}
	}
	slices.SortStableFunc(out, func(a, b *volume) int {
		return cmp.Or(cmp.Compare(rank(a.ID == i.RootVolume), rank(b.ID == i.RootVolume)), a.Attached.Compare(b.Attached))
	})
	return out
}

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

type createVolumeRequest struct {
	request
	AvailabilityZone   string
	AvailabilityZoneId string
	ClientToken        string
	Encrypted          bool
	Iops               int
	KmsKeyId           string
	MultiAttachEnabled bool
	Size               int
	SnapshotId         string
	Throughput         int
	VolumeType         string
	TagSpecifications  []tagSpecification `query:"TagSpecification"`
}

// createVolume makes an empty volume: there are no snapshots here but those of root volumes.
func createVolume(t *tx, in *createVolumeRequest) (any, error) {
	ids, token, err := t.resultOf(in.ClientToken)
	if err != nil {
		return nil, err
	}
	if len(ids) > 0 {
		v, err := find(t, kindVolume, t.st.Volumes, "volumeId", ids[0])
		if err != nil {
			return nil, err
		}
		return t.volumeItem(v), nil
	}
	switch {
	case in.AvailabilityZone == "" && in.AvailabilityZoneId == "":
		return nil, missing("AvailabilityZone")
	case in.SnapshotId != "":
		return nil, t.noDataSnapshot(in.SnapshotId)
	case in.Size == 0:
		return nil, missing("size/snapshot")
	case in.MultiAttachEnabled:
		return nil, wire.Refuse("UnsupportedOperation", "The local EC2 attaches a volume to one instance only.")
	case in.KmsKeyId != "" && !in.Encrypted:
		return nil, wire.Refuse("InvalidParameterDependency", "The parameter KmsKeyId requires the parameter Encrypted to be set.")
	}
	zone, err := t.c.zone(in.AvailabilityZone, in.AvailabilityZoneId, func(string) bool { return false })
	if err != nil {
		return nil, err
	}
	if err := checkSpecs(in.TagSpecifications, kindVolume); err != nil {
		return nil, err
	}
	v := &volume{Zone: zone, Created: t.now, SizeGiB: in.Size, Type: cmp.Or(in.VolumeType, "gp2")}
	t.encrypt(v, in.Encrypted, in.KmsKeyId)
	if err := v.checkSize(); err != nil {
		return nil, err
	}
	if err := v.setPerformance(in.Iops, in.Throughput); err != nil {
		return nil, err
	}
	if err := t.roomForVolume(v); err != nil {
		return nil, err
	}
	v.ID = t.newID(kindVolume.prefix)
	t.st.Volumes[v.ID] = v
	t.saveResult(token, v.ID)
	if err := t.applySpecs(in.TagSpecifications, kindVolume, v.ID); err != nil {
		return nil, err
	}
	item := t.volumeItem(v)
	item.Status = "creating"
	if v.Encrypted && !t.c.keyUsable(v.KMSKeyID) {
		t.afterCommit(func() { t.c.loseVolume(v.ID) })
	}
	return item, nil
}

type attachVolumeRequest struct {
	request
	VolumeId   string
	InstanceId string
	Device     string
	Force      bool
}

func attachVolume(t *tx, in *attachVolumeRequest) (any, error) {
	v, err := find(t, kindVolume, t.st.Volumes, "volumeId", in.VolumeId)
	if err != nil {
		return nil, err
	}
	i, err := find(t, kindInstance, t.st.Instances, "instanceId", in.InstanceId)
	if err != nil {
		return nil, err
	}
	switch {
	case in.Device == "":
		return nil, missing("device")
	case v.attachment() != "":
		return nil, wire.Refuse("VolumeInUse", "%s is already attached to an instance", v.ID)
	case i.State != stateRunning && i.State != stateStopped:
		return nil, wire.Refuse("IncorrectState", "Instance '%s' is not 'running'.", i.ID)
	case v.Zone != i.Zone:
		return nil, wire.Refuse("InvalidVolume.ZoneMismatch", "The volume '%s' is not in the same availability zone as instance '%s'", v.ID, i.ID)
	}
	if err := checkDevice(in.Device); err != nil {
		return nil, err
	}
	others := t.attachedTo(i)
	if len(others) >= maxVolumes {
		return nil, tooManyVolumes()
	}
	for _, other := range others {
		if other.Device == in.Device {
			return nil, invalidValue("Invalid value '%s' for unixDevice. Attachment point %s is already in use", in.Device, in.Device)
		}
	}
	v.Instance, v.Device, v.Attached, v.DeleteOnTermination = i.ID, in.Device, t.now, false
	t.afterCommit(func() { t.c.plugVolume(v.ID, i.ID) })
	return t.volumeAttachment(v), nil
}

// detachVolume detaches a volume that is not an instance's root. On AWS the root volume of a
// stopped instance can be detached too.
func detachVolume(t *tx, in *attachVolumeRequest) (any, error) {
	v, err := find(t, kindVolume, t.st.Volumes, "volumeId", in.VolumeId)
	if err != nil {
		return nil, err
	}
	i := t.st.Instances[v.Instance]
	switch {
	case v.attachment() == "":
		return nil, wire.Refuse("IncorrectState", "Volume '%s' is in the 'available' state.", v.ID)
	case in.InstanceId != "" && in.InstanceId != v.Instance || in.Device != "" && in.Device != v.Device:
		return nil, wire.Refuse("InvalidAttachment.NotFound", "The volume '%s' is not attached to instance '%s' as device '%s'", v.ID, cmp.Or(in.InstanceId, v.Instance), cmp.Or(in.Device, v.Device))
	case i != nil && i.RootVolume == v.ID && i.State != stateStopped:
		return nil, wire.Refuse("OperationNotPermitted", "Unable to detach root volume '%s' from instance '%s'", v.ID, i.ID)
	case i != nil && i.RootVolume == v.ID:
		return nil, wire.Refuse("UnsupportedOperation", "The local EC2 does not detach root volumes.")
	}
	if v.Detaching.IsZero() {
		v.Detaching = t.now
		id, machine := v.ID, v.Instance
		t.afterCommit(func() { t.c.unplugVolume(id, machine) })
	}
	v.Forced = v.Forced || in.Force
	return t.volumeAttachment(v), nil
}

type volumeIDRequest struct {
	request
	VolumeId string
}

func deleteVolume(t *tx, in *volumeIDRequest) (any, error) {
	v, err := find(t, kindVolume, t.st.Volumes, "volumeId", in.VolumeId)
	if err != nil {
		return nil, err
	}
	if v.attachment() != "" {
		return nil, wire.Refuse("VolumeInUse", "Volume %s is currently attached to %s", v.ID, v.Instance)
	}
	t.deleteVolume(v)
	return done{true}, nil
}
