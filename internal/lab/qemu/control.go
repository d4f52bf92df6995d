package qemu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// unplugTimeout is how long a guest may take to give up a disk. It takes a second, or longer while
// the guest boots.
const unplugTimeout = 10 * time.Second

// ErrKept says that a guest does not give up a disk.
var ErrKept = errors.New("the guest does not give up the disk")

// with runs f on the monitor of the virtual machine that was started in dir.
func with(ctx context.Context, dir string, f func(*monitor) error) error {
	m, err := open(ctx, dir)
	if err != nil {
		return err
	}
	defer m.close()
	return f(m)
}

// Runs returns an error unless the virtual machine that was started in dir runs.
func Runs(ctx context.Context, dir string) error {
	return with(ctx, dir, func(*monitor) error { return nil })
}

// PowerButton presses the power button, on which systemd shuts the machine down.
func PowerButton(ctx context.Context, dir string) error {
	return with(ctx, dir, func(m *monitor) error { return m.do("system_powerdown", nil, nil) })
}

// SetDisks gives a running virtual machine these disks, beside its root volume: it plugs in the
// disks that the machine does not have, and pulls out others. Each gets the size of its file, in
// bytes.
func SetDisks(ctx context.Context, dir string, root string, disks []Disk, size func(Disk) (int64, error)) error {
	return with(ctx, dir, func(m *monitor) error {
		have, err := m.disks()
		if err != nil {
			return err
		}
		nodes, err := m.nodes()
		if err != nil {
			return err
		}
		for _, id := range nodes {
			if id != root && !slices.ContainsFunc(disks, func(d Disk) bool { return d.ID == id }) {
				if err := m.unplug(ctx, Disk{ID: id}); err != nil {
					return err
				}
			}
		}
		for _, d := range disks {
			bytes, err := size(d)
			if err != nil {
				return err
			}
			if slices.Contains(have, d.ID) {
				err = m.resize(d, bytes)
			} else {
				err = m.plug(d)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Resize gives a disk of a running virtual machine a size in bytes.
func Resize(ctx context.Context, dir, id string, bytes int64) error {
	return with(ctx, dir, func(m *monitor) error { return m.resize(Disk{ID: id}, bytes) })
}

// disks returns the ids of the disks that the guest has.
func (m *monitor) disks() ([]string, error) {
	var devices []struct {
		QDev string `json:"qdev"` // path of the device's part for virtio, with its id in it
	}
	if err := m.do("query-block", nil, &devices); err != nil {
		return nil, err
	}
	var ids []string
	for _, d := range devices {
		for part := range strings.SplitSeq(d.QDev, "/") {
			if id, found := strings.CutPrefix(part, Disk{}.device()); found {
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}

// nodes returns the ids of the disks whose files QEMU has open, whether or not the guest has them.
func (m *monitor) nodes() ([]string, error) {
	var nodes []struct {
		Name string `json:"node-name"`
	}
	if err := m.do("query-named-block-nodes", map[string]any{"flat": true}, &nodes); err != nil {
		return nil, err
	}
	var ids []string
	for _, n := range nodes {
		if id, found := strings.CutPrefix(n.Name, Disk{}.node()); found {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func (m *monitor) plug(d Disk) error {
	// An earlier call may have ended between the two.
	var refused *Error
	if err := m.do("blockdev-add", map[string]any{
		"driver": d.Format, "node-name": d.node(), "discard": "unmap",
		"file": map[string]any{"driver": "file", "filename": d.File},
	}, nil); err != nil && !errors.As(err, &refused) {
		return err
	}
	return m.do("device_add", map[string]any{"driver": "virtio-blk-pci", "id": d.device(), "drive": d.node(), "serial": d.serial(), "werror": "report", "rerror": "report"}, nil)
}

// unplug asks the guest to give up a disk, and waits until it has. ErrKept says that it does not.
func (m *monitor) unplug(ctx context.Context, d Disk) error {
	var refused *Error
	// An earlier call may have taken out the device, or asked for it.
	if err := m.do("device_del", map[string]any{"id": d.device()}, nil); err != nil && !errors.As(err, &refused) {
		return err
	}
	for end := time.Now().Add(unplugTimeout); ; {
		err := m.do("blockdev-del", map[string]any{"node-name": d.node()}, nil)
		if err == nil || !errors.As(err, &refused) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w within %s: %w", ErrKept, unplugTimeout, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (m *monitor) resize(d Disk, bytes int64) error {
	return m.do("block_resize", map[string]any{"node-name": d.node(), "size": bytes}, nil)
}

// Still calls f while the guest stands still. What the guest has written to its disks is in their files then: QEMU
// flushes its own caches when it stops a guest.
func Still(ctx context.Context, dir string, f func() error) error {
	return with(ctx, dir, func(m *monitor) error {
		if err := m.do("stop", nil, nil); err != nil {
			return err
		}
		return errors.Join(f(), m.do("cont", nil, nil))
	})
}
