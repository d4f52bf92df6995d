package component

import (
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/registry"
)

// foundOf returns what is found on a machine exactly as it was rendered.
func foundOf(m Machine) Found {
	f := Found{Files: map[string][]byte{}, Releases: map[string]string{}}
	for _, file := range m.State.Files {
		f.Files[file.Path] = file.Content
	}
	for _, s := range m.Secrets {
		if s.Given {
			f.Files[s.Path], _ = s.Render(nil)
		}
	}
	for _, b := range m.State.Binaries {
		for _, i := range b.Installs {
			f.Releases[i.Path] = b.Version
		}
	}
	return f
}

// registryCA is the authority of a registry.
func registryCA(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("testdata/registry-ca.pem")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// same compares settings as JSON, which has only one number type.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	a, err := json.MarshalIndent(got, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.MarshalIndent(want, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(b), string(a)); diff != "" {
		t.Errorf("%s differs:\n%s", what, diff)
	}
}

// TestReadBack renders machines with and without settings, and reads the settings back.
func TestReadBack(t *testing.T) {
	tricky := Args{"v": {"4"}, "feature-gates": {`A=true,B="x y"`}, "message": {`100% of $HOME; it's \ "here"`}}

	etcd := etcdSpec(t)
	cp := controlPlaneSpec(t)
	cp.APIServer.ExtraSANs = nil
	worker := workerSpec(t)
	worker.CNI = CNISpec{Network: CNIBridge, Version: artifact.DefaultCNIPlugins}
	worker.Containerd = ContainerdSpec{Version: artifact.DefaultContainerd, RuncVersion: artifact.DefaultRunc, SandboxImage: DefaultSandboxImage}
	for _, plain := range []bool{true, false} {
		if !plain {
			etcd.Args, etcd.Quota = tricky, 2<<30
			etcd.AllowedCIDRs, cp.AllowedCIDRs, worker.AllowedCIDRs = networks("10.240.0.0/24"), networks("0.0.0.0/0"), networks("10.240.0.0/24", "198.51.100.0/24")
			cp.Cluster = routedCluster()
			cp.APIServer.Args, cp.ControllerManager.Args, cp.Scheduler.Args = tricky, Args{"concurrent-deployment-syncs": {"6"}, "profiling": nil}, tricky
			cp.APIServer.Authentication = map[string]any{"jwt": []any{map[string]any{"issuer": map[string]any{"url": "https://login.example.com", "audiences": []any{"a"}},
				"claimMappings": map[string]any{"username": map[string]any{"claim": "sub", "prefix": ""}}}}}
			cp.APIServer.Issuer = "https://oidc.example.com/demo"
			cp.Scheduler.Config = map[string]any{"percentageOfNodesToScore": 50, "leaderElection": map[string]any{"leaseDuration": "20s"}}
			cp.APIServer.AdmissionPlugins = map[string]map[string]any{"EventRateLimit": {"limits": []any{map[string]any{"type": "Server", "qps": 5}}}}
			worker.Kubelet.Args, worker.KubeProxy.Args = tricky, Args{"v": {"2"}}
			worker.Kubelet.Config = map[string]any{"cgroupDriver": "cgroupfs", "failCgroupV1": false, "resolvConf": "/etc/pods.conf", "evictionHard": map[string]any{"memory.available": "100Mi"}}
			worker.KubeProxy.Config = map[string]any{"conntrack": map[string]any{"maxPerCore": 32768}}
			worker.Containerd.Config = map[string]any{"plugins": map[string]any{"io.containerd.cri.v1.runtime": map[string]any{"restrict_oom_score_adj": true}}}
			worker.Containerd.Registries = registry.Registries{"registry.k8s.io": {{URL: "http://10.0.0.1:5000"}, {URL: "https://a.example.com", CA: registryCA(t), User: "reader", Password: "swordfish"}}, "*": {{URL: "http://10.0.0.1:5000/x"}}}
			worker.Kubelet.Taints = []Taint{{Key: "dedicated", Value: "gpu", Effect: "NoSchedule"}}
			worker.Kubelet.Labels = map[string]string{"tier": "blue", "zone": "a"}
			worker.Containerd.SandboxImage = "example.com/pause:1"
		}
		e, err := etcdSpec(t).Read(controllers[0], foundOf(must(t)(Etcd(etcd, controllers[0]))))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "etcd", e, etcd)

		base := controlPlaneSpec(t)
		base.Version = ""
		base.Cluster.PodCIDR, base.Cluster.ServiceCIDR, base.Cluster.Domain = netip.Prefix{}, netip.Prefix{}, ""
		c, err := base.Read(controllers[0], foundOf(must(t)(ControlPlane(cp, controllers[0]))))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "control plane", c, cp)

		written := foundOf(must(t)(Workers(worker)(worker0)))
		w, err := WorkerSpec{Cluster: worker.Cluster, ControlPlaneEndpoint: worker.ControlPlaneEndpoint, Artifacts: worker.Artifacts}.Read(worker0, written)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "worker", w, worker)
		zoned := worker0
		zoned.Zone = "us-east-1b"
		inZone := foundOf(must(t)(Workers(worker)(zoned)))
		if w, err = workerSpec(t).Read(zoned, inZone); err != nil {
			t.Fatal(err)
		}
		same(t, "labels of a worker in a zone", w.Kubelet.Labels, worker.Kubelet.Labels)
		if got := inZone.args(KubeletUnit).last("node-labels"); !strings.Contains(got, "topology.kubernetes.io/zone=us-east-1b") {
			t.Errorf("the kubelet registers with the labels %s", got)
		}
		cluster := worker.Cluster
		cluster.NodeCIDRs, cluster.DNSIP = nil, netip.Addr{}
		if cluster, err = cluster.Read(written); err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(cluster.NodeCIDRs, func(a, b netip.Prefix) int { return b.Compare(a) })
		same(t, "cluster", cluster, worker.Cluster)
	}
	none := worker
	none.CNI.Network = CNINone
	written := foundOf(must(t)(Workers(none)(worker0)))
	w, err := workerSpec(t).Read(worker0, written)
	if err != nil || w.CNI.Network != CNINone {
		t.Errorf("CNI %q (%v), wanted none", w.CNI.Network, err)
	}
	without := workerSpec(t)
	without.KubeProxy.Off = true
	if w, err = workerSpec(t).Read(worker0, foundOf(must(t)(Workers(without)(worker0)))); err != nil {
		t.Fatal(err)
	}
	same(t, "a worker without kube-proxy", w.KubeProxy, without.KubeProxy)
	if c, err := (Cluster{}).Read(written); len(c.NodeCIDRs) > 0 || c.DNSIP.IsValid() || err != nil {
		t.Errorf("a worker of another network says %v (%v)", c, err)
	}
	tuned := etcdBackupSpec()
	tuned.Prefix, tuned.Endpoint, tuned.KMSKeyID = "it's/", "http://10.0.0.1:9000", "alias/snapshots"
	tuned.Interval, tuned.Keep, tuned.KeepFor, tuned.NotBeforeChanges = 15*time.Minute, 7, 48*time.Hour, true
	for _, backup := range []EtcdBackupSpec{etcdBackupSpec(), tuned} {
		s, err := EtcdBackupSpec{Cluster: backup.Cluster, Members: controllers}.Read(foundOf(must(t)(EtcdBackup(backup, controllers[0]))))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "etcd backup", s, backup)
	}
	lb := loadBalancerSpec()
	lb.Port = 7443
	if s, err := loadBalancerSpec().Read(foundOf(must(t)(LoadBalancer(lb, lb0)))); s.Port != 7443 || err != nil {
		t.Errorf("port %d (%v)", s.Port, err)
	}
	if s, err := loadBalancerSpec().Read(foundOf(must(t)(LoadBalancer(loadBalancerSpec(), lb0)))); s.CheckInterval != 0 || err != nil {
		t.Errorf("checks every %s by default (%v)", s.CheckInterval, err)
	}
	lb.CheckInterval = 2500 * time.Millisecond
	slow := lb
	slow.CheckInterval = MaxCheckInterval
	for line, spec := range map[string]LoadBalancerSpec{
		"timeout connect 3s\n": lb, "timeout check 5s\n": lb, " inter 2500ms fastinter 625ms downinter 1250ms ": lb,
		"timeout connect 8s\n": slow, "timeout check 16s\n": slow, " inter 8s fastinter 2s downinter 4s ": slow,
	} {
		if config := haproxyConfig(spec); !strings.Contains(config, line) {
			t.Errorf("checks every %s without %q:\n%s", spec.CheckInterval, line, config)
		}
	}
	if s, err := loadBalancerSpec().Read(foundOf(must(t)(LoadBalancer(lb, lb0)))); s.CheckInterval != lb.CheckInterval || s.Notice() != 8*time.Second || err != nil {
		t.Errorf("checks every %s, noticed within %s (%v)", s.CheckInterval, s.Notice(), err)
	}
	lb.VirtualIP, lb.RouterID, lb.AllowedCIDRs = virtualIP, 7, networks("10.240.0.0/24")
	if s, err := loadBalancerSpec().Read(foundOf(must(t)(LoadBalancer(lb, lb0)))); len(s.AllowedCIDRs) != 1 || s.VirtualIP != virtualIP || s.RouterID != 7 || err != nil {
		t.Errorf("virtual address %s, router %d (%v)", s.VirtualIP, s.RouterID, err)
	}
}

