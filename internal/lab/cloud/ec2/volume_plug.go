package ec2

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
)

// attachingFor is how long a volume is being attached or detached at least. On AWS it is seconds.
const attachingFor = 500 * time.Millisecond

// plugAgain is the pause before a machine is asked again to take or give up a volume.
const plugAgain = 500 * time.Millisecond

// inMachine is a volume as its machine has it.
func (t *tx) inMachine(v *volume) machine.Volume {
	out := machine.Volume{ID: v.ID, SizeGiB: v.size(t.now)}
	if i := t.st.Instances[v.Instance]; i != nil && hypervisor(i.Type) == xen {
		out.Device = "xvd" + strings.TrimPrefix(strings.TrimPrefix(v.Device, "/dev/sd"), "/dev/xvd")
	}
	return out
}

// looking is a transaction that changes nothing. The caller holds c.mu.
func (c *Compute) looking() *tx { return &tx{c: c, st: c.st, now: c.cfg.Clock.Now()} }

// bootVolumes returns the volumes that an instance has when it boots, beside its root volume.
func (c *Compute) bootVolumes(i instance) []machine.Volume {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.looking()
	var out []machine.Volume
	for _, v := range t.attachedTo(&i) {
		if v.ID != i.RootVolume && v.Detaching.IsZero() {
			out = append(out, t.inMachine(v))
		}
	}
	return out
}

// rootVolume returns the volume with an instance's disk.
func (c *Compute) rootVolume(i instance) machine.Volume {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.st.Volumes[i.RootVolume]
	if v == nil {
		return machine.Volume{}
	}
	return c.looking().inMachine(v)
}

// plugVolume completes the attachment of a volume.
func (c *Compute) plugVolume(id, instance string) {
	c.changeVolume(id, instance, "attaching", attachingFor, func(ctx context.Context, v machine.Volume, _ bool) error {
		return c.cfg.Machines.AttachVolume(ctx, instance, v)
	}, func(v *volume) { v.Ready = true })
}

// unplugVolume completes the detachment of a volume, once its machine has unmounted it.
func (c *Compute) unplugVolume(id, instance string) {
	c.changeVolume(id, instance, "detaching", attachingFor, func(ctx context.Context, _ machine.Volume, force bool) error {
		return c.cfg.Machines.DetachVolume(ctx, instance, id, force)
	}, (*volume).release)
}

// growVolume gives an attached volume its bigger size. root says whether it is the instance's root
// volume.
func (c *Compute) growVolume(id, instance string, root bool) {
	c.changeVolume(id, instance, "attached", modifyingFor, func(ctx context.Context, v machine.Volume, _ bool) error {
		if root {
			return c.cfg.Machines.GrowRoot(ctx, instance, v)
		}
		return c.cfg.Machines.AttachVolume(ctx, instance, v)
	}, nil)
}

// changeVolume waits, and then changes a volume of an instance that is in a state of attachment: in
// its machine if that runs, again until it succeeds, and then in the account's state. It ends when
// the volume is in another state.
func (c *Compute) changeVolume(id, instance, state string, wait time.Duration, change func(_ context.Context, v machine.Volume, force bool) error, record func(*volume)) {
	waited := c.cfg.Clock.After(wait)
	c.wg.Go(func() {
		for {
			select {
			case <-c.ctx.Done():
				return
			case <-waited:
			}
			if c.tryVolume(id, instance, state, change, record) {
				return
			}
			waited = c.cfg.Clock.After(plugAgain)
		}
	})
}

// tryVolume is one attempt of changeVolume. It says whether nothing is left to be done.
func (c *Compute) tryVolume(id, instance, state string, change func(_ context.Context, v machine.Volume, force bool) error, record func(*volume)) bool {
	defer c.locks.lock(instance)()
	defer c.locks.lock(id)()
	if c.ctx.Err() != nil {
		return true // the next Start continues
	}
	c.mu.Lock()
	v := c.st.Volumes[id]
	is := v != nil && v.Instance == instance && v.attachment() == state
	var now machine.Volume
	var force bool
	if is {
		now, force = c.looking().inMachine(v), v.Forced
	}
	c.mu.Unlock()
	if !is {
		return true
	}
	if c.cfg.Machines.Running(instance) {
		err := change(c.ctx, now, force)
		if err != nil && !errors.Is(err, machine.ErrVolumeInUse) && c.ctx.Err() == nil {
			c.log.Error("a volume could not be changed; trying again", "volume", id, "instance", instance, "state", state, "error", err)
		}
		if err != nil {
			return false
		}
	}
	if record == nil {
		return true
	}
	err := c.update("", nil, func(t *tx) error {
		if v := t.st.Volumes[id]; v != nil && v.Instance == instance && v.attachment() == state {
			record(v)
		}
		return nil
	})
	if err != nil {
		c.log.Error("a volume's state could not be saved; trying again", "volume", id, "error", err)
	}
	return err == nil
}

