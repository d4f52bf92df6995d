package provider_test

import (
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// configure configures a provider and returns its errors.
func configure(t *testing.T, p *provider.Provider, config providertest.Values) string {
	t.Helper()
	var ch providertest.Change
	ch.Note(providertest.Open(t, p).Configure(config))
	return ch.Failure()
}
