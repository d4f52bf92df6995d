package ec2

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// volume is the root volume of an instance. Size and type are only recorded: machines use the
// host's disk.
type volume struct {
	ID                  string
	Instance            string // empty when detached
	Device              string
	Zone                string
	Snapshot            string // of the image it was made from
	Created             time.Time
	SizeGiB             int
	Type                string
	IOPS                int
	Throughput          int // MiB/s
	Encrypted           bool
	KMSKeyID            string
	DeleteOnTermination bool
	Modification        *modification
}

type modification struct {
	Started                              time.Time
	FromSize, FromIOPS, FromThroughput   int
	FromType                             string
	TargetSize, TargetIOPS, TargetThroug int
	TargetType                           string
}

// The times of a modification here. On AWS the first lasts seconds, the second up to a day, and the
// volume cannot be modified again for six hours.
// https://docs.aws.amazon.com/ebs/latest/userguide/modify-volume-requirements.html
const (
	modifyingFor      = 500 * time.Millisecond
	optimizingFor     = time.Second
	modificationPause = 6 * time.Hour
)

// state returns a modification's state, and its progress in percent.
func (m *modification) state(now time.Time) (string, int) {
	switch since := now.Sub(m.Started); {
	case since < modifyingFor:
		return "modifying", 0
	case since < modifyingFor+optimizingFor:
		return "optimizing", 50
	}
	return "completed", 100
}

// size returns the volume's current size: the old one while it is being modified.
func (v *volume) size(now time.Time) int {
	if m := v.Modification; m != nil {
		if state, _ := m.state(now); state == "modifying" {
			return m.FromSize
		}
	}
	return v.SizeGiB
}

var volumeActions = map[string]action{
	"DescribeVolumes":              reads(describeVolumes),
	"DescribeVolumesModifications": reads(describeModifications),
	"ModifyVolume":                 writes(modifyVolume),
	"DeleteVolume":                 writes(deleteVolume),
}

const (
	rootDevice     = "/dev/xvda"
	imageSizeGiB   = 8
	maxVolumeGiB   = 16384
	defaultVolType = "gp3"
)

// performance has the default IOPS and throughput of each volume type.
var performance = map[string]struct{ iops, throughput int }{
	"gp3": {3000, 125}, "gp2": {100, 0}, "io1": {100, 0}, "io2": {100, 0}, "standard": {},
}

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

// rootVolume returns the volume of a request's mapping of the root device. The lab's machines have
// one disk, so other devices are refused.
func (t *tx) rootVolume(mappings []blockDeviceMapping, image, zone string) (*volume, error) {
	v := &volume{Device: rootDevice, Snapshot: snapshotID(image), Zone: zone, Created: t.now, SizeGiB: imageSizeGiB, Type: defaultVolType, DeleteOnTermination: true}
	for _, m := range mappings {
		if m.DeviceName != rootDevice || m.NoDevice != nil {
			return nil, wire.Refuse("InvalidBlockDeviceMapping", "The device '%s' is not supported: instances here have the root device %s alone", m.DeviceName, rootDevice)
		}
		if m.Ebs.DeleteOnTermination != nil {
			v.DeleteOnTermination = *m.Ebs.DeleteOnTermination
		}
		v.SizeGiB = cmp.Or(m.Ebs.VolumeSize, v.SizeGiB)
		v.Type = cmp.Or(m.Ebs.VolumeType, v.Type)
		v.Encrypted, v.KMSKeyID = m.Ebs.Encrypted, m.Ebs.KmsKeyId
		v.IOPS, v.Throughput = m.Ebs.Iops, m.Ebs.Throughput
	}
	perf, ok := performance[v.Type]
	switch {
	case !ok:
		return nil, invalidValue("Value (%s) for parameter volumeType is invalid.", v.Type)
	case v.SizeGiB < imageSizeGiB:
		return nil, wire.Refuse("InvalidBlockDeviceMapping", "Volume of size %dGB is smaller than snapshot of the image, expect size >= %dGB", v.SizeGiB, imageSizeGiB)
	case v.SizeGiB > maxVolumeGiB:
		return nil, invalidValue("Volume of %dGiB is too large for volume type %s; maximum is %dGiB.", v.SizeGiB, v.Type, maxVolumeGiB)
	case v.Throughput != 0 && v.Type != "gp3":
		return nil, wire.Refuse("InvalidParameterCombination", "The parameter throughput is not supported for %s volumes.", v.Type)
	}
	if v.KMSKeyID != "" && !v.Encrypted {
		return nil, wire.Refuse("InvalidParameterDependency", "The parameter KmsKeyId requires the parameter Encrypted to be set.")
	}
	v.IOPS, v.Throughput = cmp.Or(v.IOPS, perf.iops), cmp.Or(v.Throughput, perf.throughput)
	return v, nil
}

