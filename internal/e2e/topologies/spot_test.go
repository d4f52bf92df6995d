package topologies_test

import (
	"errors"
	"fmt"
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

// TestSpot interrupts a worker that is a Spot instance: its pods are ready elsewhere before it ends, and the next
// apply replaces it.
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
		if err := c.WS.WriteFile("worker.auto.tfvars", "node_profile = \"k8s-worker\"\n"); err != nil {
			t.Fatal(err)
		}
		c.Apply(t)
		c.Learn(t)
	})
	step("second plan is empty", c.NoChanges)
	step("the service runs on Spot machines only, and damage to it is repaired", func(t *testing.T) {
		if n := len(find(t, spots, running)); n != 2 {
			t.Errorf("%d Spot instances run", n)
		}
		for _, worker := range workers {
			c.Sh(t, worker, "systemctl is-active spot-interruption.service && test -x /usr/local/sbin/spot-interruption")
		}
		c.Sh(t, "controller-0", "! test -e /usr/local/sbin/spot-interruption")
		c.Sh(t, "worker-1", "systemctl stop spot-interruption.service && echo exit >> /usr/local/sbin/spot-interruption")
		changes, text, err := c.WS.Plan(t.Context())
		if err != nil || !changes {
			t.Fatalf("changes %t, %v", changes, err)
		}
		harness.Says(t, text, "module.cluster.k8s_worker_pool.this", "/usr/local/sbin/spot-interruption", "spot-interruption.service: stopped, wanted running")
		c.Apply(t)
		c.NoChanges(t)
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
		first = aws.ToString(find(t, types.Filter{Name: aws.String("tag:Name"), Values: []string{"demo-worker-0"}}, running)[0].InstanceId)
		began := time.Now()
		suite.MustLab(t, "fault", "interrupt", "instance="+first, fmt.Sprintf("seconds=%.0f", notice.Seconds()))
		harness.Eventually(t, notice-5*time.Second, "all pods are ready on the other worker", func() error {
			if where := ready(t, c, "web"); where["worker-1"] != 2 || len(where) != 1 {
				return fmt.Errorf("ready pods of web: %v", where)
			}
			return nil
		})
		moved := time.Since(began)
		harness.Eventually(t, notice-5*time.Second-moved, "the pod that its budget kept is ready on the other worker", func() error {
			if where := ready(t, c, "guarded"); where["worker-1"] != 1 || len(where) != 1 {
				return fmt.Errorf("ready pods of guarded: %v", where)
			}
			return nil
		})
		kept := time.Since(began)
		if kept < notice/3 {
			t.Errorf("the budget held for %s only", kept)
		}
		if n := len(find(t, types.Filter{Name: aws.String("instance-id"), Values: []string{first}}, running)); n != 1 {
			t.Error("the machine had ended before its pods had moved")
		}
		t.Logf("figures: spot interrupted: pods ready elsewhere after %s, one that its budget kept after %s", moved.Round(time.Second), kept.Round(time.Second))
		if said := c.Sh(t, "worker-0", "journalctl --no-pager -u spot-interruption.service"); !strings.Contains(said, "EC2 interrupts this Spot instance in") || !strings.Contains(said, ": evicted") || !strings.Contains(said, "stays for now: ") || !strings.Contains(said, ": deleted") {
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
