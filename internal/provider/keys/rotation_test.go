package keys_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/keystore"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

func rotating(generations providertest.Values) providertest.Values {
	return providertest.Values{"cluster": "demo", "generations": generations}
}

// everyKey returns the same generations for every key.
func everyKey(numbers ...any) providertest.Values {
	out := providertest.Values{}
	for _, k := range pki.Kinds() {
		out[string(k)] = numbers
	}
	return out
}

// TestRotateKeys goes through the steps of a rotation as Terraform does. Every value that a plan
// knows must come true, and the key store must contain the expected keys.
func TestRotateKeys(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	keys := c.Instance("k8s_pki")
	store := keystore.New(c.Client, keystore.Config{Cluster: "demo"})
	keys.Must(providertest.Values{"cluster": "demo"})
	first, _, _, _ := keys.Bundles()
	if got := keys.Get("ref").(providertest.Values)["generations"].(providertest.Values)["encryption"].([]any); len(got) != 1 || got[0] != "1" {
		t.Errorf("generations are %v", got)
	}
	for _, step := range []struct {
		generations providertest.Values
		names       pki.Generations
		unknown     []string // of the planned reference
		warnings    int
	}{
		{providertest.Values{"kubernetes_ca": []any{1, 2}}, pki.Generations{KubernetesCA: []int{1, 2}}, []string{"kubernetes_ca_pem"}, 0},
		{providertest.Values{"kubernetes_ca": []any{2, 1}}, pki.Generations{KubernetesCA: []int{2, 1}}, nil, 0},
		{providertest.Values{"kubernetes_ca": []any{2}}, pki.Generations{KubernetesCA: []int{2}}, nil, 1},
		{providertest.Values{"kubernetes_ca": []any{2}, "service_account": []any{1, 2}, "encryption": []any{1, 2}},
			pki.Generations{KubernetesCA: []int{2}, ServiceAccount: []int{1, 2}, Encryption: []int{1, 2}}, []string{"service_account_public_key_pem"}, 0},
	} {
		config := rotating(step.generations)
		ch := keys.Plan(config)
		planned, _ := providertest.Plain(ch.Planned).(providertest.Values)
		var unknowns []string
		for name, v := range planned["ref"].(providertest.Values) {
			if v == providertest.Unknown {
				unknowns = append(unknowns, name)
			}
		}
		if !slices.Equal(unknowns, step.unknown) {
			t.Errorf("%v: not known in the plan are %q", step.generations, unknowns)
		}
		if len(ch.Warnings) != step.warnings {
			t.Errorf("%v: %d warnings", step.generations, len(ch.Warnings))
		}
		c.Fatal(keys.Apply(ch))
		keys.Converged(config)
		keys.Leaks()
		present, err := store.List(t.Context())
		if want := slices.Sorted(slices.Values(append(pki.Names(step.names), pki.NameOwner))); err != nil || !slices.Equal(present, want) {
			t.Errorf("%v: the key store has %q, %v", step.generations, present, err)
		}
	}
	now, _, _, _ := keys.Bundles()
	if now == first || len(pki.Certificates(now)) != 1 {
		t.Errorf("the Kubernetes CA is %s", now)
	}

	config := rotating(providertest.Values{"kubernetes_ca": []any{2}, "service_account": []any{1, 2}, "encryption": []any{1, 2}})
	t.Run("import", func(t *testing.T) {
		imported := c.Instance("k8s_pki")
		imported.Imports("demo")
		imported.Refresh()
		full := maps.Clone(everyKey(1))
		maps.Copy(full, config["generations"].(providertest.Values))
		if ch := imported.Plan(rotating(full)); !imported.Empty(ch) {
			t.Errorf("the plan is not empty: %s\n%s", ch.Failure(), imported.Differences(ch))
		}
		if got, _, _, _ := imported.Bundles(); got != now {
			t.Error("another CA was imported")
		}
	})
	t.Run("left by an interruption", func(t *testing.T) {
		if err := store.Create(t.Context(), pki.SecretName(pki.KindEtcdCA, 2), []byte("a key nobody knows of")); err != nil {
			t.Fatal(err)
		}
		keys.Refresh()
		if drift, _ := keys.Get("drift").(providertest.Values); drift["key store"] != "etcd-ca-2.key: of a generation that is not wanted" {
			t.Errorf("drift is %v", drift)
		}
		keys.Must(config)
		keys.Converged(config)
	})
	t.Run("an old state", func(t *testing.T) {
		before := keys.State
		next := rotating(providertest.Values{"kubernetes_ca": []any{2}, "service_account": []any{2, 1}, "encryption": []any{2, 1}})
		keys.Must(next)
		newer := keys.State
		keys.State = before
		failed := providertest.Change{Errors: keys.Apply(keys.Plan(rotating(providertest.Values{"kubernetes_ca": []any{2, 3}, "service_account": []any{1, 2}, "encryption": []any{1, 2}})))}
		if got := failed.Failure(); !strings.Contains(got, "write generations.service_account = [2, 1] and apply") {
			t.Errorf("got %s", got)
		}
		keys.State = newer
		keys.Converged(next)
	})
	t.Run("without what is to be dropped", func(t *testing.T) {
		if _, err := c.Client.SSM.DeleteParameter(t.Context(), &ssm.DeleteParameterInput{Name: sdk.String("/k8s/demo/pki/" + pki.KeyServiceAccount)}); err != nil {
			t.Fatal(err)
		}
		keys.Refresh()
		next := rotating(providertest.Values{"kubernetes_ca": []any{2}, "service_account": []any{2}, "encryption": []any{2}})
		keys.Must(next)
		keys.Converged(next)
	})
	t.Run("secret", func(t *testing.T) {
		out, err := c.Client.SSM.GetParameter(t.Context(), &ssm.GetParameterInput{Name: sdk.String("/k8s/demo/pki/" + pki.SecretName(pki.KindEncryption, 2))})
		if err != nil || out.Parameter.Type != ssmtypes.ParameterTypeSecureString {
			t.Errorf("%v, %v", out, err)
		}
	})
	c.Fatal(keys.Apply(keys.Plan(nil)))
	c.Account.Empty()
}