type volumeItem struct {
	ID          string             `xml:"volumeId"`
	Size        int                `xml:"size"`
	SnapshotID  string             `xml:"snapshotId"`
	Zone        string             `xml:"availabilityZone"`
	Status      string             `xml:"status"`
	CreateTime  time.Time          `xml:"createTime"`
	Attachments []volumeAttachment `xml:"attachmentSet>item"`
	Type        string             `xml:"volumeType"`
	IOPS        int                `xml:"iops,omitempty"`
	Throughput  int                `xml:"throughput,omitempty"`
	Encrypted   bool               `xml:"encrypted"`
	KMSKeyID    string             `xml:"kmsKeyId,omitempty"`
	Tags        []tag              `xml:"tagSet>item"`
}

type volumeAttachment struct {
	VolumeID            string    `xml:"volumeId"`
	InstanceID          string    `xml:"instanceId"`
	Device              string    `xml:"device"`
	Status              string    `xml:"status"`
	AttachTime          time.Time `xml:"attachTime"`
	DeleteOnTermination bool      `xml:"deleteOnTermination"`
}

func (t *tx) volumeItem(v *volume) volumeItem {
	item := volumeItem{
		ID: v.ID, Size: v.size(t.now), SnapshotID: v.Snapshot, Zone: v.Zone, Status: "available", CreateTime: v.Created,
		Type: v.Type, IOPS: v.IOPS, Throughput: v.Throughput, Encrypted: v.Encrypted, KMSKeyID: v.KMSKeyID, Tags: t.tags(v.ID),
	}
	if v.Instance != "" {
		item.Status = "in-use"
		item.Attachments = []volumeAttachment{{v.ID, v.Instance, v.Device, "attached", v.Created, v.DeleteOnTermination}}
	}
	return item
}

var volumeFields = fields[volume]{
	"volume-id":         func(_ *tx, v *volume) []string { return one(v.ID) },
	"volume-type":       func(_ *tx, v *volume) []string { return one(v.Type) },
	"size":              func(t *tx, v *volume) []string { return one(port(v.size(t.now))) },
	"encrypted":         func(_ *tx, v *volume) []string { return yesNo(v.Encrypted) },
	"availability-zone": func(_ *tx, v *volume) []string { return one(v.Zone) },
	"snapshot-id":       func(_ *tx, v *volume) []string { return one(v.Snapshot) },
	"status":            func(t *tx, v *volume) []string { return one(t.volumeItem(v).Status) },
	"attachment.instance-id": func(_ *tx, v *volume) []string {
		return one(v.Instance)
	},
	"attachment.device": func(_ *tx, v *volume) []string { return one(v.Device) },
	"attachment.status": func(_ *tx, v *volume) []string {
		if v.Instance == "" {
			return nil
		}
		return one("attached")
	},
	"attachment.delete-on-termination": func(_ *tx, v *volume) []string { return yesNo(v.DeleteOnTermination) },
}

type describeVolumesRequest struct {
	describeRequest
	VolumeIds []string `query:"VolumeId"`
}

type describeVolumesResponse struct {
	Volumes   []volumeItem `xml:"volumeSet>item"`
	NextToken string       `xml:"nextToken,omitempty"`
}

func describeVolumes(t *tx, in *describeVolumesRequest) (any, error) {
	items, next, err := describe(t, selection[volume]{kindVolume, t.st.Volumes, "volumeId", in.VolumeIds, volumeFields, in.describeRequest, 5}, t.volumeItem)
	return describeVolumesResponse{items, next}, err
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
	if v.Instance != "" {
		return nil, wire.Refuse("VolumeInUse", "Volume %s is currently attached to %s", v.ID, v.Instance)
	}
	t.drop(v.ID)
	delete(t.st.Volumes, v.ID)
	return done{true}, nil
}

type modifyVolumeRequest struct {
	request
	VolumeId   string
	Size       *int
	VolumeType string
	Iops       *int
	Throughput *int
}

type modificationItem struct {
	VolumeID         string     `xml:"volumeId"`
	State            string     `xml:"modificationState"`
	Progress         int        `xml:"progress"`
	StartTime        time.Time  `xml:"startTime"`
	EndTime          *time.Time `xml:"endTime,omitempty"`
	FromSize         int        `xml:"originalSize"`
	FromIOPS         int        `xml:"originalIops"`
	FromThroughput   int        `xml:"originalThroughput"`
	FromType         string     `xml:"originalVolumeType"`
	TargetSize       int        `xml:"targetSize"`
	TargetIOPS       int        `xml:"targetIops"`
	TargetThroughput int        `xml:"targetThroughput"`
	TargetType       string     `xml:"targetVolumeType"`
}

