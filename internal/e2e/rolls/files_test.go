package rolls_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

const (
	dropIn   = "/etc/systemd/system/kubelet.service.d/50-extra.conf"
	password = "/etc/exporter/password"
	hidden   = "correct horse battery staple"
)

// testFiles places a drop-in and a write-only file on the nodes, changes both by hand, and takes them out again.
func (w *world) testFiles(t *testing.T) {
	example := w.main
	w.main += "\nvariable \"password\" {\n  type      = string\n  ephemeral = true\n}\n"
	w.vars["password"] = hidden
	place := func(entry string) {
		w.arguments["k8s_worker_pool"]["extra_files"] = fmt.Sprintf(`{ %q = { content_wo = var.password, content_wo_version = 1, owner = "nobody" }, %s }`, password, entry)
	}
	place(`"/etc/a" = { content = "a", restarts = ["nowhere.service"] }`)
	w.write(t)
	_, err := w.WS.Apply(t.Context())
	harness.Refused(t, err, "nowhere.service", "systemd of this machine knows no such unit", "nothing was changed")
	if got := w.Sh(t, workers[0], "ls "+password+" /etc/a 2>/dev/null; true"); got != "" {
		t.Errorf("the refused apply has placed %s", got)
	}
	place(fmt.Sprintf(`%q = { content = "[Service]\nEnvironment=EXTRA=1\n", restarts = ["others.service"] }`, dropIn))
	if got := w.plannedFiles(t)["k8s_worker_pool.this"]; len(got) != 2 {
		t.Errorf("the plan changes %q", got)
	}
	others := func() (ids []string) {
		for _, node := range workers {
			ids = append(ids, strings.TrimSpace(w.Sh(t, node, "systemctl show -p InvocationID --value others.service")))
		}
		return ids
	}
	for _, node := range workers {
		w.Sh(t, node, "printf '[Service]\\nType=oneshot\\nRemainAfterExit=yes\\nExecStart=/bin/true\\n' >/etc/systemd/system/others.service; systemctl start others.service")
	}
	first := others()
	was := suite.Units(t, machines...)
	traffic := w.Traffic(t, w.Kubeconfig)
	w.apply(t)
	traffic.Unbroken(t)
	now := wantRestarted(t, was, harness.On(workers, "kubelet")...)
	harness.OneByOne(t, now, harness.On(workers, "kubelet"))
	w.NoChanges(t)
	second := others()
	for i := range workers {
		if second[i] == "" || second[i] == first[i] {
			t.Errorf("%s: a unit of others was not restarted: %q, %q", workers[i], first[i], second[i])
		}
	}
	for _, node := range workers {
		got := w.Sh(t, node, "systemctl show -p Environment --value kubelet; stat -c '%a %U' "+password+"; cat "+password)
		if want := "EXTRA=1\n600 nobody\n" + hidden; !strings.HasSuffix(strings.TrimSpace(got), want) {
			t.Errorf("%s has %q, wanted %q", node, got, want)
		}
	}

	w.Sh(t, workers[1], "echo more >>"+password+"; chmod 0644 "+dropIn+"; echo '# by hand' >>"+dropIn)
	changes, text, err := w.WS.Plan(t.Context())
	if err != nil || !changes {
		t.Fatalf("%v, a plan with changes: %t", err, changes)
	}
	for _, want := range []string{"file " + password + ": differs", "file " + dropIn + ": content differs"} {
		if !strings.Contains(text, want) {
			t.Errorf("the plan does not say %q:\n%s", want, text)
		}
	}
	was = suite.Units(t, machines...)
	w.apply(t)
	wantRestarted(t, was, workers[1]+"/kubelet")
	w.NoChanges(t)
	if got := w.Sh(t, workers[1], "cat "+password); got != hidden {
		t.Errorf("repaired: %q", got)
	}
	for _, name := range []string{"terraform.tfstate", "terraform.tfstate.backup", "rolls.tfplan"} {
		content, err := os.ReadFile(filepath.Join(w.WS.Dir, name))
		if err != nil || strings.Contains(string(content), hidden) {
			t.Errorf("%s: %v, with the password: %t", name, err, strings.Contains(string(content), hidden))
		}
	}

	w.main = example
	delete(w.vars, "password")
	delete(w.arguments["k8s_worker_pool"], "extra_files")
	was = suite.Units(t, machines...)
	w.apply(t)
	now = wantRestarted(t, was, harness.On(workers, "kubelet")...)
	harness.OneByOne(t, now, harness.On(workers, "kubelet"))
	w.NoChanges(t)
	for i, id := range others() {
		if id == "" || id == second[i] {
			t.Errorf("%s: a unit of others was not restarted when the file went", workers[i])
		}
		w.Sh(t, workers[i], "systemctl stop others.service; rm /etc/systemd/system/others.service; systemctl daemon-reload")
	}
	for _, node := range workers {
		if got := w.Sh(t, node, "ls -d "+password+" "+filepath.Dir(dropIn)+" 2>/dev/null; systemctl show -p Environment --value kubelet"); strings.TrimSpace(got) != "" {
			t.Errorf("%s still has %q", node, got)
		}
	}
}