// TestRefusedGenerations checks that the plan refuses generations that are no step of a rotation,
// with an error on the list.
func TestRefusedGenerations(t *testing.T) {
	t.Parallel()
	c := providertest.NewCore(t, provider.New("test"), providertest.Values{})
	keys := c.Instance("k8s_pki")
	config := func(g providertest.Values) providertest.Values {
		return providertest.Values{"cluster": "demo", "key_store": "state", "generations": g}
	}
	keys.Must(config(nil))
	for _, test := range []struct {
		key  string
		list []any
		want string
	}{
		{"kubernetes_ca", []any{2}, "generation 2 is not trusted yet: write [1, 2] and apply, then [2, 1]"},
		{"etcd_ca", []any{2, 1}, "generation 2 is not trusted yet: write [1, 2] and apply, then [2, 1]"},
		{"encryption", []any{}, "at least 1"},
		{"service_account", []any{1, 2, 3, 4}, "at most 3"},
		{"service_account", []any{1, 1}, "listed twice"},
		{"front_proxy_ca", []any{0}, "count from 1"},
	} {
		ch := keys.Plan(config(providertest.Values{test.key: test.list}))
		if got := ch.Failure(); !strings.Contains(got, test.want) || !strings.Contains(got, `"generations").AttributeName("`+test.key+`"`) {
			t.Errorf("%s = %v: got %q, wanted %q on the attribute", test.key, test.list, got, test.want)
		}
	}
	if ch := keys.Plan(config(providertest.Values{"etcd_ca": providertest.Unknown})); ch.Failure() != "" {
		t.Errorf("unknown generations: %s", ch.Failure())
	}
}

