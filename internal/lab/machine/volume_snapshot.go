package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/loop"
)

// A snapshot of a volume is a directory, as that of a machine's disk, with a copy of the volume's file:
//
//	volume       the content
const volumeCopy = "volume"

// errWritten says that something was written to a volume while it was copied.
var errWritten = errors.New("it is written to without a pause")

// copiesAtMost is how often a volume is copied until nothing was written meanwhile. The kernel writes what it has cached
// even while the processes of a machine stand still.
const copiesAtMost = 20

// SnapshotVolume takes a snapshot of a volume, which the machine with an id has, or none if the id is empty. A running
// machine stands still meanwhile. The snapshot has what was written to the volume, and not what the machine still
// caches. It is no error if the snapshot exists.
func (m *Manager) SnapshotVolume(ctx context.Context, id string, v Volume, snapshot string) error {
	if err := m.snapshotVolume(ctx, id, v, snapshot); err != nil {
		return fmt.Errorf("snapshot %s of volume %s: %w", snapshot, v.ID, err)
	}
	return nil
}

func (m *Manager) snapshotVolume(ctx context.Context, id string, v Volume, snapshot string) error {
	if !snapshotID.MatchString(snapshot) {
		return errors.New("invalid id")
	}
	take := func() error { return m.copyVolume(ctx, v, filepath.Join(m.snapshotsDir(), snapshot)) }
	if id == "" || m.find(id) == nil { // a machine that has never been started has no volumes yet
		return take()
	}
	in, done, err := m.acquire(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	in.volumes.Lock()
	defer in.volumes.Unlock()
	if b := in.running(); b != nil {
		return in.platform.still(ctx, in, take)
	}
	return take()
}

// copyVolume copies a volume's file into the directory of a new snapshot.
func (m *Manager) copyVolume(ctx context.Context, v Volume, at string) error {
	m.sources.RLock()
	defer m.sources.RUnlock()
	if exists(at) {
		return nil
	}
	// It is made beside its destination and renamed, so that an interrupted one does not count.
	made := filepath.Join(filepath.Dir(at), "."+filepath.Base(at))
	if err := errors.Join(os.RemoveAll(made), os.Mkdir(made, 0o755)); err != nil {
		return err
	}
	defer os.RemoveAll(made) //nolint:errcheck // it has been renamed, or is removed by the next sweep
	from, to := m.volumeFile(v.ID), filepath.Join(made, volumeCopy)
	if err := makeVolume(from, v.SizeGiB); err != nil { // no machine has had it yet
		return err
	}
	if err := settled(from, func() error { return cp(ctx, from, to) }); err != nil {
		return err
	}
	return file.Rename(made, at)
}

// settled calls f until nothing was written to the device of a volume's file meanwhile.
func settled(of string, f func() error) error {
	d, found, err := loop.Find(of)
	if err != nil {
		return err
	}
	if !found {
		return f()
	}
	for range copiesAtMost {
		before, err := d.Writes()
		if err != nil {
			return err
		}
		if err := f(); err != nil {
			return err
		}
		if after, err := d.Writes(); err != nil || after == before && after.UnderWay == 0 {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errWritten
}

// FillVolume gives a volume that no machine has had yet the content of a volume's snapshot. It is no error if it has it.
func (m *Manager) FillVolume(ctx context.Context, v Volume, snapshot string) error {
	if err := m.fillVolume(ctx, v, snapshot); err != nil {
		return fmt.Errorf("volume %s from snapshot %s: %w", v.ID, snapshot, err)
	}
	return nil
}

func (m *Manager) fillVolume(ctx context.Context, v Volume, snapshot string) error {
	m.sources.RLock()
	defer m.sources.RUnlock()
	to := m.volumeFile(v.ID)
	if exists(to) {
		return nil
	}
	at, err := m.snapshot(snapshot)
	if err != nil {
		return err
	}
	made := to + ".new"
	if err := os.RemoveAll(made); err != nil {
		return err
	}
	if err := errors.Join(cp(ctx, at.path(volumeCopy), made), makeVolume(made, v.SizeGiB)); err != nil {
		return errors.Join(err, os.RemoveAll(made))
	}
	return file.Rename(made, to)
}
