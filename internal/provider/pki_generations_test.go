package provider

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	gossh "golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/keystore"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

func rotating(generations values) values {
	return values{"cluster": "demo", "generations": generations}
}

// everyKey returns the same generations for every key.
func everyKey(numbers ...any) values {
	out := values{}
	for _, k := range pki.Kinds() {
		out[string(k)] = numbers
	}
	return out
}

func (i *instance) bundles() (kubernetes, etcd, proxy, account string) {
	ref, _ := i.get("ref").(values)
	read := func(name string) string { s, _ := ref[name].(string); return s }
	return read("kubernetes_ca_pem"), read("etcd_ca_pem"), read("front_proxy_ca_pem"), read("service_account_public_key_pem")
}

// TestRotateKeys goes through the steps of a rotation as Terraform does. Every value that a plan
// knows must come true, and the key store must contain the expected keys.
func TestRotateKeys(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	keys := c.instance("k8s_pki")
	store := keystore.New(c.client, keystore.Config{Cluster: "demo"})
	keys.must(values{"cluster": "demo"})
	first, _, _, _ := keys.bundles()
	if got := keys.get("ref").(values)["generations"].(values)["encryption"].([]any); len(got) != 1 || got[0] != "1" {
		t.Errorf("generations are %v", got)
	}
	for _, step := range []struct {
		generations values
		names       pki.Generations
		unknown     []string // of the planned reference
		warnings    int
	}{
		{values{"kubernetes_ca": []any{1, 2}}, pki.Generations{KubernetesCA: []int{1, 2}}, []string{"kubernetes_ca_pem"}, 0},
		{values{"kubernetes_ca": []any{2, 1}}, pki.Generations{KubernetesCA: []int{2, 1}}, nil, 0},
		{values{"kubernetes_ca": []any{2}}, pki.Generations{KubernetesCA: []int{2}}, nil, 1},
		{values{"kubernetes_ca": []any{2}, "service_account": []any{1, 2}, "encryption": []any{1, 2}},
			pki.Generations{KubernetesCA: []int{2}, ServiceAccount: []int{1, 2}, Encryption: []int{1, 2}}, []string{"service_account_public_key_pem"}, 0},
	} {
		config := rotating(step.generations)
		ch := keys.plan(config)
		planned, _ := plain(ch.planned).(values)
		var unknowns []string
		for name, v := range planned["ref"].(values) {
			if v == unknown {
				unknowns = append(unknowns, name)
			}
		}
		if !slices.Equal(unknowns, step.unknown) {
			t.Errorf("%v: not known in the plan are %q", step.generations, unknowns)
		}
		if len(ch.warnings) != step.warnings {
			t.Errorf("%v: %d warnings", step.generations, len(ch.warnings))
		}
		c.fatal(keys.apply(ch))
		keys.settled(config)
		keys.leaks()
		present, err := store.List(t.Context())
		if want := slices.Sorted(slices.Values(append(pki.Names(step.names), pki.NameOwner))); err != nil || !slices.Equal(present, want) {
			t.Errorf("%v: the key store has %q, %v", step.generations, present, err)
		}
	}
	now, _, _, _ := keys.bundles()
	if now == first || len(pki.Certificates(now)) != 1 {
		t.Errorf("the Kubernetes CA is %s", now)
	}

	config := rotating(values{"kubernetes_ca": []any{2}, "service_account": []any{1, 2}, "encryption": []any{1, 2}})
	t.Run("import", func(t *testing.T) {
		imported := c.instance("k8s_pki")
		imported.imports("demo")
		imported.refresh()
		full := maps.Clone(everyKey(1))
		maps.Copy(full, config["generations"].(values))
		if ch := imported.plan(rotating(full)); !imported.empty(ch) {
			t.Errorf("the plan is not empty: %s\n%s", ch.failure(), imported.differences(ch))
		}
		if got, _, _, _ := imported.bundles(); got != now {
			t.Error("another CA was imported")
		}
	})
	t.Run("left by an interruption", func(t *testing.T) {
		if err := store.Create(t.Context(), pki.SecretName(pki.KindEtcdCA, 2), []byte("a key nobody knows of")); err != nil {
			t.Fatal(err)
		}
		keys.refresh()
		if drift, _ := keys.get("drift").(values); drift["key store"] != "etcd-ca-2.key: of a generation that is not wanted" {
			t.Errorf("drift is %v", drift)
		}
		keys.must(config)
		keys.settled(config)
	})
	t.Run("an old state", func(t *testing.T) {
		before := keys.state
		next := rotating(values{"kubernetes_ca": []any{2}, "service_account": []any{2, 1}, "encryption": []any{2, 1}})
		keys.must(next)
		newer := keys.state
		keys.state = before
		failed := change{errors: keys.apply(keys.plan(rotating(values{"kubernetes_ca": []any{2, 3}, "service_account": []any{1, 2}, "encryption": []any{1, 2}})))}
		if got := failed.failure(); !strings.Contains(got, "write generations.service_account = [2, 1] and apply") {
			t.Errorf("got %s", got)
		}
		keys.state = newer
		keys.settled(next)
	})
	t.Run("without what is to be dropped", func(t *testing.T) {
		if _, err := c.client.SSM.DeleteParameter(t.Context(), &ssm.DeleteParameterInput{Name: sdk.String("/k8s/demo/pki/" + pki.KeyServiceAccount)}); err != nil {
			t.Fatal(err)
		}
		keys.refresh()
		next := rotating(values{"kubernetes_ca": []any{2}, "service_account": []any{2}, "encryption": []any{2}})
		keys.must(next)
		keys.settled(next)
	})
	t.Run("secret", func(t *testing.T) {
		out, err := c.client.SSM.GetParameter(t.Context(), &ssm.GetParameterInput{Name: sdk.String("/k8s/demo/pki/" + pki.SecretName(pki.KindEncryption, 2))})
		if err != nil || out.Parameter.Type != ssmtypes.ParameterTypeSecureString {
			t.Errorf("%v, %v", out, err)
		}
	})
	c.fatal(keys.apply(keys.plan(nil)))
	c.account.Empty()
}

