package workerpool

import (
	"context"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// restartExpired restarts kubelets and kube-proxies whose certificates had expired. They read
// renewed ones only for a new connection. A connection on which an API server has refused the
// expired certificate lasts until client-go checks its files again, minutes later. Pods are not
// affected.
func (o *operation) restartExpired(ctx context.Context) error {
	return fleet.Each(ctx, o.Reachable(), func(ctx context.Context, m *rollout.Machine) error {
		units := o.expired(m)
		if len(units) == 0 {
			return nil
		}
		m.Say("worker: its certificates had expired, restarting %s", fleet.List(units))
		return m.UnitError(ctx, "restart "+fleet.List(units), units[0], deed.RestartRunning(ctx, m.Remote, units...))
	})
}

// expired returns the units of a worker's programs whose certificates had expired when the machine
// was observed. Each program has one certificate, of its own name.
func (o *operation) expired(m *rollout.Machine) []string {
	var units []string
	for _, s := range m.Want.Certificates {
		content, _ := m.Seen.Content(s.CertPath)
		if end, err := pki.Expiry(content); err == nil && o.Fleet.Now().After(end) {
			units = append(units, s.Name+".service")
		}
	}
	return units
}
