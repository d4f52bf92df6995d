package instances_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// imports finds everything again: machines by their instance ids, the network
// and the keys by the cluster's name, roles by their hosts and what they refer to.
const imports = `
import {
  to = k8s_network.this
  id = "demo"
}
import {
  to = k8s_pki.this
  id = "demo"
}
import {
  to = k8s_lb.this
  id = jsonencode({ host = k8s_machine.lb.host, controllers = k8s_machine.controller[*].host, pki = "demo" })
}
import {
  to = k8s_etcd_cluster.this
  id = jsonencode({ hosts = k8s_machine.controller[*].host, pki = "demo" })
}
import {
  to = k8s_control_plane.this
  id = jsonencode({ hosts = k8s_machine.controller[*].host, etcd = k8s_etcd_cluster.this.ref, lb = k8s_lb.this.ref, pki = "demo" })
}
import {
  to = k8s_worker_pool.this
  id = jsonencode({ hosts = k8s_machine.worker[*].host, control_plane = k8s_control_plane.this.ref, pki = "demo" })
}
`

// testImport forgets the whole cluster but the addon and imports it: the plan
// that does so changes nothing, and nothing restarts.
func (w *world) testImport(t *testing.T) {
	text, was := imports, w.StartTimes(t)
	address := ""
	forget := []string{"state", "rm"}
	for _, r := range w.Resources(t) {
		if r.Type == "k8s_addon" {
			continue
		}
		forget = append(forget, r.Address)
		var v struct {
			ID           string `json:"id"`
			AllocationID string `json:"allocation_id"`
		}
		if err := json.Unmarshal(r.Values, &v); err != nil {
			t.Fatal(err)
		}
		if r.Type == "k8s_machine" {
			text += fmt.Sprintf("import {\n  to = %s\n  id = %q\n}\n", r.Address, v.ID)
		}
		address += v.AllocationID
	}
	if _, err := w.WS.Run(t.Context(), forget...); err != nil {
		t.Fatal(err)
	}
	if err := w.WS.WriteFile("imports.tf", text); err != nil {
		t.Fatal(err)
	}
	_, plan, err := w.WS.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(plan, "12 to import, 0 to add, 0 to change, 0 to destroy") {
		t.Errorf("the plan to import is not one of imports only:\n%s", plan)
	}
	w.apply(t)
	w.same(t, was)
	if err := os.Remove(filepath.Join(w.WS.Dir, "imports.tf")); err != nil {
		t.Fatal(err)
	}
	w.NoChanges(t)

	// A load balancer is found by its cluster or its Elastic IP alone.
	for _, id := range []string{"demo", address} {
		if _, err := w.WS.Run(t.Context(), "state", "rm", "k8s_lb.this"); err != nil {
			t.Fatal(err)
		}
		if _, err := w.WS.Run(t.Context(), "import", "-no-color", "k8s_lb.this", id); err != nil {
			t.Fatal(err)
		}
		w.NoChanges(t)
	}
	w.same(t, was)
}
