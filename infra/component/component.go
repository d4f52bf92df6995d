// Package component computes what each machine of a cluster must look like (etcd members,
// controllers, workers and the load balancer), as desired.State with its certificates and secrets,
// and the Kubernetes objects that every cluster needs.
//
// Everything here is a pure function, and the same input gives the same bytes, so that plans are
// exact. What may not enter: I/O, the clock, random numbers and private keys. A secret file is
// known here only by the names of its keys in the key store.
package component

import (
	"net/netip"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// Machine is the wanted state of one machine for one role.
type Machine struct {
	// State is what is known without secrets. Certificates and Secrets become further files when
	// they are applied; State.Units may name their paths in RestartOn and ReloadOn.
	State        desired.State
	Certificates []pki.Slot
	Secrets      []Secret
}

// Secret is a file whose content comes from the key store at apply time.
type Secret struct {
	Path         string
	Mode         uint32
	Owner, Group string   // empty means root
	Sources      []string // names in the key store
	// Render makes the file's content from the stored values, in the order of Sources. If it is
	// nil, the content is the only value, unchanged.
	Render func([][]byte) ([]byte, error)
	// Rendering names the format that Render makes. If it changes, the file is rendered again.
	Rendering string
}

// Origin says what the content is made from: "encryption-2.key, encryption.key as secretbox". If it
// changes, the file is written again.
func (s Secret) Origin() string {
	out := strings.Join(s.Sources, ", ")
	if s.Rendering != "" {
		out += " as " + s.Rendering
	}
	return out
}

// Cluster holds the settings that all components of a cluster share.
type Cluster struct {
	Name        string
	Domain      string // "cluster.local"
	PodCIDR     netip.Prefix
	ServiceCIDR netip.Prefix
	DNSIP       netip.Addr
	// NodeCIDRs are the subnets of the machines. Traffic from pods to them keeps the pod's address,
	// except to the third address of each, where a VPC has its DNS server. If empty, such traffic
	// is masqueraded like all other traffic that leaves the pod network. With PodRoutes, only traffic
	// to the nodes keeps the pod's address.
	NodeCIDRs []netip.Prefix
	// PodRoutes are the pod networks of all nodes and the addresses of the nodes, if the machines themselves
	// have the routes to them. Nil leaves that to the network between the machines.
	PodRoutes map[netip.Prefix]netip.Addr
	PKI       pki.Ref
}

// ClusterTraces returns what [Cluster.Read] needs from a worker.
func ClusterTraces() Traces { return Traces{Files: []string{KubeletConfigPath, PodEgressPath}} }

// Read returns the cluster with the settings that only workers have: the subnets of the machines
// and the address of cluster DNS.
func (c Cluster) Read(f Found) (Cluster, error) {
	dns, err := clusterDNSOf(f)
	if err != nil {
		return c, err
	}
	if !c.DNSIP.IsValid() && c.ServiceCIDR.Contains(dns) {
		c.DNSIP = dns
	}
	if c.NodeCIDRs == nil {
		c.NodeCIDRs = nodeCIDRsOf(f)
	}
	return c, nil
}

// Node is one machine as the cluster sees it.
type Node struct {
	Name      string
	PrivateIP netip.Addr
	PublicIP  netip.Addr   // zero when it has none
	PodCIDR   netip.Prefix // of a node; zero otherwise
	Zone      string       // availability zone; empty if it is not known
	Arch      string       // artifact.AMD64 or artifact.ARM64; empty means AMD64
	Spot      bool         // an EC2 Spot instance
}
