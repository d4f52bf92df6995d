package ec2

import (
	"slices"
	"strconv"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// volume is an EBS volume. Type, performance and encryption are only recorded. A root volume is the
// machine's disk on the host, whatever its size; any other is a block device of the machine.
type volume struct {
	ID                  string
	Instance            string // empty when detached
	Attached            time.Time
	Ready               bool      // its machine has it, or will have it when it boots
	Detaching           time.Time // when the detachment began; zero if none did
	Forced              bool      // the detachment does not wait until the machine has unmounted it
	Device              string
	Zone                string
	Snapshot            string // it was made from; of a root volume, that of the image
	Source              string // the volume that it is a copy of
	Content             string // while it is being created, the id of the snapshot whose content it gets
	Failed              bool   // it did not get it
	Created             time.Time
	SizeGiB             int
	Type                string
	IOPS                int
	Throughput          int // MiB/s
	Encrypted           bool
	KMSKeyID            string
	DeleteOnTermination bool
	Modification        *modification
	Modified            []time.Time // when the modifications of the last 24 hours began
}

var volumeActions = map[string]action{
	"DescribeVolumes":              reads(describeVolumes),
	"DescribeVolumesModifications": reads(describeModifications),
	"DescribeVolumeStatus":         reads(describeVolumeStatus),
	"ModifyVolume":                 writes(modifyVolume),
	"CopyVolumes":                  writes(copyVolumes),
	"CreateVolume":                 writes(createVolume),
	"AttachVolume":                 writes(attachVolume),
	"DetachVolume":                 writes(detachVolume),
	"DeleteVolume":                 writes(deleteVolume),
}

const (
	rootDevice     = "/dev/xvda"
	imageSizeGiB   = 8
	defaultVolType = "gp3"
)

type volumeItem struct {
	ID          string             `xml:"volumeId"`
	Size        int                `xml:"size"`
	SnapshotID  string             `xml:"snapshotId"`
	SourceID    string             `xml:"sourceVolumeId,omitempty"`
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
		ID: v.ID, Size: v.size(t.now), SnapshotID: v.Snapshot, SourceID: v.Source, Zone: v.Zone, Status: volumeAvailable, CreateTime: v.Created,
		Type: v.Type, IOPS: v.IOPS, Throughput: v.Throughput, Encrypted: v.Encrypted, KMSKeyID: v.KMSKeyID, Tags: t.tags(v.ID),
	}
	if state := v.attachment(); state != "" {
		item.Status = "in-use"
		item.Attachments = []volumeAttachment{t.volumeAttachment(v)}
		return item
	}
	item.Status = v.state()
	return item
}

// The states of a detached volume.
const (
	volumeAvailable = "available"
	volumeCreating  = "creating"
	volumeError     = "error"
)

// state returns the state of a detached volume.
func (v *volume) state() string {
	switch {
	case v.Failed:
		return volumeError
	case v.Content != "":
		return volumeCreating
	}
	return volumeAvailable
}

// usable refuses a volume that does not have its content.
func (v *volume) usable() error {
	if v.state() == volumeAvailable {
		return nil
	}
	return wire.Refuse("IncorrectState", "Volume '%s' is in the '%s' state.", v.ID, v.state())
}

var volumeFields = fields[volume]{
	"volume-id":                        func(_ *tx, v *volume) []string { return one(v.ID) },
	"volume-type":                      func(_ *tx, v *volume) []string { return one(v.Type) },
	"size":                             func(t *tx, v *volume) []string { return one(port(v.size(t.now))) },
	"encrypted":                        func(_ *tx, v *volume) []string { return yesNo(v.Encrypted) },
	"availability-zone":                func(_ *tx, v *volume) []string { return one(v.Zone) },
	"snapshot-id":                      func(_ *tx, v *volume) []string { return one(v.Snapshot) },
	"status":                           func(t *tx, v *volume) []string { return one(t.volumeItem(v).Status) },
	"create-time":                      func(_ *tx, v *volume) []string { return one(v.Created.Format("2006-01-02T15:04:05.000Z")) },
	"attachment.instance-id":           ofAttachment(func(a volumeAttachment) string { return a.InstanceID }),
	"attachment.device":                ofAttachment(func(a volumeAttachment) string { return a.Device }),
	"attachment.status":                ofAttachment(func(a volumeAttachment) string { return a.Status }),
	"attachment.delete-on-termination": ofAttachment(func(a volumeAttachment) string { return strconv.FormatBool(a.DeleteOnTermination) }),
}

