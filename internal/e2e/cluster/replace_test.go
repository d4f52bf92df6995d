package cluster_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// first makes new objects before the old ones are destroyed.
const first = `
resource "k8s_etcd_cluster" "this" {
  lifecycle { create_before_destroy = true }
}

resource "k8s_control_plane" "this" {
  lifecycle { create_before_destroy = true }
}

resource "k8s_worker_pool" "this" {
  lifecycle { create_before_destroy = true }
}

resource "k8s_addon" "coredns" {
  lifecycle { create_before_destroy = true }
}
`

// testReplaced replaces roles and an addon with create_before_destroy, as asked for and because
// they are tainted. The old objects must not take from the machines and the cluster what the new
// ones have.
func (c *cluster) testReplaced(t *testing.T) {
	if err := c.WS.WriteFile("first_override.tf", first); err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "create", "configmap", "kept", "--from-literal=a=b")
	all := []string{"k8s_etcd_cluster.this", "k8s_control_plane.this", "k8s_worker_pool.this", "k8s_addon.coredns"}
	var replace []string
	for _, r := range all {
		replace = append(replace, "-replace="+r)
	}
	check := func(said string) {
		t.Helper()
		for _, words := range []string{"The destroyed etcd cluster was not removed from controller-0", "The destroyed control plane was not", "The destroyed worker pool was not", "objects of addon coredns were kept"} {
			if !strings.Contains(said, words) {
				t.Errorf("nobody says %q", words)
			}
		}
		c.NoChanges(t)
		c.testNodes(t, 1, 1)
		if got := c.Kubectl(t, "get", "configmap", "kept", "-o", "jsonpath={.data.a}"); got != "b" {
			t.Errorf("the data is %q", got)
		}
	}
	said, err := c.WS.Apply(t.Context(), replace...)
	if err != nil {
		t.Fatal(err)
	}
	check(said)
	for _, r := range all {
		if _, err := c.WS.Run(t.Context(), "taint", r); err != nil {
			t.Fatal(err)
		}
	}
	if said, err = c.WS.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(said)
	if err := os.Remove(filepath.Join(c.WS.Dir, "first_override.tf")); err != nil {
		t.Fatal(err)
	}
	c.NoChanges(t)
}
