package ec2

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
)

// snapshot is a snapshot of a volume. Here, only one of a root volume can become an image's, and only one of another
// volume that of further volumes.
type snapshot struct {
	ID          string
	Volume      string
	Instance    string // whose root volume it is; empty if it is another volume
	Description string
	Started     time.Time
	SizeGiB     int
	State       string
	Message     string // why its state is "error"
	Reboots     bool   // the instance reboots for it
	Taken       bool   // its content is complete
	Encrypted   bool
	KMSKeyID    string
}

// The states of a snapshot.
const (
	snapshotPending   = "pending"
	snapshotCompleted = "completed"
	snapshotError     = "error"
)

const (
	// snapshotTakes is how long a snapshot is pending after its content was taken. On AWS it is minutes, which the
	// fault "slow-snapshot" adds.
	snapshotTakes = 2 * time.Second
	// betweenSnapshots is the time between two concurrent snapshots of a volume.
	// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html (SnapshotCreationPerVolumeRateExceeded)
	betweenSnapshots = 15 * time.Second
	// contentAwaited is how long an answer waits until the content of a volume has been copied. EC2 answers at once, and
	// what is written after its answer is not in the snapshot.
	contentAwaited = 10 * time.Second
)

var snapshotActions = map[string]action{
	"CreateSnapshot":               writes(createSnapshot),
	"DeleteSnapshot":               writes(deleteSnapshot),
	"DescribeFastSnapshotRestores": reads(describeFastRestores),
	"DescribeSnapshots":            reads(describeSnapshots),
	"EnableFastSnapshotRestores":   writes(enableFastRestores),
}

type createSnapshotRequest struct {
	request
	VolumeId          string
	Description       string
	Location          string
	TagSpecifications []tagSpecification `query:"TagSpecification"`
}

func createSnapshot(t *tx, in *createSnapshotRequest) (any, error) {
	v, err := find(t, kindVolume, t.st.Volumes, "volumeId", in.VolumeId)
	if err != nil {
		return nil, err
	}
	if in.Location != "" && in.Location != "regional" {
		return nil, wire.Refuse("UnsupportedOperation", "The local EC2 has snapshots in the region only.")
	}
	if err := checkSpecs(in.TagSpecifications, kindSnapshot); err != nil {
		return nil, err
	}
	if err := v.usable(); err != nil {
		return nil, err
	}
	s, err := t.newSnapshot(v, in.Description, false, in.TagSpecifications)
	if err != nil {
		return nil, err
	}
	return t.snapshotItem(s), nil
}

// newSnapshot begins a snapshot of a volume.
func (t *tx) newSnapshot(v *volume, description string, reboots bool, specs []tagSpecification) (*snapshot, error) {
	pending, latest := 0, time.Time{}
	for _, s := range t.st.Snapshots {
		if s.Volume == v.ID && s.State == snapshotPending {
			pending++
			if s.Started.After(latest) {
				latest = s.Started
			}
		}
	}
	switch limits := t.c.cfg.Quotas; {
	case len(t.st.Snapshots) >= limits.Snapshots:
		return nil, wire.Refuse("SnapshotLimitExceeded", "You have reached your quota of %d snapshots in this region", limits.Snapshots)
	case pending > 0 && t.now.Sub(latest) < betweenSnapshots:
		return nil, wire.Refuse("SnapshotCreationPerVolumeRateExceeded", "The maximum per volume CreateSnapshot request rate has been exceeded. Use an increasing or variable sleep interval between requests.")
	case pending >= limits.PendingSnapshots:
		return nil, wire.Refuse("ConcurrentSnapshotLimitExceeded", "Maximum allowed in-progress snapshots for a single volume exceeded.")
	}
	s := &snapshot{
		ID: t.newID(kindSnapshot.prefix), Volume: v.ID, Description: description, Started: t.now, SizeGiB: v.size(t.now),
		State: snapshotPending, Reboots: reboots, Encrypted: v.Encrypted, KMSKeyID: v.KMSKeyID,
	}
	if i := t.st.Instances[v.Instance]; i != nil && i.RootVolume == v.ID {
		s.Instance = i.ID
	}
	t.st.Snapshots[s.ID] = s
	if s.Instance == "" {
		t.afterCommit(func() { t.c.await(t.c.snapshotVolume(s.ID, s.Volume)) })
	} else {
		t.afterCommit(func() { t.c.takeSnapshot(s.ID, s.Instance) })
	}
	return s, t.applySpecs(specs, kindSnapshot, s.ID)
}

