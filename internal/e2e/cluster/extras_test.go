package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// with adds a configuration file to the workspace while f runs.
func (c *cluster) with(t *testing.T, file string, f func()) {
	t.Helper()
	to := filepath.Join(c.WS.Dir, file)
	if err := os.WriteFile(to, []byte(readAll(t, filepath.Join("testdata", file))), 0o644); err != nil {
		t.Fatal(err)
	}
	c.Apply(t)
	f()
	if err := os.Remove(to); err != nil {
		t.Fatal(err)
	}
	c.Apply(t)
}

// testStatus compares the data source with what the cluster is known to be.
func (c *cluster) testStatus(t *testing.T) {
	c.with(t, "status.tf", func() {
		var s struct {
			Healthy    bool   `json:"healthy"`
			Version    string `json:"version"`
			APIServers []struct {
				Machine string `json:"machine"`
				Ready   bool   `json:"ready"`
			} `json:"api_servers"`
			Nodes []struct {
				Name       string `json:"name"`
				Ready      bool   `json:"ready"`
				InternalIP string `json:"internal_ip"`
			} `json:"nodes"`
			Members []struct {
				Healthy bool `json:"healthy"`
				Leader  bool `json:"leader"`
			} `json:"etcd_members"`
			Quotas       map[string]int64  `json:"etcd_quotas"`
			Alarms       []string          `json:"alarms"`
			Holders      map[string]string `json:"lease_holders"`
			Certificates []struct {
				Subject  string    `json:"subject"`
				NotAfter time.Time `json:"not_after"`
			} `json:"certificates"`
			Problems []string `json:"problems"`
		}
		// The status is read by each apply; a slow answer counts as a problem.
		harness.Eventually(t, 2*time.Minute, "a healthy cluster", func() error {
			if err := c.WS.Output(t.Context(), "status", &s); err != nil {
				t.Fatal(err)
			}
			if s.Healthy && len(s.Problems) == 0 {
				return nil
			}
			c.Apply(t)
			return fmt.Errorf("healthy %v, problems %v", s.Healthy, s.Problems)
		})
		if s.Version != "v1.36.4" {
			t.Errorf("version %s", s.Version)
		}
		if fmt.Sprint(s.APIServers) != "[{controller-0 true} {controller-1 true} {controller-2 true}]" {
			t.Errorf("API servers: %v", s.APIServers)
		}
		if fmt.Sprint(s.Nodes) != "[{worker-0 true 10.240.0.20} {worker-1 true 10.240.0.21}]" {
			t.Errorf("nodes: %v", s.Nodes)
		}
		leaders := 0
		for _, m := range s.Members {
			if !m.Healthy {
				t.Errorf("etcd members: %v", s.Members)
			}
			if m.Leader {
				leaders++
			}
		}
		if len(s.Members) != 3 || leaders != 1 {
			t.Errorf("etcd members: %v", s.Members)
		}
		if fmt.Sprint(s.Quotas) != "map[controller-0:8589934592 controller-1:8589934592 controller-2:8589934592]" || len(s.Alarms) > 0 {
			t.Errorf("quotas of etcd: %v, alarms: %q", s.Quotas, s.Alarms)
		}
		for _, lease := range []string{"kube-controller-manager", "kube-scheduler"} {
			if !strings.HasPrefix(s.Holders[lease], "controller-") {
				t.Errorf("lease holders: %v", s.Holders)
			}
		}
		if len(s.Certificates) < 20 {
			t.Errorf("only %d certificates", len(s.Certificates))
		}
		for _, cert := range s.Certificates {
			year := 365 * 24 * time.Hour
			life := year
			if strings.HasSuffix(cert.Subject, "-ca") {
				life = 10 * year
			}
			if left := time.Until(cert.NotAfter); left < life-time.Hour || left > life {
				t.Errorf("the certificate of %s expires in %s", cert.Subject, left)
			}
		}
	})
}

// testExtras covers what the example does not use: metrics-server, an addon with its own manifests,
// and both kubeconfigs.
func (c *cluster) testExtras(t *testing.T) {
	c.with(t, "extras.tf", func() {
		c.NoChanges(t)
		viewer := filepath.Join(c.WS.Dir, "viewer.kubeconfig")
		out, err := c.WS.Run(t.Context(), "output", "-raw", "viewer")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(viewer, []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := suite.Kubectl(t.Context(), viewer, nil, "get", "pods", "-A"); err != nil || !strings.Contains(out, "metrics-server") {
			t.Errorf("the viewer cannot list pods: %q %v", out, err)
		}
		if _, err := suite.Kubectl(t.Context(), viewer, nil, "create", "configmap", "x"); err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("the viewer may write: %v", err)
		}
		harness.Eventually(t, time.Minute, "metrics of the nodes", func() error {
			_, err := suite.Kubectl(t.Context(), c.Kubeconfig, nil, "top", "nodes")
			return err
		})
		// Objects changed by hand are restored; deleting an addon deletes its objects.
		c.Kubectl(t, "delete", "clusterrolebinding", "viewers")
		changes, text, err := c.WS.Plan(t.Context())
		if err != nil || !changes || !strings.Contains(text, "ClusterRoleBinding viewers") {
			t.Errorf("a deleted object is not in the plan (%v):\n%s", err, text)
		}
		c.Apply(t)
		c.Kubectl(t, "get", "clusterrolebinding", "viewers")
	})
	if _, err := suite.Kubectl(t.Context(), c.Kubeconfig, nil, "get", "clusterrolebinding", "viewers"); err == nil {
		t.Error("the removed addon left its object behind")
	}
	if _, err := suite.Kubectl(t.Context(), c.Kubeconfig, nil, "get", "-n", "kube-system", "deployment", "metrics-server"); err == nil {
		t.Error("the removed addon left its deployment behind")
	}
}
