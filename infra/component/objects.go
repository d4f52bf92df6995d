package component

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/access"
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
