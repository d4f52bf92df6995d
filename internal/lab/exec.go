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
// other running instance has a Name with the same end.
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
	keys, err := l.hostKeys(ctx, i.ID, address)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("reading the host keys of %s: %w", instance, err)
	}
	for key := range strings.Lines(keys) {
		if _, err := fmt.Fprintf(w, "%s %s", address, key); err != nil {
			return netip.Addr{}, fmt.Errorf("writing the host keys of %s: %w", instance, err)
		}
	}
	return address, nil
}

// hostKeys returns the public keys of a machine's SSH server, one in a line. It asks a virtual
// machine's SSH server for them, at the machine's address: nobody else can answer there in a lab.
func (l *Lab) hostKeys(ctx context.Context, id string, address netip.Addr) (string, error) {
	read := exec.CommandContext(ctx, "ssh-keyscan", "-T", "20", address.String())
	if !machine.IsVirtual(l.dir, id) {
		var err error
		if read, err = machine.Enter(ctx, l.dir, id, "sh", "-c", "cat /etc/ssh/ssh_host_*_key.pub"); err != nil {
			return "", err
		}
	}
	keys, err := read.Output()
	if err == nil && len(keys) == 0 {
		err = errors.New("nothing answers")
	}
	return strings.ReplaceAll(string(keys), address.String()+" ", ""), err
}

// runningInstance returns the running instance with a name or id, as Exec takes it.
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
