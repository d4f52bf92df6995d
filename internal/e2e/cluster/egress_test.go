package cluster_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// testPodEgress: pods on every node resolve names of the cluster and of the
// world, and do not reach the metadata of their instance.
func (c *cluster) testPodEgress(t *testing.T) {
	pods := strings.Fields(c.Kubectl(t, "get", "pods", "-l", "app=web", "-o", `jsonpath={range .items[*]}{.metadata.name}={.spec.nodeName}{"\n"}{end}`))
	nodes := map[string]string{}
	for _, p := range pods {
		pod, node, _ := strings.Cut(p, "=")
		nodes[node] = pod
	}
	if nodes["worker-0"] == "" || nodes["worker-1"] == "" {
		t.Fatalf("pods: %v", pods)
	}
	back := c.hopLimit(t, 3) // a pod is one hop further than its machine
	defer back()
	for node, pod := range nodes {
		in := func(script string) string {
			return c.Kubectl(t, "exec", pod, "--", "sh", "-c", "("+script+") 2>&1; true")
		}
		if out := c.Sh(t, node, "cat /run/kubernetes/resolv.conf"); !strings.Contains(out, "nameserver ") || strings.Contains(out, "nameserver 127.") {
			t.Errorf("%s gives its pods %q", node, out)
		}
		if out := in("timeout 5 ping -c 1 -W 1 kubernetes.default"); !strings.Contains(out, "(10.32.0.1)") {
			t.Errorf("a pod on %s resolves kubernetes.default: %q", node, out)
		}
		// The VPC's DNS server answers it, and only to addresses of the VPC.
		if out := in("timeout 8 nslookup ip-10-240-0-10.ec2.internal"); !strings.Contains(out, "Address: 10.240.0.10") {
			t.Errorf("a pod on %s resolves a name that the VPC's DNS server knows: %q", node, out)
		}
		const code = "curl -s -m 5 -o /dev/null -w '%{http_code}' http://169.254.169.254/latest/meta-data/"
		if out := c.Sh(t, node, code); out != "401" {
			t.Errorf("the metadata service says %q to %s, wanted that it asks for a token", out, node)
		}
		if out := in("wget -T 2 -O - http://169.254.169.254/latest/meta-data/"); !strings.Contains(out, "timed out") {
			t.Errorf("a pod on %s reaches the metadata service: %q", node, out)
		}
	}
}

// hopLimit sets the workers' hop limit of the metadata service, behind
// Terraform's back, and returns what puts it back.
func (c *cluster) hopLimit(t *testing.T, limit int32) (back func()) {
	t.Helper()
	client := ec2.NewFromConfig(suite.AWS())
	set := func(limit int32) {
		t.Helper()
		for _, r := range c.Resources(t) {
			var m struct{ ID, Role string }
			if r.Type != "k8s_machine" {
				continue
			}
			if err := json.Unmarshal(r.Values, &m); err != nil {
				t.Fatal(err)
			}
			if m.Role != "worker" {
				continue
			}
			if _, err := client.ModifyInstanceMetadataOptions(t.Context(), &ec2.ModifyInstanceMetadataOptionsInput{
				InstanceId: aws.String(m.ID), HttpPutResponseHopLimit: aws.Int32(limit)}); err != nil {
				t.Fatal(fmt.Errorf("hop limit of %s: %w", m.ID, err))
			}
		}
	}
	set(limit)
	return func() { set(1) }
}
