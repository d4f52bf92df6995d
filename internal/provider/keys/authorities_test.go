package keys_test

import (
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/company"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// given is one of `authorities.<kind>`, with the key and with the chain if there is one.
func given(t *testing.T, a *company.Authority) providertest.Values {
	t.Helper()
	out := providertest.Values{"certificate_pem": a.Certificate(), "private_key_wo": a.Key(t)}
	if chain := a.Chain(); chain != "" {
		out["chain_pem"] = chain
	}
	return out
}

// anchor is given without the chain, for the kinds that need none.
func anchor(t *testing.T, a *company.Authority) providertest.Values {
	return without(given(t, a), "chain_pem")
}

func without(v providertest.Values, name string) providertest.Values {
	out := providertest.With(v, nil)
	delete(out, name)
	return out
}

// withAuthorities configures given Kubernetes CAs by generation, beside others.
func withAuthorities(kubernetes, generations, more providertest.Values) providertest.Values {
	return providertest.With(providertest.Values{"cluster": "demo", "generations": generations,
		"authorities": providertest.With(providertest.Values{"kubernetes_ca": kubernetes}, more)}, nil)
}

// TestGivenAuthorities makes the keys of a cluster with given authorities, rotates to another one and
// away, imports, and loses a key.
func TestGivenAuthorities(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	keys := c.Instance("k8s_pki")
	root := company.Root(t, "Example Root")
	first, second := root.Issue(t, "Cluster CA"), root.IssueRSA(t, "Cluster CA")
	etcd, proxy := root.Issue(t, "etcd CA"), root.Issue(t, "Front proxy CA")
	others := func(v func(*testing.T, *company.Authority) providertest.Values) providertest.Values {
		return providertest.Values{"etcd_ca": providertest.Values{"1": v(t, etcd)}, "front_proxy_ca": providertest.Values{"1": v(t, proxy)}}
	}
	keyless := func(t *testing.T, a *company.Authority) providertest.Values {
		return without(given(t, a), "private_key_wo")
	}
	bare := func(t *testing.T, a *company.Authority) providertest.Values {
		return without(anchor(t, a), "private_key_wo")
	}

	config := withAuthorities(providertest.Values{"1": given(t, first)}, nil, others(anchor))
	ch := keys.Plan(config)
	planned, _ := providertest.Plain(ch.Planned).(providertest.Values)
	if got := planned["ref"].(providertest.Values)["kubernetes_ca_chain_pem"]; got != root.Certificate() {
		t.Errorf("the planned chain is %v", got)
	}
	c.Fatal(keys.Apply(ch))
	keys.Leaks()
	keys.Converged(config)
	kubernetes, etcdCA, proxyCA, _ := keys.Bundles()
	if kubernetes != first.Certificate() || etcdCA != etcd.Certificate() || proxyCA != proxy.Certificate() {
		t.Error("the anchors are not the given authorities alone")
	}
	if c.Parameters("demo")[pki.KeyKubernetesCA] != first.Key(t) {
		t.Error("the key store has another key")
	}
	// Once the key store has the keys, the configuration need not.
	config = withAuthorities(providertest.Values{"1": keyless(t, first)}, nil, others(bare))
	keys.Converged(config)

	other := root.Issue(t, "Another CA")
	for _, test := range []struct {
		name   string
		config providertest.Values
		want   []string
	}{
		{"another certificate", withAuthorities(providertest.Values{"1": given(t, other)}, nil, nil),
			[]string{`authorities`, `kubernetes_ca`, "Another authority", "generation 1 of kubernetes_ca has another certificate", "generations.kubernetes_ca = [1, 2]"}},
		{"another key", withAuthorities(providertest.Values{"1": providertest.With(given(t, first), providertest.Values{"private_key_wo": other.Key(t)})}, nil, nil),
			[]string{"private_key_wo", "the private key does not belong to the certificate"}},
		{"no such generation", withAuthorities(providertest.Values{"1": keyless(t, first), "2": given(t, second)}, nil, nil),
			[]string{"generation 2 is not in generations.kubernetes_ca = [1]"}},
		{"no key", withAuthorities(providertest.Values{"2": keyless(t, second)}, providertest.Values{"kubernetes_ca": []any{1, 2}}, nil),
			[]string{"private_key_wo", "does not have the private key of generation 2 of kubernetes_ca"}},
		{"no chain", withAuthorities(providertest.Values{"2": anchor(t, second)}, providertest.Values{"kubernetes_ca": []any{1, 2}}, nil),
			[]string{"chain_pem", "has issued authority Cluster CA"}},
		{"the same for two", withAuthorities(providertest.Values{"2": given(t, etcd)}, providertest.Values{"kubernetes_ca": []any{1, 2}}, others(bare)),
			[]string{"etcd_ca", "this is generation 2 of kubernetes_ca as well"}},
		{"no number", withAuthorities(providertest.Values{"one": given(t, first)}, nil, nil), []string{"must be the number of a generation"}},
	} {
		got := keys.Plan(test.config).Failure()
		providertest.Mention(t, got, test.want...)
		if strings.Contains(got, "PRIVATE KEY") {
			t.Errorf("%s: it shows a key", test.name)
		}
	}

	t.Run("import", func(t *testing.T) {
		imported := c.Instance("k8s_pki")
		imported.Imports("demo")
		imported.Must(config)
		imported.Converged(config)
		if imported.Get("ref").(providertest.Values)["kubernetes_ca_chain_pem"] != root.Certificate() {
			t.Error("it has another chain")
		}
	})
	t.Run("a lost key", func(t *testing.T) {
		if _, err := c.Client.SSM.DeleteParameter(t.Context(), &ssm.DeleteParameterInput{Name: sdk.String("/k8s/demo/pki/" + pki.KeyEtcdCA)}); err != nil {
			t.Fatal(err)
		}
		keys.Refresh()
		failed := providertest.Change{Errors: keys.Apply(keys.Plan(config))}
		providertest.Mention(t, failed.Failure(), pki.KeyEtcdCA+" is gone", "set private_key_wo")
		keys.Must(withAuthorities(providertest.Values{"1": keyless(t, first)}, nil, others(anchor)))
		keys.Converged(config)
		if c.Parameters("demo")[pki.KeyEtcdCA] != etcd.Key(t) {
			t.Error("the key store has another key")
		}
	})

	both := providertest.Values{"1": keyless(t, first), "2": given(t, second)}
	for _, list := range [][]any{{1, 2}, {2, 1}} {
		config = withAuthorities(both, providertest.Values{"kubernetes_ca": list}, others(bare))
		keys.Must(config)
		keys.Leaks()
		keys.Converged(config)
	}
	for _, list := range [][]any{{2}, {2, 3}, {3, 2}} {
		config = withAuthorities(providertest.Values{"2": keyless(t, second)}, providertest.Values{"kubernetes_ca": list}, others(bare))
		keys.Must(config)
		keys.Converged(config)
	}
	config = withAuthorities(nil, providertest.Values{"kubernetes_ca": []any{3}}, others(bare))
	keys.Must(config)
	keys.Converged(config)
	kubernetes, _, _, _ = keys.Bundles()
	if name, err := pki.CommonName([]byte(kubernetes)); err != nil || name != "kubernetes-ca-3" || len(pki.Certificates(kubernetes)) != 1 {
		t.Errorf("the Kubernetes CA is %s, %v", name, err)
	}
	if chain := keys.Get("ref").(providertest.Values)["kubernetes_ca_chain_pem"]; chain != nil {
		t.Errorf("the chain is %v", chain)
	}
	names := []string{}
	for name := range c.Parameters("demo") {
		names = append(names, name)
	}
	if slices.Contains(names, pki.SecretName(pki.KindKubernetesCA, 2)) {
		t.Errorf("the key store still has %q", names)
	}
}

// TestUnknownAuthorities checks that values that are not known yet are refused only when they are.
func TestUnknownAuthorities(t *testing.T) {
	t.Parallel()
	c := providertest.NewCore(t, provider.New("test"), providertest.Values{})
	keys := c.Instance("k8s_pki")
	a := company.Root(t, "Example Root").Issue(t, "Cluster CA")
	config := func(change providertest.Values) providertest.Values {
		return providertest.With(withAuthorities(providertest.Values{"1": providertest.With(given(t, a), change)}, nil, nil), providertest.Values{"key_store": "state"})
	}
	for _, name := range []string{"certificate_pem", "chain_pem", "private_key_wo"} {
		if got := keys.Plan(config(providertest.Values{name: providertest.Unknown})).Failure(); got != "" {
			t.Errorf("unknown %s: %s", name, got)
		}
	}
	keys.Must(config(nil))
	keys.Converged(config(providertest.Values{"private_key_wo": nil}))
}
