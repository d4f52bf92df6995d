package ec2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
)

// transition runs f in the background, one at a time for each instance, with a context that ends
// with the Compute.
func (c *Compute) transition(id string, f func(ctx context.Context)) {
	c.wg.Go(func() {
		defer c.locks.lock(id)()
		if c.ctx.Err() == nil {
			f(c.ctx)
		}
	})
}

// instance returns a copy of an instance if it is in state s.
func (c *Compute) instance(id string, s instanceState) (instance, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.st.Instances[id]
	if i == nil || i.State != s {
		return instance{}, false
	}
	return *i, true
}

// change updates one instance in its own transaction if it is in state s, and then the network.
func (c *Compute) change(ctx context.Context, id string, s instanceState, f func(t *tx, i *instance)) {
	c.save(id, func(t *tx, i *instance) {
		if i.State == s {
			f(t, i)
		}
	})
	c.syncNetwork(ctx)
}

// save updates one instance in its own transaction, if it exists.
func (c *Compute) save(id string, f func(t *tx, i *instance)) {
	err := c.update("", nil, func(t *tx) error {
		if i := t.st.Instances[id]; i != nil {
			f(t, i)
		}
		return nil
	})
	if err != nil {
		c.log.Error("an instance's state could not be saved", "instance", id, "error", err)
	}
}

// later changes an instance in a transaction of its own once a time has come. The next Start has to ask for it again.
func (t *tx) later(id string, when time.Time, f func(t *tx, i *instance)) {
	wait := max(0, when.Sub(t.now))
	t.afterCommit(func() {
		due := t.c.cfg.Clock.After(wait)
		t.c.wg.Go(func() {
			select {
			case <-t.c.ctx.Done():
				return
			case <-due:
			}
			t.c.save(id, f)
			t.c.syncNetwork(t.c.ctx)
		})
	})
}

// launch boots a pending instance.
func (c *Compute) launch(id string) {
	c.transition(id, func(ctx context.Context) {
		i, ok := c.instance(id, statePending)
		if !ok {
			return
		}
		if reason, ok := c.keyReason(i); ok {
			c.launchFailed(ctx, id, reason)
			return
		}
		launch, end := c.launches.begin(ctx, id)
		defer end()
		err := c.boot(launch, i)
		if c.ctx.Err() != nil {
			return // the next Start continues
		}
		defer c.sweepSnapshots() // it needs its own no longer
		if err == nil {
			c.change(ctx, id, statePending, func(_ *tx, i *instance) {
				i.set(stateRunning, stateReason{}, "")
				i.Booted = true
			})
			return
		}
		if context.Cause(launch) == errLaunchCancelled { //nolint:errorlint // identity is meant
			return
		}
		c.log.Error("an instance could not be launched", "instance", id, "error", err)
		c.launchFailed(ctx, id, stateReason{"Server.InternalError", "Server.InternalError: " + err.Error()})
	})
}

func (c *Compute) boot(ctx context.Context, i instance) error {
	if d := c.faults.StartDelay(); d > 0 {
		c.change(ctx, i.ID, statePending, func(_ *tx, i *instance) { i.Powered = false })
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.cfg.Clock.After(d):
		}
		c.change(ctx, i.ID, statePending, func(_ *tx, i *instance) { i.Powered = true })
	}
	if err := c.tryNetwork(ctx); err != nil {
		return err
	}
	if c.cfg.Machines.Running(i.ID) { // an earlier daemon has started it
		return nil
	}
	return c.power(ctx, i)
}

func (c *Compute) power(ctx context.Context, i instance) error {
	if err := c.fillVolumes(ctx, i); err != nil {
		return fmt.Errorf("booting instance %s: %w", i.ID, err)
	}
	it := instanceTypes[i.Type]
	cores, _ := it.cores()
	hostname, _, _ := strings.Cut(privateDNSName(c.cfg.Region, i.PrivateIP), ".")
	err := c.cfg.Machines.Start(ctx, machine.Spec{
		ID: i.ID, Image: i.Image, Snapshot: c.ownSnapshot(i), Hostname: hostname, Netns: c.cfg.Network.InterfaceNetns(i.Interface),
		VCPUs: it.vcpus, Cores: cores, MemoryMiB: it.usableMiB(), InstalledMiB: it.memoryMiB, Type: i.Type,
		Root:    c.rootVolume(i),
		Volumes: c.bootVolumes(i), Files: c.firstBootFiles(i),
	})
	if err != nil {
		return fmt.Errorf("booting instance %s: %w", i.ID, err)
	}
	return nil
}

