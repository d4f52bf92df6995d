package provider

import (
	"strings"
	"testing"
)

// TestEndpointMoves: a plan warns if the names by which workers reach the API leave the certificates, and an
// API server serves as long as its load balancer needs to notice that it stops.
func TestEndpointMoves(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	i := r.applied("k8s_control_plane", r.controlPlane)
	before := r.controlPlane["lb"].(values)
	moved := with(r.controlPlane, values{"lb": values{
		"cluster": "demo", "endpoint": "https://public.example:6443", "private_endpoint": "https://internal.example:6443",
		"names": []any{"public.example", "internal.example"}, "notice_seconds": 20,
	}})
	said := i.plan(moved)
	if len(said.errors) > 0 || len(said.warnings) != 1 {
		t.Fatalf("%v %v", said.errors, said.warnings)
	}
	mention(t, said.warnings[0].Summary+said.warnings[0].Detail, "Workers cannot reach the API", "203.0.113.1, 10.240.0.30", "extra_sans")
	if said := i.plan(with(moved, values{"extra_sans": before["names"]})); len(said.errors)+len(said.warnings) > 0 {
		t.Errorf("%v %v", said.errors, said.warnings)
	}
	// Nothing that workers use changes.
	public := with(before, values{"endpoint": "https://198.51.100.1:6443", "names": []any{"198.51.100.1", "10.240.0.30"}})
	if said := i.plan(with(r.controlPlane, values{"lb": public})); len(said.errors)+len(said.warnings) > 0 {
		t.Errorf("%v %v", said.errors, said.warnings)
	}

	unit := "controller-0:/etc/systemd/system/kube-apiserver.service"
	digest := func(config values) string {
		files := plain(i.plan(config).planned).(values)["files"].(values)
		return files[unit].(string)
	}
	slow := with(r.controlPlane, values{"lb": with(before, values{"notice_seconds": 20})})
	if same := digest(r.controlPlane); !strings.HasPrefix(same, "sha256:") || digest(slow) == same || digest(with(r.controlPlane, values{"lb": with(before, values{"notice_seconds": 3})})) != same {
		t.Error("the unit does not depend on notice_seconds")
	}
}
