package instances_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// world is the cluster and its configuration.
type world struct {
	*harness.Cluster
	main string // the present main.tf
	api  *ec2.Client
}

// TestInstances covers the life of one cluster's machines. Its steps depend on one another.
func TestInstances(t *testing.T) {
	example := filepath.Join(suite.Root, "examples", "ha-cluster")
	source, err := os.ReadFile(filepath.Join(example, "main.tf"))
	if err != nil {
		t.Fatal(err)
	}
	ws := suite.Workspace(t, "instances", suite.CLI, example)
	suite.Bind(t, ws, "demo")
	w := &world{Cluster: suite.Cluster(ws), main: string(source), api: ec2.NewFromConfig(suite.AWS())}
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"install", w.testInstall},
		{"data volumes", w.testDataVolumes},
		{"instance types", w.testInstanceTypes},
		{"another image", w.testImage},
		{"a larger volume", w.testVolume},
		{"a larger data volume", w.testGrow},
		{"an instance profile", w.testProfile},
		{"a colleague", w.testColleague},
		{"import", w.testImport},
		{"create before destroy", w.testCreateBeforeDestroy},
		{"a second member down", w.testSecondMember},
		{"replace", w.testReplace},
		{"destroy", w.testDestroy},
	} {
		if !t.Run(step.name, step.run) {
			w.Stop(t)
		}
	}
}

