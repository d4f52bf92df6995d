// Package expired_test lets every certificate of a cluster expire, breaks the connections that
// still work, and checks that one apply repairs the cluster. Then it pauses the cluster, and lets
// them expire again before it is resumed.
//
// The kernel's clock cannot be changed for the machines, so the provider's clock is: with a clock
// that is almost a year behind, it issues certificates that expire in a few minutes.
package expired_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

var suite *harness.Suite

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, func(s *harness.Suite) { suite = s }))
}

// small is the example with two API servers on three members of etcd and one worker.
const small = `
resource "k8s_lb" "this" {
  controllers = slice(k8s_machine.controller[*].host, 0, 2)
}

resource "k8s_control_plane" "this" {
  hosts = slice(k8s_machine.controller[*].host, 0, 2)
}
`

var (
	controllers = []string{"controller-0", "controller-1", "controller-2"}
	servers     = controllers[:2]
	withLeaves  = append(slices.Clone(controllers), "worker-0")
)

type world struct {
	*harness.Cluster
	uid    string            // of the cluster's kube-system namespace
	keys   map[string]string // digests of all entries in the key store
	ends   time.Time         // when the certificates end with which the cluster is paused
	before paused            // the cluster before it was paused
}

// TestExpired runs steps that depend on one another.
func TestExpired(t *testing.T) {
	suite.MovableClock(t)
	w := &world{Cluster: suite.Cluster(suite.Workspace(t, "expired", suite.CLI, filepath.Join(suite.Root, "examples", "ha-cluster")))}
	for name, content := range map[string]string{"small_override.tf": small, "small.auto.tfvars": "workers = 1\n"} {
		if err := w.WS.WriteFile(name, content); err != nil {
			t.Fatal(err)
		}
	}
	step := harness.Steps(t)
	step("due for renewal", w.testDue)
	step("expired", w.testExpire)
	step("broken", w.testBroken)
	step("healed", w.testHealed)
	step("paused", w.testPaused)
	step("resumed", w.testResumed)
	step("expires", w.testExpires)
	step("stopped", w.testStopped)
	step("killed", w.testPowerKilled)
	step("destroy", w.Destroy)
}

// endingIn sets the provider's clock so that certificates it issues now expire in d.
func (w *world) endingIn(d time.Duration) { harness.MoveClock(w.WS, d-pki.DefaultValidity) }

// right sets the provider's clock to the right time.
func (w *world) right() { harness.MoveClock(w.WS, 0) }