// TestRefusedGenerations checks that the plan refuses generations that are no step of a rotation,
// with an error on the list.
func TestRefusedGenerations(t *testing.T) {
	t.Parallel()
	c := newCore(t, New("test"), values{})
	keys := c.instance("k8s_pki")
	config := func(g values) values { return values{"cluster": "demo", "key_store": "state", "generations": g} }
	keys.must(config(nil))
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
		ch := keys.plan(config(values{test.key: test.list}))
		if got := ch.failure(); !strings.Contains(got, test.want) || !strings.Contains(got, `"generations").AttributeName("`+test.key+`"`) {
			t.Errorf("%s = %v: got %q, wanted %q on the attribute", test.key, test.list, got, test.want)
		}
	}
	if ch := keys.plan(config(values{"etcd_ca": unknown})); ch.failure() != "" {
		t.Errorf("unknown generations: %s", ch.failure())
	}
}

// TestRotateInState is TestRotateKeys with the keys in the state.
func TestRotateInState(t *testing.T) {
	t.Parallel()
	c := newCore(t, New("test"), values{})
	keys := c.instance("k8s_pki")
	config := func(g values) values { return values{"cluster": "demo", "key_store": "state", "generations": g} }
	keys.must(config(nil))
	for _, step := range []struct {
		list []any
		keys int
	}{{[]any{1, 2}, 10}, {[]any{2, 1}, 10}, {[]any{2}, 5}} {
		ch := keys.plan(config(everyKey(step.list...)))
		planned, _ := plain(ch.planned).(values)
		if known := planned["ref"].(values)["keys"] != unknown; known != (step.list[0] == 2) {
			t.Errorf("%v: keys are known in the plan: %t", step.list, known)
		}
		c.fatal(keys.apply(ch))
		keys.settled(config(everyKey(step.list...)))
		if got := keys.get("ref").(values)["keys"].(values); len(got) != step.keys {
			t.Errorf("%v: %d keys", step.list, len(got))
		}
	}
}

// publicKey is a host key in authorized_keys form.
func publicKey(t *testing.T) string {
	t.Helper()
	signer, err := gossh.ParsePrivateKey([]byte(sshKey(t)))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(gossh.MarshalAuthorizedKey(signer.PublicKey())))
}

