package extrafile

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// samples returns by role a machine of an example with every optional part, or with what retires the part: the
// paths and units that a role has on a machine, whatever its settings. Only the names of an admission plugin's
// file and of a registry's mirrors vary.
var samples = sync.OnceValues(func() (map[string]component.Machine, error) {
	catalog, err := artifact.NewCatalog("", nil, nil)
	if err != nil {
		return nil, err
	}
	set := func(list []artifact.Artifact, _ error) []artifact.Artifact { // checksums do not matter
		for i := range list {
			list[i].SHA256 = strings.Repeat("0", 64)
		}
		return list
	}
	kubernetes := version.Releases()[0].Newest
	n := component.Node{Name: "sample", PrivateIP: netip.MustParseAddr("192.0.2.1"), PodCIDR: netip.PrefixFrom(component.DefaultPodCIDR.Addr(), 24), InstanceID: "i-00000000000000000"}
	allowed := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	cluster := component.Cluster{
		Name: "sample", Domain: component.DefaultDomain, PodCIDR: component.DefaultPodCIDR, ServiceCIDR: component.DefaultServiceCIDR, DNSIP: component.DefaultServiceCIDR.Addr().Next().Next(),
		NodeCIDRs: allowed, PodRoutes: map[netip.Prefix]netip.Addr{n.PodCIDR: n.PrivateIP},
		PKI: pki.Ref{Cluster: "sample", Store: pki.StoreSSM, Region: "sample-1", KubernetesCA: "-\n", EtcdCA: "-\n", FrontProxyCA: "-\n", ServiceAccountPublicKey: "-\n"},
	}
	out := map[string]component.Machine{}
	for role, build := range map[string]func() (component.Machine, error){
		"etcd": func() (component.Machine, error) {
			return component.Etcd(component.EtcdSpec{Cluster: cluster, Version: artifact.DefaultEtcd, Members: []component.Node{n}, AllowedCIDRs: allowed, Artifacts: set(catalog.EtcdSet(artifact.DefaultEtcd))}, n)
		},
		"etcd backup": func() (component.Machine, error) {
			return component.EtcdBackup(component.EtcdBackupSpec{Cluster: cluster, Members: []component.Node{n}, Bucket: "sample"}, n)
		},
		"control plane": func() (component.Machine, error) {
			return component.ControlPlane(component.ControlPlaneSpec{Cluster: cluster, Version: kubernetes, EndpointNames: []string{n.Name}, Nodes: []component.Node{n}, EtcdEndpoints: component.EtcdEndpoints([]component.Node{n}),
				AllowedCIDRs: allowed, APIServer: component.APIServerSpec{AdmissionPlugins: map[string]map[string]any{"EventRateLimit": {"limits": []any{}}}}, Artifacts: set(catalog.ControlPlaneSet(kubernetes))}, n)
		},
		"worker": func() (component.Machine, error) {
			return component.Workers(component.WorkerSpec{Cluster: cluster, Version: kubernetes, ControlPlaneEndpoint: "https://192.0.2.1:6443", AllowedCIDRs: allowed,
				Artifacts: set(catalog.WorkerSet(kubernetes, "", "", "", true))})(n)
		},
		"load balancer": func() (component.Machine, error) {
			return component.LoadBalancer(component.LoadBalancerSpec{Cluster: cluster, Backends: []component.Node{n}, VirtualIP: n.PrivateIP.Next(), Machines: []component.Node{n}, AllowedCIDRs: allowed}, n)
		},
	} {
		m, err := build()
		if err != nil {
			return nil, fmt.Errorf("example of %s: %w", role, err)
		}
		out[role] = m
	}
	return out, nil
})
