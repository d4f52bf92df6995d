package roles_test

import (
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestPodRoutes checks the files that routes to pods change, and how they end.
func TestPodRoutes(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	routes := providertest.Values{"10.200.0.0/24": "10.240.0.20", "10.200.1.0/24": "10.240.0.21"}
	controllers := c.Applied("k8s_control_plane", providertest.With(c.ControlPlane, providertest.Values{"pod_routes": routes}))
	if ref, _ := controllers.Get("ref").(providertest.Values); ref == nil || len(ref["pod_routes"].(providertest.Values)) != 2 {
		t.Errorf("the reference has %v", controllers.Get("ref"))
	}
	const list = "/etc/kubernetes/k8s-controller-pod-routes"
	if controllers.Files()[list] == nil {
		t.Errorf("no %s in %v", list, controllers.Files())
	}
	for what, test := range map[string]struct {
		routes any
		want   string
	}{
		"no routes":     {nil, ""},
		"none":          {providertest.Values{}, ""},
		"a node less":   {providertest.Values{"10.200.0.0/24": "10.240.0.20"}, ""},
		"not known yet": {providertest.Values{"10.200.0.0/24": providertest.Unknown}, ""},
	} {
		ch := controllers.Plan(providertest.With(c.ControlPlane, providertest.Values{"pod_routes": test.routes}))
		if got := ch.Failure(); test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, wanted %q", what, got, test.want)
			continue
		}
		planned, _ := providertest.Plain(ch.Planned).(providertest.Values)
		if files := providertest.FilesOf(planned); test.want == "" && files != nil && files[list] == controllers.Files()[list] {
			t.Errorf("%s: the plan does not show that %s changes", what, list)
		}
	}

	cp := providertest.With(c.Pool["control_plane"].(providertest.Values), providertest.Values{"pod_routes": routes})
	pool := c.Applied("k8s_worker_pool", providertest.With(c.Pool, providertest.Values{"control_plane": cp}))
	if pool.Files()["/etc/kubernetes/k8s-pod-routes"] == nil {
		t.Errorf("no list of routes in %v", pool.Files())
	}
	cp["pod_routes"] = providertest.Values{"10.200.1.0/24": "10.240.0.21"}
	if got := pool.Plan(providertest.With(c.Pool, providertest.Values{"control_plane": cp})).Failure(); !strings.Contains(got, `"hosts[0]`) && !strings.Contains(got, "no route to 10.200.0.0/24, the pods of worker-0") {
		t.Errorf("a pool with a node that the routes leave out: %q", got)
	}
}
