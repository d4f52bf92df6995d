// Package topologies_test builds the clusters of examples other than examples/ha-cluster, damages them,
// repairs them and destroys them. make soak PART=topologies runs all of it. make test has room for one of
// them, behind load balancers, which it neither moves nor breaks.
package topologies_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

var suite *harness.Suite

// ownKubernetesVersion is the release of examples/own-machines.
const ownKubernetesVersion = "1.35.8"

// everything is set by make soak.
var everything = os.Getenv("K8S_TOPOLOGIES") != ""

func TestMain(m *testing.M) {
	var up []string
	if everything {
		up = append(up, "--with", "cilium,traefik", "--kubernetes", "v"+ownKubernetesVersion+",v"+harness.KubernetesVersion+",v"+harness.NextKubernetesVersion)
	}
	if sizeThatFits != "" {
		up = append(up, "--quota", "vcpus=500,elastic-ips=64")
	}
	os.Exit(harness.Main(m, func(s *harness.Suite) { suite = s }, up...))
}

// inSoak skips a test for which make test has no room.
func inSoak(t *testing.T) {
	t.Helper()
	if !everything {
		t.Skip("make soak PART=topologies runs it")
	}
}

// webService is a service of harness.Web.
const webService = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
`

// open returns the cluster of an example, which uses examples/modules/cluster.
func open(t *testing.T, example string) *harness.Cluster {
	t.Helper()
	return openAs(t, example, example)
}

// openAs is open with a workspace of another name, for an example of which several tests make clusters.
func openAs(t *testing.T, name, example string) *harness.Cluster {
	t.Helper()
	c := openPlain(t, name, example)
	if suite.Image() != "" {
		if err := c.WS.WriteFile("image_override.tf", fmt.Sprintf("module \"cluster\" {\n  ami = %q\n}\n", suite.Image())); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// openPlain is openAs with machines that boot the provider's default image.
func openPlain(t *testing.T, name, example string) *harness.Cluster {
	t.Helper()
	copyModule(t, suite.Dir, "modules/cluster")
	c := suite.Cluster(suite.Workspace(t, name, suite.CLI, filepath.Join(suite.Root, "examples", example)))
	destroyIfFailed(t, c.WS)
	return c
}

// destroyIfFailed destroys what a failed test leaves, for the sake of the next one, which has the same names in the same account.
func destroyIfFailed(t *testing.T, ws *workspace.Workspace) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Minute)
		defer cancel()
		if _, err := ws.Destroy(ctx); err != nil {
			t.Logf("the cluster stays: %v", err)
		}
	})
}

// copyModule copies an example that others use as a module below a directory.
func copyModule(t *testing.T, below, example string) {
	t.Helper()
	dir := filepath.Join(below, example)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := workspace.CopyConfig(filepath.Join(suite.Root, "examples", example), dir); err != nil {
		t.Fatal(err)
	}
}

const (
	// gapWanted is how long the API may be silent when a zone is cut off.
	gapWanted = 30 * time.Second
	// movedWanted is how long it may take until all pods are ready in other zones. Kubernetes itself waits
	// five minutes before it evicts the pods of a node that does not answer.
	movedWanted = 6 * time.Minute
)

// TestZones cuts one of three availability zones off.
func TestZones(t *testing.T) {
	inSoak(t)
	c := open(t, "zones")
	step := harness.Steps(t)
	api := ec2.NewFromConfig(suite.AWS())
	step("apply", func(t *testing.T) {
		c.Apply(t)
		c.Learn(t)
	})
	step("second plan is empty", c.NoChanges)
	zones := map[string]string{} // machine to zone
	step("one machine of a role in a zone", func(t *testing.T) {
		out := harness.Must[*ec2.DescribeInstancesOutput](t)(api.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{
			Filters: []types.Filter{{Name: aws.String("instance-state-name"), Values: []string{"running"}}},
		}))
		used := map[string]bool{}
		for _, r := range out.Reservations {
			for _, i := range r.Instances {
				for _, tag := range i.Tags {
					if aws.ToString(tag.Key) == "Name" {
						name := strings.TrimPrefix(aws.ToString(tag.Value), "demo-")
						zones[name] = aws.ToString(i.Placement.AvailabilityZone)
						role, _, _ := strings.Cut(name, "-")
						used[role+" "+zones[name]] = true
					}
				}
			}
		}
		if len(zones) != 7 || len(used) != 7 {
			t.Fatalf("machines %v", zones)
		}
		for _, worker := range harness.Numbered("worker", 3) {
			if got := c.Kubectl(t, "get", "node", worker, "-o", `jsonpath={.metadata.labels.topology\.kubernetes\.io/zone}`); got != zones[worker] {
				t.Errorf("node %s has the zone %q, wanted %q", worker, got, zones[worker])
			}
		}
	})
	step("pods in every zone reach one another", func(t *testing.T) {
		c.Create(t, harness.Web)
		c.Kubectl(t, "scale", "deployment/web", "--replicas=3")
		c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=120s")
		c.PodEgress(t, harness.Numbered("worker", 3)...)
	})
	step("a zone is cut off", func(t *testing.T) { cut(t, c, zones["worker-1"]) })
	step("one apply after its return", func(t *testing.T) {
		c.Apply(t)
		c.NoChanges(t)
	})
	step("a route removed in one table is drift", func(t *testing.T) {
		tables := harness.Must[*ec2.DescribeRouteTablesOutput](t)(api.DescribeRouteTables(t.Context(), &ec2.DescribeRouteTablesInput{
			Filters: []types.Filter{{Name: aws.String("tag:Name"), Values: []string{"demo-public"}}},
		})).RouteTables
		harness.Must[*ec2.DeleteRouteOutput](t)(api.DeleteRoute(t.Context(), &ec2.DeleteRouteInput{
			RouteTableId: tables[0].RouteTableId, DestinationCidrBlock: aws.String("10.200.1.0/24"),
		}))
		changes, text, err := c.WS.Plan(t.Context())
		if err != nil || !changes {
			t.Fatalf("changes %t, %v", changes, err)
		}
		harness.Says(t, text, "module.cluster.k8s_machine.worker[1]", "10.200.1.0/24 in "+*tables[0].RouteTableId)
		c.Apply(t)
		c.NoChanges(t)
	})
	step("destroy leaves nothing", c.Destroy)
}

// cut cuts a zone off until all pods are ready in other ones, and lets it come back.
func cut(t *testing.T, c *harness.Cluster, zone string) {
	t.Helper()
	traffic := c.Traffic(t, c.Kubeconfig)
	time.Sleep(5 * time.Second) // of undisturbed traffic
	suite.MustLab(t, "fault", "zone", "zone="+zone)
	began := time.Now()
	t.Cleanup(func() { suite.MustLab(t, "fault", "clear") })
	harness.Eventually(t, movedWanted, "all pods are ready in other zones", func() error { return elsewhere(t, c) })
	moved := time.Since(began)
	gap := traffic.Gap(t)
	t.Logf("figures: zone cut off: longest gap of the API %s, pods ready elsewhere after %s", gap.Round(100*time.Millisecond), moved.Round(time.Second))
	if gap > gapWanted {
		t.Errorf("the API was silent for %s", gap)
	}
	suite.MustLab(t, "fault", "clear")
	harness.Eventually(t, 2*time.Minute, "all nodes are ready", func() error {
		lost, err := nodesLost(t, c)
		if err == nil && len(lost) > 0 {
			err = fmt.Errorf("not ready: %v", lost)
		}
		return err
	})
}

// nodesLost returns the nodes that are not ready.
func nodesLost(t *testing.T, c *harness.Cluster) ([]string, error) {
	t.Helper()
	out, err := suite.Kubectl(t.Context(), c.Kubeconfig, nil, "get", "nodes", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
	var lost []string
	for line := range strings.Lines(out) {
		if name, status, _ := strings.Cut(strings.TrimSpace(line), " "); status != "True" {
			lost = append(lost, name)
		}
	}
	return lost, err
}

// elsewhere returns an error unless a node is lost, and all Deployments have all their pods ready on
// others.
func elsewhere(t *testing.T, c *harness.Cluster) error {
	t.Helper()
	lost, err := nodesLost(t, c)
	if err != nil {
		return err
	}
	if len(lost) == 0 {
		return errors.New("no node is lost yet")
	}
	out, err := suite.Kubectl(t.Context(), c.Kubeconfig, nil, "get", "pods", "--all-namespaces", "-o", "json")
	if err != nil {
		return err
	}
	var pods corev1.PodList
	if err := json.Unmarshal([]byte(out), &pods); err != nil {
		return err
	}
	ready := map[string]int{}
	for _, p := range pods.Items {
		app := p.Labels["app"] + p.Labels["k8s-app"]
		if slices.Contains(lost, p.Spec.NodeName) {
			if p.DeletionTimestamp == nil {
				return fmt.Errorf("%s is still on %s", p.Name, p.Spec.NodeName)
			}
			continue
		}
		for _, condition := range p.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				ready[app]++
			}
		}
	}
	if ready["web"] < 3 || ready["kube-dns"] < 2 {
		return fmt.Errorf("ready: %v", ready)
	}
	return nil
}
