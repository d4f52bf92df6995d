package provider

import (
	"strings"
	"testing"
)

// TestPodRoutes checks the files that routes to pods change, and how they end.
func TestPodRoutes(t *testing.T) {
	t.Parallel()
	c := newRoles(t)
	routes := values{"10.200.0.0/24": "10.240.0.20", "10.200.1.0/24": "10.240.0.21"}
	controllers := c.applied("k8s_control_plane", with(c.controlPlane, values{"pod_routes": routes}))
	if ref, _ := controllers.get("ref").(values); ref == nil || len(ref["pod_routes"].(values)) != 2 {
		t.Errorf("the reference has %v", controllers.get("ref"))
	}
	const list = "controller-0:/etc/kubernetes/k8s-controller-pod-routes"
	if controllers.files()[list] == nil {
		t.Errorf("no %s in %v", list, controllers.files())
	}
	for what, test := range map[string]struct {
		routes any
		want   string
	}{
		"no routes":     {nil, ""},
		"none":          {values{}, ""},
		"a node less":   {values{"10.200.0.0/24": "10.240.0.20"}, ""},
		"not known yet": {values{"10.200.0.0/24": unknown}, ""},
	} {
		ch := controllers.plan(with(c.controlPlane, values{"pod_routes": test.routes}))
		if got := ch.failure(); test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, wanted %q", what, got, test.want)
			continue
		}
		planned, _ := plain(ch.planned).(values)
		if files, _ := planned["files"].(values); test.want == "" && files != nil && files[list] == controllers.files()[list] {
			t.Errorf("%s: the plan does not show that %s changes", what, list)
		}
	}

	cp := with(c.pool["control_plane"].(values), values{"pod_routes": routes})
	pool := c.applied("k8s_worker_pool", with(c.pool, values{"control_plane": cp}))
	if pool.files()["worker-0:/etc/kubernetes/k8s-pod-routes"] == nil {
		t.Errorf("no list of routes in %v", pool.files())
	}
	cp["pod_routes"] = values{"10.200.1.0/24": "10.240.0.21"}
	if got := pool.plan(with(c.pool, values{"control_plane": cp})).failure(); !strings.Contains(got, `"hosts[0]`) && !strings.Contains(got, "no route to 10.200.0.0/24, the pods of worker-0") {
		t.Errorf("a pool with a node that the routes leave out: %q", got)
	}
}
