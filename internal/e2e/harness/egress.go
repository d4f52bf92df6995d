package harness

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// outsideName is a web server in the lab's internet that logs its clients.
const outsideName = "outside.k8s-lab.test"

// PodEgress checks the network access of the pods of [Web], one on each node: they resolve names in
// the cluster and on the internet, a server on the internet sees the public address of their node,
// and the instance metadata service is closed to them.
func (c *Cluster) PodEgress(t *testing.T, nodes ...string) {
	t.Helper()
	var public []string
	for _, node := range nodes {
		public = append(public, c.Addresses[node])
	}
	c.PodEgressFrom(t, public, nodes...)
}

// PodEgressFrom is PodEgress of nodes behind NAT gateways: a server on the internet sees the public
// addresses, and each of them.
func (c *Cluster) PodEgressFrom(t *testing.T, public []string, nodes ...string) {
	t.Helper()
	pods := map[string]string{}
	for _, p := range strings.Fields(c.Kubectl(t, "get", "pods", "-l", "app=web", "-o", `jsonpath={range .items[*]}{.spec.nodeName}={.metadata.name}{"\n"}{end}`)) {
		node, pod, _ := strings.Cut(p, "=")
		pods[node] = pod
	}
	const outside = "/_lab/outside"
	if err := c.suite.Control(t.Context(), "DELETE", outside, nil, nil); err != nil {
		t.Fatal(err)
	}
	c.hopLimit(t, 3) // a pod is one hop further than its node
	defer c.hopLimit(t, 1)
	for _, node := range nodes {
		if pods[node] == "" {
			t.Fatalf("no pod on %s: %v", node, pods)
		}
		c.podEgress(t, node, pods[node])
	}
	var log struct {
		Web []struct{ Source, Host string }
	}
	if err := c.suite.Control(t.Context(), "GET", outside, nil, &log); err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, request := range log.Web {
		seen = append(seen, request.Source)
	}
	public = slices.Sorted(slices.Values(public))
	slices.Sort(seen)
	if seen = slices.Compact(seen); !slices.Equal(seen, public) {
		t.Errorf("%s saw requests from %v, wanted %v", outsideName, seen, public)
	}
}

func (c *Cluster) podEgress(t *testing.T, node, pod string) {
	t.Helper()
	in := func(script string) string {
		return c.Kubectl(t, "exec", pod, "--", "sh", "-c", "("+script+") 2>&1; echo exit status $?")
	}
	if out := c.Sh(t, node, "cat /run/kubernetes/resolv.conf"); !strings.Contains(out, "nameserver ") || strings.Contains(out, "nameserver 127.") {
		t.Errorf("%s gives its pods %q", node, out)
	}
	// Only the name resolution matters: a service does not answer pings.
	Eventually(t, 30*time.Second, "a pod on "+node+" resolves kubernetes.default", func() error { // kube-proxy may have been started just now
		if out := in("timeout 8 ping -c 1 -W 1 kubernetes.default"); !strings.Contains(out, "(10.32.0.1)") {
			return errors.New(out)
		}
		return nil
	})
	if out := in("timeout 8 wget -q -O /dev/null http://" + outsideName + "/"); !strings.Contains(out, "exit status 0") {
		t.Errorf("a pod on %s gets %s by name: %q", node, outsideName, out)
	}
	const metadata = "http://169.254.169.254/latest/meta-data/"
	if out := c.Sh(t, node, "curl -s -m 5 -o /dev/null -w '%{http_code}' "+metadata); out != "401" {
		t.Errorf("the metadata service says %q to %s, wanted that it asks for a token", out, node)
	}
	// An answer would be "HTTP/1.1 401". Without an answer, timeout(1) ends the request.
	if out := in("timeout 3 wget -O - " + metadata); strings.Contains(out, "HTTP/") || strings.Contains(out, "exit status 0") || strings.Contains(out, "exit status 1\n") {
		t.Errorf("a pod on %s reaches the metadata service: %q", node, out)
	}
}

// hopLimit sets the hop limit of the workers' metadata service, outside Terraform. The provider
// sets it to 1.
func (c *Cluster) hopLimit(t *testing.T, limit int32) {
	t.Helper()
	client := ec2.NewFromConfig(c.suite.AWS())
	for _, m := range c.Machines(t) {
		if m.Role != "worker" {
			continue
		}
		if _, err := client.ModifyInstanceMetadataOptions(t.Context(), &ec2.ModifyInstanceMetadataOptionsInput{
			InstanceId: aws.String(m.ID), HttpPutResponseHopLimit: aws.Int32(limit)}); err != nil {
			t.Fatal(fmt.Errorf("hop limit of %s: %w", m.ID, err))
		}
	}
}
