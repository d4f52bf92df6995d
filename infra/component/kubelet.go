package component

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	kubeletapis "k8s.io/kubelet/pkg/apis"
	"k8s.io/utils/ptr"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// KubeletSpec holds the settings of the kubelet and of its Node object.
type KubeletSpec struct {
	Labels map[string]string // an administrator sets those that a kubelet may not set on its own node
	Taints []Taint
	Config map[string]any // merged over the typed KubeletConfiguration; unknown fields are errors
	Args   Args           // further flags
}

// Taint is a taint with which every node of the pool registers.
type Taint struct{ Key, Value, Effect string }

// kubeletFiles are the files that readKubelet reads.
var kubeletFiles = []string{unitPath(KubeletUnit), KubeletConfigPath}

const kubeletWebhookCacheTTL = 2 * time.Minute

// When a machine shuts down, its pods have shutdownGrace to end, of which the last part is for
// system-critical pods. systemd-logind delays the shutdown meanwhile. EC2 stops a machine by force
// only after minutes (https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/).
const (
	shutdownGrace         = 30 * time.Second
	shutdownGraceCritical = 10 * time.Second
)

// Resources that pods cannot use, since the kubelet, containerd, sshd and the provider's own work
// need them. It leaves three quarters of a machine with 2 GiB to pods. The kubelet's own threshold
// of eviction, 100 MiB, comes on top.
var (
	kubeReserved   = map[string]string{"cpu": "60m", "memory": "250Mi"}
	systemReserved = map[string]string{"cpu": "40m", "memory": "150Mi"}
)

// kernelDefaults are the kernel settings that every kubelet sets at its start. One that protects the kernel's
// defaults only compares them and exits at a difference. On a running node that shows after the next boot
// (kubernetes pkg/kubelet/cm/container_manager_linux.go, setupKernelTunables).
var kernelDefaults = map[string]string{
	"vm.overcommit_memory":      "1",
	"vm.panic_on_oom":           "0",
	"kernel.panic":              "10",
	"kernel.panic_on_oops":      "1",
	"kernel.keys.root_maxkeys":  "1000000",
	"kernel.keys.root_maxbytes": "25000000",
}

func (w *worker) addKubelet() error {
	if w.configs.kubeletTyped.ProtectKernelDefaults {
		maps.Copy(w.m.State.Sysctls, kernelDefaults)
	}
	config, err := configFile(KubeletConfigPath, artifact.Kubelet, w.kubeletConfigOfNode(w.configs.kubelet), w.spec.Kubelet.Config)
	if err != nil {
		return err
	}
	request := kubeletRequest(w.node)
	kubeconfigFile, err := w.kubeconfig(KubeletKubeconfig, request.CommonName, artifact.Kubelet)
	if err != nil {
		return err
	}
	w.addFiles(config, kubeconfigFile, kubeletStateAtBoot())
	w.m.Certificates = append(w.m.Certificates,
		slot(artifact.Kubelet, certPath(artifact.Kubelet), keyPath(artifact.Kubelet), pki.KubernetesCA, request))

	args, err := w.kubeletArgs()
	if err != nil {
		return err
	}
	endpoint, err := url.Parse(w.spec.ControlPlaneEndpoint)
	if err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	options, decides := append(limitNoFile("1048576"), w.proxyOptions(endpoint.Hostname())...), ptr.Deref(w.configs.kubeletTyped.ResolverConfig, "") == PodResolvConf
	if decides {
		options = append(options, unit.NewUnitOption("Service", "ExecStartPre", resolverCommand("link")))
	}
	if err := w.addProgram(artifact.Kubelet, "Kubernetes node agent", typeNotify, []string{ContainerdUnit}, args, w.spec.Kubelet.Args,
		options, KubeletConfigPath, KubeletKubeconfig, NodeCAPath); err != nil {
		return err
	}
	if decides {
		w.addPodResolver()
	}
	return nil
}

func (w *worker) kubeletArgs() (Args, error) {
	args := Args{
		"config":            values(KubeletConfigPath),
		"kubeconfig":        values(KubeletKubeconfig),
		"hostname-override": values(w.node.Name),
		"node-ip":           values(w.node.PrivateIP.String()),
	}
	// Region and type are set through the API alone: a machine that gets another type needs no other flag.
	own, _, err := splitLabels(w.spec.Kubelet.NodeLabels(Node{Zone: w.node.Zone}))
	if err != nil {
		return nil, err
	}
	if len(own) > 0 {
		var pairs []string
		for _, k := range slices.Sorted(maps.Keys(own)) {
			pairs = append(pairs, k+"="+own[k])
		}
		args["node-labels"] = values(strings.Join(pairs, ","))
	}
	return args, nil
}

// kubeletConfigOfNode adds the fields of the worker's node to those of the pool, unless the user has set them.
func (w *worker) kubeletConfigOfNode(pool map[string]any) map[string]any {
	m := maps.Clone(pool)
	if most := w.spec.podAddresses(w.node); most < defaultMaxPods && w.spec.Kubelet.Config["maxPods"] == nil {
		m["maxPods"] = int64(most)
	}
	return m
}