func (t *tx) modificationItem(v *volume) modificationItem {
	m := v.Modification
	state, progress := m.state(t.now)
	item := modificationItem{
		VolumeID: v.ID, State: state, Progress: progress, StartTime: m.Started,
		FromSize: m.FromSize, FromIOPS: m.FromIOPS, FromThroughput: m.FromThroughput, FromType: m.FromType,
		TargetSize: m.TargetSize, TargetIOPS: m.TargetIOPS, TargetThroughput: m.TargetThroug, TargetType: m.TargetType,
	}
	if progress == 100 {
		ended := m.Started.Add(modifyingFor + optimizingFor)
		item.EndTime = &ended
	}
	return item
}

func modifyVolume(t *tx, in *modifyVolumeRequest) (any, error) {
	v, err := find(t, kindVolume, t.st.Volumes, "volumeId", in.VolumeId)
	if err != nil {
		return nil, err
	}
	if last := v.Modification; last != nil {
		switch state, _ := last.state(t.now); {
		case state != "completed":
			return nil, wire.Refuse("IncorrectModificationState", "Volume %s in %s state. Cannot currently modify.", v.ID, strings.ToUpper(state))
		case t.now.Sub(last.Started) < modificationPause:
			return nil, wire.Refuse("VolumeModificationRateExceeded", "You've reached the maximum modification rate per volume limit. Wait at least 6 hours between modifications per EBS volume.")
		}
	}
	m := &modification{
		Started: t.now, FromSize: v.SizeGiB, FromIOPS: v.IOPS, FromThroughput: v.Throughput, FromType: v.Type,
		TargetSize: v.SizeGiB, TargetIOPS: v.IOPS, TargetThroug: v.Throughput, TargetType: cmp.Or(in.VolumeType, v.Type),
	}
	perf, ok := performance[m.TargetType]
	if !ok {
		return nil, invalidValue("Value (%s) for parameter volumeType is invalid.", in.VolumeType)
	}
	if m.TargetType != v.Type {
		m.TargetIOPS, m.TargetThroug = perf.iops, perf.throughput
	}
	if in.Size != nil {
		if *in.Size < v.SizeGiB {
			return nil, invalidValue("New size cannot be smaller than existing size")
		}
		if *in.Size > maxVolumeGiB {
			return nil, invalidValue("Volume of %dGiB is too large for volume type %s; maximum is %dGiB.", *in.Size, m.TargetType, maxVolumeGiB)
		}
		m.TargetSize = *in.Size
	}
	if in.Iops != nil {
		m.TargetIOPS = *in.Iops
	}
	if in.Throughput != nil {
		m.TargetThroug = *in.Throughput
	}
	v.SizeGiB, v.Type, v.IOPS, v.Throughput, v.Modification = m.TargetSize, m.TargetType, m.TargetIOPS, m.TargetThroug, m
	return struct {
		Modification modificationItem `xml:"volumeModification"`
	}{t.modificationItem(v)}, nil
}

var modificationFields = fields[volume]{
	"volume-id":          func(_ *tx, v *volume) []string { return one(v.ID) },
	"modification-state": func(t *tx, v *volume) []string { return one(t.modificationItem(v).State) },
	"target-size":        func(_ *tx, v *volume) []string { return one(port(v.Modification.TargetSize)) },
	"target-volume-type": func(_ *tx, v *volume) []string { return one(v.Modification.TargetType) },
}

type describeModificationsResponse struct {
	Modifications []modificationItem `xml:"volumeModificationSet>item"`
	NextToken     string             `xml:"nextToken,omitempty"`
}

func describeModifications(t *tx, in *describeVolumesRequest) (any, error) {
	modified := map[string]*volume{}
	for id, v := range t.st.Volumes {
		if v.Modification != nil {
			modified[id] = v
		} else if slices.Contains(in.VolumeIds, id) {
			return nil, wire.Refuse("InvalidVolumeModification.NotFound", "Modification for volume '%s' does not exist.", id)
		}
	}
	items, next, err := describe(t, selection[volume]{kindVolume, modified, "volumeId", in.VolumeIds, modificationFields, in.describeRequest, 5}, t.modificationItem)
	return describeModificationsResponse{items, next}, err
}
