package rolls_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

const (
	stored    = "/registry/secrets/"
	keptCount = 300
)

func kept(i int) string { return fmt.Sprintf("kept-%03d", i) }

func createSecret(ctx context.Context, client kubernetes.Interface, name string) error {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"name": name}}
	_, err := client.CoreV1().Secrets("default").Create(ctx, s, metav1.CreateOptions{})
	return err
}

func readSecret(ctx context.Context, client kubernetes.Interface, name string) error {
	s, err := client.CoreV1().Secrets("default").Get(ctx, name, metav1.GetOptions{})
	if err == nil && string(s.Data["name"]) != name {
		err = fmt.Errorf("secret %s says it is %q", name, s.Data["name"])
	}
	return err
}

// readAndWrite writes secrets, and reads them and old ones, through the Elastic IP and thus through
// any API server, until it is ended.
func (w *world) readAndWrite(t *testing.T) *harness.Traffic {
	t.Helper()
	client, run := harness.Client(t, w.Kubeconfig), time.Now().UnixNano()
	return w.Requests(t, 50*time.Millisecond, func(ctx context.Context, n int) error {
		name := fmt.Sprintf("new-%d-%d", run, n)
		if err := createSecret(ctx, client, name); err != nil {
			return err
		}
		if err := readSecret(ctx, client, name); err != nil {
			return err
		}
		return readSecret(ctx, client, kept(n%keptCount))
	})
}

// sealedBy counts the values in etcd under a prefix by the key that encrypted them.
func (w *world) sealedBy(t *testing.T, under string) map[string]int {
	t.Helper()
	// Counted first, since the number can only grow meanwhile.
	there := strings.Count(w.etcdctl(t, controllers[0], "get --prefix --keys-only "+under), under)
	out := map[string]int{}
	text := w.etcdctl(t, controllers[0], "get --prefix "+under+" --print-value-only | grep -ao '^k8s:enc:secretbox:v1:[a-z0-9-]*:' | sort | uniq -c")
	sealed := 0
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		n, err := strconv.Atoi(f[0])
		if err != nil || len(f) != 2 {
			t.Fatalf("etcdctl: %q", text)
		}
		out[strings.TrimSuffix(strings.TrimPrefix(f[1], "k8s:enc:secretbox:v1:"), ":")] = n
		sealed += n
	}
	if sealed < there {
		t.Errorf("%d of %d values under %s are sealed", sealed, there, under)
	}
	return out
}

// wantSealed checks that every secret is encrypted with one key.
func (w *world) wantSealed(t *testing.T, key string) {
	t.Helper()
	if got := w.sealedBy(t, stored); len(got) != 1 || got[key] < keptCount {
		t.Errorf("sealed by %v, wanted all by %s", got, key)
	}
}

func (w *world) generations(list string) {
	w.arguments["k8s_pki"]["generations"] = "{ encryption = " + list + " }"
}

// testSecondKey creates a second key, with which every API server can decrypt.
func (w *world) testSecondKey(t *testing.T) {
	harness.Long(t) // package rotation rotates this key, too
	client := harness.Client(t, w.Kubeconfig)
	for i := range keptCount {
		if err := createSecret(t.Context(), client, kept(i)); err != nil {
			t.Fatal(err)
		}
	}
	w.wantSealed(t, "key-1")
	was := suite.Units(t, machines...)
	traffic := w.readAndWrite(t)
	w.generations("[1, 2]")
	w.apply(t)
	traffic.Unbroken(t)
	wantRestarted(t, was)
	w.wantSealed(t, "key-1")
	w.wantKeys(t, "key-1", "key-2")
	w.NoChanges(t)
}

// wantKeys checks that every API server has these keys, in this order.
func (w *world) wantKeys(t *testing.T, keys ...string) {
	t.Helper()
	for _, c := range controllers {
		got := strings.Fields(w.Sh(t, c, "sed -n 's/.*- name: //p' /etc/kubernetes/encryption-config.yaml"))
		if fmt.Sprint(got) != fmt.Sprint(keys) {
			t.Errorf("%s has the keys %q, wanted %q", c, got, keys)
		}
	}
}

// testSecondWrites makes the second key encrypt, kills the apply while it rewrites what the first
// key has encrypted, and applies again.
func (w *world) testSecondWrites(t *testing.T) {
	harness.Long(t) // package rotation rotates this key, too
	was := suite.Units(t, machines...)
	// Kept for later: a value that is encrypted with the first key.
	const one, copied = stored + "default/kept-000", "/run/sealed-by-key-1"
	w.etcdctl(t, controllers[0], "get "+one+` --write-out=json | python3 -c 'import base64,json,sys; sys.stdout.buffer.write(base64.b64decode(json.load(sys.stdin)["kvs"][0]["value"]))' >`+copied)
	traffic := w.readAndWrite(t)
	w.generations("[2, 1]")
	w.write(t)
	cmd := w.WS.Command(t.Context(), "apply", "-auto-approve", "-no-color")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var at map[string]int
	harness.Eventually(t, 5*time.Minute, "some secrets rewritten", func() error {
		if at = w.sealedBy(t, stored+"default/kept-"); at["key-2"] == 0 {
			return fmt.Errorf("sealed by %v", at)
		}
		return nil
	})
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait()
	t.Logf("killed when the old secrets were sealed by %v", at)

	w.apply(t)
	w.wantSealed(t, "key-2")
	w.wantKeys(t, "key-2", "key-1")
	w.NoChanges(t)
	traffic.Unbroken(t)

	t.Run("drift", func(t *testing.T) {
		w.etcdctl(t, controllers[0], "put "+one+" <"+copied+"; rm "+copied)
		changes, text, err := w.WS.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if words := `"encryption" = "1 secret is still encrypted with key-1, wanted key-2" -> null`; !changes || !strings.Contains(text, words) {
			t.Errorf("the plan does not say %q:\n%s", words, text)
		}
		w.apply(t)
		w.wantSealed(t, "key-2")
		w.NoChanges(t)
	})
	wantRestarted(t, was)
}

// testFirstDropped removes the first key from all API servers.
func (w *world) testFirstDropped(t *testing.T) {
	harness.Long(t) // package rotation rotates this key, too
	was := suite.Units(t, machines...)
	traffic := w.readAndWrite(t)
	w.generations("[2]")
	w.apply(t)
	traffic.Unbroken(t)
	wantRestarted(t, was)
	w.wantKeys(t, "key-2")
	w.wantSealed(t, "key-2")
	client := harness.Client(t, w.Kubeconfig)
	for i := range keptCount {
		if err := readSecret(t.Context(), client, kept(i)); err != nil {
			t.Error(err)
		}
	}
	w.NoChanges(t)
}