// await waits for a copy, but not for long.
func (c *Compute) await(copied <-chan struct{}) {
	select {
	case <-copied:
	case <-c.ctx.Done():
	case <-time.After(contentAwaited):
	}
}

// snapshotVolume takes the content of a snapshot of a volume that is no root volume.
func (c *Compute) snapshotVolume(id, volume string) <-chan struct{} {
	return c.onVolume(volume, func(instance string, v *machine.Volume) {
		c.mu.Lock()
		s := shallow(c.st.Snapshots[id])
		c.mu.Unlock()
		if s == nil || s.Taken {
			return
		}
		err := errors.New("the volume has been deleted")
		if v != nil {
			err = c.cfg.Machines.SnapshotVolume(c.ctx, instance, *v, id)
		}
		c.taken(id, volume, err)
	})
}

// taken records that the content of a snapshot was taken, or that it could not be.
func (c *Compute) taken(id, of string, err error) {
	if c.ctx.Err() != nil {
		return // the next Start continues
	}
	if err != nil {
		c.log.Error("a snapshot could not be taken", "snapshot", id, "of", of, "error", err)
	}
	c.changeSnapshot(id, func(_ *tx, s *snapshot) {
		if s.Taken = true; err != nil {
			s.State, s.Message = snapshotError, err.Error()
		}
	})
	c.settleSnapshot(id)
}

// takeSnapshot takes the content of a snapshot, while the instance's machine is down if the instance reboots for it.
func (c *Compute) takeSnapshot(id, instance string) {
	c.transition(instance, func(ctx context.Context) {
		c.mu.Lock()
		s, i := shallow(c.st.Snapshots[id]), shallow(c.st.Instances[instance])
		c.mu.Unlock()
		if s == nil || s.Taken {
			return
		}
		err := errors.New("the instance has ended")
		if i != nil && !i.gone() {
			err = c.copyDisk(ctx, *i, s)
		}
		c.taken(id, instance, err)
	})
}

// copyDisk copies the disk of an instance to a snapshot. EC2 shows the instance as running all the time.
func (c *Compute) copyDisk(ctx context.Context, i instance, s *snapshot) error {
	reboots := s.Reboots && i.State == stateRunning && !i.Impaired
	if reboots {
		c.powerOff(ctx, i, false)
	}
	err := c.cfg.Machines.Snapshot(ctx, i.ID, s.ID)
	if reboots && ctx.Err() == nil {
		c.powerAgain(ctx, i)
	}
	return err
}

// changeSnapshot updates one snapshot in its own transaction, if it exists.
func (c *Compute) changeSnapshot(id string, f func(*tx, *snapshot)) {
	err := c.update("", nil, func(t *tx) error {
		if s := t.st.Snapshots[id]; s != nil {
			f(t, s)
		}
		return nil
	})
	if err != nil {
		c.log.Error("a snapshot's state could not be saved", "snapshot", id, "error", err)
	}
}

// settleSnapshot completes, after a while, a snapshot whose content was taken. One whose key cannot be used fails.
func (c *Compute) settleSnapshot(id string) {
	c.settleLater(snapshotTakes+c.faults.SnapshotDelay(), "a snapshot's", id, func(t *tx) {
		switch s := t.st.Snapshots[id]; {
		case s == nil || s.State != snapshotPending:
		case s.Encrypted && !t.c.keyUsable(s.KMSKeyID):
			s.State, s.Message = snapshotError, "Given key ID is not accessible"
		default:
			s.State = snapshotCompleted
		}
	})
}

