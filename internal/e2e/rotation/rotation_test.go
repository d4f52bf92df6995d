package rotation_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// client is a pod from which the cluster is tested.
const client = `
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: client, image: "k8s-lab/toolbox:1", command: ["sh", "-c", "echo ready; exec sleep 86400"]}
`

func TestRotation(t *testing.T) {
	c := newCluster(t)
	if _, err := c.WS.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := c.kubeconfig(t, "first")
	if _, err := suite.Kubectl(t.Context(), first, strings.NewReader(client), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "create", "secret", "generic", "canary", "--from-literal=value=tweet")
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/client", "--timeout=2m")
	oldRef := c.ref(t)
	c.works(t)

	c.testCompany(t)

	rotate := func(name string, kinds []pki.Kind) {
		if !t.Run(name, func(t *testing.T) { c.rotate(t, kinds) }) {
			t.FailNow()
		}
	}
	if os.Getenv("K8S_ROTATION_APART") == "" {
		rotate("all keys together", pki.Kinds())
	} else {
		rotate("kubernetes CA", []pki.Kind{pki.KindKubernetesCA})
		rotate("all other keys", otherKinds)
	}
	t.Run("nothing old is left", func(t *testing.T) { c.testNothingOld(t, oldRef, first) })
	t.Run("a certificate on request", c.testRequest)
	c.testCompany(t)
	t.Run("destroy", func(t *testing.T) {
		if _, err := c.WS.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := stored(t); len(left) > 0 {
			t.Errorf("the key store still has %q", left)
		}
	})
}

// stage runs one apply of a rotation and checks that it restarts exactly these units of these
// machines, the API servers one by one.
func (c *cluster) stage(t *testing.T, name, kubeconfig string, generations map[pki.Kind][]int, restarts []string, planned ...string) {
	t.Helper()
	before := suite.Units(t, machines...)
	c.set(t, generations)
	changes, text, err := c.WS.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !changes {
		t.Fatalf("%s: nothing is planned", name)
	}
	says(t, text, planned...)
	c.finish(t, name, kubeconfig)
	now := suite.OnlyRestarted(t, before, machines, restarts...)
	harness.OneByOne(t, now, harness.On(controllers, "kube-apiserver"))
}

// controlPlaneUnits are the Kubernetes units of the controllers.
func controlPlaneUnits() []string {
	return slices.Concat(harness.On(controllers, "kube-apiserver"), harness.On(controllers, "kube-controller-manager"), harness.On(controllers, "kube-scheduler"))
}

// finish applies the configuration while clients run, and checks that no request failed.
func (c *cluster) finish(t *testing.T, name, kubeconfig string) {
	t.Helper()
	traffic, began := c.Traffic(t, kubeconfig), time.Now()
	_, err := c.WS.Apply(t.Context())
	traffic.Unbroken(t)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: applied in %s", name, time.Since(began).Round(time.Second))
	c.NoChanges(t)
	var want pki.Generations
	for k, list := range c.generations {
		want = want.With(pki.Kind(k), list)
	}
	names := append(pki.Names(want), pki.NameOwner)
	slices.Sort(names)
	if diff := cmp.Diff(names, stored(t)); diff != "" {
		t.Errorf("%s: the key store: %s", name, diff)
	}
	c.kubeconfig(t, "now")
	c.works(t)
}

// otherKinds are all kinds of keys except the Kubernetes CA.
var otherKinds = []pki.Kind{pki.KindEtcdCA, pki.KindFrontProxyCA, pki.KindServiceAccount, pki.KindEncryption}

