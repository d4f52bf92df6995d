package lab

import (
	"context"
	"fmt"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
)

// cacheDirs returns the directories of the cache that this version uses: the machine images and the
// container images, even if they do not exist yet.
func (l *Lab) cacheDirs() ([]string, error) {
	dirs := []string{release.LocateImages(l.cache)}
	for _, extra := range release.Extras {
		dirs = append(dirs, extra.Locate(l.cache))
	}
	for _, r := range machine.Releases {
		for _, kind := range []machine.Kind{machine.Container, machine.VirtualMachine} {
			img, _, err := machine.LocateImage(l.cache, r, kind)
			if err != nil {
				return nil, err
			}
			dirs = append(dirs, img.Dir)
		}
	}
	return dirs, nil
}

// useCache notes what this lab uses, so that other labs do not remove it.
func (l *Lab) useCache() error {
	dirs, err := l.cacheDirs()
	if err != nil {
		return err
	}
	if err := cache.Use(l.cache, l.dir, dirs...); err != nil {
		return fmt.Errorf("using the cache: %w", err)
	}
	return nil
}

// prune removes the machine images and container images of other versions that no lab uses. A
// failure is reported and is no error.
func (l *Lab) prune(ctx context.Context) {
	keep, err := l.cacheDirs()
	if err == nil {
		err = cache.Prune(l.cache, func(used []string) error {
			keep = append(keep, used...)
			on, err := host.This().Changes()
			if err != nil {
				return err
			}
			for _, dir := range append(on.Labs, l.dir) {
				more, err := cacheDirsOf(dir)
				if err != nil {
					return err
				}
				keep = append(keep, more...)
			}
			machines, err := machine.PruneImages(ctx, l.cache, keep)
			if err != nil {
				return err
			}
			containers, err := release.PruneImages(l.cache, keep)
			for _, dir := range slices.Concat(machines, containers) {
				l.progress.Line("removed " + dir + ", which no lab uses and another version made")
			}
			return err
		})
	}
	if err != nil {
		l.progress.Line("not all superseded images were removed from the cache: " + err.Error())
	}
}

// cacheDirsOf returns the directories of the cache that the daemon and the machines of the lab in a
// state directory were started with. They may differ from those that the lab has recorded: a later
// version may have started the lab since, or an earlier version, which records nothing, may run it.
func cacheDirsOf(stateDir string) ([]string, error) {
	s, err := (&Lab{dir: stateDir}).readSettings()
	if err != nil {
		return nil, err
	}
	dirs, err := machine.ImagesInUse(stateDir)
	for _, img := range s.MachineImages {
		dirs = append(dirs, img.Dir)
	}
	return append(append(dirs, s.ImagesDir), s.MoreImages...), err
}
