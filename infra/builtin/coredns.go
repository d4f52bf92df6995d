package builtin

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// The names by which other tools know cluster DNS.
const (
	coreDNSName    = "coredns"
	coreDNSService = "kube-dns"
)

var coreDNSLabels = map[string]string{"k8s-app": "kube-dns"}

// coreDNS returns the objects of cluster DNS.
func coreDNS(c component.Cluster, image string) ([]runtime.Object, error) {
	if c.Domain == "" || !c.DNSIP.IsValid() {
		return nil, fmt.Errorf("cluster DNS needs a domain and an address, found %q and %s", c.Domain, c.DNSIP)
	}
	corefile := coreDNSCorefile(c.Domain)
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
		typed(appsv1.SchemeGroupVersion.WithKind("Deployment"), coreDNSDeployment(image, desired.Sum([]byte(corefile)))),
		typed(corev1.SchemeGroupVersion.WithKind("Service"), &corev1.Service{
			ObjectMeta: systemMeta(coreDNSService, map[string]string{
				"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS",
			}),
			Spec: corev1.ServiceSpec{
				Selector: coreDNSLabels, ClusterIP: c.DNSIP.String(), ClusterIPs: []string{c.DNSIP.String()},
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
	return objects, nil
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

func coreDNSDeployment(image, corefileDigest string) *appsv1.Deployment {
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
		Affinity: &corev1.Affinity{PodAntiAffinity: apart(100, coreDNSLabels)},
		Volumes: []corev1.Volume{{Name: config, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: coreDNSName},
			Items:                []corev1.KeyToPath{{Key: "Corefile", Path: "Corefile"}},
		}}}},
		Containers: []corev1.Container{{
			Name: coreDNSName, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
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
	deployment := systemDeployment(coreDNSName, 2, 1, coreDNSLabels, pod)
	deployment.Spec.Template.Annotations = map[string]string{"k8s-from-scratch/corefile-sha256": corefileDigest} // a changed Corefile rolls the pods
	return deployment
}