// rotate replaces the first generation of the kinds of keys by the second in three applies. Clients
// use the kubeconfig that was valid before each.
func (c *cluster) rotate(t *testing.T, kinds []pki.Kind) {
	all := func(list ...int) map[pki.Kind][]int {
		out := map[pki.Kind][]int{}
		for _, k := range kinds {
			out[k] = list
		}
		return out
	}
	ca := func(list ...int) map[pki.Kind][]int { return map[pki.Kind][]int{pki.KindKubernetesCA: list} }
	withCA, withOthers := slices.Contains(kinds, pki.KindKubernetesCA), slices.Contains(kinds, pki.KindEtcdCA)

	var restarts []string
	var trusting, issuing, dropping []string // words in the plans
	if withCA {
		pool := harness.Numbered("worker", workers)
		restarts = slices.Concat(restarts, controlPlaneUnits(), harness.On(pool, "kubelet"), harness.On(pool, "kube-proxy"))
		trusting = append(trusting, "k8s_pki.this will be updated in-place", `"/etc/kubernetes/pki/ca.crt" `)
		issuing = append(issuing, `~ "/etc/kubernetes/pki/apiserver.crt" `, c.reissued(pki.KindKubernetesCA),
			`~ "/etc/kubernetes/pki/kubelet.crt" `,
			`~ "from kubernetes-ca.key" -> "from kubernetes-ca-2.key",`)
		dropping = append(dropping, "Generation 1 of kubernetes_ca is dropped")
		for _, skipped := range [][]int{{2}, {2, 1}} {
			c.refused(t, ca(skipped...), "generation 2 is not trusted yet: write [1, 2] and apply, then [2, 1]", "k8s_pki.this", "generations.kubernetes_ca = "+pki.FormatGenerations(skipped)+" cannot follow [1]")
		}
	}
	if withOthers {
		restarts = slices.Concat(restarts, harness.On(controllers, "etcd"))
		if !withCA {
			restarts = slices.Concat(restarts, harness.On(controllers, "kube-apiserver"))
		}
		trusting = append(trusting, "k8s_etcd_cluster.this will be updated in-place")
		issuing = append(issuing, c.reissued(pki.KindEtcdCA),
			c.reissued(pki.KindFrontProxyCA),
			`~ "from service-account.key" -> "from service-account-2.key",`)
		dropping = append(dropping, "Generation 1 of service_account is dropped", "Tokens it has signed are refused from then on.")
	}
	oldToken := c.token(t)

	c.stage(t, "the second is trusted", c.kubeconfig(t, "before"), all(1, 2), restarts, trusting...)
	c.accepted(t, oldToken, true)
	if withOthers {
		c.sealedWith(t, "key-1")
	}

	between := c.kubeconfig(t, "between")
	if withCA {
		c.refused(t, ca(2), "generation 1 has issued until now", "write [2, 1]")
		c.issueKilled(t, between, all(2, 1), issuing)
	} else {
		c.stage(t, "the second issues", between, all(2, 1), append(slices.Clone(restarts), harness.On(controllers, "kube-controller-manager")...), issuing...)
	}
	c.accepted(t, oldToken, true)
	newToken := c.token(t)
	if withOthers {
		c.sealedWith(t, "key-2")
	}

	c.stage(t, "the first is dropped", c.kubeconfig(t, "fresh"), all(2), restarts, dropping...)
	c.accepted(t, oldToken, !withOthers)
	c.accepted(t, newToken, true)
	if withOthers {
		c.sealedWith(t, "key-2")
	}
	if out := c.Kubectl(t, "get", "secret", "canary", "-o", "jsonpath={.data.value}"); out != "dHdlZXQ=" {
		t.Errorf("the secret became %q", out)
	}
}

// issueKilled makes the second generation issue, with an apply that is killed half way and the
// apply after it.
func (c *cluster) issueKilled(t *testing.T, kubeconfig string, generations map[pki.Kind][]int, planned []string) {
	t.Helper()
	c.set(t, generations)
	_, text, err := c.WS.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	says(t, text, planned...)
	traffic := c.Traffic(t, kubeconfig)
	c.applyKilled(t)
	c.refused(t, map[pki.Kind][]int{pki.KindKubernetesCA: {2}}, "An earlier step of the rotation is not finished here", "generations.kubernetes_ca = [1, 2] of k8s_pki, and is now planned with [2]")
	traffic.Unbroken(t)
	c.finish(t, "the second issues, after an interruption", kubeconfig)
}

// applyKilled starts an apply and kills the provider once the first API server has a certificate of
// the new CA.
func (c *cluster) applyKilled(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := c.WS.Command(ctx, "apply", "-auto-approve", "-no-color")
	cmd.Stdout, cmd.Stderr = c.WS.Log, c.WS.Log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	reissued := func() bool {
		return slices.ContainsFunc(controllers, func(m string) bool {
			out, err := c.TrySh(ctx, m, "openssl x509 -noout -issuer -in /etc/kubernetes/pki/apiserver.crt")
			return err == nil && strings.Contains(out, c.issuer(pki.KindKubernetesCA, 2))
		})
	}
	for !reissued() {
		select {
		case err := <-ended:
			t.Fatalf("the apply ended before it could be killed: %v", err)
		case <-ctx.Done():
			t.Fatal("no API server has a certificate of the new CA after ten minutes")
		case <-time.After(100 * time.Millisecond):
		}
	}
	for _, pid := range harness.Providers(t, cmd.Process.Pid) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Logf("kill %d: %v", pid, err)
		}
	}
	if err := <-ended; err == nil {
		t.Fatal("the apply ended before its provider was killed")
	}
}

// token returns a new token of the default service account.
func (c *cluster) token(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(c.Kubectl(t, "create", "token", "default", "--duration=24h"))
}

