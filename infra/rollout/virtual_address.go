package rollout

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
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

// addressLook asks the machine whether it has the virtual address.
const addressLook = "ip -4 -o address show to "

// viewAddress asks one machine. One that the packet filter of the others does not let in is not asked to connect.
func (x LoadBalancer) viewAddress(ctx context.Context, m *fleet.Machine, address netip.AddrPort) (addressView, error) {
	v := addressView{machine: m.Name()}
	out, err := m.Remote.Run(ctx, remote.Command{Script: addressLook + address.Addr().String()})
	if err != nil {
		return v, err
	}
	v.holds = strings.TrimSpace(string(out.Stdout)) != ""
	if !v.holds && x.Spec.AllowedCIDRs != nil && !slices.ContainsFunc(x.Spec.AllowedCIDRs, func(p netip.Prefix) bool { return p.Contains(m.Node.PrivateIP) }) {
		return v, nil
	}
	soon, cancel := context.WithTimeout(ctx, reachBudget)
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
	address := netip.AddrPortFrom(x.Spec.VirtualIP, uint16(x.port())) //nolint:gosec // a port
	step := "find the virtual address " + x.Spec.VirtualIP.String()
	router := x.Spec.RouterID
	if router == 0 {
		router = component.DefaultRouterID
	}
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
		return addressTrouble(address, router, views)
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
func (x LoadBalancer) checkInterfaces(ctx context.Context, o *operation) error {
	if !x.Spec.VirtualIP.IsValid() {
		return nil
	}
	return fleet.Each(ctx, o.reachable(), func(ctx context.Context, m *convergence) error {
		if len(m.changes) == 0 {
			return nil
		}
		out, err := m.Remote.Run(ctx, remote.Command{Script: addressLook + m.Node.PrivateIP.String()})
		var failed *remote.ExitError
		if errors.As(err, &failed) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, ip := range append([]netip.Addr{x.Spec.VirtualIP}, x.Spec.FormerIPs...) {
			if err := checkInterface(ip, m.Node.PrivateIP, string(out.Stdout)); err != nil {
				return &fleet.StepError{Machine: m.Name(), Step: "check the virtual address " + ip.String(), Err: fmt.Errorf("%w; nothing has been changed", err),
					Next: m.SSH("ip -4 address")}
			}
		}
		return nil
	})
}

// checkInterface returns why a machine cannot take a virtual address. listed is the line of ip about the
// machine's own address: "2: ens5    inet 10.240.0.40/24 brd 10.240.0.255 scope global ens5".
func checkInterface(ip, own netip.Addr, listed string) error {
	fields := strings.Fields(listed)
	i := slices.Index(fields, "inet")
	if i < 0 || i+1 >= len(fields) {
		return fmt.Errorf("no interface of the machine has its private_ip %s", own)
	}
	network, err := netip.ParsePrefix(fields[i+1])
	if err != nil {
		return fmt.Errorf("the interface with %s has no network: %w", own, err)
	}
	return component.CheckInterface(ip, network)
}
