package component

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/access"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

const kubeletAccessRole = "system:kube-apiserver-to-kubelet"

// SystemObjects returns the objects that the cluster needs from the start: the permission of API
// servers to use the kubelets' API (logs, exec, port-forward, metrics), and the bindings that say who may do what.
func (s ControlPlaneSpec) SystemObjects() []*unstructured.Unstructured {
	object := func(kind string, fields map[string]any) *unstructured.Unstructured {
		fields["apiVersion"] = rbacv1.SchemeGroupVersion.String()
		fields["kind"] = kind
		fields["metadata"] = map[string]any{"name": kubeletAccessRole}
		return &unstructured.Unstructured{Object: fields}
	}
	out := []*unstructured.Unstructured{
		object("ClusterRole", map[string]any{"rules": []any{map[string]any{
			"apiGroups": []any{""},
			// The coarse permission "proxy" and the finer ones that kubelets check first
			// (https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/).
			"resources": []any{
				"nodes/checkpoint", "nodes/configz", "nodes/healthz", "nodes/log", "nodes/metrics",
				"nodes/pods", "nodes/proxy", "nodes/spec", "nodes/stats",
			},
			"verbs": []any{"*"},
		}}}),
		object("ClusterRoleBinding", map[string]any{
			"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": "ClusterRole", "name": kubeletAccessRole},
			"subjects": []any{map[string]any{"apiGroup": rbacv1.GroupName, "kind": rbacv1.UserKind, "name": kubeletClientUser}},
		}),
		access.AdministratorsBinding(),
	}
	for _, e := range s.Access {
		out = append(out, e.Binding())
	}
	return out
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

// unstructuredObjects converts objects, without fields that server-side apply must not own.
func unstructuredObjects(objects ...runtime.Object) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, o := range objects {
		if u, ok := o.(*unstructured.Unstructured); ok {
			out = append(out, u)
			continue
		}
		m, err := toMap(o)
		if err != nil {
			return nil, fmt.Errorf("object %s: %w", o.GetObjectKind().GroupVersionKind().Kind, err)
		}
		out = append(out, &unstructured.Unstructured{Object: m})
	}
	return out, nil
}
