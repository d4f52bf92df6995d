package provider

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// TestCheckInterval checks that a change of the interval is made in place, and that the control plane learns how long
// an API server serves on.
func TestCheckInterval(t *testing.T) {
	t.Parallel()
	c := newRoles(t)
	host := values{"name": "lb-0", "address": "10.240.0.40", "private_ip": "10.240.0.40", "host_key": publicKey(t)}
	config := values{"cluster": "demo", "host": host, "controllers": c.etcd["hosts"], "pki": c.etcd["pki"]}
	lb := c.applied("k8s_lb", config)
	notice := func(ch change) any { return plain(ch.planned).(values)["ref"].(values)["notice_seconds"] }
	same := notice(lb.plan(config))
	if same != nil || !reflect.DeepEqual(notice(lb.plan(with(config, values{"check_interval": "1000ms"}))), same) {
		t.Errorf("by default an API server serves on for %v seconds", same)
	}
	for every, want := range map[string]any{"8s": "24", "1.5s": "5", "2100ms": "7"} {
		ch := lb.plan(with(config, values{"check_interval": every}))
		if got := notice(ch); len(ch.errors)+len(ch.warnings)+len(ch.replace) > 0 || lb.empty(ch) || !reflect.DeepEqual(got, want) {
			t.Errorf("with checks every %s an API server serves on for %v seconds; %v %v %v", every, got, ch.errors, ch.warnings, ch.replace)
		}
	}
	if longest := (component.LoadBalancerSpec{CheckInterval: component.MaxCheckInterval}).Notice(); longest > reference.MaxNotice*time.Second {
		t.Errorf("an API server would have to serve on for %s, and may for %d seconds", longest, reference.MaxNotice)
	}
	for every, want := range map[string]string{"8001ms": "checks are at most 8s apart", "500ms": "checks are at least 1s apart", "1000500us": "counts in milliseconds", "often": "check_interval"} {
		if got := lb.plan(with(config, values{"check_interval": every})).failure(); !strings.Contains(got, want) {
			t.Errorf("%s: %s", every, got)
		}
	}
}
