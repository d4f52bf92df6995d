package rollout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
)

// Inspect reads what holds a role's settings from the first of its machines that answers. It
// returns that machine too, and changes nothing. The error names every machine that did not answer.
func (e *Engine) Inspect(ctx context.Context, have Role) (component.Node, component.Found, error) {
	if err := checkRole(have); err != nil {
		return component.Node{}, component.Found{}, err
	}
	r := have.Definition()
	return e.inspect(ctx, r.Targets, r.Traces)
}

// ReadRole returns have with the settings found by [Engine.Inspect] on a machine. It is pure. The
// error is a [component.NothingFoundError] when nothing of the role is on the machine.
func ReadRole[R Role](have R, n component.Node, f component.Found) (R, error) {
	if err := checkRole(have); err != nil {
		return have, err
	}
	found, err := have.Definition().ReadSettings(n, f)
	if err != nil {
		return have, err
	}
	return found.(R), nil
}

// InspectCluster adds to a cluster the settings that only workers know, read from the first worker
// that answers.
func (e *Engine) InspectCluster(ctx context.Context, c component.Cluster, workers []fleet.Target) (component.Cluster, error) {
	_, found, err := e.inspect(ctx, workers, component.ClusterTraces())
	if err != nil {
		return c, err
	}
	return c.Read(found)
}

// inspect reads from the first machine that answers.
func (e *Engine) inspect(ctx context.Context, targets []fleet.Target, traces component.Traces) (component.Node, component.Found, error) {
	var errs []error
	for _, t := range targets {
		found, err := e.read(ctx, t, traces)
		if err == nil {
			return t.Node, found, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		errs = append(errs, ErrNoMachines)
	}
	return component.Node{}, component.Found{}, errors.Join(errs...)
}

// ErrNoMachines is the error of inspecting a role without machines.
var ErrNoMachines = errors.New("there are no machines")

func (e *Engine) read(ctx context.Context, t fleet.Target, traces component.Traces) (component.Found, error) {
	ctx, cancel := fleet.Observing(ctx)
	defer cancel()
	files, err := host.Read(ctx, e.Fleet.Machine(t).Remote, traces.Files, traces.Programs)
	if err != nil {
		return component.Found{}, fmt.Errorf("inspecting %s: %w", t.Node.Name, err)
	}
	return foundIn(files, traces.Programs), nil
}

// foundIn separates the content of files from the versions that programs print.
func foundIn(files map[string][]byte, programs []string) component.Found {
	found := component.Found{Files: files, Releases: map[string]string{}}
	for _, p := range programs {
		if r := release(files[p]); r != "" {
			found.Releases[p] = r
		}
		delete(files, p)
	}
	return found
}

// release finds the release in the first line of a program's version output: "Kubernetes v1.36.4",
// "etcd Version: 3.6.16", "CNI bridge plugin v1.9.1".
func release(said []byte) string {
	first, _, _ := bytes.Cut(said, []byte("\n"))
	if m := releasePattern.FindSubmatch(first); m != nil {
		return string(m[1])
	}
	return ""
}

var releasePattern = regexp.MustCompile(`\bv?(\d+\.\d+\.\d+(?:[-+~][0-9A-Za-z.+~-]+)?)`)
