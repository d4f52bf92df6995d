package loadbalancer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

const (
	// addressBudget is how long the virtual address may take to be on one machine and answer.
	addressBudget = 45 * time.Second
	// addressSteady is how long it must be so to count: a machine that hears no other takes the address after
	// four seconds, and its HAProxy must have answered twice.
	addressSteady = 7 * time.Second
)

// addressView is what one machine of a load balancer knows of the virtual address.
type addressView struct {
	machine string
	holds   bool
	err     error // why nothing answers there; nil if something does, or if the machine was not asked
}

// addressTrouble returns what is wrong with a virtual address, nil if one machine has it and it answers all.
func addressTrouble(address netip.AddrPort, router int, views []addressView) error {
	var holders []string
	for _, v := range views {
		if v.holds {
			holders = append(holders, v.machine)
		}
	}
	switch len(holders) {
	case 0:
		return fmt.Errorf("no machine has %s. Either keepalived does not run on them, or another router in this network announces "+
			"virtual_router_id %d: then choose another number", address.Addr(), router)
	case 1:
	default:
		return fmt.Errorf("%s each have %s, since they do not hear one another. Either something between them drops VRRP, which is IP protocol 112: "+
			"let it through in their firewalls, in switches and in the hypervisor. Or another router in this network announces virtual_router_id %d: "+
			"then choose another number", fleet.List(holders), address.Addr(), router)
	}
	for _, v := range views {
		if v.err != nil {
			return fmt.Errorf("%s has %s, and %s does not answer %s (%w). Either another machine in this network has the address as well, "+
				"or a switch or hypervisor drops packets for an address that it does not know", holders[0], address.Addr(), address, v.machine, v.err)
		}
	}
	return nil
}

// viewAddress asks one machine. One that the packet filter of the others does not let in is not asked to connect.
func (x LoadBalancer) viewAddress(ctx context.Context, m *fleet.Machine, address netip.AddrPort) (v addressView, err error) {
	v.machine = m.Name()
	found, known, err := host.AddressNetwork(ctx, m.Remote, address.Addr())
	if err == nil && !known {
		err = errors.New("the machine has no working program ip")
	}
	if err != nil {
		return v, err
	}
	v.holds = found.IsValid()
	if !v.holds && !component.Admits(x.Spec.AllowedCIDRs, m.Node.PrivateIP) {
		return v, nil
	}
	soon, cancel := context.WithTimeout(ctx, patience.Of(ctx, fleet.ReachBudget))
	defer cancel()
	conn, err := m.Remote.Dial(soon, "tcp", address.String())
	if fleet.Unreachable(err) {
		return v, err
	}
	if v.err = err; err == nil {
		_ = conn.Close()
	}
	return v, nil
}

// waitAddress waits until exactly one machine has the virtual address and it answers all of them, for as long
// as a machine that hears no other takes to take the address.
func (x LoadBalancer) waitAddress(ctx context.Context, machines []*fleet.Machine) error {
	if !x.Spec.VirtualIP.IsValid() || len(machines) == 0 {
		return nil
	}
	address := netip.AddrPortFrom(x.Spec.VirtualIP, uint16(x.Spec.ListenPort())) //nolint:gosec // a port
	step := "find the virtual address " + x.Spec.VirtualIP.String()
	machines[0].Say("load balancer: waiting for %s", address)
	holder := machines[0]
	err := steady(ctx, addressBudget, addressSteady, func(ctx context.Context) error {
		views := make([]addressView, len(machines))
		err := fleet.Each(ctx, indexes(len(machines)), func(ctx context.Context, i int) (err error) {
			views[i], err = x.viewAddress(ctx, machines[i], address)
			return err
		})
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(views, func(v addressView) bool { return v.holds }); i >= 0 {
			holder = machines[i]
		}
		return addressTrouble(address, x.Spec.VirtualRouterID(), views)
	})
	if fleet.Unreachable(err) {
		return err
	}
	return holder.UnitError(ctx, step, component.VirtualAddressUnit, err)
}