// ofAttachment returns a value of a volume's attachment, none of a detached volume.
func ofAttachment(f func(volumeAttachment) string) func(*tx, *volume) []string {
	return func(t *tx, v *volume) []string {
		if v.attachment() == "" {
			return nil
		}
		return one(f(t.volumeAttachment(v)))
	}
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

type volumeStatusItem struct {
	VolumeID       string          `xml:"volumeId"`
	Zone           string          `xml:"availabilityZone"`
	ZoneID         string          `xml:"availabilityZoneId"`
	Status         string          `xml:"volumeStatus>status"`
	Details        []volumeCheck   `xml:"volumeStatus>details>item"`
	Initialization *initialization `xml:"initializationStatusDetails"`
}

type volumeCheck struct {
	Name   string `xml:"name"`
	Status string `xml:"status"`
}

// initialization is how far a volume has the content of its snapshot. Here it is complete at once. Empty volumes have none.
// https://docs.aws.amazon.com/ebs/latest/userguide/ebs-initialize-monitor.html
type initialization struct {
	Type     string `xml:"initializationType"`
	Progress int    `xml:"progress"`
}

// checkedTypes are the types of volumes whose performance AWS checks while they are attached.
// https://docs.aws.amazon.com/ebs/latest/userguide/monitoring-vol-events.html
var checkedTypes = []string{"io1", "io2", "gp3"}

// volumeStatusItem is what the checks of a volume say: nothing goes wrong here, so there are no events, and no actions against them.
func (t *tx) volumeStatusItem(v *volume) volumeStatusItem {
	performance := "not-applicable"
	if v.attachment() == "attached" && slices.Contains(checkedTypes, v.Type) {
		performance = "normal"
	}
	item := volumeStatusItem{v.ID, v.Zone, t.c.zoneID(v.Zone), "ok", []volumeCheck{{"io-enabled", "passed"}, {"io-performance", performance}}, nil}
	if v.Snapshot != "" || v.Source != "" {
		how := "default"
		if v.Source != "" {
			how = "volume-copy"
		}
		item.Details = append(item.Details, volumeCheck{"initialization-state", "completed"})
		item.Initialization = &initialization{how, 100}
	}
	return item
}

func ofChecks(f func(volumeCheck) string) func(*tx, *volume) []string {
	return func(t *tx, v *volume) (out []string) {
		for _, c := range t.volumeStatusItem(v).Details {
			out = append(out, f(c))
		}
		return out
	}
}

func noStatusEvent(*tx, *volume) []string { return nil }

var volumeStatusFields = fields[volume]{
	"action.code":                  noStatusEvent,
	"action.description":           noStatusEvent,
	"action.event-id":              noStatusEvent,
	"availability-zone":            func(_ *tx, v *volume) []string { return one(v.Zone) },
	"event.description":            noStatusEvent,
	"event.event-id":               noStatusEvent,
	"event.event-type":             noStatusEvent,
	"event.not-after":              noStatusEvent,
	"event.not-before":             noStatusEvent,
	"volume-status.details-name":   ofChecks(func(c volumeCheck) string { return c.Name }),
	"volume-status.details-status": ofChecks(func(c volumeCheck) string { return c.Status }),
	"volume-status.status":         func(t *tx, v *volume) []string { return one(t.volumeStatusItem(v).Status) },
}

type describeVolumeStatusResponse struct {
	Statuses  []volumeStatusItem `xml:"volumeStatusSet>item"`
	NextToken string             `xml:"nextToken,omitempty"`
}

func describeVolumeStatus(t *tx, in *describeVolumesRequest) (any, error) {
	items, next, err := describe(t, selection[volume]{kindVolume, t.st.Volumes, "volumeId", in.VolumeIds, volumeStatusFields, in.describeRequest, 5}, t.volumeStatusItem)
	return describeVolumeStatusResponse{items, next}, err
}