// rebootsForSnapshot reports whether an instance's machine may be down since the last run has not taken a snapshot.
func (t *tx) rebootsForSnapshot(instance string) bool {
	for _, s := range t.st.Snapshots {
		if s.Instance == instance && s.Reboots && !s.Taken {
			return true
		}
	}
	return false
}

// resumeSnapshots continues with every snapshot as the last run left it, and removes what is left of deleted ones.
func (t *tx) resumeSnapshots() {
	for _, s := range sorted(t.st.Snapshots) {
		id, instance, volume := s.ID, s.Instance, s.Volume
		switch {
		case !s.Taken && instance == "":
			t.afterCommit(func() { t.c.snapshotVolume(id, volume) })
		case !s.Taken:
			t.afterCommit(func() { t.c.takeSnapshot(id, instance) })
		case s.State == snapshotPending:
			t.afterCommit(func() { t.c.settleSnapshot(id) })
		}
	}
	t.afterCommit(t.c.sweepSnapshots)
}

// ownSnapshot returns the snapshot that an instance's disk is made from; empty if its image is published.
func (c *Compute) ownSnapshot(i instance) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.st.Volumes[i.RootVolume]
	image := c.looking().image(i.Image)
	if i.Booted || v == nil || image == nil || image.Snapshot == "" {
		return ""
	}
	return v.Snapshot
}

// sweepSnapshots removes the content of snapshots that nobody needs. An instance that has not booted yet needs that of
// its image, and a volume that is being created that of its snapshot.
func (c *Compute) sweepSnapshots() {
	ids, err := c.cfg.Machines.Snapshots()
	for _, id := range ids {
		if !c.needsSnapshot(id) {
			err = errors.Join(err, c.cfg.Machines.RemoveSnapshot(id))
		}
	}
	if err != nil {
		c.log.Error("the content of a deleted snapshot could not be removed", "error", err)
	}
}

func (c *Compute) needsSnapshot(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range c.st.Instances {
		if v := c.st.Volumes[i.RootVolume]; v != nil && v.Snapshot == id && !i.Booted && !i.gone() {
			return true
		}
	}
	for _, v := range c.st.Volumes {
		if v.Content == id {
			return true
		}
	}
	return c.st.Snapshots[id] != nil
}

// snapshots are the account's snapshots, and the public ones of the published images, which everybody sees.
func (t *tx) snapshots() map[string]*snapshot {
	out := maps.Clone(t.st.Snapshots)
	for _, i := range pointers(t.c.cfg.Images) {
		if i.Owner == "" {
			out[i.snapshotID()] = &snapshot{ID: i.snapshotID(), Volume: "vol-ffffffff", Started: imageCreated, SizeGiB: i.size(), State: snapshotCompleted}
		}
	}
	return out
}

// findSnapshot returns the account's snapshot with the id that a request gives.
func (t *tx) findSnapshot(id string) (*snapshot, error) {
	s, err := find(t, kindSnapshot, t.snapshots(), "snapshotId", id)
	if err == nil && t.st.Snapshots[id] == nil {
		return nil, wire.Refuse("AuthFailure", "Not authorized for snapshot:%s", id)
	}
	return s, err
}

