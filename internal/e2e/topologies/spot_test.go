package topologies_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// notice is how long after its notice the interrupted machine of TestSpot ends. On AWS it is twice as long.
const notice = time.Minute

// guarded is a pod on worker-0, if that takes pods, whose budget allows no eviction.
const guarded = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: guarded, namespace: default}
spec:
  selector: {matchLabels: {app: guarded}}
  template:
    metadata: {labels: {app: guarded}}
    spec:
      terminationGracePeriodSeconds: 1
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            preference: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [worker-0]}]}
      containers:
      - {name: sleep, image: "k8s-lab/toolbox:1", command: ["sleep", "infinity"]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: guarded, namespace: default}
spec:
  minAvailable: 1
  selector: {matchLabels: {app: guarded}}
`

// TestSpot has workers that are Spot instances. EC2 reboots one of them, recommends to replace it, and interrupts the other: the
// pods are ready elsewhere before, and the next apply replaces the machine that has ended.
func TestSpot(t *testing.T) {
	inSoak(t)
	c := open(t, "spot")
	step := harness.Steps(t)
	workers := harness.Numbered("worker", 2)
	api := ec2.NewFromConfig(suite.AWS())
	find := func(t *testing.T, filters ...types.Filter) []types.Instance {
		t.Helper()
		var all []types.Instance
		for _, r := range harness.Must[*ec2.DescribeInstancesOutput](t)(api.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: filters})).Reservations {
			all = append(all, r.Instances...)
		}
		return all
	}
	spots := types.Filter{Name: aws.String("instance-lifecycle"), Values: []string{"spot"}}
	running := types.Filter{Name: aws.String("instance-state-name"), Values: []string{"running"}}
	step("apply", func(t *testing.T) {
		suite.MachineRole(t, "k8s-worker", "demo", suite.Policy("cloud-controller-manager"))
		for file, text := range map[string]string{
			"worker.auto.tfvars": "node_profile = \"k8s-worker\"\n",
			"spot_override.tf":   "module \"cluster\" {\n  spot = { drain_on_rebalance = true }\n}\n",
		} {
			if err := c.WS.WriteFile(file, text); err != nil {
				t.Fatal(err)
			}
		}
		c.Apply(t)
		c.Learn(t)
	})
	step("second plan is empty", c.NoChanges)
	instance := func(t *testing.T, machine string) string {
		t.Helper()
		return aws.ToString(find(t, types.Filter{Name: aws.String("tag:Name"), Values: []string{"demo-" + machine}}, running)[0].InstanceId)
	}
	node := func(t *testing.T, name string) string { // "closed for EVENT"; "" for an open node without a mark
		t.Helper()
		out := c.Kubectl(t, "get", "node", name, "-o", `jsonpath={.spec.unschedulable} {.metadata.annotations.k8s-from-scratch/ec2-event}`)
		return strings.TrimSpace(strings.Replace(out, "true", "closed for", 1))
	}
	moved := func(t *testing.T, within time.Duration, app string, want map[string]int) {
		t.Helper()
		harness.Eventually(t, within, app+" is ready elsewhere", func() error {
			if where := ready(t, c, app); !maps.Equal(where, want) {
				return fmt.Errorf("ready pods of %s: %v", app, where)
			}
			return nil
		})
	}
	const boot = "cat /proc/sys/kernel/random/boot_id"
	step("the service runs on workers, and damage to it is repaired", func(t *testing.T) {
		if n := len(find(t, spots, running)); n != 2 {
			t.Errorf("%d Spot instances run", n)
		}
		for _, worker := range workers {
			c.Sh(t, worker, "systemctl is-active ec2-events.service && test -x /usr/local/sbin/ec2-events")
		}
		c.Sh(t, "controller-0", "! test -e /usr/local/sbin/ec2-events")
		c.Sh(t, "worker-1", "systemctl stop ec2-events.service && echo exit >> /usr/local/sbin/ec2-events")
		changes, text, err := c.WS.Plan(t.Context())
		if err != nil || !changes {
			t.Fatalf("changes %t, %v", changes, err)
		}
		harness.Says(t, text, "module.cluster.k8s_worker_pool.this", "/usr/local/sbin/ec2-events", "ec2-events.service: stopped, wanted running")
		c.Apply(t)
		c.NoChanges(t)
	})
	step("pods are ready elsewhere before EC2 reboots their machine, and the node is open afterwards", func(t *testing.T) {
		c.Create(t, harness.Web)
		c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=120s")
		moved(t, time.Minute, "web", map[string]int{"worker-0": 1, "worker-1": 1})
		before := c.Sh(t, "worker-1", boot)
		began := time.Now()
		suite.MustLab(t, "fault", "schedule", "instance="+instance(t, "worker-1"), "code=system-reboot", "seconds=60")
		moved(t, 40*time.Second, "web", map[string]int{"worker-0": 2})
		took := time.Since(began)
		if is := node(t, "worker-1"); !strings.HasPrefix(is, "closed for instance-event-") {
			t.Errorf("worker-1 is %s", is)
		}
		_, text, err := c.WS.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		harness.Says(t, text, "EC2 will reboot worker-1", "the node is drained from five minutes before")
		if now := c.Sh(t, "worker-1", boot); now != before {
			t.Error("the machine rebooted before its pods had moved")
		}
		harness.Eventually(t, 2*time.Minute, "worker-1 is open", func() error {
			if is := node(t, "worker-1"); is != "" {
				return errors.New(is)
			}
			return nil
		})
		status := harness.Must[*ec2.DescribeInstanceStatusOutput](t)(api.DescribeInstanceStatus(t.Context(), &ec2.DescribeInstanceStatusInput{InstanceIds: []string{instance(t, "worker-1")}}))
		if events := status.InstanceStatuses[0].Events; len(events) != 1 || strings.HasPrefix(aws.ToString(events[0].Description), "[") {
			t.Errorf("EC2 shows the event no longer as active: %+v", events)
		}
		t.Logf("figures: reboot announced 60 s before: pods ready elsewhere after %s, the node open again after %s", took.Round(time.Second), time.Since(began).Round(time.Second))
		c.LearnMachines(t)
		if now := c.Sh(t, "worker-1", boot); now == before {
			t.Error("the machine did not reboot")
		}
		c.NoChanges(t)
	})
	step("a recommendation empties a node, which a person may open", func(t *testing.T) {
		c.Kubectl(t, "scale", "deployment/web", "--replicas=3")
		harness.Eventually(t, time.Minute, "a pod is on worker-1", func() error {
			if where := ready(t, c, "web"); where["worker-1"] == 0 {
				return fmt.Errorf("ready pods of web: %v", where)
			}
			return nil
		})
		suite.MustLab(t, "fault", "rebalance", "instance="+instance(t, "worker-1"))
		moved(t, time.Minute, "web", map[string]int{"worker-0": 3})
		if is := node(t, "worker-1"); is != "closed for rebalance-recommendation" {
			t.Errorf("worker-1 is %s", is)
		}
		c.NoChanges(t)
		c.Kubectl(t, "uncordon", "worker-1")
		c.Kubectl(t, "delete", "deployment/web", "poddisruptionbudget/web", "--cascade=foreground")
		harness.Eventually(t, time.Minute, "the service leaves worker-1 open", func() error {
			if out := c.Kubectl(t, "get", "node", "worker-1", "-o", `jsonpath={.spec.unschedulable}{.metadata.annotations.k8s-from-scratch/ec2-event-declined}`); out != "rebalance-recommendation" {
				return errors.New(out)
			}
			return nil
		})
	})
	var first string
	step("pods are ready elsewhere before an interrupted machine ends", func(t *testing.T) {
		c.Create(t, harness.Web)
		c.Create(t, guarded)
		for _, name := range []string{"web", "guarded"} {
			c.Kubectl(t, "rollout", "status", "deployment/"+name, "--timeout=120s")
		}
		if web, kept := ready(t, c, "web"), ready(t, c, "guarded"); web["worker-0"] != 1 || web["worker-1"] != 1 || kept["worker-0"] != 1 {
			t.Fatalf("ready pods of web: %v, of guarded: %v", web, kept)
		}
		first = instance(t, "worker-0")
		began := time.Now()
		suite.MustLab(t, "fault", "interrupt", "instance="+first, fmt.Sprintf("seconds=%.0f", notice.Seconds()))
		moved(t, notice-5*time.Second, "web", map[string]int{"worker-1": 2})
		took := time.Since(began)
		moved(t, notice-5*time.Second-took, "guarded", map[string]int{"worker-1": 1})
		kept := time.Since(began)
		if kept < notice/3 {
			t.Errorf("the budget held for %s only", kept)
		}
		if n := len(find(t, types.Filter{Name: aws.String("instance-id"), Values: []string{first}}, running)); n != 1 {
			t.Error("the machine had ended before its pods had moved")
		}
		t.Logf("figures: spot interrupted: pods ready elsewhere after %s, one that its budget kept after %s", took.Round(time.Second), kept.Round(time.Second))
		if said := c.Sh(t, "worker-0", "journalctl --no-pager -u ec2-events.service"); !strings.Contains(said, "EC2 interrupts this Spot instance in") || !strings.Contains(said, ": evicted") || !strings.Contains(said, "stays for now: ") || !strings.Contains(said, ": deleted") {
			t.Errorf("the service says:\n%s", said)
		}
	})
	step("the plan names the interruption, and the apply replaces the machine", func(t *testing.T) {
		harness.Eventually(t, 2*notice, "the machine ends", func() error {
			gone := find(t, types.Filter{Name: aws.String("instance-id"), Values: []string{first}})[0]
			if gone.State.Name != types.InstanceStateNameTerminated {
				return fmt.Errorf("it is %s", gone.State.Name)
			}
			if code := aws.ToString(gone.StateReason.Code); code != "Server.SpotInstanceTermination" {
				t.Errorf("it ended for %s", code)
			}
			return nil
		})
		ended := time.Now()
		harness.Eventually(t, 90*time.Second, "the Node of the machine is deleted", func() error {
			if left := c.Kubectl(t, "get", "node", "worker-0", "--ignore-not-found"); left != "" {
				return errors.New(left)
			}
			return nil
		})
		t.Logf("figures: spot ended: its Node deleted after %s", time.Since(ended).Round(time.Second))
		changes, text, err := c.WS.Plan(t.Context())
		if err != nil || !changes {
			t.Fatalf("changes %t, %v", changes, err)
		}
		c.Create(t, harness.BalancedService("refused", "web", "")) // the role may make no load balancer
		c.Kubectl(t, "wait", "service/refused", "--for=jsonpath={.metadata.finalizers}", "--timeout=60s")
		c.Kubectl(t, "delete", "service", "refused", "--timeout=60s")
		harness.Says(t, text, "a Spot instance, was interrupted by EC2", "module.cluster.k8s_machine.worker[0]")
		c.Apply(t)
		c.NoChanges(t)
		c.LearnMachines(t)
		if closed := c.Kubectl(t, "get", "node", "worker-0", "-o", "jsonpath={.spec.unschedulable}"); closed != "" {
			t.Errorf("the node of the new machine is closed: %s", closed)
		}
		c.Kubectl(t, "scale", "deployment/web", "--replicas=4")
		c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=120s")
		if where := ready(t, c, "web"); where["worker-0"] != 2 {
			t.Errorf("ready pods of web: %v", where)
		}
	})
	step("destroy leaves nothing", c.Destroy)
}

// ready returns how many pods of an app are ready on each node, without those that are about to leave.
func ready(t *testing.T, c *harness.Cluster, app string) map[string]int {
	t.Helper()
	out := c.Kubectl(t, "get", "pods", "-l", "app="+app, "-o",
		`jsonpath={range .items[*]}{.spec.nodeName}{" "}{.metadata.deletionTimestamp}{" "}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
	where := map[string]int{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 2 && f[1] == "True" {
			where[f[0]]++
		}
	}
	return where
}
