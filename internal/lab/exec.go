package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
)

// Exec returns a command that runs as root on a running instance, without SSH. The instance is
// given by its id, its Name tag, or the end of that tag ("worker-0" for "demo-worker-0") if no
// other running instance's has the same end.
func (l *Lab) Exec(ctx context.Context, instance string, args ...string) (*exec.Cmd, error) {
	i, err := l.runningInstance(ctx, instance)
	if err != nil {
		return nil, err
	}
	return machine.Enter(ctx, l.dir, i.ID, args...)
}

// KnownHost writes the SSH host keys of a running instance, which is given as in Exec, in the form of
// a known_hosts file. It returns the instance's public address.
func (l *Lab) KnownHost(ctx context.Context, instance string, w io.Writer) (netip.Addr, error) {
	i, err := l.runningInstance(ctx, instance)
	if err != nil {
		return netip.Addr{}, err
	}
	address, err := netip.ParseAddr(i.PublicIP)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("instance %s has no public address; k8s-lab exec needs none", instance)
	}
	keys, err := machine.HostKeys(ctx, l.dir, i.ID)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, key := range keys {
		if _, err := fmt.Fprintf(w, "%s %s\n", address, key); err != nil {
			return netip.Addr{}, fmt.Errorf("writing the host keys of %s: %w", instance, err)
		}
	}
	return address, nil
}

// runningInstance returns the running instance that is called so, see Exec.
func (l *Lab) runningInstance(ctx context.Context, called string) (ec2.InstanceOverview, error) {
	o, err := l.Overview(ctx)
	if err != nil {
		return ec2.InstanceOverview{}, err
	}
	running := slices.DeleteFunc(o.Instances, func(i ec2.InstanceOverview) bool { return i.State != "running" })
	i, err := choose(running, called)
	if errors.Is(err, errNoInstance) {
		err = fmt.Errorf("no running instance is called %s; k8s-lab status lists them", called)
	}
	return i, err
}

var errNoInstance = errors.New("there is no such instance; k8s-lab status lists them")

// choose returns the instance with an id, a Name tag, or the end of one.
func choose(instances []ec2.InstanceOverview, called string) (ec2.InstanceOverview, error) {
	var found []ec2.InstanceOverview
	for _, i := range instances {
		if i.ID == called || i.Name == called {
			return i, nil
		}
		if strings.HasSuffix(i.Name, "-"+called) {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 0:
		return ec2.InstanceOverview{}, fmt.Errorf("%s: %w", called, errNoInstance)
	case 1:
		return found[0], nil
	}
	var ids []string
	for _, i := range found {
		ids = append(ids, i.ID)
	}
	return ec2.InstanceOverview{}, fmt.Errorf("%d instances are called %s: use an id (%s)", len(found), called, strings.Join(ids, ", "))
}