// fromSnapshot gives a new volume the content of a snapshot, its encryption, and its size if it has none. A volume of an
// encrypted snapshot is encrypted, whatever is asked. tooSmall is EC2's code for a size below that of the snapshot.
func fromSnapshot(t *tx, id string, size *int, encrypted *bool, key *string, tooSmall string) error {
	s := t.snapshots()[id]
	switch {
	case s == nil || t.c.faults.Hidden(id, t.now):
		return kindSnapshot.notFoundError(id)
	case s.State != snapshotCompleted:
		return wire.Refuse("IncorrectState", "Snapshot is in invalid state - %s", s.State)
	case s.Instance != "" || t.st.Snapshots[id] == nil:
		return wire.Refuse("UnsupportedOperation", "The local EC2 makes root volumes of snapshots of root volumes, and no others: their content are files of machines and no blocks.")
	case *size != 0 && *size < s.SizeGiB:
		return wire.Refuse(tooSmall, "Volume of size %dGB is smaller than snapshot '%s', expect size >= %dGB", *size, id, s.SizeGiB)
	}
	*size = cmp.Or(*size, s.SizeGiB)
	if s.Encrypted {
		*encrypted, *key = true, cmp.Or(*key, s.KMSKeyID)
	}
	return nil
}

// userOfSnapshot returns the image that has a snapshot, empty if none has.
func (t *tx) userOfSnapshot(id string) string {
	for _, i := range sorted(t.st.Images) {
		if i.Snapshot == id && i.Deregistered.IsZero() {
			return i.ID
		}
	}
	return ""
}

type snapshotIDRequest struct {
	request
	SnapshotId string
}

// deleteSnapshot refuses to delete an image's snapshot, even if the image has failed. A pending snapshot can be deleted.
func deleteSnapshot(t *tx, in *snapshotIDRequest) (any, error) {
	s, err := t.findSnapshot(in.SnapshotId)
	if err != nil {
		return nil, err
	}
	if image := t.userOfSnapshot(s.ID); image != "" {
		return nil, wire.Refuse("InvalidSnapshot.InUse", "The snapshot %s is currently in use by %s", s.ID, image)
	}
	t.deleteSnapshot(s.ID)
	return done{true}, nil
}

func (t *tx) deleteSnapshot(id string) {
	t.drop(id)
	delete(t.st.Snapshots, id)
	t.afterCommit(t.c.sweepSnapshots)
}

type snapshotItem struct {
	ID          string    `xml:"snapshotId"`
	VolumeID    string    `xml:"volumeId"`
	Status      string    `xml:"status"`
	Message     string    `xml:"statusMessage,omitempty"`
	StartTime   time.Time `xml:"startTime"`
	Progress    string    `xml:"progress"`
	OwnerID     string    `xml:"ownerId"`
	VolumeSize  int       `xml:"volumeSize"`
	Description string    `xml:"description"`
	Encrypted   bool      `xml:"encrypted"`
	KMSKeyID    string    `xml:"kmsKeyId,omitempty"`
	StorageTier string    `xml:"storageTier"`
	Tags        []tag     `xml:"tagSet>item"`
}

func (t *tx) snapshotItem(s *snapshot) snapshotItem {
	item := snapshotItem{
		ID: s.ID, VolumeID: s.Volume, Status: s.State, Message: s.Message, StartTime: s.Started, Progress: "100%", OwnerID: t.c.cfg.AccountID, VolumeSize: s.SizeGiB,
		Description: s.Description, Encrypted: s.Encrypted, KMSKeyID: s.KMSKeyID, StorageTier: "standard", Tags: t.tags(s.ID),
	}
	if t.st.Snapshots[s.ID] == nil {
		item.OwnerID = debianOwner
	}
	if s.State != snapshotCompleted {
		item.Progress = "0%"
	}
	return item
}

func ofSnapshot(f func(snapshotItem) string) func(*tx, *snapshot) []string {
	return func(t *tx, s *snapshot) []string { return one(f(t.snapshotItem(s))) }
}

