package rolls_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// testStall stops all members of etcd for so long that API servers fail their health checks. What needs no etcd is
// served meanwhile, over connections that stay open. Nobody gets a new one then, so the client must not be asked to
// connect again: API servers ask for that in answer to every thousandth request (goaway-chance), but not with HTTP/1.1.
func (w *world) testStall(t *testing.T) {
	rest := harness.Client(t, w.Kubeconfig, "http/1.1").Discovery().RESTClient()
	since := strings.TrimSpace(w.Sh(t, "lb-0", "date +%s"))
	traffic := w.Requests(t, 100*time.Millisecond, func(ctx context.Context, _ int) error {
		return rest.Get().AbsPath("/version").MaxRetries(0).Do(ctx).Error()
	})
	var all sync.WaitGroup
	for _, c := range controllers {
		all.Go(func() {
			if _, err := w.TrySh(t.Context(), c, "systemd-run --quiet --collect sh -c 'systemctl kill -s STOP etcd; sleep 9; systemctl kill -s CONT etcd'"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	time.Sleep(10 * time.Second)
	harness.Eventually(t, time.Minute, "etcd answers again", func() error {
		_, err := suite.Kubectl(t.Context(), w.Kubeconfig, nil, "get", "namespace", "default")
		return err
	})
	traffic.Unbroken(t)
	log := w.Sh(t, "lb-0", "journalctl --unit=haproxy --output=cat --since=@"+since)
	harness.Says(t, log, " is stopping, ")
	if strings.Contains(log, " is DOWN, reason: Layer7") {
		t.Errorf("HAProxy has cut connections:\n%s", log)
	}
	w.NoChanges(t)
}
