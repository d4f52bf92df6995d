package cloudtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
)

// Machines are machines that only have a state.
type Machines struct {
	mu       sync.Mutex
	running  map[string]machine.Spec
	exits    chan machine.Exit
	hold     chan struct{} // see SetHold
	fail     error         // see SetFail
	dir      string
	contents map[string]machine.Volume // that have content, with their last size
	mounted  map[string]bool           // volumes that cannot be detached
	taken    map[string]bool           // snapshots, and whether their machines ran
}

// SetHold lets each start, stop and copy wait until it has taken one from hold; nil ends that for those to come.
func (m *Machines) SetHold(hold chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold = hold
}

// SetFail lets starts and copies fail; nil ends that.
func (m *Machines) SetFail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

// wait waits for its turn.
func (m *Machines) wait(ctx context.Context) error {
	m.mu.Lock()
	hold := m.hold
	m.mu.Unlock()
	if hold == nil {
		return nil
	}
	select {
	case <-hold:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Start implements ec2.Machines, as the methods without a comment do.
func (m *Machines) Start(ctx context.Context, s machine.Spec) error {
	if err := m.wait(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	for _, v := range s.Volumes {
		m.contents[v.ID] = v
	}
	m.running[s.ID] = s
	return nil
}

func (m *Machines) AttachVolume(_ context.Context, id string, v machine.Volume) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.running[id]
	if !ok {
		return errors.New("it is not running")
	}
	s.Volumes = append(slices.DeleteFunc(slices.Clone(s.Volumes), func(has machine.Volume) bool { return has.ID == v.ID }), v)
	m.running[id], m.contents[v.ID] = s, v
	return nil
}

func (m *Machines) GrowRoot(_ context.Context, id string, root machine.Volume) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.running[id]
	if !ok {
		return errors.New("it is not running")
	}
	s.Root = root
	m.running[id] = s
	return nil
}

func (m *Machines) DetachVolume(_ context.Context, id, volume string, force bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mounted[volume] && !force {
		return fmt.Errorf("%w: mounted", machine.ErrVolumeInUse)
	}
	s := m.running[id]
	s.Volumes = slices.DeleteFunc(slices.Clone(s.Volumes), func(has machine.Volume) bool { return has.ID == volume })
	m.running[id] = s
	return nil
}

func (m *Machines) Snapshot(ctx context.Context, id, snapshot string) error {
	if err := m.wait(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	if _, ok := m.taken[snapshot]; !ok {
		_, m.taken[snapshot] = m.running[id]
	}
	return nil
}

func (m *Machines) SnapshotVolume(ctx context.Context, id string, _ machine.Volume, snapshot string) error {
	return m.Snapshot(ctx, id, snapshot)
}

func (m *Machines) FillVolume(ctx context.Context, v machine.Volume, snapshot string) error {
	if err := m.wait(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.taken[snapshot]; !ok {
		return fmt.Errorf("there is no snapshot %q", snapshot)
	}
	m.contents[v.ID] = v
	return nil
}

func (m *Machines) RemoveSnapshot(snapshot string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.taken, snapshot)
	return nil
}

func (m *Machines) Snapshots() ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.taken)), nil
}

// Taken reports whether there is a snapshot, and whether its machine ran when it was taken.
func (m *Machines) Taken(snapshot string) (running, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	running, ok = m.taken[snapshot]
	return running, ok
}

func (m *Machines) RemoveVolume(volume string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.contents, volume)
	return nil
}

func (m *Machines) Volumes() ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.contents)), nil
}

// Leave keeps the content of a volume that nobody knows, as a crash may.
func (m *Machines) Leave(volume string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.contents[volume] = machine.Volume{ID: volume}
}

// SetMounted says whether a volume can be detached only by force.
func (m *Machines) SetMounted(volume string, mounted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mounted[volume] = mounted
}

func (m *Machines) Stop(ctx context.Context, id string) error {
	if err := m.wait(ctx); err != nil {
		return err
	}
	return m.Kill(ctx, id)
}

func (m *Machines) Kill(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.running, id)
	return nil
}

func (m *Machines) Terminate(ctx context.Context, id string) error { return m.Stop(ctx, id) }

func (m *Machines) Running(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.running[id]
	return ok
}

// Spec returns what a running machine was started with, and what it was given since.
func (m *Machines) Spec(id string) machine.Spec {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running[id]
}

func (m *Machines) Exits() <-chan machine.Exit { return m.exits }

func (m *Machines) Console(id string) string { return filepath.Join(m.dir, id) }

// PowerOff is a shutdown from inside.
func (m *Machines) PowerOff(id string) {
	_ = m.Kill(context.Background(), id)
	m.exits <- machine.Exit{ID: id}
}

// Reboot is a reboot from inside.
func (m *Machines) Reboot(id string) {
	_ = m.Kill(context.Background(), id)
	m.exits <- machine.Exit{ID: id, Reboot: true}
}