// firstBootFiles returns the files that faults add to an instance's disk before its first boot.
func (c *Compute) firstBootFiles(i instance) map[string]string {
	if i.Booted {
		return nil
	}
	c.mu.Lock()
	name := c.st.Tags[i.ID]["Name"]
	c.mu.Unlock()
	return c.faults.FirstBoot(name)
}

// stop completes a requested stop.
func (c *Compute) stop(id string, force bool) {
	c.transition(id, func(ctx context.Context) {
		i, ok := c.instance(id, stateStopping)
		if !ok {
			return
		}
		c.powerOff(ctx, i, force)
		if c.ctx.Err() == nil {
			c.change(ctx, id, stateStopping, (*tx).stopped)
		}
	})
}

// powerOff shuts the machine down, by force if it does not end, and resets its network interface.
func (c *Compute) powerOff(ctx context.Context, i instance, force bool) {
	var err error
	if !force {
		err = c.cfg.Machines.Stop(ctx, i.ID)
	}
	if force || err != nil {
		err = errors.Join(err, c.cfg.Machines.Kill(ctx, i.ID))
	}
	err = errors.Join(err, c.cfg.Network.ResetInterface(ctx, i.Interface))
	if err != nil && ctx.Err() == nil {
		c.log.Error("an instance did not stop cleanly", "instance", i.ID, "error", err)
	}
}

// reboot stops and starts the machine. EC2 shows the instance as running all the time.
func (c *Compute) reboot(id string) {
	c.transition(id, func(ctx context.Context) {
		i, ok := c.instance(id, stateRunning)
		if !ok {
			return
		}
		c.powerOff(ctx, i, false)
		c.powerAgain(ctx, i)
	})
}

// powerAgain boots the machine of a running instance, which is down. An instance whose machine does not
// boot stops.
func (c *Compute) powerAgain(ctx context.Context, i instance) {
	if err := c.power(ctx, i); err != nil && c.ctx.Err() == nil {
		c.log.Error("an instance did not come back from a reboot", "instance", i.ID, "error", err)
		c.change(ctx, i.ID, stateRunning, func(t *tx, i *instance) {
			i.set(stateStopping, stateReason{"Server.InternalError", "Server.InternalError: " + err.Error()}, "Server.InternalError")
			t.stopped(i)
		})
	}
}

// terminate completes a termination, and cancels a launch in progress.
func (c *Compute) terminate(id string) {
	c.launches.cancel(id)
	c.transition(id, func(ctx context.Context) {
		if _, ok := c.instance(id, stateShuttingDown); !ok {
			return
		}
		for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
			err := c.cfg.Machines.Terminate(ctx, id)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
			c.log.Error("an instance could not be terminated; trying again", "instance", id, "error", err)
			select {
			case <-ctx.Done():
				return
			case <-c.cfg.Clock.After(pause):
			}
		}
		c.change(ctx, id, stateShuttingDown, (*tx).terminated)
	})
}

// watchExits handles machines that went down by themselves.
func (c *Compute) watchExits() {
	for {
		select {
		case <-c.ctx.Done():
			return
		case exit, ok := <-c.cfg.Machines.Exits():
			if !ok {
				return
			}
			c.exited(exit)
		}
	}
}

