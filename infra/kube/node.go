package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// Node is the state of a node, for people.
type Node struct {
	Name          string `json:"name"`
	Ready         bool   `json:"ready"`
	Reason        string `json:"reason"` // why it is not ready; empty when it is
	Unschedulable bool   `json:"unschedulable"`
	Tainted       bool   `json:"-"` // so that pods without tolerations are not scheduled there
	InternalIP    string `json:"internal_ip"`
	ExternalIP    string `json:"external_ip"`
	PodCIDR       string `json:"pod_cidr"`
	Version       string `json:"version"` // of the kubelet, "v1.36.4"
	Runtime       string `json:"runtime"` // "containerd://2.2.0"
	Kernel        string `json:"kernel"`
	OS            string `json:"os"`
	BootID        string `json:"boot_id"` // of the machine's kernel, as the kubelet last reported it
	ProviderID    string `json:"-"`
	// Proven is the note last written by SetProven; empty for none.
	Proven string `json:"-"`
}

// Nodes lists the nodes by name; names is as for NodeObjects.
func (c *Client) Nodes(ctx context.Context, names ...string) ([]Node, error) {
	objects, err := c.NodeObjects(ctx, names...)
	if err != nil {
		return nil, err
	}
	out := make([]Node, 0, len(objects))
	for i := range objects {
		out = append(out, nodeOf(&objects[i]))
	}
	slices.SortFunc(out, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// NodeObjects lists the Node objects. With one name it is only that one, which a kubelet may ask for, too; with more
// names it is all.
func (c *Client) NodeObjects(ctx context.Context, names ...string) ([]corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	var options metav1.ListOptions
	if len(names) == 1 {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, names[0]).String()
	}
	list, err := c.typed.CoreV1().Nodes().List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return list.Items, nil
}

func nodeOf(n *corev1.Node) Node {
	out := Node{
		Name:          n.Name,
		Unschedulable: n.Spec.Unschedulable,
		PodCIDR:       n.Spec.PodCIDR,
		Version:       n.Status.NodeInfo.KubeletVersion,
		Runtime:       n.Status.NodeInfo.ContainerRuntimeVersion,
		Kernel:        n.Status.NodeInfo.KernelVersion,
		OS:            n.Status.NodeInfo.OSImage,
		BootID:        n.Status.NodeInfo.BootID,
		ProviderID:    n.Spec.ProviderID,
		Proven:        n.Annotations[provenAnnotation],
	}
	// Ready and Unschedulable say what these taints say, which the controller manager takes away a little later.
	late := []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnschedulable}
	out.Tainted = slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !slices.Contains(late, t.Key)
	})
	for _, a := range n.Status.Addresses {
		switch {
		case a.Type == corev1.NodeInternalIP && out.InternalIP == "":
			out.InternalIP = a.Address
		case a.Type == corev1.NodeExternalIP && out.ExternalIP == "":
			out.ExternalIP = a.Address
		}
	}
	out.Ready, out.Reason = readiness(n)
	return out
}

func readiness(n *corev1.Node) (bool, string) {
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			return true, ""
		}
		return false, strings.TrimSpace(c.Reason + ": " + c.Message)
	}
	return false, "the kubelet has not reported yet"
}

// NodeCondition is what to wait for on one node.
type NodeCondition struct {
	Name       string
	InternalIP string // must be the node's internal address; empty accepts any
	Version    string // must be the kubelet's version ("v1.36.4"); empty accepts any
	// BootID must be the machine's; empty accepts any. A Node object left by an earlier instance of
	// that name, or from before a stop, may say Ready until the API server misses its heartbeats.
	BootID string
	// Registered is set if the node need not be Ready, for example because its network plugin is
	// installed later.
	Registered bool
}

