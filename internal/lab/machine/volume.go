package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
)

// ErrVolumeInUse says that a machine has mounted a volume that is to be detached.
var ErrVolumeInUse = errors.New("the volume is in use")

// A Volume is a disk that lives longer than a machine: a sparse file of the lab. While a running
// machine has it, it is a block device there.
type Volume struct {
	ID      string
	SizeGiB int
	// Device is the name of the block device of an instance type with Xen, such as xvdf. It is empty for
	// Nitro, which numbers NVMe devices.
	Device string `json:",omitempty"`
}

// attachedVolume is a volume that a running machine has. Number is the number of its device.
type attachedVolume struct {
	Volume
	Number int
}

func (m *Manager) volumesDir() string            { return filepath.Join(m.stateDir, "volumes") }
func (m *Manager) volumeFile(id string) string   { return filepath.Join(m.volumesDir(), id) }
func (in *instance) volumeFile(id string) string { return filepath.Join(in.volumesDir, id) }

// Volumes lists the volumes that have a file.
func (m *Manager) Volumes() ([]string, error) {
	entries, err := os.ReadDir(m.volumesDir())
	if err != nil {
		return nil, fmt.Errorf("volumes: %w", err)
	}
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = e.Name()
	}
	return ids, nil
}

// RemoveVolume removes the file of a volume that no machine has. It is no error if there is none.
func (m *Manager) RemoveVolume(id string) error {
	if err := releaseVolume(m.volumeFile(id)); err != nil {
		return fmt.Errorf("remove volume %s: %w", id, err)
	}
	if err := os.Remove(m.volumeFile(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove volume %s: %w", id, err)
	}
	return nil
}

// AttachVolume gives a running machine a volume, as the device with the lowest free number. If it
// has the volume, the volume gets its size.
func (m *Manager) AttachVolume(ctx context.Context, id string, v Volume) error {
	return m.changeVolumes(ctx, "attach volume "+v.ID+" to", id, func(in *instance, b *boot) error {
		volumes, err := in.loadVolumes()
		if err != nil {
			return err
		}
		number := 1
		for slices.ContainsFunc(volumes, func(a attachedVolume) bool { return a.Number == number }) {
			number++
		}
		at := slices.IndexFunc(volumes, func(a attachedVolume) bool { return a.ID == v.ID })
		if at < 0 {
			at, volumes = len(volumes), append(volumes, attachedVolume{Number: number})
		}
		volumes[at].Volume = v
		if err := makeVolume(in.volumeFile(v.ID), v.SizeGiB); err != nil {
			return err
		}
		if err := in.saveVolumes(volumes); err != nil {
			return err
		}
		return in.platform.place(ctx, in, b)
	})
}

// DetachVolume takes a volume away from a running machine. ErrVolumeInUse says that the machine has
// it mounted, and keeps it. With force the volume is taken away anyway, without the data that the
// machine has not synced. It is no error if the machine does not have it.
func (m *Manager) DetachVolume(ctx context.Context, id, volume string, force bool) error {
	return m.changeVolumes(ctx, "detach volume "+volume+" from", id, func(in *instance, b *boot) error {
		volumes, err := in.loadVolumes()
		if err != nil {
			return err
		}
		rest := slices.DeleteFunc(slices.Clone(volumes), func(a attachedVolume) bool { return a.ID == volume })
		return in.platform.detach(ctx, in, b, volume, rest, force)
	})
}

// changeVolumes runs f on a running machine.
func (m *Manager) changeVolumes(ctx context.Context, what, id string, f func(*instance, *boot) error) error {
	in, done, err := m.acquire(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	b := in.running()
	if b == nil {
		return fmt.Errorf("%s machine %s: it is not running", what, id)
	}
	in.volumes.Lock()
	defer in.volumes.Unlock()
	if err := f(in, b); err != nil {
		return fmt.Errorf("%s machine %s: %w", what, id, err)
	}
	return nil
}

// plugVolumes records the volumes that a machine will have when it boots, numbered in their order.
func (in *instance) plugVolumes(volumes []Volume) error {
	in.volumes.Lock()
	defer in.volumes.Unlock()
	attached := make([]attachedVolume, len(volumes))
	for i, v := range volumes {
		attached[i] = attachedVolume{Volume: v, Number: i + 1}
		if err := makeVolume(in.volumeFile(v.ID), v.SizeGiB); err != nil {
			return err
		}
	}
	return in.saveVolumes(attached)
}

// unplugVolumes ends the devices of a machine that is down.
func (in *instance) unplugVolumes() error {
	in.volumes.Lock()
	defer in.volumes.Unlock()
	volumes, err := in.loadVolumes()
	if err != nil {
		return err
	}
	var errs []error
	for _, v := range volumes {
		if err := releaseVolume(in.volumeFile(v.ID)); err != nil {
			errs = append(errs, fmt.Errorf("volume %s: %w", v.ID, err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return os.RemoveAll(in.disk.path("volumes.json"))
}

// makeVolume makes the file of a volume, or gives it a bigger size.
func makeVolume(file string, sizeGiB int) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if size := int64(sizeGiB) << 30; err == nil && info.Size() < size {
		err = f.Truncate(size)
	}
	return errors.Join(err, f.Close())
}

// loadVolumes reads what volumes the machine has. It has none when it is down.
func (in *instance) loadVolumes() (volumes []attachedVolume, err error) {
	content, err := os.ReadFile(in.disk.path("volumes.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return volumes, json.Unmarshal(content, &volumes)
}

func (in *instance) saveVolumes(volumes []attachedVolume) error {
	return file.WriteJSON(in.disk.path("volumes.json"), volumes, 0o600)
}
