package ec2

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

type modification struct {
	Started                              time.Time
	FromSize, FromIOPS, FromThroughput   int
	FromType                             string
	TargetSize, TargetIOPS, TargetThroug int
	TargetType                           string
}

// The times of a modification here. On AWS the first lasts seconds, the second up to a day.
const (
	modifyingFor  = 500 * time.Millisecond
	optimizingFor = time.Second
)

// A volume can be modified four times in a rolling period of 24 hours.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_ModifyVolume.html
const (
	maxModifications   = 4
	modificationPeriod = 24 * time.Hour
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
	if err := v.usable(); err != nil {
		return nil, err
	}
	if last := v.Modification; last != nil {
		if state, _ := last.state(t.now); state != "completed" {
			return nil, wire.Refuse("IncorrectModificationState", "Volume %s in %s state. Cannot currently modify.", v.ID, strings.ToUpper(state))
		}
	}
	v.Modified = slices.DeleteFunc(v.Modified, func(began time.Time) bool { return t.now.Sub(began) >= modificationPeriod })
	if len(v.Modified) >= maxModifications {
		return nil, wire.Refuse("VolumeModificationRateExceeded", "You've reached the maximum modification rate per volume limit: %d modifications within 24 hours.", maxModifications)
	}
	target := *v
	target.Type, target.IOPS, target.Throughput = cmp.Or(in.VolumeType, v.Type), 0, 0
	iops, throughput := 0, 0
	if target.Type == v.Type && !performance[v.Type].bySize {
		iops, throughput = v.IOPS, v.Throughput
	}
	if in.Size != nil {
		if *in.Size < v.SizeGiB {
			return nil, invalidValue("New size cannot be smaller than existing size")
		}
		target.SizeGiB = *in.Size
	}
	if in.Iops != nil {
		iops = *in.Iops
	}
	if in.Throughput != nil {
		throughput = *in.Throughput
	}
	if err := target.checkSize(); err != nil {
		return nil, err
	}
	if err := target.setPerformance(iops, throughput); err != nil {
		return nil, err
	}
	m := &modification{
		Started: t.now, FromSize: v.SizeGiB, FromIOPS: v.IOPS, FromThroughput: v.Throughput, FromType: v.Type,
		TargetSize: target.SizeGiB, TargetIOPS: target.IOPS, TargetThroug: target.Throughput, TargetType: target.Type,
	}
	v.SizeGiB, v.Type, v.IOPS, v.Throughput, v.Modification = m.TargetSize, m.TargetType, m.TargetIOPS, m.TargetThroug, m
	v.Modified = append(v.Modified, t.now)
	if i := t.st.Instances[v.Instance]; i != nil {
		t.afterCommit(func() { t.c.growVolume(v.ID, i.ID, i.RootVolume == v.ID) })
	}
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