// unmet returns how node (nil if it does not exist) fails the condition; nil if it does not.
func (w NodeCondition) unmet(node *Node) *finding.Finding {
	f := finding.Finding{Subject: w.Name, Kind: finding.NodeState, Target: w.Name}
	switch {
	case node == nil:
		f.Problem = finding.Missing
	case w.InternalIP != "" && node.InternalIP != w.InternalIP:
		f.Problem, f.Found, f.Wanted = finding.Addresses, node.InternalIP, w.InternalIP
	case w.Version != "" && node.Version != w.Version:
		f.Problem, f.Found, f.Wanted = finding.Version, node.Version, w.Version
	case w.BootID != "" && node.BootID != w.BootID:
		f.Problem = finding.NotReported
	case !w.Registered && !node.Ready:
		f.Problem, f.Cause = finding.NotReady, node.Reason
	default:
		return nil
	}
	return &f
}

// WaitNodes waits until every condition holds. abort, if not nil, is called between polls; its
// error ends the wait.
func (c *Client) WaitNodes(ctx context.Context, conditions []NodeCondition, abort func(context.Context) error) error {
	if len(conditions) == 0 {
		return nil
	}
	var names []string
	var unmet []finding.Finding
	for _, want := range conditions {
		names = append(names, want.Name)
	}
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		nodes, err := c.Nodes(ctx, names...)
		if err != nil {
			if Permanent(err) {
				return false, err
			}
			if ctx.Err() == nil {
				unmet = []finding.Finding{{Kind: finding.NodeState, Problem: finding.Unjudged, Cause: err.Error()}}
			}
			return false, nil
		}
		unmet = unmet[:0]
		for _, want := range conditions {
			i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == want.Name })
			var node *Node
			if i >= 0 {
				node = &nodes[i]
			}
			if f := want.unmet(node); f != nil {
				unmet = append(unmet, *f)
			}
		}
		if len(unmet) > 0 && abort != nil {
			return false, abort(ctx)
		}
		return len(unmet) == 0, nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("waiting for nodes: %w (last: %s)", context.Cause(ctx), finding.Words(unmet))
	}
	return err
}

// cordonedAnnotation marks a node that this project has cordoned. A node that a person has cordoned
// must stay so.
const cordonedAnnotation = "k8s-from-scratch/cordoned"

// eventAnnotation marks a node that its service for EC2's events has cordoned (infra/component/ec2_events.py). While one of
// the two marks is there, the other program leaves the node cordoned.
const eventAnnotation = "k8s-from-scratch/ec2-event"

// Cordon makes a node unschedulable and marks it as cordoned by this project. A node that a person has cordoned stays
// as it is.
func (c *Client) Cordon(ctx context.Context, name string) error {
	return c.markNode(ctx, name, "true", true, func(n *corev1.Node) bool {
		return !n.Spec.Unschedulable || metav1.HasAnnotation(n.ObjectMeta, eventAnnotation)
	})
}

// Uncordon makes a node schedulable again if Cordon made it unschedulable, and EC2 has announced nothing.
func (c *Client) Uncordon(ctx context.Context, name string) error {
	return c.markNode(ctx, name, nil, nil, func(n *corev1.Node) bool {
		return metav1.HasAnnotation(n.ObjectMeta, cordonedAnnotation)
	})
}

// markNode sets the mark of a cordoned node and its unschedulable field, nil removing each, if due
// returns true for the node. It does not overwrite a mark that another program sets at the same time. It patches only these: an update of the whole node could overwrite
// taints changed in the meantime, which a kubelet is forbidden to do.
func (c *Client) markNode(ctx context.Context, name string, mark, unschedulable any, due func(*corev1.Node) bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		n, err := c.typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil || !due(n) {
			return err
		}
		closed := unschedulable
		if metav1.HasAnnotation(n.ObjectMeta, eventAnnotation) {
			closed = n.Spec.Unschedulable || unschedulable != nil
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{cordonedAnnotation: mark}, "resourceVersion": n.ResourceVersion},
			"spec":     map[string]any{"unschedulable": closed},
		})
		if err != nil {
			return err
		}
		_, err = c.typed.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
		return err
	})
	if err != nil {
		return fmt.Errorf("updating node %s: %w", name, err)
	}
	return nil
}

// DeleteNode deletes a Node object. One that does not exist is no error.
func (c *Client) DeleteNode(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	err := c.typed.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting node %s: %w", name, err)
	}
	return nil
}
