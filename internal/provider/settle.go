package provider

import (
	"context"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// farewell limits what the process does after Terraform has said that it may end. Terraform kills
// it two seconds after that (go-plugin, Client.Kill).
const farewell = 1500 * time.Millisecond

// Settle settles the claims of everything that this process has created. Call it once Terraform has
// taken every answer, when the server has ended. What cannot be settled in time is settled by the
// next refresh.
func (p *Provider) Settle(ctx context.Context) {
	ctx, cancel := patience.Within(ctx, farewell)
	defer cancel()
	var g parallel.Group
	for _, d := range p.Sessions {
		g.Go(func() error { return d.SettleAll(ctx) })
	}
	_ = g.Wait() // nobody listens any more
}
