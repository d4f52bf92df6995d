// Package builtin has the addons whose objects this project knows: cluster DNS, the metrics of pods, the manager
// that keeps Nodes and EC2 together, and volumes in a directory of each node. It is pure.
package builtin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// Addon is an addon that is built in.
type Addon struct {
	Name    string
	Version string // one of the releases that are built in; empty means the newest
	Image   string // in place of the image of the release
	// Environment are further environment variables of the addon's program.
	Environment map[string]string
}

// known is an addon: the releases of its program with which its objects were tested, and these objects.
type known struct {
	repository string
	versions   []string // the newest first
	objects    func(c component.Cluster, image string) ([]runtime.Object, error)
}

var addons = map[string]known{
	coreDNSName:       {"registry.k8s.io/coredns/coredns", []string{"1.15.0", "1.14.6"}, coreDNS},
	metricsServerName: {"registry.k8s.io/metrics-server/metrics-server", []string{"0.9.0"}, metricsServer},
	CloudControllers:  {"registry.k8s.io/provider-aws/cloud-controller-manager", []string{"1.37.1"}, cloudControllers},
	LocalPath:         {"docker.io/rancher/local-path-provisioner", []string{"0.0.30"}, localPath},
}

// names returns the names of all addons, sorted.
func names() []string { return slices.Sorted(maps.Keys(addons)) }

// Known says whether there is an addon of this name.
func Known(name string) bool { _, ok := addons[name]; return ok }

// DefaultImage returns the image of the newest release of an addon.
func DefaultImage(name string) string { return addons[name].image("") }

// PodImages returns the container images of what every cluster runs with default settings: sandboxes of pods, cluster DNS
// and metrics-server.
func PodImages() []string {
	return []string{component.DefaultSandboxImage, DefaultImage(coreDNSName), DefaultImage(metricsServerName)}
}

func (k known) image(version string) string {
	return k.repository + ":v" + cmp.Or(version, k.versions[0])
}

// Check checks the fields that are set, without the cluster.
func (a Addon) Check() (errs invalid.Fields) {
	if errs = a.checkName(); len(errs) > 0 {
		return errs
	}
	k := addons[a.Name]
	if a.Version != "" && !slices.Contains(k.versions, a.Version) {
		errs.Say("version", "Unknown release", "Release %q of %s is not built in. Built in: %s. For another release set image, such as %s.",
			a.Version, a.Name, strings.Join(k.versions, ", "), k.repository+":v"+strings.TrimPrefix(a.Version, "v"))
	}
	if a.Image != "" && !component.IsImageName(a.Image) {
		errs.Say("image", "Unusable image", "%q is not the name of an image, such as %s.", a.Image, k.image(a.Version))
	}
	for _, name := range slices.Sorted(maps.Keys(a.Environment)) {
		if wrong := validation.IsEnvVarName(name); len(wrong) > 0 {
			errs.Say(fmt.Sprintf("environment[%q]", name), "Unusable name", "%q is not the name of an environment variable: %s.", name, strings.Join(wrong, "; "))
		}
	}
	return errs
}

func (a Addon) checkName() (errs invalid.Fields) {
	if !Known(a.Name) {
		errs.Say("name", "Unknown addon", "%q is not built in (%s are): set manifests.", a.Name, strings.Join(names(), ", "))
	}
	return errs
}

// Objects returns the objects of the addon, also for a release that is no longer built in: such an addon must be
// compared, changed and deleted as well.
func (a Addon) Objects(c component.Cluster) ([]*unstructured.Unstructured, error) {
	if err := a.checkName().Err(); err != nil {
		return nil, fmt.Errorf("addon %s: %w", a.Name, err)
	}
	k := addons[a.Name]
	objects, err := k.objects(c, cmp.Or(a.Image, k.image(a.Version)))
	if err != nil {
		return nil, fmt.Errorf("addon %s: %w", a.Name, err)
	}
	var out []*unstructured.Unstructured
	for _, o := range objects {
		if d, ok := o.(*appsv1.Deployment); ok {
			a.complete(&d.Spec.Template, c.PKI)
		}
		if u, ok := o.(*unstructured.Unstructured); ok {
			out = append(out, u)
			continue
		}
		m, err := component.Fields(o)
		if err != nil {
			return nil, fmt.Errorf("addon %s: %w", a.Name, err)
		}
		out = append(out, &unstructured.Unstructured{Object: m})
	}
	return out, nil
}

