package cloud

import (
	"context"
	"net/netip"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/elbv2"
)

// balancing is what Elastic Load Balancing asks of EC2.
type balancing struct{ *ec2.Compute }

// Subnet implements elbv2.Compute.
func (b balancing) Subnet(id string) (elbv2.Subnet, bool) {
	s, ok := b.SubnetFacts(id)
	return elbv2.Subnet(s), ok
}

// Instance implements elbv2.Compute.
func (b balancing) Instance(id string) (elbv2.Instance, bool) {
	i, ok := b.InstanceFacts(id)
	return elbv2.Instance(i), ok
}

// AddNodes implements elbv2.Compute.
func (b balancing) AddNodes(balancer string, groups []string, nodes []elbv2.NodeRequest) ([]string, error) {
	var wanted []ec2.NodeRequest
	for _, n := range nodes {
		wanted = append(wanted, ec2.NodeRequest(n))
	}
	return b.Compute.AddNodes(balancer, groups, wanted)
}

// NodeAddresses implements elbv2.Compute.
func (b balancing) NodeAddresses(id string) elbv2.Addresses {
	private, public := b.Compute.NodeAddresses(id)
	return elbv2.Addresses{Private: private, Public: public}
}

// Changed implements elbv2.Compute.
func (b balancing) Changed() { b.NetworkChanged() }

// BalancerAddresses implements metadata.Source.
func (i instances) BalancerAddresses(name string) ([]netip.Addr, bool) {
	return i.account.elb.Resolve(name)
}

// PublicNames returns the names that everybody on the internet can look up, with their addresses: those of
// load balancers.
func (a *Account) PublicNames() map[string][]netip.Addr { return a.elb.PublicNames() }

// Network is the network of real packets.
type Network interface {
	ec2.Network
	elbv2.Network
	// ForgetIdle forgets the connections without a packet for this time, and returns how many it has forgotten.
	ForgetIdle(ctx context.Context, idle time.Duration) (int, error)
}

// balancers returns the load balancers and the target groups for the overview.
func (a *Account) balancers() (balancers, groups []ec2.NamedOverview) {
	all, targets := a.elb.Overview()
	return named(all), named(targets)
}

func named(list []elbv2.Overview) []ec2.NamedOverview {
	out := []ec2.NamedOverview{}
	for _, v := range list {
		out = append(out, ec2.NamedOverview{ID: v.ARN, Name: v.Name, Detail: v.Detail, User: v.VPC})
	}
	return out
}
