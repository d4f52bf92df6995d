package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// ownedAnnotation lists the labels and taints that this project has set on a node, to distinguish
// its own labels and taints, which it may remove, from those of others. Server-side apply does not
// work here: it would create a missing Node, and it treats a node's taints, which the node
// lifecycle controller sets too, as one atomic list.
const ownedAnnotation = "k8s-from-scratch/owned"

// NodeSpec is the wanted state of a Node object. Labels and taints set by others are not changed.
type NodeSpec struct {
	Name   string
	Labels map[string]string
	Taints []corev1.Taint
	// PodCIDR and ProviderID are set if the node has none. Kubernetes does not change them afterwards. If one is empty,
	// any is right.
	PodCIDR, ProviderID string
}

type owned struct {
	Labels []string `json:"labels,omitempty"`
	Taints []string `json:"taints,omitempty"` // "key:effect"
}

// NodeDrift returns the differences between a node and its wanted state. The subject of a finding
// is the node's name.
func NodeDrift(n *corev1.Node, want NodeSpec) []finding.Finding {
	var out []finding.Finding
	add := func(kind finding.Kind, target string, problem finding.Problem, found, wanted string) {
		out = append(out, finding.Finding{Subject: n.Name, Kind: kind, Target: target, Problem: problem, Found: found, Wanted: wanted})
	}
	had := ownedBy(n)
	for _, k := range slices.Sorted(maps.Keys(want.Labels)) {
		if got, ok := n.Labels[k]; !ok {
			add(finding.Label, k, finding.Missing, "", want.Labels[k])
		} else if got != want.Labels[k] {
			add(finding.Label, k, finding.Value, got, want.Labels[k])
		}
	}
	for _, k := range had.Labels {
		if _, wanted := want.Labels[k]; !wanted {
			if got, ok := n.Labels[k]; ok {
				add(finding.Label, k, finding.NotWanted, got, "")
			}
		}
	}
	for _, t := range want.Taints {
		got, ok := findTaint(n.Spec.Taints, taintKey(t))
		if !ok {
			add(finding.Taint, taintKey(t), finding.Missing, "", t.Value)
		} else if got.Value != t.Value {
			add(finding.Taint, taintKey(t), finding.Value, got.Value, t.Value)
		}
	}
	for _, k := range had.Taints {
		_, wanted := findTaint(want.Taints, k)
		if got, ok := findTaint(n.Spec.Taints, k); ok && !wanted {
			add(finding.Taint, k, finding.NotWanted, got.Value, "")
		}
	}
	if n.Spec.Unschedulable && metav1.HasAnnotation(n.ObjectMeta, cordonedAnnotation) {
		add(finding.Schedule, "", finding.Cordoned, "", "")
	}
	// Kubernetes does not change these after they were set.
	once := func(field string, other finding.Problem, found, wanted string) {
		switch {
		case wanted == "" || found == wanted:
		case found == "":
			add(finding.NodeField, field, finding.Missing, "", wanted)
		default:
			add(finding.NodeField, field, other, found, wanted)
		}
	}
	once("spec.podCIDR", finding.Value, n.Spec.PodCIDR, want.PodCIDR)
	once("spec.providerID", finding.Replaced, n.Spec.ProviderID, want.ProviderID)
	return out
}

// ReconcileNode changes a Node object to what is wanted, in one update. It leaves another provider ID as it is: that is
// for [Client.RemakeNode]. It fails if the node has another pod CIDR: Kubernetes does not allow a change, so the Node
// object must be deleted first.
func (c *Client) ReconcileNode(ctx context.Context, want NodeSpec) error {
	var conflict error
	err := c.updateNode(ctx, want.Name, func(n *corev1.Node) bool {
		if want.PodCIDR != "" && n.Spec.PodCIDR != "" && n.Spec.PodCIDR != want.PodCIDR {
			conflict = fmt.Errorf("node %s has pod CIDR %s, wanted %s: Kubernetes does not change it; drain the node and delete its Node object, the kubelet registers it anew",
				want.Name, n.Spec.PodCIDR, want.PodCIDR)
			return false
		}
		return reconcile(n, want)
	})
	if err != nil {
		return err
	}
	return conflict
}

