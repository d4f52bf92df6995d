// Package component writes down what each machine of a cluster must look
// like: etcd members, controllers, workers and the load balancer, as
// desired.State plus the certificates and secrets that go with it, and the
// Kubernetes objects a cluster cannot do without.
//
// Everything in here is a pure function: the same input gives the same bytes,
// which is what makes plans truthful. No I/O, no clock, no random numbers;
// private keys never pass through, only the names under which they are stored.
package component

import (
	"net/netip"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// Machine is everything wanted of one machine by one component set.
type Machine struct {
	// State holds what is known without any secret. Certificates and Secrets
	// become further files when they are applied; State.Units may name their
	// paths in RestartOn and ReloadOn.
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
	// Render turns the stored values, in the order of Sources, into the file's
	// content; nil means the one value as it is.
	Render func([][]byte) ([]byte, error)
	// Rendering says in a word what Render makes of them; another word has the
	// file rendered anew.
	Rendering string
}

// Origin says where the content comes from: "encryption-2.key, encryption.key
// as secretbox". A file of another origin is written anew.
func (s Secret) Origin() string {
	out := strings.Join(s.Sources, ", ")
	if s.Rendering != "" {
		out += " as " + s.Rendering
	}
	return out
}

// Cluster is what all components of a cluster agree on.
type Cluster struct {
	Name        string
	Domain      string // "cluster.local"
	PodCIDR     netip.Prefix
	ServiceCIDR netip.Prefix
	DNSIP       netip.Addr
	// NodeCIDRs are the subnets of the machines. Traffic from pods to them keeps
	// the pod's address, but for what goes to the third address of each, where a
	// VPC has its DNS server. Without any, such traffic is masqueraded like all
	// other traffic that leaves the pod network.
	NodeCIDRs []netip.Prefix
	PKI       pki.Ref
}

// ClusterTraces are what [Cluster.Read] looks at on a worker.
func ClusterTraces() Traces { return Traces{Files: []string{KubeletConfigPath, PodEgressPath}} }

// Read completes a cluster with what a worker's files say of it and no
// controller's do: the subnets of the machines and the address of cluster DNS.
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
	PodCIDR   netip.Prefix // workers only
}