func (w *world) apply(t *testing.T, args ...string) string {
	t.Helper()
	out, err := w.WS.Apply(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// edit replaces the first n occurrences of a text in the configuration.
func (w *world) edit(t *testing.T, before, after string, n int) {
	t.Helper()
	if strings.Count(w.main, before) < n {
		t.Fatalf("the configuration has %q less than %d times", before, n)
	}
	w.main = strings.Replace(w.main, before, after, n)
	if err := w.WS.WriteFile("main.tf", w.main); err != nil {
		t.Fatal(err)
	}
}

func (w *world) testInstall(t *testing.T) {
	w.unusual(t)
	// A kubelet that only compares the kernel's settings starts again after each boot below.
	w.edit(t, "= var.elsewhere.kubelet_config", "= merge(var.elsewhere.kubelet_config, { protectKernelDefaults = true })", 1)
	if err := w.WS.WriteFile("data.auto.tfvars", "data_volume_size = 10\n"); err != nil {
		t.Fatal(err)
	}
	w.apply(t)
	w.NoChanges(t)
	w.Learn(t)
	if _, err := suite.Kubectl(t.Context(), w.Kubeconfig, strings.NewReader(harness.Web), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	w.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=180s")
}

// down records which machines were down in EC2, as a sequence of sets.
type down struct {
	cancel context.CancelFunc
	ended  chan struct{}
	sets   []string
}

// watch polls the machines' states.
func (w *world) watch(t *testing.T) *down {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	d := &down{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(d.ended)
		for ctx.Err() == nil {
			out, err := w.api.DescribeInstances(ctx, &ec2.DescribeInstancesInput{})
			if err != nil {
				continue
			}
			var names []string
			for _, r := range out.Reservations {
				for _, i := range r.Instances {
					if i.State.Name == "running" || i.State.Name == "terminated" {
						continue
					}
					for _, tag := range i.Tags {
						if *tag.Key == "k8s-from-scratch/name" {
							names = append(names, *tag.Value)
						}
					}
				}
			}
			slices.Sort(names)
			if set := strings.Join(names, "+"); len(d.sets) == 0 || d.sets[len(d.sets)-1] != set {
				d.sets = append(d.sets, set)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return d
}

// oneByOne checks that each of the machines was down, and none together with another one.
func (d *down) oneByOne(t *testing.T, machines ...string) {
	t.Helper()
	d.cancel()
	<-d.ended
	var seen []string
	for _, set := range d.sets {
		if strings.Contains(set, "+") {
			t.Errorf("down at the same time: %s", set)
		}
		if set != "" {
			seen = append(seen, set)
		}
	}
	slices.Sort(seen)
	if seen = slices.Compact(seen); !slices.Equal(seen, machines) {
		t.Errorf("machines that were down: %q, wanted %q", seen, machines)
	}
}

// testInstanceTypes changes the instance type of all controllers and workers in one apply. Machines
// restart one at a time, and clients notice nothing.
func (w *world) testInstanceTypes(t *testing.T) {
	const large = "  instance_type = \"t3.large\"\n"
	for _, role := range []string{"controller", "worker"} {
		resource := fmt.Sprintf("resource \"k8s_machine\" %q {\n", role)
		w.edit(t, resource, resource+large, 1)
	}
	traffic, watch := w.Traffic(t, w.Kubeconfig), w.watch(t)
	w.apply(t)
	traffic.Unbroken(t)
	watch.oneByOne(t, "controller-0", "controller-1", "controller-2", "worker-0", "worker-1")
	if traffic.Fewest < 1 {
		t.Error("no pod of the application was ready at one time")
	}
	for _, nodes := range []string{"worker-0", "worker-1"} {
		if !slices.Contains(traffic.Cordoned, nodes) {
			t.Errorf("%s was not closed before it was stopped: %q", nodes, traffic.Cordoned)
		}
		if !suite.Logged(t, nodes, "evicting pod default/web-") {
			t.Errorf("no pod was evicted from %s", nodes)
		}
	}
	if slices.Contains(traffic.Cordoned, "worker-0+worker-1") {
		t.Error("both workers were closed at the same time")
	}
	w.LearnMachines(t)
	if t.Failed() {
		w.elections(t)
	}
	w.NoChanges(t)
	w.healthy(t)
}

// elections logs which member led etcd when. etcd answers a request that was under way during a
// change of leader with a timeout.
func (w *world) elections(t *testing.T) {
	t.Helper()
	for _, c := range []string{"controller-0", "controller-1", "controller-2"} {
		out, _ := w.TrySh(t.Context(), c, `journalctl --unit etcd --no-pager --output short-precise | grep -E 'elected leader|lost leader|changed leader|leadership transfer|timed out|apply request took too long|overloaded' | tail -40`)
		t.Logf("%s:\n%s", c, out)
	}
}

// healthy checks that all nodes are Ready and schedulable, and that etcd has three members.
func (w *world) healthy(t *testing.T) {
	t.Helper()
	got := w.Kubectl(t, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status} {.spec.unschedulable}{"\n"}{end}`)
	if want := "worker-0 True \nworker-1 True \n"; got != want {
		t.Errorf("nodes:\n%swanted:\n%s", got, want)
	}
	if n := strings.Count(w.members(t), "started"); n != 3 {
		t.Errorf("%d etcd members", n)
	}
}

func (w *world) members(t *testing.T) string {
	t.Helper()
	return w.Sh(t, "controller-0", harness.Etcdctl+"member list")
}

// testImage checks that another image in the configuration changes nothing that runs.
func (w *world) testImage(t *testing.T) {
	before := w.main
	was := w.Units(t)
	const workers = "  pod_cidr   = cidrsubnet(\"10.200.0.0/16\", 8, count.index)\n  ami        = "
	w.edit(t, workers+"var.ami", workers+`"resolve:ssm:/aws/service/debian/release/12/latest/amd64"`, 1)
	_, text, err := w.WS.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "must be replaced") || !strings.Contains(text, "0 to destroy") {
		t.Errorf("a new image replaces something:\n%s", text)
	}
	w.apply(t)
	w.same(t, was)
	w.edit(t, w.main, before, 1)
	w.apply(t)
	w.NoChanges(t)
}

// same checks that no unit was restarted since.
func (w *world) same(t *testing.T, was map[string]harness.Unit) {
	t.Helper()
	if restarted := harness.Restarted(was, w.Units(t)); len(restarted) > 0 {
		t.Errorf("restarted: %q", restarted)
	}
}

// testVolume enlarges a root volume while its machine runs, and checks the error when EC2 does not
// accept the next change yet.
func (w *world) testVolume(t *testing.T) {
	was := w.Units(t)
	w.edit(t, `role       = "lb"`, "role       = \"lb\"\n  root_volume_size = 30", 1)
	w.apply(t)
	w.same(t, was)
	w.NoChanges(t)
	for gib := 31; gib <= 33; gib++ {
		w.edit(t, fmt.Sprintf("root_volume_size = %d", gib-1), fmt.Sprintf("root_volume_size = %d", gib), 1)
		w.apply(t)
	}
	w.edit(t, "root_volume_size = 33", "root_volume_size = 40", 1)
	_, err := w.WS.Apply(t.Context())
	harness.Refused(t, err, "VolumeModificationRateExceeded", "four times in 24 hours")
	w.edit(t, "root_volume_size = 40", "root_volume_size = 33", 1)
	w.NoChanges(t)
}

// testSecondMember checks that a machine is neither terminated nor stopped if etcd would lose its
// quorum without it.
func (w *world) testSecondMember(t *testing.T) {
	members := w.members(t)
	w.Sh(t, "controller-2", "systemctl stop etcd")
	// With a refresh the plan would repair controller-2 first. This step tests what happens without
	// one.
	_, err := w.WS.Apply(t.Context(), "-refresh=false", "-target=k8s_machine.controller[1]", "-replace=k8s_machine.controller[1]")
	harness.Refused(t, err, "refusing to terminate controller-1", "lose its quorum", "not healthy: controller-2", "bring back the other members first")
	w.edit(t, `instance_type = "t3.large"`, `instance_type = "t3.small"`, 1)
	_, err = w.WS.Apply(t.Context(), "-refresh=false", "-target=k8s_machine.controller[1]")
	harness.Refused(t, err, "refusing to stop controller-1", "not healthy: controller-2")
	w.edit(t, `instance_type = "t3.small"`, `instance_type = "t3.large"`, 1)
	w.Sh(t, "controller-2", "systemctl start etcd")
	if now := w.members(t); now != members {
		t.Errorf("members:\n%swere:\n%s", now, members)
	}
	w.NoChanges(t)
}

// testReplace replaces a running controller and a running worker in one apply. Each leaves the
// cluster gracefully before it is terminated, and the other machines keep running untouched. The
// controller's etcd member is the same one afterwards: the volume with its data has moved. Package
// lifecycle_test replaces controllers without data volumes.
func (w *world) testReplace(t *testing.T) {
	others := []string{"controller-0", "controller-2", "worker-0", "lb-0"}
	was := suite.Units(t, others...)
	members := w.Members(t)
	const machineID = "jsonpath={.status.nodeInfo.machineID}"
	const fileSystem = "findmnt -rno UUID --mountpoint /var/lib/etcd"
	uid, disk := w.Kubectl(t, "get", "node", "worker-1", "-o", machineID), w.Sh(t, "controller-1", fileSystem)
	traffic := w.Traffic(t, w.Kubeconfig)
	w.apply(t, "-replace=k8s_machine.controller[1]", "-replace=k8s_machine.worker[1]")
	traffic.Unbroken(t)
	suite.OnlyRestarted(t, was, others)
	if now := w.Kubectl(t, "get", "node", "worker-1", "-o", machineID); now == uid {
		t.Errorf("worker-1 is the machine it was: %s", now)
	}
	if traffic.Fewest < 1 {
		t.Error("no pod of the application was ready at one time")
	}
	w.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=60s")
	w.LearnMachines(t)
	if now := w.Members(t); !maps.Equal(now, members) {
		t.Errorf("members: %v, before: %v", now, members)
	}
	for _, message := range []string{"etcd: leaving, member ", "etcd: added as learner "} {
		if suite.Logged(t, "controller-1", message) {
			t.Errorf("controller-1: %q", message)
		}
	}
	if now := w.Sh(t, "controller-1", fileSystem); now != disk || now == "" {
		t.Errorf("the data of controller-1 are on %q, they were on %q", now, disk)
	}
	w.healthy(t)
	w.NoChanges(t)
}

// testDestroy checks that nothing is drained or waited for when everything is destroyed.
func (w *world) testDestroy(t *testing.T) {
	began := time.Now()
	out, err := w.WS.Destroy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if all, expected := strings.Count(out, "Warning: "), strings.Count(out, "Warning: This plan ends "); all != expected || expected != 2 {
		t.Errorf("%d warnings, of which %d say what ends:\n%s", all, expected, out)
	}
	t.Logf("destroyed in %s", time.Since(began).Round(time.Second))
}