// onVolume calls f while nothing else changes a volume, with the instance that has it, if one has. f gets no volume if there
// is none any more. The channel is closed afterwards.
func (c *Compute) onVolume(id string, f func(instance string, v *machine.Volume)) <-chan struct{} {
	ended := make(chan struct{})
	look := func() (instance string, v *machine.Volume) {
		c.mu.Lock()
		defer c.mu.Unlock()
		has := c.st.Volumes[id]
		if has == nil {
			return "", nil
		}
		is := c.looking().inMachine(has)
		return has.Instance, &is
	}
	try := func(instance string) bool {
		if instance != "" {
			defer c.locks.lock(instance)()
		}
		defer c.locks.lock(id)()
		now, v := look()
		if now != instance {
			return false // another one has it, which is locked first
		}
		if c.ctx.Err() == nil {
			f(instance, v)
		}
		return true
	}
	c.wg.Go(func() {
		defer close(ended)
		for instance, _ := look(); !try(instance); instance, _ = look() {
		}
	})
	return ended
}

// fillVolume completes the creation of a volume with content: that of a snapshot, or of another volume if source is its id.
// The channel is closed when the other volume may change.
func (c *Compute) fillVolume(id, source string) <-chan struct{} {
	fill := func() {
		c.onVolume(id, func(string, *machine.Volume) { _ = c.fill(c.ctx, id) })
	}
	if source == "" {
		fill()
		filled := make(chan struct{})
		close(filled)
		return filled
	}
	return c.onVolume(source, func(instance string, v *machine.Volume) {
		defer fill()
		if content := c.contentOf(id); v != nil && content != "" {
			if err := c.cfg.Machines.SnapshotVolume(c.ctx, instance, *v, content); err != nil {
				c.log.Error("a volume could not be copied", "volume", source, "copy", id, "error", err)
			}
		}
	})
}

// contentOf returns the id of the snapshot whose content a volume has to get; empty if it has it.
func (c *Compute) contentOf(id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.st.Volumes[id]; v != nil && !v.Failed {
		return v.Content
	}
	return ""
}

// fill gives a volume its content, unless it has it.
func (c *Compute) fill(ctx context.Context, id string) error {
	content := c.contentOf(id)
	if content == "" {
		return nil
	}
	c.mu.Lock()
	v := c.looking().inMachine(c.st.Volumes[id])
	c.mu.Unlock()
	err := c.cfg.Machines.FillVolume(ctx, v, content)
	if ctx.Err() != nil {
		return context.Cause(ctx) // the next Start continues
	}
	if err != nil {
		c.log.Error("a volume did not get its content", "volume", id, "error", err)
	}
	saved := c.update("", nil, func(t *tx) error {
		if v := t.st.Volumes[id]; v != nil {
			v.Content, v.Failed = "", err != nil
			t.afterCommit(t.c.sweepSnapshots)
		}
		return nil
	})
	return errors.Join(err, saved)
}

// fillVolumes gives the volumes of an instance their content before its machine boots.
func (c *Compute) fillVolumes(ctx context.Context, i instance) error {
	for _, v := range c.bootVolumes(i) {
		if err := c.fill(ctx, v.ID); err != nil {
			return err
		}
	}
	return nil
}

// deleteVolume forgets a volume and removes its content.
func (t *tx) deleteVolume(v *volume) {
	t.drop(v.ID)
	delete(t.st.Volumes, v.ID)
	t.afterCommit(func() { t.c.removeVolume(v.ID) })
}

func (c *Compute) removeVolume(id string) {
	defer c.locks.lock(id)() // it may just be copied
	if err := c.cfg.Machines.RemoveVolume(id); err != nil {
		c.log.Error("the content of a deleted volume could not be removed", "volume", id, "error", err)
	}
}

// resumeVolumes continues with every volume as the last run left it, and removes what is left of
// deleted ones.
func (t *tx) resumeVolumes() error {
	ids, err := t.c.cfg.Machines.Volumes()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if t.st.Volumes[id] == nil {
			t.afterCommit(func() { t.c.removeVolume(id) })
		}
	}
	for _, v := range sorted(t.st.Volumes) {
		i, id, source := t.st.Instances[v.Instance], v.ID, v.Source
		if i == nil {
			if v.Content != "" {
				t.afterCommit(func() { t.c.fillVolume(id, source) })
			}
			continue
		}
		instance, root := v.Instance, i.RootVolume == v.ID
		switch v.attachment() {
		case "attaching":
			t.afterCommit(func() { t.c.plugVolume(id, instance) })
		case "detaching":
			t.afterCommit(func() { t.c.unplugVolume(id, instance) })
		case "attached": // it may have been modified just before
			t.afterCommit(func() { t.c.growVolume(id, instance, root) })
		}
	}
	return nil
}