// exited handles a shutdown from inside: the instance stops or terminates, according to its
// shutdown behavior. After a reboot from inside its machine boots again.
func (c *Compute) exited(exit machine.Exit) {
	id := exit.ID
	c.transition(id, func(ctx context.Context) {
		i, ok := c.instance(id, stateRunning)
		if !ok || i.Impaired || c.cfg.Machines.Running(id) {
			return
		}
		if !exit.Reboot && (i.Shutdown == actTerminate || i.Spot != nil) { // nothing can start a one-time Spot instance again
			c.change(ctx, id, stateRunning, func(t *tx, i *instance) {
				i.set(stateShuttingDown, reasonInstanceShutdown, "")
				t.afterCommit(func() { c.terminate(id) })
			})
			return
		}
		if err := c.cfg.Network.ResetInterface(ctx, i.Interface); err != nil {
			c.log.Error("an interface could not be reset", "instance", id, "error", err)
		}
		if exit.Reboot {
			c.powerAgain(ctx, i)
			return
		}
		c.change(ctx, id, stateRunning, func(t *tx, i *instance) {
			i.set(stateStopping, reasonInstanceShutdown, "")
			t.stopped(i)
		})
	})
}

// PowerCut kills the machine of a running instance. outcome is the instance's state afterwards:
// "stopped", "terminated", or "impaired" (running, with failing status checks).
func (c *Compute) PowerCut(ctx context.Context, id, outcome string) error {
	ctx = context.WithoutCancel(ctx) // a power cut must not stop halfway
	defer c.locks.lock(id)()
	i, ok := c.instance(id, stateRunning)
	if !ok {
		return fmt.Errorf("instance %s is not running", id)
	}
	if err := c.cfg.Machines.Kill(ctx, id); err != nil {
		return fmt.Errorf("cutting the power of %s: %w", id, err)
	}
	if err := c.cfg.Network.ResetInterface(ctx, i.Interface); err != nil {
		return fmt.Errorf("cutting the power of %s: %w", id, err)
	}
	c.change(ctx, id, stateRunning, func(t *tx, i *instance) {
		if i.Spot != nil && outcome != "impaired" {
			outcome = "terminated"
		}
		switch outcome {
		case "terminated":
			i.set(stateShuttingDown, reasonPowerCut, reasonPowerCut.Code)
			t.afterCommit(func() { c.terminate(id) })
		case "impaired":
			i.Impaired, i.Powered = true, false
		default:
			i.set(stateStopping, reasonPowerCut, reasonPowerCut.Code)
			t.stopped(i)
		}
	})
	return nil
}

// resume continues with every instance as the last run left it.
func (c *Compute) resume() error {
	return c.update("", nil, func(t *tx) error {
		rebooted := t.st.BootID != c.cfg.BootID
		t.st.BootID = c.cfg.BootID
		for _, i := range sorted(t.st.Instances) {
			id := i.ID
			if i.Spot != nil && i.up() && !i.Spot.Ends.IsZero() {
				t.endSpot(i)
			}
			for _, e := range i.Events {
				if e.Done.IsZero() {
					t.await(i, e)
				}
			}
			switch i.State {
			case statePending:
				t.afterCommit(func() { c.launch(id) })
			case stateRunning:
				switch {
				case c.cfg.Machines.Running(id) || i.Impaired || t.rebootsForSnapshot(id):
				case rebooted: // EC2 recovers instances of a failed host
					i.set(statePending, stateReason{}, "")
					i.powerOn()
					t.afterCommit(func() { c.launch(id) })
				default:
					t.afterCommit(func() { c.exited(machine.Exit{ID: id}) })
				}
			case stateStopping:
				t.afterCommit(func() { c.stop(id, false) })
			case stateShuttingDown:
				t.afterCommit(func() { c.terminate(id) })
			}
		}
		t.resumeNATGateways()
		t.resumeConnectEndpoints()
		t.resumeSnapshots()
		return t.resumeVolumes()
	})
}

// console returns the last n bytes of an instance's console.
func (c *Compute) console(id string, n int64) ([]byte, error) {
	f, err := os.Open(c.cfg.Machines.Console(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the console of %s: %w", id, err)
	}
	defer f.Close() //nolint:errcheck // read only
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading the console of %s: %w", id, err)
	}
	out, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-n), n))
	if err != nil {
		return nil, fmt.Errorf("reading the console of %s: %w", id, err)
	}
	return out, nil
}