// accepted checks whether the API servers accept a token.
func (c *cluster) accepted(t *testing.T, token string, want bool) {
	t.Helper()
	for _, m := range controllers {
		out := c.Sh(t, m, "curl -s -o /dev/null -w '%{http_code}' --cacert /etc/kubernetes/pki/ca.crt -H 'Authorization: Bearer "+token+"' https://127.0.0.1:6443/api/v1/namespaces/default/pods")
		// 403: known, and not allowed. 401: not known.
		if got := strings.TrimSpace(out); got != map[bool]string{true: "403", false: "401"}[want] {
			t.Errorf("%s answers a token with %s", m, got)
		}
	}
}

// sealedWith checks that every secret in etcd is encrypted with the key.
func (c *cluster) sealedWith(t *testing.T, key string) {
	t.Helper()
	out := c.Sh(t, "controller-0", `export ETCDCTL_ENDPOINTS=https://127.0.0.1:2379 ETCDCTL_CACERT=/etc/etcd/pki/ca.crt ETCDCTL_CERT=/etc/etcd/pki/server.crt ETCDCTL_KEY=/etc/etcd/pki/server.key
for k in $(etcdctl get --prefix /registry/secrets/ --keys-only); do
	echo "$k $(etcdctl get "$k" --print-value-only | head -c 40 | tr -c '[:print:]' ' ' | cut -d: -f1-5)"
done`)
	found := 0
	for line := range strings.Lines(out) {
		found++
		if !strings.Contains(line, " k8s:enc:secretbox:v1:"+key) {
			t.Errorf("not sealed with %s: %s", key, line)
		}
	}
	if found == 0 {
		t.Error("no secrets in etcd")
	}
}

var certificateFiles = regexp.MustCompile(`(?m)^== (\S+)\n`)

func (c *cluster) testNothingOld(t *testing.T, old pki.Ref, first string) {
	now := c.ref(t)
	var gone []string
	for _, ca := range []pki.CAName{pki.KubernetesCA, pki.EtcdCA, pki.FrontProxyCA} {
		gone = append(gone, pki.Certificates(old.Bundle(ca))...)
		if pki.IssuedBy([]byte(now.IssuingCertificate(ca)), []byte(old.Bundle(ca))) {
			t.Errorf("the %s CA is the old one", ca)
		}
	}
	for _, m := range machines {
		out := c.Sh(t, m, `for f in $(find /etc/kubernetes /etc/etcd /etc/haproxy -name '*.crt' 2>/dev/null); do echo "== $f"; cat $f; done`)
		at := certificateFiles.FindAllStringSubmatchIndex(out, -1)
		if len(at) == 0 {
			t.Errorf("%s has no certificates", m)
		}
		for i, match := range at {
			end := len(out)
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			path, content := out[match[2]:match[3]], out[match[1]:end]
			for _, cert := range pki.Certificates(content) {
				for _, ca := range gone {
					if cert == ca || pki.IssuedBy([]byte(cert), []byte(ca)) {
						t.Errorf("%s: %s holds or is issued by an old CA", m, path)
					}
				}
			}
		}
	}
	trusted := c.Kubectl(t, "get", "configmap", "-n", "kube-system", "extension-apiserver-authentication", "-o", `jsonpath={.data.client-ca-file}{.data.requestheader-client-ca-file}`)
	trusted += c.Kubectl(t, "get", "configmap", "-A", "--field-selector", "metadata.name=kube-root-ca.crt", "-o", `jsonpath={range .items[*]}{.data.ca\.crt}{end}`)
	for _, cert := range pki.Certificates(trusted) {
		if slices.Contains(gone, cert) {
			t.Error("the cluster still hands out an old CA")
		}
	}
	// A person who has the new CA but still uses the old certificate.
	ca := filepath.Join(suite.Dir, "new-ca.crt")
	if err := os.WriteFile(ca, []byte(now.KubernetesCA), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := suite.Kubectl(t.Context(), first, nil, "--certificate-authority", ca, "get", "nodes"); err == nil {
		t.Errorf("the old client certificate is accepted: %s", out)
	} else if !strings.Contains(err.Error(), "Unauthorized") && !strings.Contains(err.Error(), "must be logged in") {
		t.Errorf("the old client certificate is refused for another reason: %v", err)
	}
	state, err := os.ReadFile(filepath.Join(c.WS.Dir, "terraform.tfstate"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(state), "PRIVATE KEY") {
		t.Error("a private key is in the state")
	}
	if got := fmt.Sprint(now.Generations.KubernetesCA, now.Generations.Encryption); got != "[2][2]" && got != "[2] [2]" {
		t.Errorf("generations in the state are %s", got)
	}
}
