package provider_test

import (
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestProxyRefused: what programs would not understand, or everybody could read, is an error on the attribute.
func TestProxyRefused(t *testing.T) {
	t.Parallel()
	for want, proxy := range map[string]any{
		"":                         providertest.Values{"http": "http://proxy.example.com:3128", "no_proxy": []any{".example.com"}},
		"Set http, https or both":  providertest.Values{"no_proxy": []any{"a"}},
		"The URL has a user name":  providertest.Values{"https": "http://me:hunter2@proxy.example.com:3128"},
		"The URL has no port from": providertest.Values{"https": "http://proxy.example.com"},
		"neither a host such as":   providertest.Values{"https": "http://proxy.example.com:3128", "no_proxy": []any{"*.example.com"}},
		"Apply first what machine_proxy depends on": providertest.Values{"https": providertest.Unknown},
	} {
		got := configure(t, provider.New("test"), providertest.Values{"machine_proxy": proxy})
		if (want == "") != (got == "") || !strings.Contains(got, want) || strings.Contains(got, "hunter2") || want != "" && !strings.HasPrefix(got, `"machine_proxy`) {
			t.Errorf("%v: got %q, want %q on the attribute", proxy, got, want)
		}
	}
}

// TestAuthoritiesRefused: what is no certificate of an authority is an error on the attribute, which shows no key.
func TestAuthoritiesRefused(t *testing.T) {
	t.Parallel()
	key := "-----BEGIN PRIVATE KEY-----\naHVudGVyMg==\n-----END PRIVATE KEY-----\n"
	for want, authorities := range map[string]any{
		"no certificate in PEM":                           "company-ca.pem",
		"block 1 is a PRIVATE KEY: only certificates":     key,
		"Apply first what machine_authorities depends on": providertest.Unknown,
	} {
		got := configure(t, provider.New("test"), providertest.Values{"machine_authorities": authorities})
		if !strings.Contains(got, want) || strings.Contains(got, "aHVudGVyMg") || !strings.HasPrefix(got, `"machine_authorities`) {
			t.Errorf("%v: got %q, want %q on the attribute", authorities, got, want)
		}
	}
}
