package rolls_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// testReboots reboots every machine, one after the other, after all settings were changed: what an
// apply has changed on a running machine must be there, and must work, after a boot too. The API
// answers all the time, except while the machine of HAProxy boots. A write that the leader of etcd has
// accepted just before its machine goes down may be lost.
func (w *world) testReboots(t *testing.T) {
	was := suite.Units(t, machines...)
	traffic := w.Traffic(t, w.Kubeconfig)
	for _, m := range slices.Concat(controllers, workers) {
		w.reboot(t, m)
	}
	traffic.Answering(t)
	w.reboot(t, "lb-0")
	now := suite.Units(t, machines...)
	if lost := slices.DeleteFunc(slices.Sorted(maps.Keys(was)), func(unit string) bool { return now[unit].Up > was[unit].Up }); len(lost) > 0 {
		t.Errorf("not started by the reboot, or not running: %q; before %v, now %v", lost, was, now)
	}
	w.NoChanges(t)
}

// healthy prints nothing on a machine that has booted and whose programs do their work. While systemd starts,
// it may not say that a unit is enabled.
const healthy = `set -e
state=$(systemctl is-system-running) || [ "$state" = degraded ] || { echo "systemd: $state"; exit 1; }
if systemctl cat kube-apiserver >/dev/null 2>&1; then
	curl -sS --fail --cacert /etc/kubernetes/pki/ca.crt https://127.0.0.1:6443/readyz >/dev/null
	for port in 10257 10259; do curl -sS --fail --insecure https://127.0.0.1:$port/healthz >/dev/null; done
fi
if systemctl cat kubelet >/dev/null 2>&1; then
	for port in 10248 10256; do curl -sS --fail http://127.0.0.1:$port/healthz >/dev/null; done
fi
for u in etcd kube-apiserver kube-controller-manager kube-scheduler containerd kubelet kube-proxy haproxy; do
	if systemctl is-enabled -q $u 2>/dev/null; then systemctl is-active -q $u || { systemctl status $u | head -20; exit 1; }; fi
done`

// reboot reboots a machine from inside and waits until its programs, and its pods, are up again.
func (w *world) reboot(t *testing.T, machine string) {
	t.Helper()
	const bootID = "cat /proc/sys/kernel/random/boot_id"
	began, before := time.Now(), suite.Console(t, machine, bootID)
	containers := w.container(t, machine)
	_, _ = w.TrySh(t.Context(), machine, "systemctl reboot") // the connection ends with the machine
	harness.Eventually(t, 3*time.Minute, machine+" boots again, and its programs run", func() error {
		now, err := suite.TryConsole(t.Context(), machine, bootID)
		if err == nil && now == before {
			err = errors.New("it still runs")
		}
		if err != nil {
			return err
		}
		if out, err := suite.TryConsole(t.Context(), machine, healthy); err != nil {
			return fmt.Errorf("%s%w", out, err)
		}
		if slices.Contains(workers, machine) {
			if now := w.container(t, machine); now == containers || !strings.HasSuffix(now, " true") {
				return fmt.Errorf("its pod's container: %q, before the reboot %q", now, containers)
			}
		}
		return nil
	})
	t.Logf("%s: up and well %s after its reboot", machine, time.Since(began).Round(time.Second))
}

// container returns the container of everywhere on a node, and whether it is ready. The kubelet ends pods
// before a shutdown, so that there may be none.
func (w *world) container(t *testing.T, node string) string {
	t.Helper()
	if !slices.Contains(workers, node) {
		return ""
	}
	return w.Kubectl(t, "get", "pods", "-l", "app=everywhere", "--field-selector", "spec.nodeName="+node, "-o",
		`jsonpath={range .items[*]}{.status.containerStatuses[0].containerID} {.status.containerStatuses[0].ready}{end}`)
}
