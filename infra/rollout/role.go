package rollout

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// Role is a set of components on machines: an [Etcd], a [ControlPlane], [Workers], a
// [LoadBalancer] or an [EtcdBackup].
type Role interface {
	// Artifacts returns the downloads the role needs. It is the role's own slice: the caller may
	// set missing checksums in it.
	Artifacts() []artifact.Artifact

	role() role
	observe(ctx context.Context, o *operation) Report
	// apply gets nil as prior, or a role of the same type.
	apply(ctx context.Context, o *operation, prior Role) error
	remove(ctx context.Context, o *operation) error
	// with returns the role on other machines.
	with(targets []fleet.Target) Role
}

var _ = []Role{Etcd{}, ControlPlane{}, Workers{}, LoadBalancer{}, EtcdBackup{}}

// checkRole refuses values of type Role that are not roles: nil and pointers.
func checkRole(r Role) error {
	if r == nil || reflect.TypeOf(r).Kind() == reflect.Pointer {
		return fmt.Errorf("a role is a value, not a %T", r)
	}
	return nil
}

// Etcd is an etcd cluster and the machines of its members. Spec.Members is derived from Targets.
type Etcd struct {
	Spec    component.EtcdSpec
	Targets []fleet.Target
	// Restore says from what the cluster is made, if not empty.
	Restore EtcdRestore
	// Controllers finds the machines with API servers, which are held while etcd's leadership moves. Nil means
	// that there are none but on Targets.
	Controllers func(context.Context) ([]fleet.Target, error)
}

// ControlPlane is the API servers, controller managers and schedulers of a cluster. Spec.Nodes is
// derived from Targets.
type ControlPlane struct {
	Spec    component.ControlPlaneSpec
	Targets []fleet.Target
}

// Workers is a pool of worker machines.
type Workers struct {
	Spec    component.WorkerSpec
	Targets []fleet.Target
	// Endpoint is the API server's public endpoint: https://<host>:6443.
	Endpoint string
	// MaxUnavailable is how many nodes a roll-out may take down at a time; 0 means 1. The next node
	// is taken down as soon as one is Ready again.
	MaxUnavailable int
	// DrainTimeout bounds the draining of one node; 0 means fleet.DefaultDrainTimeout.
	DrainTimeout time.Duration
}

// LoadBalancer is HAProxy in front of the API servers, on one machine or on several that share a virtual
// address.
type LoadBalancer struct {
	Spec    component.LoadBalancerSpec
	Targets []fleet.Target
}

// Artifacts implements Role.
func (x Etcd) Artifacts() []artifact.Artifact { return x.Spec.Artifacts }

// Artifacts implements Role.
func (x ControlPlane) Artifacts() []artifact.Artifact { return x.Spec.Artifacts }

// Artifacts implements Role.
func (x Workers) Artifacts() []artifact.Artifact { return x.Spec.Artifacts }

// Artifacts implements Role. HAProxy is a package of the distribution.
func (x LoadBalancer) Artifacts() []artifact.Artifact { return nil }

// Artifacts implements Role. Snapshots are taken with the programs of the member.
func (x EtcdBackup) Artifacts() []artifact.Artifact { return nil }

// role is what this package needs to know of a [Role].
type role struct {
	name    string // for progress and errors: "etcd"
	ref     pki.Ref
	targets []fleet.Target
	machine func(component.Node) (component.Machine, error)
	// traces is where the role's settings are found on a machine.
	traces       component.Traces
	readSettings func(component.Node, component.Found) (Role, error)
	// dirs are directories that hold only this role's data and configuration. Removing the role
	// deletes them.
	dirs []string
	// asksMachines is set when the role's questions to the cluster go to its own machines. If none
	// of those can be reached, only that is reported.
	asksMachines bool
	// needs are what a machine must be able to reach before its units can work.
	needs func(*operation, *convergence) []need
	// endFirst is a script that ends processes that keep running when units stop. It runs on a
	// machine before the role is removed from it.
	endFirst string
}

func (x Etcd) with(targets []fleet.Target) Role         { x.Targets = targets; return x }
func (x ControlPlane) with(targets []fleet.Target) Role { x.Targets = targets; return x }
func (x Workers) with(targets []fleet.Target) Role      { x.Targets = targets; return x }
func (x LoadBalancer) with(targets []fleet.Target) Role { x.Targets = targets; return x }