// TestReadNothing checks the error for a machine of another role.
func TestReadNothing(t *testing.T) {
	etcd, cp, worker := etcdSpec(t), controlPlaneSpec(t), workerSpec(t)
	etcd.Version, cp.Version, worker.Version = "", "", ""
	_, e := etcd.Read(controllers[0], Found{})
	_, c := cp.Read(controllers[0], Found{})
	_, w := worker.Read(worker0, Found{})
	_, l := loadBalancerSpec().Read(Found{})
	_, b := etcdBackupSpec().Read(Found{})
	for want, err := range map[string]error{
		"/usr/local/bin/etcd is not on the machine":           e,
		"/usr/local/bin/kube-apiserver is not on the machine": c,
		"/usr/local/bin/kubelet is not on the machine":        w,
		"HAProxy's configuration on the machine":              l,
		"/etc/etcd-backup/config is not on the machine":       b,
	} {
		var nothing *NothingFoundError
		if !errors.As(err, &nothing) {
			t.Errorf("%v is no NothingFoundError", err)
		}
		wantError(t, err, want)
	}
}

// TestTraces checks that exactly the files of the role's traces are read.
func TestTraces(t *testing.T) {
	worker := workerSpec(t)
	worker.Containerd.Registries = registry.Registries{"*": {{URL: "https://10.0.0.1:5000", CA: registryCA(t)}}}
	worker.AllowedCIDRs = networks("10.240.0.0/24")
	routed, members := controlPlaneSpec(t), etcdSpec(t)
	routed.Cluster = routedCluster()
	routed.AllowedCIDRs, members.AllowedCIDRs = worker.AllowedCIDRs, worker.AllowedCIDRs
	shared := loadBalancerSpec()
	shared.VirtualIP, shared.AllowedCIDRs = virtualIP, worker.AllowedCIDRs
	for name, test := range map[string]struct {
		m      Machine
		traces Traces
	}{
		"etcd":          {must(t)(Etcd(members, controllers[0])), EtcdSpec{}.Traces()},
		"control plane": {must(t)(ControlPlane(routed, controllers[0])), ControlPlaneSpec{}.Traces()},
		"worker":        {must(t)(Workers(worker)(worker0)), WorkerSpec{}.Traces()},
		"load balancer": {must(t)(LoadBalancer(shared, lb0)), LoadBalancerSpec{}.Traces()},
		"etcd backup":   {must(t)(EtcdBackup(etcdBackupSpec(), controllers[0])), EtcdBackupSpec{}.Traces()},
		"cluster":       {must(t)(Workers(worker)(worker0)), ClusterTraces()},
	} {
		written := foundOf(test.m)
		for _, c := range test.m.Certificates {
			written.Files[c.CertPath] = nil
		}
		for _, pattern := range test.traces.Files {
			if pattern != AdmissionPath && !slices.ContainsFunc(slices.Collect(maps.Keys(written.Files)), func(file string) bool {
				ok, err := path.Match(pattern, file)
				return ok && err == nil
			}) {
				t.Errorf("%s: nothing writes %s", name, pattern)
			}
		}
		for _, program := range test.traces.Programs {
			if written.Releases[program] == "" {
				t.Errorf("%s: nothing installs %s", name, program)
			}
		}
	}
}
