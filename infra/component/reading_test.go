package component

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// foundOf is a machine exactly as it was written.
func foundOf(m Machine) Found {
	f := Found{}
	for _, file := range m.State.Files {
		f[file.Path] = file.Content
	}
	return f
}

// same compares settings as JSON, which does not tell numbers apart.
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

// TestReadBack writes machines with settings and without, and reads the
// settings off them.
func TestReadBack(t *testing.T) {
	tricky := Args{"v": {"4"}, "feature-gates": {`A=true,B="x y"`}, "message": {`100% of $HOME; it's \ "here"`}}

	etcd := etcdSpec(t)
	cp := controlPlaneSpec(t)
	cp.ExtraSANs = nil
	worker := workerSpec(t)
	worker.CNI, worker.SandboxImage = CNIBridge, DefaultSandboxImage
	for _, plain := range []bool{true, false} {
		if !plain {
			etcd.ExtraArgs = tricky
			cp.APIServerArgs, cp.ControllerManagerArgs, cp.SchedulerArgs = tricky, Args{"concurrent-deployment-syncs": {"6"}}, tricky
			cp.SchedulerConfig = map[string]any{"percentageOfNodesToScore": 50, "leaderElection": map[string]any{"leaseDuration": "20s"}}
			cp.AdmissionPlugins = map[string]map[string]any{"EventRateLimit": {"limits": []any{map[string]any{"type": "Server", "qps": 5}}}}
			worker.KubeletArgs, worker.KubeProxyArgs = tricky, Args{"v": {"2"}}
			worker.KubeletConfig = map[string]any{"cgroupDriver": "cgroupfs", "failCgroupV1": false, "resolvConf": "/etc/pods.conf", "evictionHard": map[string]any{"memory.available": "100Mi"}}
			worker.KubeProxyConfig = map[string]any{"conntrack": map[string]any{"maxPerCore": 32768}}
			worker.ContainerdConfig = map[string]any{"plugins": map[string]any{"io.containerd.cri.v1.runtime": map[string]any{"restrict_oom_score_adj": true}}}
			worker.RegistryMirrors = map[string]string{"registry.k8s.io": "http://10.0.0.1:5000", "*": "http://10.0.0.1:5000/x"}
			worker.Taints = []Taint{{Key: "dedicated", Value: "gpu", Effect: "NoSchedule"}}
			worker.Labels = map[string]string{"tier": "blue", "zone": "a"}
			worker.SandboxImage = "example.com/pause:1"
		}
		e, err := ReadEtcd(etcdSpec(t), controllers[0], foundOf(must(t)(Etcd(etcd, controllers[0]))))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "etcd", e, etcd)

		base := controlPlaneSpec(t)
		base.ExtraSANs = nil
		f := foundOf(must(t)(ControlPlane(cp, controllers[0])))
		c, err := ReadControlPlane(base, controllers[0], f)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "control plane", c, cp)
		pods, services, domain := ControlPlaneNetworks(f)
		same(t, "networks", []string{pods, services, domain}, []string{"10.200.0.0/16", "10.32.0.0/24", "cluster.local"})

		w, err := ReadWorker(workerSpec(t), worker0, foundOf(must(t)(Worker(worker, worker0))))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "worker", w, worker)
		nodes, dns, err := WorkerNetworks(foundOf(must(t)(Worker(worker, worker0))))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "subnets a worker knows", nodes, []string{"10.240.0.0/24", "10.240.1.0/24"})
		same(t, "cluster DNS a worker knows", dns, worker.Cluster.DNSIP.String())
	}
	none := worker
	none.CNI = CNINone
	w, err := ReadWorker(workerSpec(t), worker0, foundOf(must(t)(Worker(none, worker0))))
	if err != nil || w.CNI != CNINone {
		t.Errorf("CNI %q (%v), wanted none", w.CNI, err)
	}
	if nodes, _, err := WorkerNetworks(foundOf(must(t)(Worker(none, worker0)))); len(nodes) > 0 || err != nil {
		t.Errorf("a worker of another network says %q (%v)", nodes, err)
	}
	lb := loadBalancerSpec()
	lb.Port = 7443
	if port := ReadLoadBalancer(foundOf(must(t)(LoadBalancer(lb, lb0)))); port != "7443" {
		t.Errorf("port %q", port)
	}
}