var snapshotFields = fields[snapshot]{
	"snapshot-id":  ofSnapshot(func(s snapshotItem) string { return s.ID }),
	"volume-id":    ofSnapshot(func(s snapshotItem) string { return s.VolumeID }),
	"volume-size":  ofSnapshot(func(s snapshotItem) string { return port(s.VolumeSize) }),
	"status":       ofSnapshot(func(s snapshotItem) string { return s.Status }),
	"progress":     ofSnapshot(func(s snapshotItem) string { return s.Progress }),
	"owner-id":     ofSnapshot(func(s snapshotItem) string { return s.OwnerID }),
	"description":  ofSnapshot(func(s snapshotItem) string { return s.Description }),
	"storage-tier": ofSnapshot(func(s snapshotItem) string { return s.StorageTier }),
	"start-time":   ofSnapshot(func(s snapshotItem) string { return s.StartTime.Format(imageTime) }),
	"encrypted":    func(_ *tx, s *snapshot) []string { return yesNo(s.Encrypted) },
}

type describeSnapshotsRequest struct {
	describeRequest
	SnapshotIds  []string `query:"SnapshotId"`
	Owners       []string `query:"Owner"`
	RestorableBy []string
}

type describeSnapshotsResponse struct {
	Snapshots []snapshotItem `xml:"snapshotSet>item"`
	NextToken string         `xml:"nextToken,omitempty"`
}

// describeSnapshots lists public snapshots of others, too, unless the request names owners.
func describeSnapshots(t *tx, in *describeSnapshotsRequest) (any, error) {
	from := t.snapshots()
	for _, o := range slices.Concat(in.Owners, in.RestorableBy) {
		if !imageOwner.MatchString(o) {
			return nil, wire.Refuse("InvalidUserID.Malformed", `Invalid user id: "%s"`, o)
		}
	}
	if len(in.SnapshotIds) == 0 && len(in.Owners) > 0 {
		for id, s := range from {
			owner := t.snapshotItem(s).OwnerID
			if !slices.Contains(in.Owners, owner) && (owner != t.c.cfg.AccountID || !slices.Contains(in.Owners, "self")) {
				delete(from, id)
			}
		}
	}
	items, next, err := describe(t, selection[snapshot]{kindSnapshot, from, "snapshotId", in.SnapshotIds, snapshotFields, in.describeRequest, 5}, t.snapshotItem)
	return describeSnapshotsResponse{items, next}, err
}

type enableFastRestoresRequest struct {
	request
	SourceSnapshotIds   []string `query:"SourceSnapshotId"`
	AvailabilityZones   []string `query:"AvailabilityZone"`
	AvailabilityZoneIds []string `query:"AvailabilityZoneId"`
}

// enableFastRestores refuses what would change nothing here: volumes have all of their content when they are available.
func enableFastRestores(t *tx, in *enableFastRestoresRequest) (any, error) {
	switch {
	case len(in.SourceSnapshotIds) == 0:
		return nil, missing("SourceSnapshotIds")
	case len(in.AvailabilityZones)+len(in.AvailabilityZoneIds) == 0:
		return nil, missing("AvailabilityZones")
	case len(in.AvailabilityZones) > 0 && len(in.AvailabilityZoneIds) > 0:
		return nil, wire.Refuse("InvalidParameterCombination", "Specify either AvailabilityZones or AvailabilityZoneIds")
	}
	for _, id := range in.SourceSnapshotIds {
		if _, err := t.findSnapshot(id); err != nil {
			return nil, err
		}
	}
	none := func(string) bool { return false }
	for _, z := range in.AvailabilityZones {
		if _, err := t.c.zone(z, "", none); err != nil {
			return nil, err
		}
	}
	for _, z := range in.AvailabilityZoneIds {
		if _, err := t.c.zone("", z, none); err != nil {
			return nil, err
		}
	}
	return nil, wire.Refuse("UnsupportedOperation", "The local EC2 has no fast snapshot restores: it copies the content of a snapshot before a volume is available.")
}

type describeFastRestoresResponse struct {
	Restores []struct{} `xml:"fastSnapshotRestoreSet>item"`
}

// describeFastRestores lists none, since there are none.
func describeFastRestores(_ *tx, in *describeRequest) (any, error) {
	return describeFastRestoresResponse{}, absent(*in, nil, []string{"availability-zone", "availability-zone-id", "owner-id", "snapshot-id", "state"}, "", "")
}