// TestRotateInState is TestRotateKeys with the keys in the state.
func TestRotateInState(t *testing.T) {
	t.Parallel()
	c := providertest.NewCore(t, provider.New("test"), providertest.Values{})
	keys := c.Instance("k8s_pki")
	config := func(g providertest.Values) providertest.Values {
		return providertest.Values{"cluster": "demo", "key_store": "state", "generations": g}
	}
	keys.Must(config(nil))
	for _, step := range []struct {
		list []any
		keys int
	}{{[]any{1, 2}, 10}, {[]any{2, 1}, 10}, {[]any{2}, 5}} {
		ch := keys.Plan(config(everyKey(step.list...)))
		planned, _ := providertest.Plain(ch.Planned).(providertest.Values)
		if known := planned["ref"].(providertest.Values)["keys"] != providertest.Unknown; known != (step.list[0] == 2) {
			t.Errorf("%v: keys are known in the plan: %t", step.list, known)
		}
		c.Fatal(keys.Apply(ch))
		keys.Converged(config(everyKey(step.list...)))
		if got := keys.Get("ref").(providertest.Values)["keys"].(providertest.Values); len(got) != step.keys {
			t.Errorf("%v: %d keys", step.list, len(got))
		}
	}
}

// TestRoleMustFollow checks that a role that missed a failed step cannot take two steps at once.
func TestRoleMustFollow(t *testing.T) {
	t.Parallel()
	c := providertest.NewCore(t, provider.New("test"), providertest.Values{"ssh": providertest.Values{"private_key": providertest.SSHKey(t)}})
	keys := c.Instance("k8s_pki")
	config := func(g providertest.Values) providertest.Values {
		return providertest.Values{"cluster": "demo", "key_store": "state", "generations": g}
	}
	keys.Must(config(everyKey(1, 2)))
	host := providertest.Values{"name": "lb-0", "address": "203.0.113.9", "private_ip": "10.240.0.30", "host_key": providertest.PublicKey(t)}
	role := func() providertest.Values {
		return providertest.Values{"version": "3.6.16", "hosts": []any{host}, "pki": keys.Get("ref")}
	}
	etcd := c.Instance("k8s_etcd_cluster")
	state := maps.Clone(role())
	state["id"], state["drift"], state["files"] = "demo", providertest.Values{}, providertest.Values{}
	state["ref"] = providertest.Values{"version": "3.6.16", "endpoints": []any{}}
	etcd.State = c.Value(etcd.Schema, state)

	keys.Must(config(everyKey(2, 1)))
	if got := etcd.Plan(role()).Failure(); strings.Contains(got, "rotation") {
		t.Errorf("the next step is refused: %s", got)
	}
	keys.Must(config(everyKey(2)))
	got := etcd.Plan(role()).Failure()
	for _, want := range []string{`"pki"`, "An earlier step of the rotation is not finished here", "generations.kubernetes_ca = [1, 2] of k8s_pki, and is now planned with [2]"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, wanted %q", got, want)
		}
	}
}