// complete adds to the pods what all addons have in common.
func (a Addon) complete(pods *corev1.PodTemplateSpec, ref pki.Ref) {
	for name, value := range keyAnnotations(ref) {
		metav1.SetMetaDataAnnotation(&pods.ObjectMeta, name, value)
	}
	for i := range pods.Spec.Containers {
		c := &pods.Spec.Containers[i]
		for _, name := range slices.Sorted(maps.Keys(a.Environment)) {
			c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
			c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: a.Environment[name]})
		}
	}
}

// keyAnnotations returns annotations that roll pods after rotations of keys that pods read only
// when they start. One is the Kubernetes CA, which client-go before 1.36 read only once; another
// set of certificates gives another annotation, another order does not. The other is the key that
// signs their token, so that the earlier key can be dropped without waiting an hour for the token
// to expire. First generations give no annotation.
func keyAnnotations(ref pki.Ref) map[string]string {
	out := map[string]string{}
	if !slices.Equal(ref.Generations.Of(pki.KindKubernetesCA), []int{1}) {
		certificates := pki.Certificates(ref.KubernetesCA)
		slices.Sort(certificates)
		out["k8s-from-scratch/ca-sha256"] = desired.Sum([]byte(strings.Join(certificates, "")))
	}
	if signing := ref.Generations.Issuing(pki.KindServiceAccount); signing != 1 {
		out["k8s-from-scratch/service-account-key"] = strconv.Itoa(signing)
	}
	return out
}

// typed sets the kind of an object.
func typed(kind schema.GroupVersionKind, o runtime.Object) runtime.Object {
	o.GetObjectKind().SetGroupVersionKind(kind)
	return o
}

// serviceAccount returns an account in kube-system with a cluster role of its own.
func serviceAccount(name, role string, rules []rbacv1.PolicyRule) []runtime.Object {
	return []runtime.Object{
		typed(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), &corev1.ServiceAccount{ObjectMeta: systemMeta(name, nil)}),
		typed(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: rules}),
		typed(rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   accountOf(name),
		}),
	}
}

// ownRole gives an account in kube-system a role there, of its name.
func ownRole(name string, labels map[string]string, rules []rbacv1.PolicyRule) []runtime.Object {
	return []runtime.Object{
		typed(rbacv1.SchemeGroupVersion.WithKind("Role"), &rbacv1.Role{ObjectMeta: systemMeta(name, labels), Rules: rules}),
		typed(rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), &rbacv1.RoleBinding{
			ObjectMeta: systemMeta(name, labels),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects:   accountOf(name),
		}),
	}
}

// accountOf is an account in kube-system as the subject of a binding.
func accountOf(name string) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: metav1.NamespaceSystem}}
}

// systemDeployment returns a Deployment in kube-system with a rolling update, during which at most
// the given number of pods is unavailable.
func systemDeployment(name string, replicas, unavailable int32, labels map[string]string, pod corev1.PodSpec) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: systemMeta(name, labels),
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: ptr.To(intstr.FromInt32(unavailable))}},
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       pod,
			},
		},
	}
}

// apart prefers that pods with the labels run on different nodes.
func apart(weight int32, labels map[string]string) *corev1.PodAntiAffinity {
	return &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
		Weight:          weight,
		PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: labels}},
	}}}
}

// restricted is what a container runs with that needs nothing of its node.
func restricted(user int64) *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false),
		ReadOnlyRootFilesystem:   ptr.To(true),
		RunAsNonRoot:             ptr.To(true),
		RunAsUser:                &user,
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

func systemMeta(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem, Labels: labels}
}

// admission returns a policy of an addon about some resources, and its binding. who and want are expressions in CEL.
func admission(name string, labels map[string]string, about admissionv1.Rule, on []admissionv1.OperationType, who, want, message string) []runtime.Object {
	meta := metav1.ObjectMeta{Name: name, Labels: labels}
	return []runtime.Object{
		typed(admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"), &admissionv1.ValidatingAdmissionPolicy{
			ObjectMeta: meta,
			Spec: admissionv1.ValidatingAdmissionPolicySpec{
				FailurePolicy: ptr.To(admissionv1.Fail),
				MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionv1.RuleWithOperations{
						Operations: on,
						Rule:       about,
					},
				}}},
				MatchConditions: []admissionv1.MatchCondition{{Name: labels["k8s-app"], Expression: who}},
				Validations:     []admissionv1.Validation{{Expression: want, Message: message}},
			},
		}),
		typed(admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"), &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: meta,
			Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
		}),
	}
}

// core are resources of the core API.
func core(resources ...string) admissionv1.Rule {
	return admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: resources}
}
