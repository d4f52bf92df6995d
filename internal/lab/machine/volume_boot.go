package machine

import (
	"context"
	"errors"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/loop"
)

// replug gives an adopted machine the devices of its volumes. An earlier Manager may have been
// killed before it had done so.
func (m *Manager) replug(in *instance, b *boot) {
	for in.placeVolumes(m.watching, b) != nil {
		select {
		case <-m.watching.Done():
			return
		case <-b.ended:
			return
		case <-time.After(20 * time.Millisecond): // its init may not run yet
		}
	}
}

// placeVolumes calls place for callers that change no volumes.
func (in *instance) placeVolumes(ctx context.Context, b *boot) error {
	in.volumes.Lock()
	defer in.volumes.Unlock()
	if in.running() != b {
		return errors.New("the machine is down")
	}
	return in.platform.place(ctx, in, b)
}

// shutVolumes ends the file systems on a machine's volumes without writing what was not synced.
func (in *instance) shutVolumes(b *boot) error {
	in.volumes.Lock()
	defer in.volumes.Unlock()
	volumes, err := in.loadVolumes()
	if err != nil {
		return err
	}
	var errs []error
	for _, v := range volumes {
		d, found, err := loop.Find(in.volumeFile(v.ID))
		if err == nil && found {
			err = in.shutFilesystems(b, d)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// unplugUnused ends the devices of volumes that no running machine has. A crash can leave them.
func (m *Manager) unplugUnused() error {
	used := map[string]bool{}
	for id, in := range m.machines {
		if !m.Running(id) {
			if err := in.unplugVolumes(); err != nil {
				return err
			}
			continue
		}
		volumes, err := in.loadVolumes()
		if err != nil {
			return err
		}
		for _, v := range volumes {
			used[m.volumeFile(v.ID)] = true
		}
	}
	devices, err := loop.Below(m.volumesDir())
	if err != nil {
		return err
	}
	for _, d := range devices {
		if d.Orphan {
			err = d.Abandon()
		} else if !used[d.File] {
			err = releaseVolume(d.File)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
