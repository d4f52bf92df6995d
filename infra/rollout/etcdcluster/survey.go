package etcdcluster

import (
	"context"
)

// survey observes the machines, with their data volumes mounted, and chooses the token of a new cluster.
func (o *operation) survey(ctx context.Context) error {
	if err := o.look(ctx); err != nil {
		return err
	}
	if err := o.mountData(ctx); err != nil {
		return err
	}
	changed, err := o.identify(ctx)
	if err != nil || !changed {
		return err
	}
	return o.look(ctx)
}

// look observes the machines, and checks what members need of one another.
func (o *operation) look(ctx context.Context) error {
	if err := o.Survey(ctx); err != nil {
		return err
	}
	return o.CheckReach(ctx, o.needsPeers)
}
