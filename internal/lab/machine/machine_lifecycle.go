package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const (
	// startTimeout bounds the time from the leader's start until the machine is up, about 50 ms on an
	// idle host.
	startTimeout = 20 * time.Second
	// stopTimeout is how long a machine may take to shut down or reboot gracefully before its power
	// is cut. It is longer than systemd waits for a service to stop (DefaultTimeoutStopSec). EC2
	// allows minutes.
	stopTimeout = 2 * time.Minute
	// askAgain is the time after which a machine is asked again to shut down.
	askAgain = 20 * time.Second
)

var validID = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Start boots the machine, from its disk if it was started before. It returns once a container's init
// runs, or a virtual machine has its power.
func (m *Manager) Start(ctx context.Context, s Spec) error {
	if !validID.MatchString(s.ID) {
		return fmt.Errorf("start machine: invalid id %q", s.ID)
	}
	m.mu.Lock()
	if m.machines[s.ID] == nil {
		m.machines[s.ID] = m.newInstance(s.ID)
	}
	m.mu.Unlock()
	in, done, err := m.acquire(ctx, s.ID)
	if err != nil {
		return err
	}
	defer done()
	if err := m.start(ctx, in, s); err != nil {
		return fmt.Errorf("start machine %s: %w", s.ID, err)
	}
	return nil
}

func (m *Manager) start(ctx context.Context, in *instance, s Spec) (err error) {
	if in.running() != nil {
		return errors.New("it is running")
	}
	if m.watching.Err() != nil {
		return errors.New("the manager is closed")
	}
	if err := s.checkSize(); err != nil {
		return err
	}
	if _, err := os.Stat(s.Netns); err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	if err := os.MkdirAll(string(in.disk), 0o755); err != nil {
		return err
	}
	if err := m.prepare(ctx, in, s); err != nil {
		return err
	}
	if err := in.saveSpec(s); err != nil {
		return err
	}
	// Remove what a crash may have left of an earlier boot.
	if err := in.clear(ctx); err != nil {
		return err
	}
	if err := errors.Join(in.limited().create(), in.helper().create()); err != nil {
		return errors.Join(err, in.clear(ctx))
	}
	if err := m.limitSize(in, s); err != nil {
		return errors.Join(err, in.clear(ctx))
	}
	if err := in.plugVolumes(s.Volumes); err != nil {
		return errors.Join(fmt.Errorf("volumes: %w", err), in.clear(ctx))
	}
	cmd, err := in.platform.spawn(ctx, in, s)
	if err != nil {
		return errors.Join(err, in.clear(ctx))
	}
	leader, err := findProcess(cmd.Process.Pid)
	if err == nil {
		err = os.WriteFile(in.disk.path("leader"), []byte(leader.String()), 0o600)
	}
	status := make(chan int, 1)
	go func() { // reap
		_ = cmd.Wait() // what it says is in the console log
		status <- cmd.ProcessState.ExitCode()
	}()
	if err != nil {
		return errors.Join(fmt.Errorf("its first process ended at once (%w); its console:\n%s", err, in.disk.tail()), in.clear(ctx))
	}
	b := m.watch(in, leader, status) //nolint:contextcheck // it outlives the call
	if err := in.awaitUp(ctx, b); err != nil {
		return errors.Join(fmt.Errorf("%w; its console:\n%s", err, in.disk.tail()), in.cutPower(ctx, b))
	}
	if err := in.placeVolumes(ctx, b); err != nil {
		return errors.Join(fmt.Errorf("volumes: %w", err), in.cutPower(ctx, b))
	}
	return nil
}

