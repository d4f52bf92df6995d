package cluster_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// testResolver stops, masks and removes systemd-resolved on worker-1, and reboots the machine
// without it. Its pods must have reachable DNS servers all the time.
func (c *cluster) testResolver(t *testing.T) {
	const (
		machine = "worker-1"
		link    = "/run/kubernetes/resolv.conf"
		servers = "/run/systemd/resolve/resolv.conf"
		own     = "/etc/resolv.conf"
		write   = "rm -f " + own + " && echo nameserver 169.254.169.253 >" + own
	)
	leads := func(when, to string) {
		t.Helper()
		if found := strings.TrimSpace(c.Sh(t, machine, "readlink "+link)); found != to {
			t.Errorf("%s: %s leads to %s, wanted %s", when, link, found, to)
		}
	}
	leads("at first", servers)
	c.Sh(t, machine, "systemctl stop systemd-resolved && systemctl restart kubelet")
	leads("with systemd-resolved stopped", servers)

	c.Sh(t, machine, "systemctl mask --now systemd-resolved && rm -rf /run/systemd/resolve && "+write)
	_, text, err := c.WS.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	harness.Says(t, text, "unit kubelet.service: "+link+" points to "+servers+", wanted "+own)
	c.Apply(t)
	leads("with systemd-resolved masked", own)

	c.Sh(t, machine, "systemctl unmask systemd-resolved && DEBIAN_FRONTEND=noninteractive apt-get -y -q purge systemd-resolved && "+write)
	pod := c.Kubectl(t, "get", "pods", "-l", "app=web", "--field-selector", "spec.nodeName="+machine, "-o", "jsonpath={.items[0].metadata.name}")
	machines := c.Machines(t)
	i := slices.IndexFunc(machines, func(m harness.Machine) bool { return m.Host.Name == machine })
	if i < 0 {
		t.Fatalf("no machine %s in the state", machine)
	}
	if _, err := ec2.NewFromConfig(suite.AWS()).RebootInstances(t.Context(), &ec2.RebootInstancesInput{InstanceIds: []string{machines[i].ID}}); err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "wait", "--for=jsonpath={.status.containerStatuses[0].restartCount}=1", "pod/"+pod, "--timeout=5m")
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/"+pod, "--timeout=60s")
	leads("after a reboot without systemd-resolved", own)
	c.PodEgress(t, machine)
	c.NoChanges(t)
}