// RemakeNode deletes a Node object and makes it again with another provider ID, which Kubernetes does not change. It keeps
// labels, annotations, taints, and what the kubelet has reported, so that nothing sees the node's pods as orphans. Its
// kubelet must not run meanwhile: a CSINode and other objects belong to the Node object that the kubelet saw at its start.
// Until ctx ends it tries again: once the old object is gone, there must be a new one.
func (c *Client) RemakeNode(ctx context.Context, name, providerID string) error {
	var was *corev1.Node
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
		defer cancel()
		nodes := c.typed.CoreV1().Nodes()
		if was == nil {
			var n *corev1.Node
			if n, last = nodes.Get(ctx, name, metav1.GetOptions{}); last != nil {
				return apierrors.IsNotFound(last), nil // then its kubelet makes one
			}
			was = n
		}
		last = nodes.Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(was.UID))})
		if apierrors.IsConflict(last) {
			return true, nil // it is another object: an answer to the creation was lost
		}
		if last == nil || apierrors.IsNotFound(last) {
			next := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: was.Labels, Annotations: maps.Clone(was.Annotations), OwnerReferences: was.OwnerReferences},
				Spec: was.Spec, Status: was.Status}
			next.Spec.ProviderID = providerID
			delete(next.Annotations, csiNodeID)
			_, last = nodes.Create(ctx, next, metav1.CreateOptions{FieldManager: fieldManager})
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("making node %s anew: %w", name, cmp.Or(last, err))
	}
	return nil
}

// csiNodeID is how drivers of volumes call a node; its kubelet asks them for it at its start.
const csiNodeID = "csi.volume.kubernetes.io/nodeid"

// reconcile changes n to what is wanted and reports whether anything changed.
func reconcile(n *corev1.Node, want NodeSpec) bool {
	marks := owned{Labels: slices.Sorted(maps.Keys(want.Labels))}
	for _, t := range want.Taints {
		marks.Taints = append(marks.Taints, taintKey(t))
	}
	slices.Sort(marks.Taints)
	had := ownedBy(n)
	if len(NodeDrift(n, want)) == 0 && slices.Equal(had.Labels, marks.Labels) && slices.Equal(had.Taints, marks.Taints) {
		return false
	}
	for _, k := range had.Labels {
		delete(n.Labels, k)
	}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	maps.Copy(n.Labels, want.Labels)
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		_, wanted := findTaint(want.Taints, taintKey(t))
		return wanted || slices.Contains(had.Taints, taintKey(t))
	})
	n.Spec.Taints = append(n.Spec.Taints, want.Taints...)
	if want.PodCIDR != "" {
		n.Spec.PodCIDR, n.Spec.PodCIDRs = want.PodCIDR, []string{want.PodCIDR}
	}
	if n.Spec.ProviderID == "" {
		n.Spec.ProviderID = want.ProviderID
	}
	raw, err := json.Marshal(marks)
	if err != nil { // cannot fail for slices of strings
		return false
	}
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, ownedAnnotation, string(raw))
	return true
}

// OwnedLabels returns the labels that [Client.ReconcileNode] has set on a node.
func OwnedLabels(n *corev1.Node) map[string]string {
	var out map[string]string
	for _, k := range ownedBy(n).Labels {
		if v, there := n.Labels[k]; there {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v
		}
	}
	return out
}

func ownedBy(n *corev1.Node) owned {
	var o owned
	if err := json.Unmarshal([]byte(n.Annotations[ownedAnnotation]), &o); err != nil {
		return owned{}
	}
	return o
}

func taintKey(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

func findTaint(taints []corev1.Taint, key string) (corev1.Taint, bool) {
	i := slices.IndexFunc(taints, func(t corev1.Taint) bool { return taintKey(t) == key })
	if i < 0 {
		return corev1.Taint{}, false
	}
	return taints[i], true
}

// updateNode reads a node, calls change, and writes the node back if change returns true. It
// retries on conflicts.
func (c *Client) updateNode(ctx context.Context, name string, change func(*corev1.Node) bool) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
		defer cancel()
		n, err := c.typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil || !change(n) {
			return err
		}
		_, err = c.typed.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{FieldManager: fieldManager})
		return err
	})
	if err != nil {
		return fmt.Errorf("updating node %s: %w", name, err)
	}
	return nil
}
