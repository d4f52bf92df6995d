package component

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/registry"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

var cmpAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestEtcdRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*EtcdSpec)
		want   string
	}{
		{"bad version", func(s *EtcdSpec) { s.Version = "3.6" }, "not a release version"},
		{"not a member", func(s *EtcdSpec) { s.Members = controllers[1:] }, "machine controller-0 is not among"},
		{"twice", func(s *EtcdSpec) { s.Members = append(controllers[:1:1], controllers[0]) }, "hosts[1].name: Host 1 has the same name as host 0: controller-0."},
		{"same address", func(s *EtcdSpec) { s.Members = append(controllers[:1:1], node("other", "10.240.0.10", "", "")) }, "hosts[1].private_ip: Host 1 has the same private_ip as host 0: 10.240.0.10."},
		{"bad machine name", func(s *EtcdSpec) {
			s.Members = append(controllers[:1:1], node("a=https://evil,b", "10.240.0.11", "", ""))
		}, `machine name "a=https://evil,b"`},
		{"no CA", func(s *EtcdSpec) { s.Cluster.PKI.EtcdCA = "" }, "the PKI has no etcd CA certificate"},
		{"no artifact", func(s *EtcdSpec) { s.Artifacts = nil }, "the artifacts do not include etcd"},
		{"argument with dashes", func(s *EtcdSpec) { s.Args = Args{"--debug": {"true"}} }, `extra_args.etcd["--debug"]: a flag is in lower case`},
		{"argument with a line break", func(s *EtcdSpec) { s.Args = Args{"log-level": {"a\nExecStartPre=/bin/evil"}} }, `extra_args.etcd["log-level"]: the value has a line break`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := etcdSpec(t)
			tt.change(&spec)
			_, err := Etcd(spec, controllers[0])
			wantError(t, err, tt.want)
			wantError(t, err, "etcd on controller-0")
		})
	}
}

func TestEtcdBackupRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*EtcdBackupSpec)
		want   string
	}{
		{"too often", func(s *EtcdBackupSpec) { s.Interval = 59 * time.Second }, "interval: 59s: snapshots are at least 1m0s apart."},
		{"none are kept", func(s *EtcdBackupSpec) { s.Keep = -1 }, "keep: -1 snapshots cannot be kept."},
		{"not for long enough", func(s *EtcdBackupSpec) { s.Interval, s.KeepFor = 2*time.Hour, time.Hour }, "keep_for: Snapshots would be deleted after 1h0m0s"},
		{"no region", func(s *EtcdBackupSpec) { s.Region = "" }, "region: The key store of the cluster is not in AWS"},
		{"no cluster", func(s *EtcdBackupSpec) { s.Cluster.Name = "" }, "snapshots on controller-0"},
		{"not a member", func(s *EtcdBackupSpec) { s.Members = controllers[1:] }, "it is none of the members"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := etcdBackupSpec()
			tt.change(&spec)
			_, err := EtcdBackup(spec, controllers[0])
			wantError(t, err, tt.want)
		})
	}
	spec := etcdBackupSpec()
	spec.Interval = 10 * time.Minute
	if got, want := spec.Overdue(), 23*time.Minute; got != want { // two intervals, and a tenth for each of three members
		t.Errorf("overdue after %s, wanted %s", got, want)
	}
	if got := spec.Location(); got != "s3://example-snapshots/k8s/demo/etcd/" {
		t.Errorf("location %s", got)
	}
}

func TestControlPlaneRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*ControlPlaneSpec)
		want   string
	}{
		{"unsupported version", func(s *ControlPlaneSpec) { s.Version = "1.30.0" }, "version 1.30.0 is not supported"},
		{"no etcd", func(s *ControlPlaneSpec) { s.EtcdEndpoints = nil }, "no etcd endpoints"},
		{"bad SAN", func(s *ControlPlaneSpec) { s.APIServer.ExtraSANs = []string{"https://api"} }, `"https://api" is neither an address nor a host name`},
		{"bad cluster", func(s *ControlPlaneSpec) { s.Cluster.ServiceCIDR = s.Cluster.PodCIDR }, "overlaps"},
		{"audit policy: not YAML", func(s *ControlPlaneSpec) { s.APIServer.AuditPolicy = []byte("{") }, "audit_policy:"},
		{"audit policy: unknown field", func(s *ControlPlaneSpec) {
			s.APIServer.AuditPolicy = []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrulez: []\n")
		}, `unknown field "rulez"`},
		{"audit policy: another kind", func(s *ControlPlaneSpec) { s.APIServer.AuditPolicy = []byte("apiVersion: v1\nkind: ConfigMap\n") }, "audit_policy: wanted kind Policy"},
		{"audit policy: empty", func(s *ControlPlaneSpec) {
			s.APIServer.AuditPolicy = []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\n")
		}, "audit_policy: no rules"},
		{"audit policy: unknown level", func(s *ControlPlaneSpec) {
			s.APIServer.AuditPolicy = []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: All}]\n")
		}, `audit_policy: rules[0].level: Unsupported value: "All"`},
		{"audit policy: two kinds of request in one rule", func(s *ControlPlaneSpec) {
			s.APIServer.AuditPolicy = []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None, namespaces: [a], nonResourceURLs: [/healthz]}]\n")
		}, "rules cannot apply to both"},
		{"unknown admission plugin", func(s *ControlPlaneSpec) {
			s.APIServer.AdmissionPlugins = map[string]map[string]any{"PodSecurtiy": {}}
		}, `has no admission plugin "PodSecurtiy"; it has AlwaysAdmit`},
		{"admission plugin in another case", func(s *ControlPlaneSpec) {
			s.APIServer.AdmissionPlugins = map[string]map[string]any{"podSecurity": {}}
		}, "did you mean PodSecurity?"},
		{"unknown admission plugin in a flag", func(s *ControlPlaneSpec) {
			s.APIServer.Args = Args{"enable-admission-plugins": {"NodeRestriction,Foo"}}
		}, `--enable-admission-plugins: kube-apiserver 1.36.4 has no admission plugin "Foo"`},
		{"admission plugin of a later release", func(s *ControlPlaneSpec) {
			s.Version, s.APIServer.Args = "1.35.8", Args{"disable-admission-plugins": {"JobValidation"}}
		}, `kube-apiserver 1.35.8 has no admission plugin "JobValidation"`},
		{"admission plugin of an earlier release", func(s *ControlPlaneSpec) {
			s.Version, s.APIServer.Args = "1.37.1", Args{"disable-admission-plugins": {"PodGroupProtection,JobValidation"}}
		}, `kube-apiserver 1.37.1 has no admission plugin JobValidation, which was removed in 1.37: remove it`},
		{"scheduler configuration", func(s *ControlPlaneSpec) { s.Scheduler.Config = map[string]any{"leaderElect": true} }, `unknown field "leaderElect"`},
		{"garbage collector of one program", func(s *ControlPlaneSpec) { s.APIServer.Args = Args{"enable-garbage-collector": {"false"}} },
			`extra_args.kube_controller_manager["enable-garbage-collector"]: kube-apiserver and kube-controller-manager need the same --enable-garbage-collector, and have false and true.`},
		{"scheduler without a leader", func(s *ControlPlaneSpec) {
			s.Scheduler.Config = map[string]any{"leaderElection": map[string]any{"leaderElect": false}}
		}, "scheduler_config.leaderElection.leaderElect: the provider sets it"},
		{"API that 1.37 dropped", func(s *ControlPlaneSpec) {
			s.Version, s.APIServer.Args = "1.37.1", Args{"runtime-config": {"scheduling.k8s.io/v1alpha2=true"}}
		}, `extra_args.kube_apiserver["runtime-config"]: kube-apiserver 1.37.1 does not start with --runtime-config=scheduling.k8s.io/v1alpha2=true`},
		{"manager argument", func(s *ControlPlaneSpec) { s.ControllerManager.Args = Args{"-v": {"2"}} }, `extra_args.kube_controller_manager["-v"]: `},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := controlPlaneSpec(t)
			tt.change(&spec)
			_, err := ControlPlane(spec, controllers[0])
			wantError(t, err, tt.want)
			wantError(t, err, "control plane on controller-0")
		})
	}
}

func TestWorkerRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*WorkerSpec, *Node)
		want   string
	}{
		{"malformed version", func(s *WorkerSpec, _ *Node) { s.Version = "latest" }, "not a release version"},
		{"endpoint", func(s *WorkerSpec, _ *Node) { s.ControlPlaneEndpoint = "10.240.0.40:6443" }, "is not an https URL"},
		{"unknown CNI", func(s *WorkerSpec, _ *Node) { s.CNI.Network = "calico" }, `unknown CNI "calico"`},
		{"no pod CIDR", func(_ *WorkerSpec, n *Node) { n.PodCIDR = netip.Prefix{} }, "pod_cidr: worker-0 needs pod_cidr"},
		{"pod CIDR elsewhere", func(_ *WorkerSpec, n *Node) { n.PodCIDR = netip.MustParsePrefix("10.201.0.0/24") }, "is outside the cluster's pod_cidr 10.200.0.0/16"},
		{"pod CIDR with host bits", func(_ *WorkerSpec, n *Node) { n.PodCIDR = netip.MustParsePrefix("10.200.0.1/24") }, "pod_cidr: 10.200.0.1/24 has host bits set; the network is 10.200.0.0/24"},
		{"pod CIDR too large", func(_ *WorkerSpec, n *Node) { n.PodCIDR = netip.MustParsePrefix("10.0.0.0/8") }, "is outside the cluster's pod_cidr"},
		{"no private address", func(_ *WorkerSpec, n *Node) { n.PrivateIP = netip.Addr{} }, "has no private address"},
		{"unknown kubelet field", func(s *WorkerSpec, _ *Node) { s.Kubelet.Config = map[string]any{"maxpods": 5} }, `kubelet_config: strict decoding error: unknown field "maxpods"`},
		{"kubelet field of another type", func(s *WorkerSpec, _ *Node) { s.Kubelet.Config = map[string]any{"maxPods": "many"} }, "kubelet_config"},
		{"kubelet field of the provider", func(s *WorkerSpec, _ *Node) {
			s.Kubelet.Config = map[string]any{"authentication": map[string]any{"x509": map[string]any{"clientCAFile": "/x"}}}
		}, "kubelet_config.authentication.x509.clientCAFile: the provider sets it, and with another value the cluster would break: remove it."},
		{"kubelet field with an argument", func(s *WorkerSpec, _ *Node) { s.Kubelet.Config = map[string]any{"registerWithTaints": []any{}} },
			"kubelet_config.registerWithTaints: it cannot be set here: use the argument taints instead."},
		{"kubelet flag with a field", func(s *WorkerSpec, _ *Node) { s.Kubelet.Args = Args{"cpu-manager-policy": {"static"}} },
			`extra_args.kubelet["cpu-manager-policy"]: it cannot be set here: use the argument kubelet_config instead.`},
		{"kube-proxy flag that nothing reads", func(s *WorkerSpec, _ *Node) { s.KubeProxy.Args = Args{"proxy-mode": {"ipvs"}} },
			`extra_args.kube_proxy["proxy-mode"]: it cannot be set here: use the argument kube_proxy_config instead.`},
		{"containerd key of the provider", func(s *WorkerSpec, _ *Node) { s.Containerd.Config = map[string]any{"root": "/x"} }, "containerd_config.root: the provider sets it"},
		{"containerd key with an argument", func(s *WorkerSpec, _ *Node) {
			s.Containerd.Config = map[string]any{"plugins": map[string]any{"io.containerd.cri.v1.images": map[string]any{"registry": map[string]any{"config_path": "/x"}}}}
		}, "containerd_config.plugins.io.containerd.cri.v1.images.registry.config_path: it cannot be set here: use the argument registries instead."},
		{"unknown cgroup driver", func(s *WorkerSpec, _ *Node) { s.Kubelet.Config = map[string]any{"cgroupDriver": "cgroups"} }, `unknown cgroupDriver "cgroups"`},
		{"eviction threshold", func(s *WorkerSpec, _ *Node) {
			s.Kubelet.Config = map[string]any{"evictionHard": map[string]any{"memory.available": "some"}}
		}, `kubelet_config: evictionHard: memory.available: "some" is neither a quantity`},
		{"configuration of no kube-proxy", func(s *WorkerSpec, _ *Node) {
			s.KubeProxy = KubeProxySpec{Off: true, Config: map[string]any{"mode": "ipvs"}}
		}, "kube_proxy_config: With kube_proxy = false there is no kube-proxy"},
		{"flags of no kube-proxy", func(s *WorkerSpec, _ *Node) {
			s.KubeProxy = KubeProxySpec{Off: true, Args: Args{"v": {"2"}}}
		}, "extra_args.kube_proxy: With kube_proxy = false there is no kube-proxy"},
		{"unknown kube-proxy field", func(s *WorkerSpec, _ *Node) {
			s.KubeProxy.Config = map[string]any{"conntrack": map[string]any{"max": 5}}
		}, `unknown field "conntrack.max"`},
		{"label", func(s *WorkerSpec, _ *Node) { s.Kubelet.Labels = map[string]string{"a b": "c"} }, `label "a b"`},
		{"label value", func(s *WorkerSpec, _ *Node) { s.Kubelet.Labels = map[string]string{"a": "c,d=e"} }, `value "c,d=e" of label a`},
		{"taint effect", func(s *WorkerSpec, _ *Node) { s.Kubelet.Taints = []Taint{{Key: "a", Effect: "Never"}} }, `unknown effect "Never"`},
		{"taint twice", func(s *WorkerSpec, _ *Node) {
			s.Kubelet.Taints = []Taint{{Key: "a", Effect: "NoSchedule"}, {Key: "a", Effect: "NoExecute"}, {Key: "a", Value: "b", Effect: "NoSchedule"}}
		}, "taint a:NoSchedule is given twice"},
		{"registry", func(s *WorkerSpec, _ *Node) {
			s.Containerd.Registries = registry.Registries{"../../etc": {{URL: "http://m"}}}
		}, `"../../etc" is not a registry`},
		{"registry mirror", func(s *WorkerSpec, _ *Node) {
			s.Containerd.Registries = registry.Registries{"quay.io": {{URL: "m:5000"}}}
		}, "is not an http or https URL"},
		{"no artifact", func(s *WorkerSpec, _ *Node) { s.Artifacts = s.Artifacts[:1] }, "the artifacts do not include"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec, n := workerSpec(t), worker0
			tt.change(&spec, &n)
			_, err := Workers(spec)(n)
			wantError(t, err, tt.want)
			wantError(t, err, "worker worker-0")
		})
	}
}

func TestLoadBalancerRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*LoadBalancerSpec)
		want   string
	}{
		{"no backends", func(s *LoadBalancerSpec) { s.Backends = nil }, "no API servers to balance"},
		{"backend twice", func(s *LoadBalancerSpec) { s.Backends = append(controllers[:1:1], controllers[0]) }, "controllers[1].name: Host 1 has the same name"},
		{"port", func(s *LoadBalancerSpec) { s.Port = 70000 }, "port 70000 is out of range"},
		{"socket", func(s *LoadBalancerSpec) { s.StatsSocket = "/run/x\nbind" }, "is not a plain path"},
		{"no CA", func(s *LoadBalancerSpec) { s.Cluster.PKI.KubernetesCA = "" }, "no kubernetes CA"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := loadBalancerSpec()
			tt.change(&spec)
			_, err := LoadBalancer(spec, lb0)
			wantError(t, err, tt.want)
			wantError(t, err, "load balancer lb-0")
		})
	}
}

func TestSplitLabels(t *testing.T) {
	own, admin, err := splitLabels(map[string]string{
		"tier": "a", "example.com/x": "b", "node.kubernetes.io/pool": "c", "sub.node.kubernetes.io/pool": "d", "topology.kubernetes.io/zone": "e",
		"node-role.kubernetes.io/worker": "", "kubernetes.io/x": "f", "x.k8s.io/y": "g", "notkubernetes.io/x": "h",
	})
	if err != nil {
		t.Fatal(err)
	}
	wantOwn := map[string]string{"tier": "a", "example.com/x": "b", "node.kubernetes.io/pool": "c", "sub.node.kubernetes.io/pool": "d",
		"topology.kubernetes.io/zone": "e", "notkubernetes.io/x": "h"}
	wantAdmin := map[string]string{"node-role.kubernetes.io/worker": "", "kubernetes.io/x": "f", "x.k8s.io/y": "g"}
	if diff := cmp.Diff(wantOwn, own); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(wantAdmin, admin); diff != "" {
		t.Error(diff)
	}
}

func TestQuoteWord(t *testing.T) {
	for in, want := range map[string]string{
		"--a=b":          "--a=b",
		"--a=100%":       "--a=100%%",
		"--a=$HOME":      "--a=$$HOME",
		"--a=b c":        `"--a=b c"`,
		`--a={"x":"\\"}`: `"--a={\"x\":\"\\\\\"}"`,
		"--a=b;c":        `"--a=b;c"`,
	} {
		if got := quoteWord(in); got != want {
			t.Errorf("%s is quoted as %s, wanted %s", in, got, want)
		}
	}
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("error is %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error is %v, wanted %q", err, want)
	}
}

