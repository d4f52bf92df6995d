package keys_test

import (
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestKeyStorePace: the creation of a key store writes everything once, and not faster than Parameter Store takes it of an
// account. The account of the test takes any pace: on a slow computer, calls arrive closer together than they were sent.
func TestKeyStorePace(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t, func(c *cloud.Config) { c.Quotas.Unthrottled = true })
	began := time.Now()
	c.Instance("k8s_pki").Must(providertest.Values{"cluster": "demo"})
	took := time.Since(began)
	calls := map[string]int{}
	for _, call := range c.Calls() {
		calls[call]++
	}
	entries := len(pki.Names(pki.Generations{})) + 1 // and whose they are
	if calls["PutParameter"] != entries {
		t.Errorf("%d writes for %d entries", calls["PutParameter"], entries)
	}
	if took < time.Duration(entries-3)*time.Second/3 { // three at once, and then three a second
		t.Errorf("%d writes within %s", entries, took)
	}
	if got := calls["GetParameter"] + calls["GetParameters"] + calls["GetParametersByPath"]; got > 4 {
		t.Errorf("%d reads: %v", got, calls)
	}
}