func indexes(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

// steady asks until nothing has been wrong for a time, within a budget. The error is the last one.
func steady(ctx context.Context, budget, quiet time.Duration, ask func(context.Context) error) error {
	return fleet.Within(ctx, budget, "virtual address", func(ctx context.Context) error {
		var since time.Time
		var last error
		for {
			err := ask(ctx)
			switch now := time.Now(); {
			case ctx.Err() != nil && last == nil:
				return ctx.Err()
			case ctx.Err() != nil:
				return last
			case fleet.Unreachable(err):
				return err
			case err != nil:
				since, last = time.Time{}, err
			case since.IsZero():
				since = now
			case now.Sub(since) >= quiet:
				return nil
			}
			select {
			case <-ctx.Done():
			case <-time.After(fleet.UnitPoll):
			}
		}
	})
}

// checkInterfaces checks, before anything is changed, whether the virtual addresses lie in the network of each
// machine. A machine without the program ip, which comes with keepalived, is not checked.
func (x LoadBalancer) checkInterfaces(ctx context.Context, o *rollout.Operation) error {
	if !x.Spec.VirtualIP.IsValid() {
		return nil
	}
	return fleet.Each(ctx, o.Reachable(), func(ctx context.Context, m *rollout.Machine) error {
		if len(m.Changes) == 0 {
			return nil
		}
		own, known, err := host.AddressNetwork(ctx, m.Remote, m.Node.PrivateIP)
		if err != nil || !known {
			return err
		}
		for _, ip := range x.addresses() {
			if err := checkInterface(ip, m.Node.PrivateIP, own); err != nil {
				return &fleet.StepError{Machine: m.Name(), Step: "check the virtual address " + ip.String(), Err: fmt.Errorf("%w; nothing has been changed", err),
					Next: m.SSH("ip -4 address")}
			}
		}
		return nil
	})
}

// addresses are the virtual addresses.
func (x LoadBalancer) addresses() []netip.Addr {
	if !x.Spec.VirtualIP.IsValid() {
		return nil
	}
	return append([]netip.Addr{x.Spec.VirtualIP}, x.Spec.FormerIPs...)
}

// checkFree checks, before anything is changed, that no other machine of the network has a new virtual address.
// One that drops packets to the port is not noticed.
func (x LoadBalancer) checkFree(ctx context.Context, o *rollout.Operation, prior rollout.Role) error {
	before, _ := prior.(LoadBalancer)
	if len(o.Reachable()) < len(o.Machines) {
		return nil // the others may have it
	}
	for _, ip := range x.addresses() {
		if slices.Contains(before.addresses(), ip) {
			continue
		}
		ours := false
		for _, m := range o.Machines {
			found, _, err := host.AddressNetwork(ctx, m.Remote, ip)
			if err != nil {
				return err
			}
			ours = ours || found.IsValid()
		}
		if m := o.Machines[0]; !ours && occupied(ctx, m.Machine, netip.AddrPortFrom(ip, uint16(x.Spec.ListenPort()))) { //nolint:gosec // a port
			return &fleet.StepError{Machine: m.Name(), Step: "check the virtual address " + ip.String(),
				Err:  fmt.Errorf("another machine in the network has %s already: choose a free address; nothing has been changed", ip),
				Next: m.SSH("ip -4 neighbour show " + ip.String())}
		}
	}
	return nil
}

// occupied reports whether something answers the machine at an address, if only with a refusal.
func occupied(ctx context.Context, m *fleet.Machine, address netip.AddrPort) bool {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, fleet.ReachBudget))
	defer cancel()
	conn, err := m.Remote.Dial(ctx, "tcp", address.String())
	if err == nil {
		_ = conn.Close()
		return true
	}
	var denied *ssh.OpenChannelError
	return errors.As(err, &denied) && remote.NothingListens(denied)
}

// checkInterface returns why a machine cannot take a virtual address. found is its own one on its interface.
func checkInterface(ip, own netip.Addr, found netip.Prefix) error {
	if !found.IsValid() {
		return fmt.Errorf("no interface of the machine has its private_ip %s", own)
	}
	return component.CheckInterface(ip, found)
}