// A setting whose meaning changes with the new release is reported at the upgrade.
func TestKubeletChanges(t *testing.T) {
	v := func(s string) version.Version {
		out, err := version.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, tt := range []struct {
		old, now string
		config   map[string]any
		args     Args
		told     string
	}{
		{"1.36.4", "1.37.1", map[string]any{"eventRecordQPS": 0}, nil, "eventRecordQPS: 0 lets kubelet 1.37.1"},
		{"1.36.4", "1.37.1", map[string]any{"memoryThrottlingFactor": 0.8}, nil, "memoryThrottlingFactor had no effect until 1.36"},
		{"1.36.4", "1.37.1", map[string]any{"eventRecordQPS": 5}, nil, ""},
		{"1.36.4", "1.37.1", map[string]any{"featureGates": map[string]any{"MemoryQoS": true}}, nil, "The feature gate MemoryQoS slowed"},
		{"1.36.4", "1.37.1", map[string]any{"featureGates": map[string]any{"MemoryQoS": true}, "memoryThrottlingFactor": 0.8}, nil, ""},
		{"1.36.4", "1.37.1", nil, nil, ""},
		{"1.37.0", "1.37.1", map[string]any{"eventRecordQPS": 0}, nil, ""},
		{"1.35.8", "1.36.4", map[string]any{"eventRecordQPS": 0}, nil, ""},
	} {
		got := strings.Join(KubeletChanges(v(tt.old), v(tt.now), tt.config, tt.args), "\n")
		if !strings.HasPrefix(got, tt.told) || tt.told == "" && got != "" {
			t.Errorf("%s to %s with %v and %v: %q", tt.old, tt.now, tt.config, tt.args, got)
		}
	}
}

func TestCheckFields(t *testing.T) {
	plugins := map[string]any{"profiles": []any{map[string]any{"plugins": map[string]any{"podGroupPostFilter": map[string]any{}}}}}
	for _, tt := range []struct {
		program, version string
		config           map[string]any
		want             string
	}{
		{"kubelet", "1.37.1", map[string]any{"defaultPodSysctls": map[string]any{}, "tlsCurvePreferences": []any{29}}, ""},
		{"kubelet", "1.36.4", map[string]any{"defaultPodSysctls": map[string]any{}, "tlsCurvePreferences": []any{29}},
			"kubelet 1.36.4 does not know defaultPodSysctls, which is new in 1.37; remove it, or choose a newer version"},
		{"kubelet", "1.35.8", map[string]any{"tlsCurvePreferences": []any{29}},
			"kubelet 1.35.8 does not know tlsCurvePreferences, which is new in 1.36; remove it, or choose a newer version"},
		{"kube-scheduler", "1.37.1", plugins, ""},
		{"kube-scheduler", "1.36.4", plugins, "kube-scheduler 1.36.4 does not know podGroupPostFilter, which is new in 1.37; remove it, or choose a newer version"},
	} {
		v, err := version.Parse(tt.version)
		if err != nil {
			t.Fatal(err)
		}
		err = checkFields(tt.program, v, tt.config)
		if (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
			t.Errorf("%s %s: %v", tt.program, tt.version, err)
		}
	}
}

// TestCheckServedAPIs also has the items of a list that are served.
func TestCheckServedAPIs(t *testing.T) {
	for _, tt := range []struct{ version, value, want string }{
		{"1.37.1", "api/all=true,scheduling.k8s.io/v1alpha2=true",
			"kube-apiserver 1.37.1 does not start with --runtime-config=scheduling.k8s.io/v1alpha2=true, which was removed in 1.37: delete its objects while"},
		{"1.36.4", "scheduling.k8s.io/v1alpha2=true", ""},
		{"1.36.4", "scheduling.k8s.io/v1alpha1=true", "which was removed in 1.36"},
		{"1.35.8", "scheduling.k8s.io/v1alpha1=true", ""},
	} {
		v, err := version.Parse(tt.version)
		if err != nil {
			t.Fatal(err)
		}
		err = CheckServedAPIs(v, Args{"runtime-config": {tt.value}})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s --runtime-config=%s: %v", tt.version, tt.value, err)
		}
	}
}
