package keys_test

import (
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestKeyStorePace: the creation of a key store stays within what Parameter Store takes of an account, so nothing is sent
// twice.
func TestKeyStorePace(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	c.Instance("k8s_pki").Must(providertest.Values{"cluster": "demo"})
	calls := map[string]int{}
	for _, call := range c.Calls() {
		calls[call]++
	}
	if want := len(pki.Names(pki.Generations{})); calls["PutParameter"] != want+1 { // and whose they are
		t.Errorf("%d writes for %d entries", calls["PutParameter"], want+1)
	}
	if got := calls["GetParameter"] + calls["GetParameters"] + calls["GetParametersByPath"]; got > 4 {
		t.Errorf("%d reads: %v", got, calls)
	}
}
