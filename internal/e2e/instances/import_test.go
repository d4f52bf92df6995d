package instances_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// imports imports everything again: the network, the keys and most roles by names, which leads to all that is looked up
// by tags, and the others by their hosts and references.
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
  id = "demo"
}
import {
  to = k8s_worker_pool.this
  id = "demo/workers"
}
import {
  to = k8s_addon.coredns
  id = "demo/coredns"
}
import {
  to = k8s_addon.quota
  id = jsonencode({ name = "quota", manifests = [local.quota], control_plane = merge(k8s_control_plane.this.ref, { pki = "demo" }) })
}
`

// quota is an addon with its own manifests.
const quota = `
locals {
  quota = yamlencode({
    apiVersion = "v1"
    kind       = "ResourceQuota"
    metadata   = { name = "pods", namespace = "default" }
    spec       = { hard = { pods = "200" } }
  })
}
resource "k8s_addon" "quota" {
  name          = "quota"
  control_plane = k8s_control_plane.this.ref
  manifests     = [local.quota]
  depends_on    = [k8s_worker_pool.this]
}
`

// unusual changes settings that not every machine has: some that only workers have, and some that
// are only in objects of Kubernetes.
func (w *world) unusual(t *testing.T) {
	w.edit(t, `resource "k8s_control_plane" "this" {`, `resource "k8s_control_plane" "this" {
  dns_ip = "10.32.0.53"
  access = [{ group = "ops", cluster_role = "view" }, { user = "ada", role = "deployer", namespace = "default" }]`, 1)
	w.edit(t, "k8s_network.this.node_cidrs", `["10.240.0.0/20", "10.241.0.0/24"]`, 1)
	w.edit(t, `resource "k8s_worker_pool" "this" {`, `resource "k8s_worker_pool" "this" {
  labels = { "node-role.kubernetes.io/worker" = "", tier = "blue" }`, 1)
	if err := w.WS.WriteFile("quota.tf", quota); err != nil {
		t.Fatal(err)
	}
}

// testImport deletes the state and imports the whole cluster. The plan has no changes, and nothing
// restarts.
func (w *world) testImport(t *testing.T) {
	// EC2 does not tell what image the next launch is to have: an import leaves that empty, and the first apply
	// notes it.
	const image = "image.auto.tfvars"
	if err := w.WS.WriteFile(image, "ami = null\n"); err != nil {
		t.Fatal(err)
	}
	w.forgetAndImport(t)
	if err := os.Remove(filepath.Join(w.WS.Dir, image)); err != nil {
		t.Fatal(err)
	}
	// The objects of the imported addon are known, so they are deleted with it.
	w.remove(t, "quota.tf")
	if left := w.Kubectl(t, "get", "resourcequota", "--all-namespaces", "-o", "name"); left != "" {
		t.Errorf("left of the imported addon: %s", left)
	}
}

// remove takes a file from the configuration and applies the rest.
func (w *world) remove(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(w.WS.Dir, name)); err != nil {
		t.Fatal(err)
	}
	w.apply(t)
	w.NoChanges(t)
}

func (w *world) forgetAndImport(t *testing.T) {
	text, was := imports, w.Units(t)
	address := ""
	forget := []string{"state", "rm"}
	for _, r := range w.Resources(t) {
		forget = append(forget, r.Address)
		var v struct {
			ID           string `json:"id"`
			Name         string `json:"name"`
			AllocationID string `json:"allocation_id"`
		}
		if err := json.Unmarshal(r.Values, &v); err != nil {
			t.Fatal(err)
		}
		switch r.Type {
		case "k8s_volume":
			text += fmt.Sprintf("import {\n  to = %s\n  id = %q\n}\n", r.Address, v.ID)
		case "k8s_machine":
			text += fmt.Sprintf("import {\n  to = %s\n  id = %q\n}\n", r.Address, "demo/"+v.Name)
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
	if !strings.Contains(plan, "17 to import, 0 to add, 0 to change, 0 to destroy") {
		t.Errorf("the plan to import is not one of imports only:\n%s", plan)
	}
	w.apply(t)
	w.same(t, was)
	if err := os.Remove(filepath.Join(w.WS.Dir, "imports.tf")); err != nil {
		t.Fatal(err)
	}
	w.NoChanges(t)

	// A load balancer can be imported by the cluster's name or its Elastic IP alone, and etcd by the cluster's name.
	again := func(resource, id string) {
		t.Helper()
		if _, err := w.WS.Run(t.Context(), "state", "rm", resource); err != nil {
			t.Fatal(err)
		}
		if _, err := w.WS.Run(t.Context(), "import", "-no-color", resource, id); err != nil {
			t.Fatal(err)
		}
	}
	again("k8s_lb.this", "demo")
	again("k8s_etcd_cluster.this", "demo")
	w.NoChanges(t)
	again("k8s_lb.this", address)
	w.NoChanges(t)
	w.same(t, was)
}

// spare is a machine that does not belong to any role.
const spare = `
resource "k8s_machine" "spare" {
  name       = "spare"
  role       = "worker"
  network    = k8s_network.this.ref
  private_ip = "10.240.0.99"
  lifecycle { create_before_destroy = true }
}
output "spare" { value = k8s_machine.spare.id }
`

// testCreateBeforeDestroy checks that a machine survives create_before_destroy: the replacement is
// refused, and says why.
func (w *world) testCreateBeforeDestroy(t *testing.T) {
	if err := w.WS.WriteFile("spare.tf", spare); err != nil {
		t.Fatal(err)
	}
	w.apply(t)
	var before, after string
	if err := w.WS.Output(t.Context(), "spare", &before); err != nil {
		t.Fatal(err)
	}
	if out, err := w.WS.Run(t.Context(), "apply", "-auto-approve", "-no-color", "-replace=k8s_machine.spare"); err == nil || !strings.Contains(out+err.Error(), "create_before_destroy") {
		t.Errorf("it was replaced, or without a word why not: %v\n%s", err, out)
	}
	if err := w.WS.Output(t.Context(), "spare", &after); err != nil {
		t.Fatal(err)
	}
	if before != after {
		t.Errorf("%s became %s", before, after)
	}
	w.NoChanges(t)
	w.remove(t, "spare.tf")
}
