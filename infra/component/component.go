// Package component computes what each machine of a cluster must look like (etcd members,
// controllers, workers and the load balancer), as desired.State with its certificates and secrets,
// and the Kubernetes objects that every cluster needs.
//
// Everything here is a pure function, and the same input gives the same bytes, so that plans are
// exact. What may not enter: I/O, the clock, random numbers and private keys. A secret file is
// known here by the names of its keys in the key store, or by what it says beside the passwords it is given.
package component

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
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
	Extra        []desired.ExtraFile // which of the files and secrets the user has placed
}

// Placed returns the paths of the user's files, with the units that restart when one of them goes.
func (m Machine) Placed() map[string][]string {
	out := make(map[string][]string, len(m.Extra))
	for _, f := range m.Extra {
		out[f.Path] = slices.Clone(f.Restarts)
	}
	return out
}

// with returns the machine with what its cluster's machines trust, and with extra files. Their content is no text that is listed: a value that is sensitive
// in the configuration would be shown.
func (m Machine) with(c Cluster, extra []desired.ExtraFile) Machine {
	m.State.Authorities, m.State.AuthorityReaders = c.Authorities, []string{ContainerdUnit}
	m.Extra = extra
	for _, f := range extra {
		if f.Secret {
			m.Secrets = append(m.Secrets, Secret{Path: f.Path, Mode: cmp.Or(f.Mode, 0o600), Owner: f.Owner, Group: f.Group,
				Given: true, Render: func([][]byte) ([]byte, error) { return f.Content, nil }, Rendering: fmt.Sprintf("content_wo, version %d", f.Version)})
		} else {
			content := f.Content
			if content == nil {
				content = []byte{}
			}
			m.State.Files = append(m.State.Files, desired.File{Path: f.Path, Mode: cmp.Or(f.Mode, 0o644), Owner: f.Owner, Group: f.Group, Content: content})
		}
	}
	for _, f := range extra {
		for _, name := range f.Restarts {
			m.State.Units = m.restarting(name, f.Path)
		}
	}
	return m
}

// restarting returns the units with one that restarts when the file changes.
func (m Machine) restarting(name, file string) []desired.Unit {
	units := slices.Clone(m.State.Units)
	if i := slices.IndexFunc(units, func(u desired.Unit) bool { return u.Name == name }); i >= 0 {
		units[i].RestartOn = append(slices.Clone(units[i].RestartOn), file)
		return units
	}
	if slices.ContainsFunc(m.Extra, func(f desired.ExtraFile) bool { return f.Path == unitPath(name) }) {
		return append(units, running(name, file))
	}
	return append(units, desired.Unit{Name: name, Active: true, Foreign: true, RestartOn: []string{file}})
}

// WithoutPlaced returns what else is wanted of a machine on which files were placed that are extra files no more:
// they go, and their units restart or, if a file is the unit's own, end.
func (m Machine) WithoutPlaced(placed map[string][]string) Machine {
	now := m.Placed()
	for _, file := range slices.Sorted(maps.Keys(placed)) {
		if _, wanted := now[file]; wanted || slices.Contains(m.State.Paths(), file) {
			continue
		}
		wants := func(name string) bool {
			return slices.ContainsFunc(m.State.Units, func(u desired.Unit) bool { return u.Name == name })
		}
		if name := path.Base(file); file == unitPath(name) && slices.Contains(placed[file], name) && !wants(name) {
			m.State.Retired = append(slices.Clone(m.State.Retired), desired.Retired{Unit: name, Paths: []string{file}})
			continue
		}
		m.State.Retired = append(slices.Clone(m.State.Retired), desired.Retired{Paths: []string{file}, Restarts: placed[file]})
		for _, name := range placed[file] {
			if _, ends := placed[unitPath(name)]; !wants(name) && !ends {
				m.State.Units = append(slices.Clone(m.State.Units), desired.Unit{Name: name, Active: true, Foreign: true})
			}
		}
	}
	return m
}

// Secret is a file whose content comes from the key store at apply time, or from the user.
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
	// Given says that the user gives the content, or passwords in it, only while it is applied. There are no Sources
	// then, and Rendering names what was given.
	Given bool
	// Text is what people may be shown of the content. Nil shows its origin.
	Text []byte
}

// Origin says what the content is made from: "encryption-2.key, encryption.key as secretbox". If it
// changes, the file is written again.
func (s Secret) Origin() string {
	if s.Given {
		return s.Rendering
	}
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
	// Authorities are certificates, PEM, of authorities that the machines trust beside those of their distribution, as
	// package egress has checked them. Empty means none.
	Authorities string
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
	// InstanceID and InstanceType are EC2's; empty for a machine that is no EC2 instance.
	InstanceID, InstanceType string
	DrainOnRebalance         bool // of an EC2 Spot instance: also when EC2 recommends to replace it
}