// TestRoleMustFollow checks that a role that missed a failed step cannot take two steps at once.
func TestRoleMustFollow(t *testing.T) {
	t.Parallel()
	c := newCore(t, New("test"), values{"ssh": values{"private_key": sshKey(t)}})
	keys := c.instance("k8s_pki")
	config := func(g values) values { return values{"cluster": "demo", "key_store": "state", "generations": g} }
	keys.must(config(everyKey(1, 2)))
	host := values{"name": "lb-0", "address": "203.0.113.9", "private_ip": "10.240.0.30", "host_key": publicKey(t)}
	role := func() values {
		return values{"version": "3.6.16", "hosts": []any{host}, "pki": keys.get("ref")}
	}
	etcd := c.instance("k8s_etcd_cluster")
	state := maps.Clone(role())
	state["id"], state["drift"], state["files"] = "demo", values{}, values{}
	state["ref"] = values{"version": "3.6.16", "endpoints": []any{}}
	etcd.state = c.value(etcd.schema, state)

	keys.must(config(everyKey(2, 1)))
	if got := etcd.plan(role()).failure(); strings.Contains(got, "rotation") {
		t.Errorf("the next step is refused: %s", got)
	}
	keys.must(config(everyKey(2)))
	got := etcd.plan(role()).failure()
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
	c := newCore(t, New("test"), values{})
	keys, kubeconfig := c.instance("k8s_pki"), c.instance("k8s_kubeconfig")
	config := func(g values) values { return values{"cluster": "demo", "key_store": "state", "generations": g} }
	wanted := func() values { return values{"pki": keys.get("ref"), "endpoint": "https://192.0.2.1:6443"} }
	keys.must(config(nil))
	kubeconfig.must(wanted())
	for _, step := range []struct {
		generations values
		reissued    bool
	}{
		{values{"etcd_ca": []any{1, 2}}, false},
		{values{"etcd_ca": []any{1, 2}, "kubernetes_ca": []any{1, 2}}, true},
		{values{"etcd_ca": []any{2, 1}, "kubernetes_ca": []any{1, 2}}, false},
		{values{"etcd_ca": []any{2, 1}, "kubernetes_ca": []any{2, 1}}, true},
		{values{"etcd_ca": []any{2, 1}, "kubernetes_ca": []any{2}}, true},
	} {
		before := kubeconfig.get("client_certificate")
		keys.must(config(step.generations))
		kubeconfig.must(wanted())
		kubeconfig.settled(wanted())
		if reissued := kubeconfig.get("client_certificate") != before; reissued != step.reissued {
			t.Errorf("%v: reissued: %t", step.generations, reissued)
		}
		bundle, _, _, _ := keys.bundles()
		cert, _ := kubeconfig.get("client_certificate").(string)
		if !pki.IssuedBy([]byte(cert), []byte(bundle)) || kubeconfig.get("cluster_ca_certificate") != bundle {
			t.Errorf("%v: of another authority:\n%s", step.generations, cert)
		}
	}
	behind := with(wanted(), values{"proxy_url": "socks5://localhost:1080"})
	kubeconfig.must(behind)
	kubeconfig.settled(behind)
	if raw, _ := kubeconfig.get("kubeconfig_raw").(string); !strings.Contains(raw, "proxy-url: socks5://localhost:1080") {
		t.Error("the kubeconfig lacks the proxy")
	}
	mention(t, kubeconfig.plan(with(behind, values{"proxy_url": "bastion:1080"})).failure(), "proxy_url", "socks5://localhost:1080")
}

// TestAuthorityDue checks that a refresh warns of an authority that expires before the certificates
// it would issue.
func TestAuthorityDue(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := newCore(t, NewAt("test", func() time.Time { return now }), values{})
	keys := c.instance("k8s_pki")
	keys.must(values{"cluster": "demo", "key_store": "state"})
	for years, want := range map[int]int{8: 0, 9: 3} {
		now = time.Now().AddDate(years, 0, 1)
		if got := keys.look(); len(got.warnings) != want {
			t.Errorf("%d warnings after %d years", len(got.warnings), years)
		} else if want > 0 && !strings.Contains(got.warnings[0].Detail, "set generations.kubernetes_ca = [1, 2]") {
			t.Errorf("it says %s", got.warnings[0].Detail)
		}
	}
}
