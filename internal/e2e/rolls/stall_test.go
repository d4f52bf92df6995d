package rolls_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// testStall stops all members of etcd for so long that API servers fail their health checks. What needs no etcd is
// served meanwhile, over connections that stay open.
func (w *world) testStall(t *testing.T) {
	rest := harness.Client(t, w.Kubeconfig).Discovery().RESTClient()
	since := w.Sh(t, "lb-0", "date '+%F %T'")
	traffic := w.Requests(t, 100*time.Millisecond, func(ctx context.Context, _ int) error {
		return rest.Get().AbsPath("/version").Do(ctx).Error()
	})
	for _, c := range controllers {
		w.Sh(t, c, "systemd-run --quiet --collect sh -c 'systemctl kill -s STOP etcd; sleep 9; systemctl kill -s CONT etcd'")
	}
	time.Sleep(10 * time.Second)
	harness.Eventually(t, time.Minute, "etcd answers again", func() error {
		_, err := suite.Kubectl(t.Context(), w.Kubeconfig, nil, "get", "namespace", "default")
		return err
	})
	traffic.Unbroken(t)
	log := w.Sh(t, "lb-0", "journalctl --unit=haproxy --output=cat --since='"+since+"'")
	harness.Says(t, log, " is stopping, ")
	if strings.Contains(log, " is DOWN, ") {
		t.Errorf("HAProxy has cut connections:\n%s", log)
	}
	w.NoChanges(t)
}
