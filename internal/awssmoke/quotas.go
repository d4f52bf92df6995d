package main

import (
	"context"
	"errors"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/quotas"
)

// checkQuotas says which quotas the cluster needs, and fails if the account has no room for it. It needs no permission: a
// limit that it may not read fails nothing.
func (t *trial) checkQuotas(ctx context.Context) error {
	lines, notes, err := quotas.Check(ctx, t.account.client, t.planned.needs)
	if err != nil {
		return err
	}
	for _, l := range lines {
		t.report.Quotas = append(t.report.Quotas, l.String())
	}
	t.report.Quotas = append(t.report.Quotas, notes...)
	var errs []error
	for _, l := range quotas.Shortages(lines) {
		if !l.Assumed {
			errs = append(errs, errors.New(l.Shortage()))
		}
	}
	return errors.Join(errs...)
}