// TestManagedKubeconfigFollows checks that a kubeconfig in the state is issued again only if its CA
// bundle or the issuing CA changes.
func TestManagedKubeconfigFollows(t *testing.T) {
	t.Parallel()
	c := providertest.NewCore(t, provider.New("test"), providertest.Values{})
	keys, kubeconfig := c.Instance("k8s_pki"), c.Instance("k8s_kubeconfig")
	config := func(g providertest.Values) providertest.Values {
		return providertest.Values{"cluster": "demo", "key_store": "state", "generations": g}
	}
	wanted := func() providertest.Values {
		return providertest.Values{"endpoint": "https://192.0.2.1:6443", "control_plane": providertest.With(providertest.NewRoles(t).Pool["control_plane"].(providertest.Values), providertest.Values{"pki": keys.Get("ref")})}
	}
	keys.Must(config(nil))
	kubeconfig.Must(wanted())
	for _, step := range []struct {
		generations providertest.Values
		reissued    bool
	}{
		{providertest.Values{"etcd_ca": []any{1, 2}}, false},
		{providertest.Values{"etcd_ca": []any{1, 2}, "kubernetes_ca": []any{1, 2}}, true},
		{providertest.Values{"etcd_ca": []any{2, 1}, "kubernetes_ca": []any{1, 2}}, false},
		{providertest.Values{"etcd_ca": []any{2, 1}, "kubernetes_ca": []any{2, 1}}, true},
		{providertest.Values{"etcd_ca": []any{2, 1}, "kubernetes_ca": []any{2}}, true},
	} {
		before := kubeconfig.Get("client_certificate")
		keys.Must(config(step.generations))
		kubeconfig.Must(wanted())
		kubeconfig.Converged(wanted())
		if reissued := kubeconfig.Get("client_certificate") != before; reissued != step.reissued {
			t.Errorf("%v: reissued: %t", step.generations, reissued)
		}
		bundle, _, _, _ := keys.Bundles()
		cert, _ := kubeconfig.Get("client_certificate").(string)
		if !pki.IssuedBy([]byte(cert), []byte(bundle)) || kubeconfig.Get("cluster_ca_certificate") != bundle {
			t.Errorf("%v: of another authority:\n%s", step.generations, cert)
		}
	}
	behind := providertest.With(wanted(), providertest.Values{"proxy_url": "socks5://localhost:1080"})
	kubeconfig.Must(behind)
	kubeconfig.Converged(behind)
	if raw, _ := kubeconfig.Get("kubeconfig_raw").(string); !strings.Contains(raw, "proxy-url: socks5://localhost:1080") {
		t.Error("the kubeconfig lacks the proxy")
	}
	providertest.Mention(t, kubeconfig.Plan(providertest.With(behind, providertest.Values{"proxy_url": "bastion:1080"})).Failure(), "proxy_url", "socks5://localhost:1080")

	// A program that signs people in takes the place of the certificate, and the other way round.
	signs := providertest.With(wanted(), providertest.Values{"exec": providertest.Values{"args": []any{"sign-in", "-issuer", "https://login.example.com", "-client-id", "kubernetes"},
		"env": providertest.Values{"HTTPS_PROXY": "http://proxy.example.com"}, "install_hint": "ask ada"}})
	kubeconfig.Must(signs)
	kubeconfig.Converged(signs)
	kubeconfig.Refresh()
	kubeconfig.Converged(signs)
	raw, _ := kubeconfig.Get("kubeconfig_raw").(string)
	providertest.Mention(t, raw, "command: k8s-kubeconfig", "- sign-in", "client.authentication.k8s.io/v1", "value: http://proxy.example.com", "installHint: ask ada")
	if strings.Contains(raw, "client-key-data") || kubeconfig.Get("client_key") != nil || kubeconfig.Get("expires_at") != nil {
		t.Error("there is a certificate beside the program")
	}
	providertest.Mention(t, kubeconfig.Plan(providertest.With(signs, providertest.Values{"ttl": "1h"})).Failure(), "exec", "ttl")
	kubeconfig.Must(wanted())
	kubeconfig.Converged(wanted())
	if kubeconfig.Get("client_key") == nil {
		t.Error("no certificate was issued")
	}
}

// TestAuthorityDue checks that a refresh warns of an authority that expires before the certificates
// it would issue.
func TestAuthorityDue(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := providertest.NewCore(t, provider.NewAt("test", func() time.Time { return now }), providertest.Values{})
	keys := c.Instance("k8s_pki")
	keys.Must(providertest.Values{"cluster": "demo", "key_store": "state"})
	for years, want := range map[int]int{8: 0, 9: 3} {
		now = time.Now().AddDate(years, 0, 1)
		if got := keys.Look(); len(got.Warnings) != want {
			t.Errorf("%d warnings after %d years", len(got.Warnings), years)
		} else if want > 0 && !strings.Contains(got.Warnings[0].Detail, "set generations.kubernetes_ca = [1, 2]") {
			t.Errorf("it says %s", got.Warnings[0].Detail)
		}
	}
}