// defaultMaxPods is the kubelet's own maxPods.
const defaultMaxPods = 110

// podAddresses returns how many pods of a node can have addresses. Of the node's pod network the first and the
// last address are none, and the bridge has the second. Only the bridge network is known.
func (s WorkerSpec) podAddresses(n Node) int {
	if s.CNI.network() != CNIBridge || !n.PodCIDR.IsValid() {
		return math.MaxInt
	}
	return 1<<(n.PodCIDR.Addr().BitLen()-n.PodCIDR.Bits()) - 3
}

// CheckMaxPods reports nodes that take more pods than they have addresses. It is no error: pods in the network of
// their machine count, too, and need none. All others would wait for an address for ever.
func (s WorkerSpec) CheckMaxPods(hosts []Host) (errs invalid.Fields) {
	_, typed, err := overlayKubelet(nil, s.Kubelet.Config)
	if err != nil {
		return nil // reported by KubeletSpec.check
	}
	for _, h := range hosts {
		if most := s.podAddresses(h.Node); int(typed.MaxPods) > most {
			errs.Say("kubelet_config", "More pods than addresses", "kubelet_config.maxPods: %d is more than the %d addresses for pods in pod_cidr %s of %s. Further pods never start there, unless they have the "+
				"machine's network (hostNetwork). Without maxPods each node takes as many pods as it has addresses, and at most %d.", typed.MaxPods, most, h.PodCIDR, h.Name, defaultMaxPods)
		}
	}
	return errs
}

