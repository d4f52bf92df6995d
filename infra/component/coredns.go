package component

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// Addon is an addon that is built in: its objects are this package's.
type Addon struct {
	Name    string
	Version string // one of the releases that are built in; empty means the newest
	Image   string // in place of the image of the release
}

// releases are the releases of an addon's program with which these objects were tested.
type releases struct {
	repository string
	versions   []string // the newest first
}

var builtInAddons = map[string]releases{
	coreDNSName:       {"registry.k8s.io/coredns/coredns", []string{"1.15.0", "1.14.6"}},
	metricsServerName: {"registry.k8s.io/metrics-server/metrics-server", []string{"0.9.0"}},
}

// BuiltIn says whether there is an addon of this name.
func BuiltIn(name string) bool { _, ok := builtInAddons[name]; return ok }

// DefaultAddonImage returns the image of the newest release of an addon that is built in.
func DefaultAddonImage(name string) string { return builtInAddons[name].image("") }

func (r releases) image(version string) string {
	return r.repository + ":v" + cmp.Or(version, r.versions[0])
}

// Check checks the fields that are set, without the cluster.
func (a Addon) Check() (errs invalid.Fields) {
	if errs = a.checkName(); len(errs) > 0 {
		return errs
	}
	r := builtInAddons[a.Name]
	if a.Version != "" && !slices.Contains(r.versions, a.Version) {
		errs.Say("version", "Unknown release", "Release %q of %s is not built in. Built in: %s. For another release set image, such as %s.",
			a.Version, a.Name, strings.Join(r.versions, ", "), r.repository+":v"+strings.TrimPrefix(a.Version, "v"))
	}
	if a.Image != "" && !imageName.MatchString(a.Image) {
		errs.Say("image", "Unusable image", "%q is not the name of an image, such as %s.", a.Image, r.image(a.Version))
	}
	return errs
}

func (a Addon) checkName() (errs invalid.Fields) {
	if !BuiltIn(a.Name) {
		errs.Say("name", "Unknown addon", "%q is not built in (%s are): set manifests.", a.Name, strings.Join(slices.Sorted(maps.Keys(builtInAddons)), " and "))
	}
	return errs
}

// Objects returns the objects of the addon, also for a release that is no longer built in: such an addon must be
// compared, changed and deleted as well.
func (a Addon) Objects(c Cluster) ([]*unstructured.Unstructured, error) {
	if err := a.checkName().Err(); err != nil {
		return nil, fmt.Errorf("addon %s: %w", a.Name, err)
	}
	image := cmp.Or(a.Image, builtInAddons[a.Name].image(a.Version))
	if a.Name == metricsServerName {
		return MetricsServer(MetricsServerSpec{PKI: c.PKI, Image: image})
	}
	return CoreDNS(CoreDNSSpec{Domain: c.Domain, DNSIP: c.DNSIP, PKI: c.PKI, Image: image})
}

// CoreDNSSpec describes cluster DNS.
type CoreDNSSpec struct {
	Domain   string
	DNSIP    netip.Addr
	Image    string  // empty means the newest release that is built in
	Replicas int32   // zero means 2
	PKI      pki.Ref // some of its rotations roll the pods
}

// The names by which other tools know cluster DNS.
const (
	coreDNSName    = "coredns"
	coreDNSService = "kube-dns"
	systemSpace    = metav1.NamespaceSystem
)

var coreDNSLabels = map[string]string{"k8s-app": "kube-dns"}

// CoreDNS returns the objects of cluster DNS.
func CoreDNS(spec CoreDNSSpec) ([]*unstructured.Unstructured, error) {
	if spec.Domain == "" || !spec.DNSIP.IsValid() {
		return nil, fmt.Errorf("cluster DNS needs a domain and an address, found %q and %s", spec.Domain, spec.DNSIP)
	}
	if spec.Image == "" {
		spec.Image = DefaultAddonImage(coreDNSName)
	}
	if spec.Replicas == 0 {
		spec.Replicas = 2
	}
	corefile := coreDNSCorefile(spec.Domain)
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"endpoints", "services", "pods", "namespaces"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{discoveryv1.GroupName}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}},
	}
	objects := serviceAccount(coreDNSName, "system:coredns", rules)
	objects = append(objects,
		typed(corev1.SchemeGroupVersion.WithKind("ConfigMap"), &corev1.ConfigMap{
			ObjectMeta: systemMeta(coreDNSName, coreDNSLabels),
			Data:       map[string]string{"Corefile": corefile},
		}),
		typed(appsv1.SchemeGroupVersion.WithKind("Deployment"), coreDNSDeployment(spec, desired.Sum([]byte(corefile)))),
		typed(corev1.SchemeGroupVersion.WithKind("Service"), &corev1.Service{
			ObjectMeta: systemMeta(coreDNSService, map[string]string{
				"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS",
			}),
			Spec: corev1.ServiceSpec{
				Selector: coreDNSLabels, ClusterIP: spec.DNSIP.String(), ClusterIPs: []string{spec.DNSIP.String()},
				Ports: []corev1.ServicePort{
					{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromString("dns")},
					{Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("dns-tcp")},
					{Name: "metrics", Port: 9153, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("metrics")},
				},
			},
		}),
		typed(policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), &policyv1.PodDisruptionBudget{
			ObjectMeta: systemMeta(coreDNSName, coreDNSLabels),
			Spec: policyv1.PodDisruptionBudgetSpec{
				MaxUnavailable: ptr.To(intstr.FromInt32(1)),
				Selector:       &metav1.LabelSelector{MatchLabels: coreDNSLabels},
			},
		}),
	)
	return unstructuredObjects(objects...)
}

