package rolls_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

const (
	firstPassword  = "swordfish-1"
	secondPassword = "swordfish-2"
	privateImage   = "private.example.com/only/there:1"
	hostsFile      = "/etc/containerd/certs.d/private.example.com/hosts.toml"
)

// privateRegistry is a registry with a login and an authority of its own, on a worker.
type privateRegistry struct {
	*world
	url, ca string
}

// testRegistries pulls an image that only a registry with a login has, behind a mirror that is dead. No containerd is restarted.
func (w *world) testRegistries(t *testing.T) {
	r := w.startRegistry(t)
	r.accept(t, firstPassword)
	was := suite.Units(t, machines...)
	began := time.Now()
	r.use(t, firstPassword, 1, `{ url = "https://127.0.0.1:1" }`) // nothing listens there
	t.Logf("the apply took %s", time.Since(began).Round(time.Second))
	r.runs(t, "first")
	if mode := strings.TrimSpace(w.Sh(t, "worker-1", "stat -c %a:%U "+hostsFile)); mode != "600:root" {
		t.Errorf("the file with the password is %s", mode)
	}
	w.NoChanges(t)

	r.accept(t, secondPassword)
	r.use(t, firstPassword, 1) // of several servers that cannot be used, containerd names the first
	r.pod(t, "wrong")
	harness.Eventually(t, time.Minute, "the pull fails with words", func() error {
		said := w.Kubectl(t, "get", "events", "--field-selector", "reason=Failed,involvedObject.name=wrong", "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(said, "pull access denied") {
			return fmt.Errorf("the events are %q", said)
		}
		return nil
	})
	r.use(t, secondPassword, 2)
	w.Kubectl(t, "wait", "--for=condition=Ready", "--timeout=120s", "pod/wrong")

	w.Sh(t, "worker-1", "mkdir /etc/containerd/certs.d/quay.io && echo 'server = \"https://evil.example.com\"' >/etc/containerd/certs.d/quay.io/hosts.toml && echo >>"+hostsFile)
	_, plan, err := w.WS.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	harness.Says(t, plan, "file /etc/containerd/certs.d/quay.io/hosts.toml: exists, not wanted", "file "+hostsFile+": differs")
	w.apply(t)
	r.runs(t, "second")
	r.told(t, plan)

	delete(w.arguments["k8s_worker_pool"], "registries")
	w.write(t)
	w.apply(t)
	if left := w.Sh(t, "worker-1", "ls -d /etc/containerd/certs.d/private.example.com /etc/containerd/certs.d/quay.io 2>/dev/null || :"); left != "" {
		t.Errorf("left behind: %s", left)
	}
	w.Kubectl(t, "delete", "pods", "first", "second", "wrong", "--now")
	w.Sh(t, "worker-0", "systemctl stop private-registry")
	wantRestarted(t, was)
	w.NoChanges(t)
}

// startRegistry starts the registry on a worker.
func (w *world) startRegistry(t *testing.T) *privateRegistry {
	t.Helper()
	dir := t.TempDir()
	if err := workspace.Build(t.Context(), suite.Root, dir, "./internal/e2e/rolls/registry"); err != nil {
		t.Fatal(err)
	}
	address := w.Kubectl(t, "get", "node", "worker-0", "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
	certificate, key := harness.SelfSigned(t, address)
	program, err := os.ReadFile(filepath.Join(dir, "registry"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"registry": program, "registry.crt": certificate, "registry.key": key} {
		if err := w.Send(t.Context(), "worker-0", bytes.NewReader(content), "sh -c 'cat >/var/tmp/"+name+"'"); err != nil {
			t.Fatal(err)
		}
	}
	at := net.JoinHostPort(address, "9444")
	copied := strings.TrimSpace(w.Sh(t, "worker-0", `sed -n "s|^\[host.'http://\(.*\)'\]|\1|p" /etc/containerd/certs.d/docker.io/hosts.toml`))
	if copied == "" {
		t.Fatal("the lab's registry is not known")
	}
	w.Sh(t, "worker-0", "chmod 755 /var/tmp/registry; touch /var/tmp/login; systemd-run --quiet --unit=private-registry /var/tmp/registry "+at+
		" /var/tmp/registry.crt /var/tmp/registry.key /var/tmp/login "+copied+"/k8s-lab/toolbox:1 only/there:1")
	r := &privateRegistry{world: w, url: "https://" + at, ca: string(certificate)}
	harness.Eventually(t, 20*time.Second, "the registry answers", func() error {
		said, err := w.TrySh(t.Context(), "worker-1", "curl --silent --output /dev/null --write-out '%{http_code}' --insecure "+r.url+"/v2/")
		if err == nil && said != "401" {
			err = fmt.Errorf("it answers %s", said)
		}
		return err
	})
	return r
}

// accept makes the registry accept a password, and no other.
func (r *privateRegistry) accept(t *testing.T, password string) {
	t.Helper()
	r.Sh(t, "worker-0", "echo puller:"+password+" >/var/tmp/login")
}

// use applies the registry with a password, behind other mirrors.
func (r *privateRegistry) use(t *testing.T, password string, version int, others ...string) {
	t.Helper()
	login := `{ url = "` + r.url + `", ca_pem = ` + strconv.Quote(r.ca) + `, user = "puller", password_wo = "` + password + `", password_wo_version = ` + strconv.Itoa(version) + ` }`
	r.arguments["k8s_worker_pool"]["registries"] = `merge(var.elsewhere.registries, { "private.example.com" = { mirrors = [` + strings.Join(append(others, login), ", ") + `] } })`
	r.apply(t)
}

// pod makes a pod of the private image on another worker than the registry's.
func (r *privateRegistry) pod(t *testing.T, name string) {
	t.Helper()
	r.Create(t, `{apiVersion: v1, kind: Pod, metadata: {name: `+name+`}, spec: {nodeName: worker-1, terminationGracePeriodSeconds: 1,
  containers: [{name: c, image: "`+privateImage+`", imagePullPolicy: Always, command: [sleep, infinity]}]}}`)
}

func (r *privateRegistry) runs(t *testing.T, name string) {
	t.Helper()
	r.pod(t, name)
	r.Kubectl(t, "wait", "--for=condition=Ready", "--timeout=120s", "pod/"+name)
}

// told checks that neither plan nor state has a password, also in base64 as it is sent.
func (r *privateRegistry) told(t *testing.T, plan string) {
	t.Helper()
	state, err := os.ReadFile(filepath.Join(r.WS.Dir, "terraform.tfstate"))
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"plan": plan, "state": string(state)} {
		for _, secret := range []string{"swordfish", "cHVsbGVyOn"} { // "puller:s", in base64
			if strings.Contains(text, secret) {
				t.Errorf("the %s has %s", where, secret)
			}
		}
	}
}
