package builtin

import (
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
)

// CloudControllers is the name of the addon that runs the cloud controller manager of AWS.
const CloudControllers = "cloud-controller-manager"

var cloudControllersLabels = map[string]string{"k8s-app": CloudControllers}

// cloudControllers returns the objects of the cloud controller manager of AWS (k8s.io/cloud-provider-aws). Two of its
// controllers run: one deletes the Node of an instance that is gone, the other makes load balancers for Services. Nodes get
// their identity and their labels from their worker pool, so that kubelets need no --cloud-provider=external, and no Node
// waits for the manager. Pods have their routes from the provider as well.
func cloudControllers(c component.Cluster, image string) ([]runtime.Object, error) {
	account := serviceAccount(CloudControllers, "system:"+CloudControllers, []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"services/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
	})
	lease := ownRole(CloudControllers, cloudControllersLabels, []rbacv1.PolicyRule{
		{APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, Verbs: []string{"create"}},
		{APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, ResourceNames: []string{CloudControllers}, Verbs: []string{"get", "update"}},
	})
	deployment := typed(appsv1.SchemeGroupVersion.WithKind("Deployment"), cloudControllersDeployment(c, image))
	return slices.Concat(account, lease, nodesOfEC2(), networkLoadBalancers(), []runtime.Object{deployment}), nil
}

// nodesOfEC2 keeps the manager from deleting a Node without the identity of an instance. It takes such a Node for one
// whose instance is gone once the Node is not ready (cloud-provider-aws 1.37.1, InstanceExists). But it may be a machine
// outside EC2, or a node that the next apply of its worker pool will give its identity.
func nodesOfEC2() []runtime.Object {
	return admission(CloudControllers+"-nodes", cloudControllersLabels, core("nodes"), []admissionv1.OperationType{admissionv1.Delete},
		`request.userInfo.username == "system:serviceaccount:`+metav1.NamespaceSystem+`:`+CloudControllers+`"`,
		`has(oldObject.spec.providerID) && oldObject.spec.providerID.startsWith("aws://")`,
		"This Node has no providerID of an EC2 instance, so nobody knows whether its machine is gone.")
}

// networkLoadBalancers refuses Services for which the manager would make a Classic Load Balancer, as it does for each
// Service without the annotation, and changes after which the manager no longer knows the load balancer that it has made
// (cloud-provider-aws 1.37.1, EnsureLoadBalancerDeleted). A Service that never had the annotation can be changed: it may be
// older than the addon, or another program's.
func networkLoadBalancers() []runtime.Object {
	const annotation = "service.beta.kubernetes.io/aws-load-balancer-type"
	annotated := func(object, values string) string {
		return fmt.Sprintf(`(has(%[1]s.metadata.annotations) && %[2]q in %[1]s.metadata.annotations && %[1]s.metadata.annotations[%[2]q] in %[3]s)`, object, annotation, values)
	}
	const known = `["nlb", "nlb-ip", "external"]` // with the others the manager leaves the Service to another controller
	return slices.Concat(
		admission(CloudControllers+"-services", cloudControllersLabels, core("services"), []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			`object.spec.type == "LoadBalancer" && !has(object.spec.loadBalancerClass) && !has(object.metadata.deletionTimestamp) && `+
				`(oldObject == null || oldObject.spec.type != "LoadBalancer" || `+annotated("oldObject", known)+`)`,
			annotated("object", known),
			"A Service of type LoadBalancer needs the annotation "+annotation+": nlb. Without it the cloud controller manager would make a Classic Load Balancer. A Service for another controller has a loadBalancerClass."),
		admission(CloudControllers+"-balanced", cloudControllersLabels, core("services"), []admissionv1.OperationType{admissionv1.Update},
			`has(oldObject.metadata.finalizers) && "service.kubernetes.io/load-balancer-cleanup" in oldObject.metadata.finalizers && `+annotated("oldObject", `["nlb"]`),
			annotated("object", `["nlb"]`),
			"This Service has a load balancer, which the cloud controller manager finds by the annotation "+annotation+": nlb. Delete the Service, or change its type first and the annotation afterwards."),
	)
}

// cloudControllersDeployment returns two pods in the network of their nodes, since other pods do not reach the
// credentials of an instance. They run on instances only, which have the label of a region. They serve nothing: two of
// them would need the same port of a cluster's only worker.
func cloudControllersDeployment(c component.Cluster, image string) *appsv1.Deployment {
	const certificates, machineCertificates = "certificates", "/etc/machine-certs"
	soon := func(taint string) corev1.Toleration {
		return corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](30)}
	}
	having := func(label string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: label, Operator: corev1.NodeSelectorOpExists}}}
	}
	return systemDeployment(CloudControllers, 2, 1, cloudControllersLabels, corev1.PodSpec{
		ServiceAccountName: CloudControllers,
		PriorityClassName:  "system-cluster-critical",
		HostNetwork:        true,
		DNSPolicy:          corev1.DNSDefault,
		NodeSelector:       map[string]string{corev1.LabelOSStable: "linux"},
		Tolerations: []corev1.Toleration{
			{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists},
			{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
			{Key: "node.cloudprovider.kubernetes.io/shutdown", Effect: corev1.TaintEffectNoSchedule}, // only the manager takes it away
			soon(corev1.TaintNodeNotReady), soon(corev1.TaintNodeUnreachable),
		},
		Affinity: &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{having(corev1.LabelTopologyRegion)}},
				// A controller holds all keys anyway, so the rights of an instance's role add nothing there.
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: having("node-role.kubernetes.io/control-plane")}},
			},
			PodAntiAffinity: apart(10, cloudControllersLabels),
		},
		Volumes: []corev1.Volume{{Name: certificates, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: "/etc/ssl/certs", Type: ptr.To(corev1.HostPathDirectoryOrCreate)}}}},
		Containers: []corev1.Container{{
			Name: CloudControllers, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
			Args: []string{
				"--cloud-provider=aws",
				"--cluster-name=" + c.Name,
				"--controllers=cloud-node-lifecycle-controller,service-lb-controller",
				"--configure-cloud-routes=false",
				"--secure-port=0",
				"--v=2",
			},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("50Mi")}},
			SecurityContext: restricted(65534),
			// The authorities of the machine, among them the authority of a company's proxy, beside the authorities of the image.
			Env:          []corev1.EnvVar{{Name: "SSL_CERT_DIR", Value: machineCertificates}},
			VolumeMounts: []corev1.VolumeMount{{Name: certificates, MountPath: machineCertificates, ReadOnly: true}},
		}},
	})
}
