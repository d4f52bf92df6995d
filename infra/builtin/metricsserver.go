package builtin

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
)

const metricsServerName = "metrics-server"

var metricsServerLabels = map[string]string{"k8s-app": metricsServerName}

// metricsServer returns the objects of metrics-server. It verifies kubelets with the cluster's CA
// and needs no --kubelet-insecure-tls.
func metricsServer(_ component.Cluster, image string) ([]runtime.Object, error) {
	objects := serviceAccount(metricsServerName, "system:metrics-server", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"pods", "nodes"}, Verbs: []string{"get", "list", "watch"}},
	})
	subject := accountOf(metricsServerName)
	objects = append(objects,
		typed(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "system:aggregated-metrics-reader", Labels: map[string]string{
				"k8s-app": metricsServerName,
				"rbac.authorization.k8s.io/aggregate-to-admin": "true",
				"rbac.authorization.k8s.io/aggregate-to-edit":  "true",
				"rbac.authorization.k8s.io/aggregate-to-view":  "true",
			}},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{"metrics.k8s.io"}, Resources: []string{"pods", "nodes"}, Verbs: []string{"get", "list", "watch"}}},
		}),
		typed(rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), &rbacv1.RoleBinding{
			ObjectMeta: systemMeta("metrics-server-auth-reader", metricsServerLabels),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "extension-apiserver-authentication-reader"},
			Subjects:   subject,
		}),
		typed(rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "metrics-server:system:auth-delegator", Labels: metricsServerLabels},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
			Subjects:   subject,
		}),
		typed(corev1.SchemeGroupVersion.WithKind("Service"), &corev1.Service{
			ObjectMeta: systemMeta(metricsServerName, metricsServerLabels),
			Spec: corev1.ServiceSpec{
				Selector: metricsServerLabels,
				Ports:    []corev1.ServicePort{{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("https")}},
			},
		}),
		typed(appsv1.SchemeGroupVersion.WithKind("Deployment"), metricsServerDeployment(image)),
		// A literal, because the type's module is not needed otherwise.
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1",
			"kind":       "APIService",
			"metadata": map[string]any{
				"name":   "v1beta1.metrics.k8s.io",
				"labels": map[string]any{"k8s-app": metricsServerName},
			},
			"spec": map[string]any{
				"group":                 "metrics.k8s.io",
				"version":               "v1beta1",
				"groupPriorityMinimum":  int64(100),
				"versionPriority":       int64(100),
				"insecureSkipTLSVerify": true, // its serving certificate is self-signed
				"service":               map[string]any{"name": metricsServerName, "namespace": metav1.NamespaceSystem},
			},
		}},
	)
	return objects, nil
}

func metricsServerDeployment(image string) *appsv1.Deployment {
	probe := func(path string, delay int32) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: path, Port: intstr.FromString("https"), Scheme: corev1.URISchemeHTTPS}},
			InitialDelaySeconds: delay, PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3,
		}
	}
	return systemDeployment(metricsServerName, 1, 0, metricsServerLabels, corev1.PodSpec{
		ServiceAccountName: metricsServerName,
		PriorityClassName:  "system-cluster-critical",
		NodeSelector:       map[string]string{corev1.LabelOSStable: "linux"},
		Volumes:            []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		Containers: []corev1.Container{{
			Name: metricsServerName, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
			Args: []string{
				"--cert-dir=/tmp",
				"--secure-port=10250",
				"--kubelet-preferred-address-types=InternalIP,Hostname",
				"--kubelet-use-node-status-port",
				"--kubelet-certificate-authority=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
				"--metric-resolution=15s",
			},
			Ports:          []corev1.ContainerPort{{Name: "https", ContainerPort: 10250, Protocol: corev1.ProtocolTCP}},
			LivenessProbe:  probe("/livez", 0),
			ReadinessProbe: probe("/readyz", 20),
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("200Mi")}},
			SecurityContext: restricted(1000),
			VolumeMounts:    []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}},
		}},
	})
}
