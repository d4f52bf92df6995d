package etcdcluster

import (
	"net"
	"slices"
	"strconv"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// needsPeers is what an etcd member needs of the other running members: without a quorum it never
// starts. The guards check stopped members. One that is about to load other packet filter rules, which
// happens before members join, counts as reached: the rules that it still has may shut out a new member.
func (o *operation) needsPeers(m *rollout.Machine) *rollout.Need {
	n := rollout.Need{To: "the other etcd members", Enough: etcd.Quorum(len(o.Machines)) - 1}
	for _, x := range o.Reachable() {
		switch {
		case x == m:
		case changesRules(x):
			n.Enough--
		default:
			n.Addresses = append(n.Addresses, net.JoinHostPort(x.Node.PrivateIP.String(), strconv.Itoa(component.EtcdPeerPort)))
		}
	}
	if len(n.Addresses) < n.Enough || n.Enough <= 0 {
		return nil
	}
	return &n
}

// changesRules reports whether the rules of a member's packet filter change.
func changesRules(m *rollout.Machine) bool {
	return slices.ContainsFunc(m.Changes, func(c host.Change) bool {
		return c.Target == component.EtcdFirewallPath || c.Target == component.EtcdFirewallUnit
	})
}
