package rollout

import (
	"context"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// revive restarts kubelets and kube-proxies whose certificates had expired.
// They read renewed ones only when they connect anew, and a connection on which
// an API server has refused the expired one lasts until client-go's next check
// of its files, minutes later. Pods do not notice.
func (o *workerOperation) revive(ctx context.Context) error {
	return Each(ctx, o.reachable(), func(ctx context.Context, m *convergence) error {
		units := o.expired(m)
		if len(units) == 0 {
			return nil
		}
		m.Say("worker: its certificates had expired, restarting %s", listOf(units))
		_, err := m.Remote.Run(ctx, remote.Command{Script: "systemctl try-restart " + strings.Join(units, " "), Sudo: true})
		return m.UnitError(ctx, "restart "+listOf(units), units[0], err)
	})
}

// expired returns the units of a worker's programs whose certificates had
// expired when it was looked at. Each program has one, under its own name.
func (o *workerOperation) expired(m *convergence) []string {
	var units []string
	for _, s := range m.want.Certificates {
		content, _ := m.seen.Content(s.CertPath)
		if end, err := pki.Expiry(content); err == nil && o.now().After(end) {
			units = append(units, s.Name+".service")
		}
	}
	return units
}
