package roles_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// TestCheckInterval checks that a change of the interval is made in place, and that the control
// plane learns how long an API server keeps serving.
func TestCheckInterval(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	host := providertest.Values{"name": "lb-0", "address": "10.240.0.40", "private_ip": "10.240.0.40", "host_key": providertest.PublicKey(t)}
	config := providertest.Values{"host": host, "controllers": c.Etcd["hosts"], "pki": c.Etcd["pki"]}
	lb := c.Applied("k8s_lb", config)
	notice := func(ch providertest.Change) any {
		return providertest.Plain(ch.Planned).(providertest.Values)["ref"].(providertest.Values)["notice_seconds"]
	}
	same := notice(lb.Plan(config))
	if same != nil || !reflect.DeepEqual(notice(lb.Plan(providertest.With(config, providertest.Values{"check_interval": "1000ms"}))), same) {
		t.Errorf("by default an API server keeps serving for %v seconds", same)
	}
	for every, want := range map[string]any{"8s": "24", "1.5s": "5", "2100ms": "7"} {
		ch := lb.Plan(providertest.With(config, providertest.Values{"check_interval": every}))
		if got := notice(ch); len(ch.Errors)+len(ch.Warnings)+len(ch.Replace) > 0 || lb.Empty(ch) || !reflect.DeepEqual(got, want) {
			t.Errorf("with checks every %s an API server keeps serving for %v seconds; %v %v %v", every, got, ch.Errors, ch.Warnings, ch.Replace)
		}
	}
	if longest := (component.LoadBalancerSpec{CheckInterval: component.MaxCheckInterval}).Notice(); longest > reference.MaxNotice*time.Second {
		t.Errorf("an API server would have to keep serving for %s, and may for %d seconds", longest, reference.MaxNotice)
	}
	for every, want := range map[string]string{"8001ms": "checks are at most 8s apart", "500ms": "checks are at least 1s apart", "1000500us": "counts in milliseconds", "often": "check_interval"} {
		if got := lb.Plan(providertest.With(config, providertest.Values{"check_interval": every})).Failure(); !strings.Contains(got, want) {
			t.Errorf("%s: %s", every, got)
		}
	}
}
