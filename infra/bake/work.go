package bake

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/registry"
)

// Work is what is done on the machine that becomes an image. [Site] is one.
type Work interface {
	// Install brings the machine to its wanted state, and checks it. It may be repeated.
	Install(ctx context.Context, shell machine.Shell) error
	// Seal is the last that is done on the machine.
	Seal(ctx context.Context, shell machine.Shell) error
}

// Site is the work on a real machine.
type Site struct {
	Name   string // of the machine, in messages
	State  desired.State
	Images []string // container images
	// Registries are where the container images come from. Passwords in them do not get into the image.
	Registries registry.Registries
	// Progress is called with what is being done, in a few words.
	Progress func(string)
}

var _ Work = Site{}

// builderFile is on a machine that is made to become an image, and on no other one.
const builderFile = "/var/lib/k8s-from-scratch/image-builder"

// lifetime is how long a machine may take to become an image, in minutes. One that nobody has stopped by then stops itself.
const lifetime = 120

// bootCommand marks the machine, and lets it stop itself if nobody does: its provider may have been killed, and nobody may come back. It
// is a service and no timer: systemd-run waits for the start of a timer, which waits for the part of the boot in which this runs.
func bootCommand() string {
	return fmt.Sprintf("mkdir -p /var/lib/k8s-from-scratch && : >%s; systemd-run --quiet --no-block --collect --unit=k8s-image-builder-ends -p DefaultDependencies=no sh -c 'sleep %d; systemctl poweroff' || :",
		builderFile, lifetime*60)
}

// named is a shell with the name of its machine.
type named struct {
	machine.Shell
	name string
}

// Name implements host.Runner.
func (n named) Name() string { return n.name }

// Install implements Work.
func (s Site) Install(ctx context.Context, shell machine.Shell) error {
	m := named{shell, s.Name}
	say := s.Progress
	if say == nil {
		say = func(string) {}
	}
	if _, err := host.AwaitBoot(ctx, m, say); err != nil {
		return err
	}
	left, err := s.compare(ctx, m)
	if err != nil {
		return err
	}
	if _, err := host.Apply(ctx, m, s.State, left, host.Record{}, host.Options{Progress: say}); err != nil {
		return err
	}
	if len(s.Images) > 0 {
		say(fmt.Sprintf("pulling %d container images", len(s.Images)))
		if err := s.pull(ctx, shell); err != nil {
			return fmt.Errorf("pull container images: %w", err)
		}
	}
	say("checking programs and packages")
	if left, err = s.compare(ctx, m); err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("after everything was installed: %s", finding.Words(host.Findings(left)))
	}
	if err := deed.CheckPrograms(ctx, shell, checks(s.State)); err != nil {
		return fmt.Errorf("check programs and packages: %w", err)
	}
	return nil
}

// compare returns what differs on the machine. Every program is hashed, since there is no record of an earlier apply.
func (s Site) compare(ctx context.Context, m named) ([]host.Change, error) {
	seen, err := host.Observe(ctx, m, s.State, host.Record{})
	if err != nil {
		return nil, err
	}
	return host.Diff(s.State, seen, host.Record{}), nil
}

func (s Site) pull(ctx context.Context, shell machine.Shell) error {
	containerd, ctr := program(s.State, "containerd"), program(s.State, "ctr")
	if containerd == "" || ctr == "" {
		return errors.New("there is no containerd on the machine")
	}
	files, err := s.Registries.Files((*url.URL).String)
	if err != nil {
		return err
	}
	hosts := map[string][]byte{}
	for _, f := range files {
		hosts[f.Path] = f.Content
		if f.Secret {
			if hosts[f.Path], err = f.Filled(); err != nil {
				return err
			}
		}
	}
	return deed.PullImages(ctx, shell, containerd, ctr, hosts, s.Images)
}

// Seal implements Work.
func (s Site) Seal(ctx context.Context, shell machine.Shell) error {
	return deed.Seal(ctx, shell, builderFile)
}
