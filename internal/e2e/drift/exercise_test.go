package drift_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// labs are the files of examples/labs that break.sh needs.
var labs = []string{"labs.tf", "labs.sh", "break.sh"}

// copyLabs puts the files of the exercise beside the configuration.
func (w *world) copyLabs(t *testing.T) {
	t.Helper()
	for _, name := range labs {
		text := harness.Must[[]byte](t)(os.ReadFile(filepath.Join(suite.Root, "examples", "labs", name)))
		if err := w.WS.WriteFile(name, string(text)); err != nil {
			t.Fatal(err)
		}
	}
}

// breaks runs break.sh, as a teacher does.
func (w *world) breaks(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"break.sh"}, args...)...)
	cmd.Dir, cmd.Env = w.WS.Dir, append(suite.Env(), "K8S_SSH_PRIVATE_KEY_FILE="+suite.SSH)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("break.sh %s: %v\n%s", args, err, out)
	}
	return string(out)
}

// testFaults checks that the round has every fault of break.sh, and writes the ssh_config for it.
func (w *world) testFaults(t *testing.T) {
	var config string
	if err := w.WS.Output(t.Context(), "ssh_config", &config); err != nil {
		t.Fatal(err)
	}
	if err := w.WS.WriteFile("ssh_config", config); err != nil {
		t.Fatal(err)
	}
	listed := strings.Fields(w.breaks(t, "list"))
	tested := slices.Collect(maps.Keys(faults))
	slices.Sort(listed)
	slices.Sort(tested)
	if !slices.Equal(listed, tested) {
		t.Errorf("break.sh has the faults %q, and tested are %q", listed, tested)
	}
}

// faults are what break.sh does, by name. hurt waits until it shows.
var faults = map[string]damage{
	"etcd": {
		resource: etcdCluster, thing: "controller-2", look: unit("controller-2", "etcd"),
		says: []string{"unit etcd.service: stopped, wanted running"}, restarts: []string{"controller-2/etcd"},
	},
	"kube-apiserver": {
		resource: controlPlane, thing: "controller-1", look: file("controller-1", "/etc/kubernetes/audit-policy.yaml"),
		says:     []string{"file /etc/kubernetes/audit-policy.yaml: missing"},
		restarts: []string{"controller-1/kube-apiserver"},
	},
	"kube-controller-manager": {
		resource: controlPlane, thing: "controller-2", look: file("controller-2", "/usr/local/bin/kube-controller-manager"),
		says: []string{
			`binary /usr/local/bin/kube-controller-manager: truncated to \d+ bytes, wanted kube-controller-manager \S+ \(\d+ bytes\)`,
			"unit kube-controller-manager.service: .*, wanted running",
		},
		restarts: []string{"controller-2/kube-controller-manager"},
	},
	"kube-scheduler": {
		resource: controlPlane, thing: "controller-2", look: file("controller-2", "/etc/kubernetes/kube-scheduler.yaml"),
		says: []string{
			`file /etc/kubernetes/kube-scheduler.yaml: content differs\n  not wanted: nonsense: true`,
			`unit kube-scheduler.service: (failing again and again|waiting for its next start) \(exit-code: .*unknown field "nonsense".*\), wanted running`,
		},
		hurt:     crashes("controller-2", "kube-scheduler", `unknown field \"nonsense\"`),
		restarts: []string{"controller-2/kube-scheduler"},
	},
	"kubelet": {
		resource: workerPool, thing: "worker-1", look: file("worker-1", "/etc/kubernetes/kubelet.kubeconfig"),
		says: []string{"file /etc/kubernetes/kubelet.kubeconfig: " + content}, restarts: []string{"worker-1/kubelet"},
	},
	"kube-proxy": {
		resource: workerPool, thing: "worker-1", look: unit("worker-1", "kube-proxy"),
		says: []string{
			"file /etc/systemd/system/kube-proxy.service: is a symbolic link, wanted a regular file",
			"unit kube-proxy.service: masked, wanted enabled", "unit kube-proxy.service: stopped, wanted running",
		},
		restarts: []string{"worker-1/kube-proxy"},
	},
	"haproxy": { // reloaded: connections are kept
		resource: loadBalancer, thing: "lb-0",
		look: see("lb-0", "echo 'show servers state' | socat - /run/haproxy/admin.sock | grep -o 'controller-[0-9]'; true"), late: true,
		says: []string{`file /etc/haproxy/haproxy.cfg: content differs\n  missing: server controller-2 \S+`},
	},
	"certificate": { // reloaded
		resource: controlPlane, thing: "controller-1",
		look: see("controller-1", "cd /etc/kubernetes/pki && openssl verify -CAfile ca.crt kube-controller-manager.crt 2>&1; true"),
		says: []string{
			"file /etc/kubernetes/pki/kube-controller-manager.crt: " + content,
			`certificate /etc/kubernetes/pki/kube-controller-manager.crt: common name is "by-hand", wanted .*`,
		},
	},
	"route": { // of pods that are made from now on
		resource: workerPool, thing: "worker-0", look: file("worker-0", "/etc/cni/net.d/10-bridge.conflist"),
		says: []string{`file /etc/cni/net.d/10-bridge.conflist: content differs\n  found:  "isDefaultGateway": false,\n  wanted: "isDefaultGateway": true,`},
	},
	"file": {
		resource: workerPool, thing: "worker-1", look: file("worker-1", "/etc/kubernetes/pki/kubelet.key"),
		says: []string{"file /etc/kubernetes/pki/kubelet.key: mode 0644, wanted 0600"},
	},
}

// exercise returns all faults of break.sh.
func exercise() (all []damage) {
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		d := faults[name]
		shows := d.hurt
		d.name, d.hurt = "break.sh "+name, func(t *testing.T, w *world) {
			w.breaks(t, name)
			if shows != nil {
				shows(t, w)
			}
		}
		all = append(all, d)
	}
	return all
}

// crashes waits until systemd has restarted a unit twice and its journal says why.
func crashes(machine, unit, why string) func(*testing.T, *world) {
	return func(t *testing.T, _ *world) {
		eventually(t, unit+" crashes again and again", func() error {
			out, err := suite.TryConsole(t.Context(), machine, "systemctl show -P NRestarts "+unit+"; journalctl -q -o cat -n 5 _SYSTEMD_UNIT="+unit+".service")
			restarts, said, _ := strings.Cut(out, "\n")
			if n, _ := strconv.Atoi(restarts); err == nil && (n < 2 || !strings.Contains(said, why)) {
				err = fmt.Errorf("restarts: %s; it says\n%s", restarts, said)
			}
			return err
		})
	}
}