// coreDNSLameduck is how long CoreDNS answers questions after it was told to end. Its /ready is closed from the beginning.
// Before the time is over, the readiness probe must have failed and kube-proxies must know: until a terminating pod is
// unready they keep their UDP flows to it, and a question from the port of such a flow goes to that pod.
const coreDNSLameduck = 5 * time.Second

// coreDNSCorefile returns the configuration that kubeadm clusters have
// (https://kubernetes.io/docs/tasks/administer-cluster/dns-custom-nameservers/).
func coreDNSCorefile(domain string) string {
	return `.:53 {
    errors
    health {
        lameduck ` + coreDNSLameduck.String() + `
    }
    ready
    kubernetes ` + domain + ` in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
        max_concurrent 1000
    }
    cache 30
    loop
    reload
    loadbalance
}
`
}

func coreDNSDeployment(spec CoreDNSSpec, corefileDigest string) *appsv1.Deployment {
	const config = "config-volume"
	probe := func(path, port string, period, failures int32) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: path, Port: intstr.FromString(port), Scheme: corev1.URISchemeHTTP}},
			PeriodSeconds: period, TimeoutSeconds: 5, SuccessThreshold: 1, FailureThreshold: failures,
		}
	}
	liveness := probe("/health", "liveness-probe", 10, 5)
	liveness.InitialDelaySeconds = 60
	port := func(name string, number int32, protocol corev1.Protocol) corev1.ContainerPort {
		return corev1.ContainerPort{Name: name, ContainerPort: number, Protocol: protocol}
	}
	pod := corev1.PodSpec{
		ServiceAccountName: coreDNSName,
		PriorityClassName:  "system-cluster-critical",
		DNSPolicy:          corev1.DNSDefault,
		NodeSelector:       map[string]string{corev1.LabelOSStable: "linux"},
		Tolerations: []corev1.Toleration{
			{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists},
			{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
		},
		// Prefer different nodes; with one worker, both pods run there.
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector: &metav1.LabelSelector{MatchLabels: coreDNSLabels},
		}},
		Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
				Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{
					TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: coreDNSLabels}},
			}},
		}},
		Volumes: []corev1.Volume{{Name: config, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: coreDNSName},
			Items:                []corev1.KeyToPath{{Key: "Corefile", Path: "Corefile"}},
		}}}},
		Containers: []corev1.Container{{
			Name: coreDNSName, Image: spec.Image, ImagePullPolicy: corev1.PullIfNotPresent,
			Args: []string{"-conf", "/etc/coredns/Corefile"},
			Resources: corev1.ResourceRequirements{
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("170Mi")},
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("70Mi")},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: config, MountPath: "/etc/coredns", ReadOnly: true}},
			Ports: []corev1.ContainerPort{
				port("dns", 53, corev1.ProtocolUDP), port("dns-tcp", 53, corev1.ProtocolTCP), port("metrics", 9153, corev1.ProtocolTCP),
				port("liveness-probe", 8080, corev1.ProtocolTCP), port("readiness-probe", 8181, corev1.ProtocolTCP),
			},
			LivenessProbe:  liveness,
			ReadinessProbe: probe("/ready", "readiness-probe", 1, 2), // see coreDNSLameduck
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false),
				ReadOnlyRootFilesystem:   ptr.To(true),
				Capabilities: &corev1.Capabilities{
					Add: []corev1.Capability{"NET_BIND_SERVICE"}, Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}
	annotations := map[string]string{"k8s-from-scratch/corefile-sha256": corefileDigest} // a changed Corefile rolls the pods
	maps.Copy(annotations, keyAnnotations(spec.PKI))
	return systemDeployment(coreDNSName, spec.Replicas, 1, coreDNSLabels, annotations, pod)
}
