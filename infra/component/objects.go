package component

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const kubeletAccessRole = "system:kube-apiserver-to-kubelet"

// SystemObjects returns what every cluster needs from the start: the right of
// the API servers to use the kubelets' API (logs, exec, port-forward, metrics).
func SystemObjects() []*unstructured.Unstructured {
	object := func(kind string, fields map[string]any) *unstructured.Unstructured {
		fields["apiVersion"] = rbacv1.SchemeGroupVersion.String()
		fields["kind"] = kind
		fields["metadata"] = map[string]any{"name": kubeletAccessRole}
		return &unstructured.Unstructured{Object: fields}
	}
	return []*unstructured.Unstructured{
		object("ClusterRole", map[string]any{"rules": []any{map[string]any{
			"apiGroups": []any{""},
			// The coarse right "proxy" and the finer ones kubelets ask for first
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
	}
}

// typed stamps an object with its kind.
func typed(kind schema.GroupVersionKind, o runtime.Object) runtime.Object {
	o.GetObjectKind().SetGroupVersionKind(kind)
	return o
}

// unstructuredObjects converts objects, leaving out what server-side apply must not claim.
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
