package rollout

import (
	"bytes"
	"context"
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
)

// Inspect reads files of a machine, by path or pattern, and the releases of
// programs, by path, as they tell them with --version. What is not there is
// left out. It changes nothing.
func (e *Engine) Inspect(ctx context.Context, t fleet.Target, files, programs []string) (component.Found, map[string]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fleet.ObserveBudget, fmt.Errorf("no answer within %s", fleet.ObserveBudget))
	defer cancel()
	found, err := host.Read(ctx, e.Fleet.Machine(t).Remote, files, programs)
	if err != nil {
		return nil, nil, fmt.Errorf("inspecting %s: %w", t.Node.Name, err)
	}
	releases := map[string]string{}
	for _, p := range programs {
		if r := release(found[p]); r != "" {
			releases[p] = r
		}
		delete(found, p)
	}
	return found, releases, nil
}

// release finds the release in the first line of what a program says of itself:
// "Kubernetes v1.36.4", "etcd Version: 3.6.16", "CNI bridge plugin v1.9.1".
func release(said []byte) string {
	first, _, _ := bytes.Cut(said, []byte("\n"))
	if m := releasePattern.FindSubmatch(first); m != nil {
		return string(m[1])
	}
	return ""
}

var releasePattern = regexp.MustCompile(`\bv?(\d+\.\d+\.\d+(?:[-+~][0-9A-Za-z.+~-]+)?)`)

// NodeLabels returns the labels that a worker pool has put on a node.
func (e *Engine) NodeLabels(ctx context.Context, api API, node string) (map[string]string, error) {
	a := e.Fleet.Access(api.PKI)
	defer a.Close()
	nodes, err := fleet.AskAPI(ctx, a, api.Endpoint, func(ctx context.Context, c *kube.Client) ([]corev1.Node, error) {
		return c.NodeObjects(ctx, node)
	})
	if err != nil {
		return nil, fmt.Errorf("labels of node %s: %w", node, err)
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("labels of node %s: there is no such node", node)
	}
	return kube.OwnedLabels(&nodes[0]), nil
}

// FindObjects returns which of the addon's objects are in the cluster: the
// inventory of an addon whose own was lost.
func (e *Engine) FindObjects(ctx context.Context, want Addon) ([]kube.ObjectRef, error) {
	a := e.Fleet.Access(want.API.PKI)
	defer a.Close()
	found, err := fleet.AskAPI(ctx, a, want.API.Endpoint, func(ctx context.Context, c *kube.Client) ([]kube.ObjectRef, error) {
		var found []kube.ObjectRef
		for _, ref := range kube.RefsOf(want.Objects) {
			switch o, err := c.Get(ctx, ref); {
			case err != nil:
				return nil, err
			case o != nil:
				found = append(found, kube.RefOf(o))
			}
		}
		return found, nil
	})
	if err != nil {
		return nil, fmt.Errorf("addon %s: %w", want.Name, err)
	}
	return found, nil
}