// kubeletConfig returns the configuration of every node with the user's settings, as a map and typed.
func (s WorkerSpec) kubeletConfig() (map[string]any, *kubeletconfig.KubeletConfiguration, error) {
	base := &kubeletconfig.KubeletConfiguration{
		ContainerRuntimeEndpoint: "unix://" + ContainerdSocket,
		CgroupDriver:             "systemd",
		ResolverConfig:           ptr.To(PodResolvConf),
		ClusterDNS:               []string{s.Cluster.DNSIP.String()},
		ClusterDomain:            s.Cluster.Domain,
		Authentication: kubeletconfig.KubeletAuthentication{
			Anonymous: kubeletconfig.KubeletAnonymousAuthentication{Enabled: ptr.To(false)},
			Webhook:   kubeletconfig.KubeletWebhookAuthentication{Enabled: ptr.To(true), CacheTTL: metav1.Duration{Duration: kubeletWebhookCacheTTL}},
			X509:      kubeletconfig.KubeletX509Authentication{ClientCAFile: NodeCAPath},
		},
		Authorization:     kubeletconfig.KubeletAuthorization{Mode: kubeletconfig.KubeletAuthorizationModeWebhook},
		TLSCertFile:       certPath(artifact.Kubelet),
		TLSPrivateKeyFile: keyPath(artifact.Kubelet),
		TLSMinVersion:     "VersionTLS12",
		// Pods that start together pull in parallel.
		SerializeImagePulls:   ptr.To(false),
		MaxParallelImagePulls: ptr.To(int32(4)),

		ShutdownGracePeriod:             metav1.Duration{Duration: shutdownGrace},
		ShutdownGracePeriodCriticalPods: metav1.Duration{Duration: shutdownGraceCritical},
		KubeReserved:                    kubeReserved,
		SystemReserved:                  systemReserved,
	}
	base.APIVersion, base.Kind = kubeletconfig.SchemeGroupVersion.String(), "KubeletConfiguration"
	for _, t := range s.Kubelet.Taints {
		base.RegisterWithTaints = append(base.RegisterWithTaints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	m, err := Fields(base)
	if err != nil {
		return nil, nil, err
	}
	m, typed, err := overlayKubelet(m, s.Kubelet.Config)
	if err != nil {
		return nil, nil, fmt.Errorf("kubelet configuration: %w", err)
	}
	return m, typed, nil
}

func (s KubeletSpec) check(v version.Version) (errs invalid.Fields) {
	_, _, err := splitLabels(s.Labels)
	errs.Add("labels", "Unusable labels", err)
	errs.Add("taints", "Unusable taints", checkTaints(s.Taints))
	checkConfig(&errs, "kubelet_config", artifact.Kubelet, v, s.Config, func() error {
		_, _, err := overlayKubelet(nil, s.Config)
		return err
	})
	return errs
}

// readKubelet sets the settings found on a machine. Labels that only an administrator may set are
// not there but on the Node object.
func (w *worker) readKubelet(f Found) error {
	w.spec.Kubelet = KubeletSpec{}
	s := &w.spec.Kubelet
	var found kubeletconfig.KubeletConfiguration
	if err := f.yaml(KubeletConfigPath, &found); err != nil {
		return err
	}
	for _, t := range found.RegisterWithTaints {
		s.Taints = append(s.Taints, Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	for pair := range strings.SplitSeq(f.args(KubeletUnit).last("node-labels"), ",") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			if s.Labels == nil {
				s.Labels = map[string]string{}
			}
			s.Labels[k] = v
		}
	}
	s.Labels = OwnLabels(Node{Zone: w.node.Zone}, s.Labels) // as in kubeletArgs
	args, err := w.kubeletArgs()
	if err != nil {
		return err
	}
	s.Args = f.argsBeyond(KubeletUnit, args)
	standard, _, err := w.spec.kubeletConfig()
	if err != nil {
		return err
	}
	s.Config, err = f.yamlBeyond(KubeletConfigPath, w.kubeletConfigOfNode(standard))
	return err
}

// clusterDNSOf returns the address of cluster DNS in the kubelet's configuration.
func clusterDNSOf(f Found) (dns netip.Addr, err error) {
	var found kubeletconfig.KubeletConfiguration
	if err := f.yaml(KubeletConfigPath, &found); err != nil || len(found.ClusterDNS) == 0 {
		return netip.Addr{}, err
	}
	dns, _ = netip.ParseAddr(found.ClusterDNS[0])
	return dns, nil
}

// overlayKubelet merges the user's fields over base. Errors are unknown fields, values of the wrong
// type, and reservations and eviction thresholds with which a kubelet would not start.
func overlayKubelet(base, user map[string]any) (map[string]any, *kubeletconfig.KubeletConfiguration, error) {
	typed := &kubeletconfig.KubeletConfiguration{}
	m, err := overlay(base, user, typed)
	if err != nil {
		return nil, nil, err
	}
	switch typed.CgroupDriver {
	case "", "systemd", "cgroupfs":
	default:
		return nil, nil, fmt.Errorf("unknown cgroupDriver %q: want systemd or cgroupfs", typed.CgroupDriver)
	}
	if err := checkReservations(typed); err != nil {
		return nil, nil, err
	}
	return m, typed, nil
}

// splitLabels checks node labels and splits them into those that the kubelet sets when it registers
// and those that only an administrator may set through the API, such as
// "node-role.kubernetes.io/worker". A kubelet that is configured to set one of the latter does not
// start.
func splitLabels(labels map[string]string) (byKubelet, byAdmin map[string]string, err error) {
	byKubelet, byAdmin = map[string]string{}, map[string]string{}
	var errs []error
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		v := labels[k]
		if msgs := validation.IsQualifiedName(k); len(msgs) > 0 {
			errs = append(errs, fmt.Errorf("label %q: %s", k, strings.Join(msgs, "; ")))
		}
		if msgs := validation.IsValidLabelValue(v); len(msgs) > 0 {
			errs = append(errs, fmt.Errorf("value %q of label %s: %s", v, k, strings.Join(msgs, "; ")))
		}
		if slices.Contains(kubeletLabels, k) {
			errs = append(errs, fmt.Errorf("label %s: the kubelet sets it to what it finds on its machine, and pods rely on that: choose another name", k))
		}
		if kubeletMaySet(k) {
			byKubelet[k] = v
		} else {
			byAdmin[k] = v
		}
	}
	return byKubelet, byAdmin, errors.Join(errs...)
}

// kubeletLabels are the labels that every kubelet sets itself
// (https://kubernetes.io/docs/reference/labels-annotations-taints/).
var kubeletLabels = []string{
	corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, kubeletapis.LabelOS, kubeletapis.LabelArch,
}

// nodeTaints are the taints that Kubernetes sets and removes by the condition of a node.
var nodeTaints = []string{
	corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable, corev1.TaintNodeMemoryPressure,
	corev1.TaintNodeDiskPressure, corev1.TaintNodeNetworkUnavailable, corev1.TaintNodePIDPressure, corev1.TaintNodeOutOfService,
}

// kubeletMaySet follows the NodeRestriction admission plugin
// (https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction).
func kubeletMaySet(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	reserved := slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(d string) bool {
		return domain == d || strings.HasSuffix(domain, "."+d)
	})
	return !reserved || kubeletapis.IsKubeletLabel(key)
}

// checkTaints returns an error for invalid and for duplicate taints.
func checkTaints(taints []Taint) error {
	var errs []error
	for i, t := range taints {
		errs = append(errs, t.validate())
		if slices.ContainsFunc(taints[:i], func(o Taint) bool { return o.Key == t.Key && o.Effect == t.Effect }) {
			errs = append(errs, fmt.Errorf("taint %s:%s is given twice", t.Key, t.Effect))
		}
	}
	return errors.Join(errs...)
}

func (t Taint) validate() error {
	if slices.Contains(nodeTaints, t.Key) {
		return fmt.Errorf("taint %s: Kubernetes sets it by the condition of the node and removes it again: choose another key", t.Key)
	}
	if msgs := validation.IsQualifiedName(t.Key); len(msgs) > 0 {
		return fmt.Errorf("taint %q: %s", t.Key, strings.Join(msgs, "; "))
	}
	if msgs := validation.IsValidLabelValue(t.Value); len(msgs) > 0 {
		return fmt.Errorf("value %q of taint %s: %s", t.Value, t.Key, strings.Join(msgs, "; "))
	}
	switch corev1.TaintEffect(t.Effect) {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		return nil
	}
	return fmt.Errorf("unknown effect %q of taint %s: want NoSchedule, PreferNoSchedule or NoExecute", t.Effect, t.Key)
}
