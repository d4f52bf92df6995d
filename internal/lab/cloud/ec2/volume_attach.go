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
	volumeRequest
	AvailabilityZone   string
	AvailabilityZoneId string
	SnapshotId         string
}

// volumeRequest is what all requests for a volume may say.
type volumeRequest struct {
	ClientToken        string
	Encrypted          bool
	Iops               int
	KmsKeyId           string
	MultiAttachEnabled bool
	Size               int
	Throughput         int
	VolumeType         string
	TagSpecifications  []tagSpecification `query:"TagSpecification"`
}

// createVolume makes a volume, which is empty or has the content of a snapshot.
func createVolume(t *tx, in *createVolumeRequest) (any, error) {
	made, token, err := t.madeVolume(in.ClientToken)
	if made != nil || err != nil {
		return made, err
	}
	switch {
	case in.AvailabilityZone == "" && in.AvailabilityZoneId == "":
		return nil, missing("AvailabilityZone")
	case in.SnapshotId == "" && in.Size == 0:
		return nil, missing("size/snapshot")
	}
	zone, err := t.c.zone(in.AvailabilityZone, in.AvailabilityZoneId, func(string) bool { return false })
	if err != nil {
		return nil, err
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	if in.SnapshotId != "" {
		if err := fromSnapshot(t, in.SnapshotId, &in.Size, &in.Encrypted, &in.KmsKeyId, "InvalidParameterValue"); err != nil {
			return nil, err
		}
	}
	return t.newVolume(&volume{Zone: zone, Snapshot: in.SnapshotId, Content: in.SnapshotId}, in.volumeRequest, token)
}

type copyVolumesRequest struct {
	request
	volumeRequest
	SourceVolumeId string
}

// copyVolumes makes a volume with the content of another one, in its zone.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CopyVolumes.html
func copyVolumes(t *tx, in *copyVolumesRequest) (any, error) {
	made, token, err := t.madeVolume(in.ClientToken)
	if made == nil && err == nil {
		made, err = t.copyVolume(in, token)
	}
	if err != nil {
		return nil, err
	}
	return struct {
		Volumes []any `xml:"volumeSet>item"`
	}{[]any{made}}, nil
}

func (t *tx) copyVolume(in *copyVolumesRequest, token string) (any, error) {
	from, err := find(t, kindVolume, t.st.Volumes, "sourceVolumeId", in.SourceVolumeId)
	if err != nil {
		return nil, err
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	if err := from.usable(); err != nil {
		return nil, err
	}
	size := from.size(t.now)
	switch i := t.st.Instances[from.Instance]; {
	case i != nil && i.RootVolume == from.ID:
		return nil, wire.Refuse("UnsupportedOperation", "The local EC2 does not copy root volumes: their content are files of machines and no blocks.")
	case in.Size != 0 && in.Size < size:
		return nil, invalidValue("Volume of size %dGB is smaller than volume '%s', expect size >= %dGB", in.Size, from.ID, size)
	}
	in.Size = cmp.Or(in.Size, size)
	if from.Encrypted {
		in.Encrypted, in.KmsKeyId = true, cmp.Or(in.KmsKeyId, from.KMSKeyID)
	}
	return t.newVolume(&volume{Zone: from.Zone, Source: from.ID, Content: t.newID(kindSnapshot.prefix)}, in.volumeRequest, token)
}

// madeVolume returns what an earlier request with the same token made, nil if there is none.
func (t *tx) madeVolume(clientToken string) (made any, token string, err error) {
	ids, token, err := t.resultOf(clientToken)
	if err != nil || len(ids) == 0 {
		return nil, token, err
	}
	v, err := find(t, kindVolume, t.st.Volumes, "volumeId", ids[0])
	if err != nil {
		return nil, token, err
	}
	return t.volumeItem(v), token, nil
}

func (in volumeRequest) check() error {
	switch {
	case in.MultiAttachEnabled:
		return wire.Refuse("UnsupportedOperation", "The local EC2 attaches a volume to one instance only.")
	case in.KmsKeyId != "" && !in.Encrypted:
		return wire.Refuse("InvalidParameterDependency", "The parameter KmsKeyId requires the parameter Encrypted to be set.")
	}
	return checkSpecs(in.TagSpecifications, kindVolume)
}

// newVolume adds a volume of a request.
func (t *tx) newVolume(v *volume, in volumeRequest, token string) (any, error) {
	v.Created, v.SizeGiB, v.Type = t.now, in.Size, cmp.Or(in.VolumeType, "gp2")
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
	item.Status = volumeCreating
	switch {
	case v.Encrypted && !t.c.keyUsable(v.KMSKeyID):
		t.afterCommit(func() { t.c.loseVolume(v.ID) })
	case v.Content != "":
		t.afterCommit(func() { t.c.await(t.c.fillVolume(v.ID, v.Source)) })
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
	case v.state() != volumeAvailable:
		return nil, wire.Refuse("IncorrectState", "%s is not 'available'.", v.ID)
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
	if v.state() == volumeCreating {
		return nil, v.usable()
	}
	t.deleteVolume(v)
	return done{true}, nil
}
