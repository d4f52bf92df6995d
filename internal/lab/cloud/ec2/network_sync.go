package ec2

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/network"
)

// render returns the network configuration of the state. cut says which zones are cut off.
func render(st *state, cut func(zone string) bool, nodes Nodes) network.Config {
	t := &tx{st: st}
	var cfg network.Config
	for _, v := range sorted(st.VPCs) {
		n := network.VPC{ID: v.ID, CIDR: v.CIDR, InternetGateway: t.gatewayOf(v.ID) != nil && st.Settings.BlockPublicAccess != blockBidirectional}
		for _, s := range sorted(st.Subnets) {
			if s.VPC == v.ID {
				n.Subnets = append(n.Subnets, network.Subnet{ID: s.ID, CIDR: s.CIDR, RouteTableID: t.tableOf(s).ID})
			}
		}
		for _, r := range sorted(st.RouteTables) {
			if r.VPC == v.ID {
				n.RouteTables = append(n.RouteTables, t.renderTable(r))
			}
		}
		for _, e := range sorted(st.Interfaces) {
			if e.VPC == v.ID {
				rendered := network.Interface{
					ID: e.ID, SubnetID: e.Subnet, PrivateIP: e.PrivateIP, PublicIP: t.publicIP(e), MAC: e.MAC,
					SourceDestCheck: e.SourceDestCheck, Groups: e.Groups, Stopped: !t.powered(e), NATGateway: e.NATGateway != "",
					Cut: cut(st.Subnets[e.Subnet].Zone),
				}
				if st.Settings.BlockPublicAccess == blockIngress && e.NATGateway == "" {
					rendered.PublicIP = netip.Addr{} // the gateway forwards nothing to it and from it
				}
				if e.Balancer != "" {
					forwards, active := nodes[e.ID]
					rendered.Balancer, rendered.Stopped = &forwards, !active
				}
				if e.ConnectEndpoint != "" {
					rendered.Balancer = &network.Balancer{}
				}
				n.Interfaces = append(n.Interfaces, rendered)
			}
		}
		for _, g := range sorted(st.Groups) {
			if g.VPC == v.ID {
				n.SecurityGroups = append(n.SecurityGroups, t.renderGroup(g))
			}
		}
		cfg.VPCs = append(cfg.VPCs, n)
	}
	return cfg
}

// powered reports whether what an interface belongs to takes packets.
func (t *tx) powered(e *iface) bool {
	if g := t.st.NATGateways[e.NATGateway]; g != nil {
		return g.State == natAvailable
	}
	if c := t.st.ConnectEndpoints[e.ConnectEndpoint]; c != nil {
		return c.State == connectReady
	}
	i := t.st.Instances[e.Instance]
	return i != nil && i.Powered
}

func (t *tx) renderTable(r *routeTable) network.RouteTable {
	out := network.RouteTable{ID: r.ID}
	for _, x := range r.Routes {
		target := network.Target{Kind: network.Blackhole}
		switch g := t.st.Gateways[x.Gateway]; {
		case x.Gateway == "local":
			target.Kind = network.Local
		case x.NATGateway != "":
			if t.available(x.NATGateway) {
				target = network.Target{Kind: network.ToInterface, InterfaceID: t.st.NATGateways[x.NATGateway].Address.Interface}
			}
		case x.Interface != "":
			target = network.Target{Kind: network.ToInterface, InterfaceID: x.Interface}
		case g != nil && g.VPC == r.VPC:
			target.Kind = network.InternetGateway
		}
		out.Routes = append(out.Routes, network.Route{Destination: x.Destination, Target: target})
	}
	return out
}

// renderGroup omits IPv6 rules: the lab's network has only IPv4.
func (t *tx) renderGroup(g *group) network.SecurityGroup {
	out := network.SecurityGroup{ID: g.ID}
	for _, r := range t.rulesOf(g.ID) {
		if r.CIDR6 != "" || r.Protocol == "icmpv6" {
			continue
		}
		n := network.Rule{Protocol: r.Protocol, FromPort: r.From, ToPort: r.To, GroupID: r.RefGroup}
		if r.CIDR != "" {
			n.CIDR = netip.MustParsePrefix(r.CIDR)
		}
		if r.Egress {
			out.Egress = append(out.Egress, n)
		} else {
			out.Ingress = append(out.Ingress, n)
		}
	}
	return out
}

// NetworkChanged applies to the network what others than EC2 do to it: faults and load balancers.
func (c *Compute) NetworkChanged() { c.syncNetwork(c.ctx) }

// networkTimeout bounds one attempt to change the network.
const networkTimeout = 60 * time.Second

// syncNetwork applies the state to the network. If that fails, it tries again in the background:
// the call has been accepted by then, as on EC2. ctx should end with the Compute, not with the call
// that changed the state.
func (c *Compute) syncNetwork(ctx context.Context) {
	if err := c.tryNetwork(ctx); err != nil && c.ctx.Err() == nil {
		c.log.Error("the network could not be changed; trying again", "error", err)
		c.wg.Go(func() {
			select {
			case <-c.ctx.Done():
			case <-c.cfg.Clock.After(time.Second):
				c.syncNetwork(c.ctx)
			}
		})
	}
}

func (c *Compute) tryNetwork(ctx context.Context) error {
	c.netMu.Lock()
	defer c.netMu.Unlock()
	nodes := c.cfg.Nodes()
	c.mu.Lock()
	want := render(c.st, func(zone string) bool {
		_, cut := c.faults.ZoneCut(zone)
		return cut
	}, nodes)
	c.mu.Unlock()
	if c.applied != nil && reflect.DeepEqual(*c.applied, want) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	c.applied = nil
	if c.netErr = c.cfg.Network.Apply(ctx, want); c.netErr != nil {
		return fmt.Errorf("applying the network configuration: %w", c.netErr)
	}
	c.applied = &want
	return nil
}
