package roles_test

import (
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestEndpointMoves: a plan warns if the names by which workers reach the API leave the certificates, and an
// API server serves as long as its load balancer needs to notice that it stops.
func TestEndpointMoves(t *testing.T) {
	t.Parallel()
	r := providertest.NewRoles(t)
	i := r.Applied("k8s_control_plane", r.ControlPlane)
	before := r.ControlPlane["lb"].(providertest.Values)
	moved := providertest.With(r.ControlPlane, providertest.Values{"lb": providertest.Values{
		"cluster": "demo", "endpoint": "https://public.example:6443", "private_endpoint": "https://internal.example:6443",
		"names": []any{"public.example", "internal.example"}, "notice_seconds": 20,
	}})
	said := i.Plan(moved)
	if len(said.Errors) > 0 || len(said.Warnings) != 1 {
		t.Fatalf("%v %v", said.Errors, said.Warnings)
	}
	providertest.Mention(t, said.Warnings[0].Summary+said.Warnings[0].Detail, "Workers cannot reach the API", "203.0.113.1, 10.240.0.30", "extra_sans")
	if said := i.Plan(providertest.With(moved, providertest.Values{"extra_sans": before["names"]})); len(said.Errors)+len(said.Warnings) > 0 {
		t.Errorf("%v %v", said.Errors, said.Warnings)
	}
	// Nothing that workers use changes.
	public := providertest.With(before, providertest.Values{"endpoint": "https://198.51.100.1:6443", "names": []any{"198.51.100.1", "10.240.0.30"}})
	if said := i.Plan(providertest.With(r.ControlPlane, providertest.Values{"lb": public})); len(said.Errors)+len(said.Warnings) > 0 {
		t.Errorf("%v %v", said.Errors, said.Warnings)
	}

	unit := "/etc/systemd/system/kube-apiserver.service"
	digest := func(config providertest.Values) string {
		files := providertest.FilesOf(providertest.Plain(i.Plan(config).Planned).(providertest.Values))
		return files[unit].(string)
	}
	slow := providertest.With(r.ControlPlane, providertest.Values{"lb": providertest.With(before, providertest.Values{"notice_seconds": 20})})
	if same := digest(r.ControlPlane); !strings.Contains(same, "--shutdown-delay-duration=") || digest(slow) == same || digest(providertest.With(r.ControlPlane, providertest.Values{"lb": providertest.With(before, providertest.Values{"notice_seconds": 3})})) != same {
		t.Error("the unit does not depend on notice_seconds")
	}
}
