package component

import (
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// download returns the download of an artifact, with what is installed of it.
func download(a artifact.Artifact) desired.Binary {
	b := desired.Binary{Name: a.Name, Version: a.Version, URL: a.URL, SHA256: a.SHA256}
	from := func(dir, to string, programs ...string) {
		for _, p := range programs {
			b.Installs = append(b.Installs, desired.Install{Member: path.Join(dir, p), Path: path.Join(to, p)})
		}
	}
	switch a.Name {
	case artifact.Etcd: // the archive's only directory has the archive's name
		from(strings.TrimSuffix(path.Base(a.Path), ".tar.gz"), binDir, "etcd", "etcdctl", "etcdutl")
	case artifact.Containerd:
		from("bin", binDir, "containerd", "containerd-shim-runc-v2", "ctr")
	case artifact.CNIPlugins:
		from("", cniBinDir, cniPlugins...)
	case artifact.Runc:
		b.Installs = []desired.Install{{Path: runcPath}}
	default:
		b.Installs = []desired.Install{{Path: binPath(a.Name)}}
	}
	return b
}

// Releases are the releases that the roles of a machine will install. Those of Kubernetes and etcd
// are empty if the machine will have none; the others are then their defaults.
type Releases struct {
	Kubernetes, Etcd, Containerd, Runc, CNIPlugins string
	NoKubeProxy                                    bool // on a worker
}

// Controller returns the downloads of a controller, in the order in which its roles need them. Each
// list of a role is complete even if the error is artifact.ErrUnknownChecksum.
func (r Releases) Controller(c *artifact.Catalog) ([]artifact.Artifact, error) {
	var etcd, kubernetes []artifact.Artifact
	var errs [2]error
	if r.Etcd != "" {
		etcd, errs[0] = c.EtcdSet(r.Etcd)
	}
	if r.Kubernetes != "" {
		kubernetes, errs[1] = c.ControlPlaneSet(r.Kubernetes)
	}
	return slices.Concat(etcd, kubernetes), errors.Join(errs[:]...)
}

// Worker is Controller for a worker.
func (r Releases) Worker(c *artifact.Catalog) ([]artifact.Artifact, error) {
	if r.Kubernetes == "" {
		return nil, nil
	}
	return c.WorkerSet(r.Kubernetes, r.Containerd, r.Runc, r.CNIPlugins, !r.NoKubeProxy)
}

// WorkerPackages and LoadBalancerPackages return the packages of a worker or load balancer with
// default settings.
func WorkerPackages() []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(bridgePackages, proxyPackages(defaultProxyMode)))))
}

// LoadBalancerPackages is WorkerPackages for a load balancer.
func LoadBalancerPackages() []string { return slices.Clone(loadBalancerPackages) }

// Staged returns what can be fetched onto a machine before its roles are applied, as part of a
// state: it has the same downloads as that of the roles.
func Staged(artifacts []artifact.Artifact, packages []string) desired.State {
	s := desired.State{Packages: packages}
	for _, a := range artifacts {
		s.Binaries = append(s.Binaries, download(a))
	}
	return s
}