func (x EtcdBackup) with(targets []fleet.Target) Role { x.Targets = targets; return x }

func (x Etcd) spec() component.EtcdSpec {
	x.Spec.Members = fleet.Nodes(x.Targets)
	return x.Spec
}

func (x Etcd) role() role {
	spec := x.spec()
	return role{name: "etcd", ref: spec.Cluster.PKI, targets: x.Targets,
		machine: func(n component.Node) (component.Machine, error) { return component.Etcd(spec, n) },
		traces:  spec.Traces(),
		readSettings: func(n component.Node, f component.Found) (_ Role, err error) {
			x.Spec, err = spec.Read(n, f)
			return x, err
		},
		dirs: []string{component.EtcdDataDir}, needs: needsPeers, asksMachines: true}
}

func (x ControlPlane) role() role {
	spec := x.Spec
	spec.Nodes = fleet.Nodes(x.Targets)
	return role{name: "control plane", ref: spec.Cluster.PKI, targets: x.Targets,
		machine: func(n component.Node) (component.Machine, error) { return component.ControlPlane(spec, n) },
		traces:  spec.Traces(),
		readSettings: func(n component.Node, f component.Found) (_ Role, err error) {
			x.Spec, err = spec.Read(n, f)
			return x, err
		},
		needs: needsOneOf("etcd", spec.EtcdEndpoints...), asksMachines: true}
}

func (x Workers) role() role {
	return role{name: "worker", ref: x.Spec.Cluster.PKI, targets: x.Targets,
		machine: func(n component.Node) (component.Machine, error) { return component.Worker(x.Spec, n) },
		traces:  x.Spec.Traces(),
		readSettings: func(n component.Node, f component.Found) (_ Role, err error) {
			x.Spec, err = x.Spec.Read(n, f)
			return x, err
		},
		dirs:     []string{"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni"},
		needs:    needsOneOf("the API server", x.Spec.ControlPlaneEndpoint),
		endFirst: deed.EndPods(component.KubeletUnit, component.KubeProxyUnit, component.ContainerdUnit)}
}

func (x LoadBalancer) role() role {
	x.Spec.Machines = fleet.Nodes(x.Targets)
	return role{name: "load balancer", ref: x.Spec.Cluster.PKI, targets: x.Targets,
		machine: func(n component.Node) (component.Machine, error) { return component.LoadBalancer(x.Spec, n) },
		traces:  x.Spec.Traces(),
		readSettings: func(_ component.Node, f component.Found) (_ Role, err error) {
			x.Spec, err = x.Spec.Read(f)
			return x, err
		}}
}

// departing returns the targets of prior whose machines do not belong to the role any more.
func departing(want, prior []fleet.Target) []fleet.Target {
	return slices.Concat(fleet.Leaving(want, prior), fleet.Superseded(want, prior))
}

// files lists what a role puts on its machines, with what is known of each file beforehand: its
// digest, who issues it, or which keys it is made from.
func files(r role) (map[string]string, error) {
	out := map[string]string{}
	for _, t := range r.targets {
		m, err := r.machine(t.Node)
		if err != nil {
			return nil, fmt.Errorf("%s on %s: %w", r.name, t.Node.Name, err)
		}
		for path, digest := range fileDigests(m.State) {
			out[t.Node.Name+":"+path] = "sha256:" + digest
		}
		for _, s := range m.Certificates {
			out[t.Node.Name+":"+s.CertPath] = "issued by " + issuerOf(r.ref, s.CA)
		}
		for _, s := range m.Secrets {
			out[t.Node.Name+":"+s.Path] = "from " + s.Origin()
		}
	}
	return out, nil
}

// issuerOf returns the common name of the authority that issues certificates now.
func issuerOf(ref pki.Ref, ca pki.CAName) string {
	name, err := pki.CommonName([]byte(ref.Bundle(ca)))
	if err != nil {
		return "the " + string(ca) + " CA"
	}
	return name
}

// fileDigests returns the digest of every public file with wanted content. For an installed program
// it is that of its download.
func fileDigests(s desired.State) map[string]string {
	out := map[string]string{}
	for _, f := range s.Files {
		if !f.Secret && !f.Once && f.Digest() != "" {
			out[f.Path] = f.Digest()
		}
	}
	for _, b := range s.Binaries {
		for _, i := range b.Installs {
			out[i.Path] = b.SHA256
		}
	}
	return out
}
