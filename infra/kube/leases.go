package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// Lease is a leader election lease: who leads, and since when that is known.
type Lease struct {
	Name        string        `json:"name"`   // "kube-controller-manager"
	Holder      string        `json:"holder"` // machine name; the identity up to the first underscore
	Identity    string        `json:"identity"`
	RenewTime   time.Time     `json:"renew_time"`
	Duration    time.Duration `json:"duration"`
	Transitions int           `json:"transitions"`
}

// leaderLeases are the leases in kube-system with which the control plane's components elect their
// leaders.
var leaderLeases = []string{"kube-controller-manager", "kube-scheduler"}

// Leases returns the leader election leases of the controller manager and the scheduler, in that
// order. A lease that does not exist yet is left out.
func (c *Client) Leases(ctx context.Context) ([]Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	list, err := c.typed.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the leases of the control plane: %w", err)
	}
	var out []Lease
	for _, l := range list.Items {
		if !slices.Contains(leaderLeases, l.Name) || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" {
			continue
		}
		lease := Lease{Name: l.Name, Identity: *l.Spec.HolderIdentity, Holder: holder(*l.Spec.HolderIdentity)}
		if l.Spec.RenewTime != nil {
			lease.RenewTime = l.Spec.RenewTime.UTC()
		}
		if l.Spec.LeaseDurationSeconds != nil {
			lease.Duration = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
		}
		if l.Spec.LeaseTransitions != nil {
			lease.Transitions = int(*l.Spec.LeaseTransitions)
		}
		out = append(out, lease)
	}
	return out, nil
}

// holder returns the host name that a component puts before the underscore of its identity
// "controller-0_6b9f...".
func holder(identity string) string {
	for i := range identity {
		if identity[i] == '_' {
			return identity[:i]
		}
	}
	return identity
}

func parseVersion(raw []byte) (string, error) {
	var info apiversion.Info
	if err := json.Unmarshal(raw, &info); err != nil {
		return "", fmt.Errorf("reading the API server's version: %w", err)
	}
	return info.GitVersion, nil
}