// testDue installs the cluster with certificates that expire in an hour and are therefore due for
// renewal at once. A plan says which ones and why, and an apply issues them again without
// restarting programs that reload their certificates.
func (w *world) testDue(t *testing.T) {
	w.endingIn(time.Hour)
	w.Apply(t)
	w.Learn(t)
	w.uid = w.Kubectl(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
	w.Kubectl(t, "create", "configmap", "kept", "--from-literal=a=b")
	w.Kubectl(t, "create", "secret", "generic", "kept", "--from-literal=c=d")
	w.keys = suite.Parameters(t)

	w.right()
	drift := w.drift(t)
	for _, m := range withLeaves {
		if !strings.Contains(drift[m], "is due for renewal since") || !strings.Contains(drift[m], "expires on ") {
			t.Errorf("the plan says of %s: %q", m, drift[m])
		}
	}
	before := w.Units(t)
	w.Apply(t)
	after := w.Units(t)
	if restarted := harness.Restarted(before, after); len(restarted) > 0 || len(after) != len(before) {
		t.Errorf("renewal restarted %q; %d units run, before it %d", restarted, len(after), len(before))
	}
	w.NoChanges(t)
}

// drift plans, and returns the drift of each machine.
func (w *world) drift(t *testing.T) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	start := time.Now()
	changes, text, err := w.WS.Plan(ctx)
	if err != nil || !changes {
		t.Fatalf("changes %v, %v\n%s", changes, err, text)
	}
	t.Logf("the plan took %s", time.Since(start).Round(100*time.Millisecond))
	drift := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^\s+- "([\w-]+)"\s+= (?:"(.*)"|<<-EOT\n((?s:.*?))\n\s+EOT) -> null$`).FindAllStringSubmatch(text, -1) {
		for finding := range strings.Lines(line[2] + line[3]) {
			drift[line[1]] += strings.TrimSpace(finding) + "; "
		}
	}
	return drift
}

// testExpire gives all machines certificates that expire in a few minutes, long enough to
// distribute them, and waits for their expiry.
func (w *world) testExpire(t *testing.T) {
	start := time.Now()
	w.drift0(t)
	life := 4*time.Since(start) + time.Minute
	w.endingIn(life)
	if _, err := w.WS.Apply(t.Context()); err != nil {
		t.Fatalf("certificates that end in %s: %v", life, err)
	}
	for _, m := range withLeaves {
		harness.Eventually(t, life+time.Minute, "the certificates of "+m+" expire", func() error {
			valid, err := suite.TryConsole(t.Context(), m, `for f in /etc/kubernetes/pki/*.crt /etc/etcd/pki/*.crt; do
				case $f in *ca.crt | */ca-* | *'*'*) continue ;; esac; openssl x509 -noout -checkend 0 -in $f >/dev/null && echo $f; done; true`)
			if err != nil {
				return err
			}
			if valid = strings.TrimSpace(valid); valid != "" {
				return fmt.Errorf("still valid: %s", valid)
			}
			return nil
		})
	}
}

// drift0 plans with the right clock and expects an empty plan. The time it takes measures how busy
// this computer is.
func (w *world) drift0(t *testing.T) {
	t.Helper()
	w.right()
	w.NoChanges(t)
}

// testBroken closes the connections that are older than the expiry, and checks what a user of the
// cluster sees.
func (w *world) testBroken(t *testing.T) {
	for _, m := range controllers {
		suite.Console(t, m, "systemctl --no-block restart etcd; systemctl --no-block try-restart kube-apiserver || :")
	}
	suite.Console(t, "worker-0", "systemctl --no-block restart kubelet kube-proxy")
	harness.Eventually(t, 2*time.Minute, "kubectl fails", func() error {
		if out, err := suite.Kubectl(t.Context(), w.Kubeconfig, nil, "get", "nodes", "--request-timeout=5s"); err == nil {
			return fmt.Errorf("it still says %s", out)
		}
		return nil
	})
	harness.Eventually(t, 2*time.Minute, "etcd has no quorum", func() error {
		out, err := suite.TryConsole(t.Context(), "controller-0", "journalctl --unit etcd --lines 50 --output cat")
		if err == nil && !strings.Contains(out, "certificate has expired") && !strings.Contains(out, "expired certificate") {
			err = fmt.Errorf("etcd says\n%s", out)
		}
		return err
	})
}

// testHealed checks that the plan says which certificates have expired, and that one apply repairs
// everything.
func (w *world) testHealed(t *testing.T) {
	w.right()
	drift := w.drift(t)
	for _, m := range withLeaves {
		if !strings.Contains(drift[m], "expired on ") {
			t.Errorf("the plan says of %s: %q", m, drift[m])
		}
	}
	start := time.Now()
	w.Apply(t)
	t.Logf("one apply healed it in %s", time.Since(start).Round(100*time.Millisecond))
	if out := w.Kubectl(t, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`); out != "worker-0 True\n" {
		t.Errorf("nodes: %s", out)
	}
	if out := w.Kubectl(t, "get", "configmap/kept", "secret/kept", "-o", "jsonpath={.items[*].data}"); out != `{"a":"b"} {"c":"ZA=="}` {
		t.Errorf("the data is %s", out)
	}
	if uid := w.Kubectl(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"); uid != w.uid {
		t.Errorf("the cluster is %s, it was %s", uid, w.uid)
	}
	if now := suite.Parameters(t); !maps.Equal(now, w.keys) {
		t.Error("keys or authorities were made anew")
	}
	for _, m := range servers {
		harness.Eventually(t, time.Minute, m+" serves", func() error {
			if out := suite.Console(t, m, "curl -s --cacert /etc/kubernetes/pki/ca.crt https://127.0.0.1:6443/readyz"); out != "ok" {
				return errors.New(out)
			}
			return nil
		})
	}
	w.Kubectl(t, "rollout", "status", "--namespace=kube-system", "deployment/coredns", "--timeout=90s")
	w.NoChanges(t)
}