// awaitUp returns once the machine is up.
func (in *instance) awaitUp(ctx context.Context, b *boot) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("the machine does not come up"))
	defer cancel()
	for {
		err := in.platform.up(ctx, in, b)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-b.ended:
			return errors.New("its first process ended")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// cutPower ends the boot as a power loss does.
func (in *instance) cutPower(ctx context.Context, b *boot) error {
	b.expectEnd()
	for _, dir := range in.dirs() {
		killGroup(dir)
	}
	// The leader may not be in its groups yet, or they may not be killable.
	_ = b.leader.signal(unix.SIGKILL)
	// A half-killed machine would be taken for a running one, so ctx's end does not count here.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), killTimeout,
		fmt.Errorf("processes of %s survive being killed", in.id))
	defer cancel()
	select {
	case <-b.ended:
		return b.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stop shuts the machine down gracefully, or cuts its power after two minutes. The disk is kept. It
// is no error if the machine is down.
func (m *Manager) Stop(ctx context.Context, id string) error {
	in, done, err := m.acquire(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	b := in.running()
	if b == nil {
		return nil
	}
	b.expectEnd()
	if in.shutDown(ctx, b) {
		return stopped("stop", id, b.err)
	}
	return stopped("stop", id, in.cutPower(ctx, b))
}

// shutDown asks the machine to shut down, again and again until the machine has received it. It
// says whether the machine has ended.
func (in *instance) shutDown(ctx context.Context, b *boot) bool {
	patience, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	for {
		var again <-chan time.Time
		if !in.platform.shutDown(patience, in, b) {
			again = time.After(askAgain)
		}
		select {
		case <-b.ended:
			return true
		case <-patience.Done():
			return false
		case <-again:
		}
	}
}

// Kill cuts the machine's power. The disk is kept, and the volumes lose what was not synced. It is
// no error if the machine is down.
func (m *Manager) Kill(ctx context.Context, id string) error {
	in, done, err := m.acquire(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	if b := in.running(); b != nil {
		return stopped("kill", id, errors.Join(in.shutVolumes(b), in.cutPower(ctx, b)))
	}
	return nil
}

// Reboot reboots a running machine gracefully, or cuts its power after two minutes and starts it.
// It returns once the new init runs.
func (m *Manager) Reboot(ctx context.Context, id string) error {
	in, done, err := m.acquire(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	if err := m.reboot(ctx, in); err != nil {
		return fmt.Errorf("reboot machine %s: %w", id, err)
	}
	return nil
}

func (m *Manager) reboot(ctx context.Context, in *instance) error {
	b := in.running()
	if b == nil {
		return errors.New("it is not running")
	}
	volumes, err := in.loadVolumes()
	if err != nil {
		return err
	}
	b.expectEnd()
	if in.platform.reboot(ctx, in, b) == nil {
		patience, cancel := context.WithTimeout(ctx, stopTimeout)
		defer cancel()
		select {
		case <-patience.Done():
		case <-b.ended:
		}
	}
	if err := in.cutPower(ctx, b); err != nil {
		return err
	}
	s, err := in.loadSpec()
	if err != nil {
		return err
	}
	s.Volumes = nil
	for _, v := range volumes {
		s.Volumes = append(s.Volumes, v.Volume)
	}
	return m.start(ctx, in, s)
}

// Terminate cuts the machine's power and removes everything of it. Its disk is removed in the
// background; Down waits for that. It is no error if there is no such machine.
func (m *Manager) Terminate(ctx context.Context, id string) error {
	in, done, err := m.acquire(ctx, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer done()
	if b := in.running(); b != nil {
		if err := in.cutPower(ctx, b); err != nil {
			return stopped("terminate", id, err)
		}
	}
	trash := filepath.Join(m.trashDir(), fmt.Sprintf("%s.%d", id, time.Now().UnixNano()))
	if err := os.Rename(string(in.disk), trash); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return stopped("terminate", id, err)
	}
	m.mu.Lock()
	delete(m.machines, id)
	m.mu.Unlock()
	m.remove(trash)
	return nil
}

// remove deletes a disk in the background. Down tries again to delete what is left, and reports it.
func (m *Manager) remove(dir string) {
	m.removals.Go(func() { _ = errors.Join(os.RemoveAll(dir), m.sweepSnapshots()) })
}

func stopped(what, id string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s machine %s: %w", what, id, err)
}

// Down terminates every machine of the lab, waits until nothing of them is left, and closes the
// Manager.
func (m *Manager) Down(ctx context.Context) error {
	m.mu.Lock()
	var all errgroup.Group
	for id := range m.machines {
		all.Go(func() error { return m.Terminate(ctx, id) })
	}
	m.mu.Unlock()
	if err := all.Wait(); err != nil {
		return err
	}
	m.Close()
	if err := m.lab.destroy(ctx); err != nil {
		return fmt.Errorf("remove machines: %w", err)
	}
	for _, h := range m.lab.in {
		// Other labs may have groups in it.
		_ = unix.Rmdir(filepath.Join(h.mount, cgroupParent))
	}
	for _, dir := range []string{m.machinesDir(), m.trashDir(), m.volumesDir(), m.snapshotsDir()} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove machines: %w", err)
		}
	}
	return nil
}
