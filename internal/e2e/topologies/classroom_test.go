package topologies_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// class is the cluster of each student of examples/classroom.
type class struct {
	*harness.Cluster
	api       *ec2.Client
	dir       string            // what the teacher gives to students
	endpoints map[string]string // by student
	settings  map[string]any    // variables
}

// TestClassroom is a class of three students with a cluster of each size: what they may do, one cluster that is made anew, one
// that is broken, one that works meanwhile, and the end of the class.
func TestClassroom(t *testing.T) {
	inSoak(t)
	copyModule(t, suite.Dir, "modules/cluster")
	l := class{Cluster: suite.Cluster(suite.Workspace(t, "classroom", suite.CLI, filepath.Join(suite.Root, "examples", "classroom"))),
		api: ec2.NewFromConfig(suite.AWS()), dir: t.TempDir(), settings: map[string]any{"ssh_roles": []string{"worker"}, "snapshot_bucket": harness.SnapshotBucket}}
	destroyIfFailed(t, l.WS)
	suite.MustLab(t, "bucket", harness.SnapshotBucket)
	for _, student := range []string{"ada", "bob", "cy"} {
		suite.MachineRole(t, "k8s-"+student, student, suite.Policy("etcd-snapshots"))
	}
	l.key(t, "ada")
	students := map[string]any{"ada": map[string]any{"size": "standard", "ssh_keys": []string{l.read(t, "ada.pub")}}, "bob": map[string]any{}, "cy": map[string]any{"size": "one"}}
	step := harness.Steps(t)
	step("apply", func(t *testing.T) {
		began := time.Now()
		l.apply(t, "students", students)
		t.Logf("three clusters in %s", time.Since(began).Round(time.Second))
		l.give(t)
		t.Logf("%s\n%s", l.read(t, "class/ada/README.md"), l.read(t, "class/ada/ssh_config"))
	})
	step("second plan is empty", l.NoChanges)
	step("students may do what the teacher chose", l.testAccess)
	step("a student enters workers by SSH, and no other machine", l.testSSH)
	step("a student begins a lesson once more", l.testLesson)
	step("a small cluster shows leader election", l.testElection)
	step("a cluster is made anew", l.testRebuild)
	step("a broken cluster is mended", l.testBroken)
	step("a student whose cluster fails holds up nobody", l.testFailing)
	step("a student is locked out", l.testLockedOut)
	step("a lesson is over, and the next one begins", l.testPaused)
	step("a student's own workspace, with the policy of a member", l.testMember)
	step("the class expires", l.testExpired)
	step("destroy", l.Destroy)
}

// apply sets a variable of the example, and applies.
func (l *class) apply(t *testing.T, name string, value any) string {
	t.Helper()
	l.set(t, name, value)
	out := l.Apply(t, "-parallelism=30")
	l.endpoints = nil
	if err := l.WS.Output(t.Context(), "endpoints", &l.endpoints); err != nil {
		t.Fatal(err)
	}
	return out
}

// set sets a variable of the example; nil means its default.
func (l *class) set(t *testing.T, name string, value any) {
	t.Helper()
	if l.settings[name] = value; value == nil {
		delete(l.settings, name)
	}
	if ami := suite.Image(); ami != "" {
		l.settings["ami"] = ami
	}
	if err := l.WS.WriteFile("class.auto.tfvars.json", string(harness.Must[[]byte](t)(json.Marshal(l.settings)))); err != nil {
		t.Fatal(err)
	}
}

// only fails the test unless a plan changes one student's cluster and nothing else. It returns what changes.
func (l *class) only(t *testing.T, student string) (changed []string) {
	t.Helper()
	changed = l.changed(t)
	for _, at := range changed {
		if !strings.Contains(at, fmt.Sprintf("[%q]", student)) {
			t.Errorf("the plan changes %s, and only %s was meant", at, student)
		}
	}
	return changed
}

// changed returns the addresses of what a plan changes.
func (l *class) changed(t *testing.T) (out []string) {
	t.Helper()
	changes, text, err := l.WS.Plan(t.Context())
	if err != nil || !changes {
		t.Fatalf("changes %t, %v", changes, err)
	}
	for _, at := range regexp.MustCompile(`(?m)^  # (\S+) (?:will|must) be `).FindAllStringSubmatch(text, -1) {
		out = append(out, at[1])
	}
	return out
}

// key makes an SSH key of a student.
func (l *class) key(t *testing.T, student string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", student, "-f", filepath.Join(l.dir, student)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func (l *class) read(t *testing.T, file string) string {
	t.Helper()
	return strings.TrimSpace(string(harness.Must[[]byte](t)(os.ReadFile(filepath.Join(l.dir, file)))))
}

// desk is the directory that a student was given.
func (l *class) desk(student string) string { return filepath.Join(l.dir, "class", student) }

func (l *class) kubeconfig(student string) string {
	return filepath.Join(l.desk(student), "kubeconfig")
}

// give runs the script of the example, which makes what students are given.
func (l *class) give(t *testing.T) {
	t.Helper()
	script := harness.Must[string](t)(l.WS.Run(t.Context(), "output", "-raw", "-no-color", "hand_out"))
	cmd := exec.CommandContext(t.Context(), "sh", "-es")
	cmd.Dir, cmd.Stdin = l.dir, strings.NewReader(script)
	cmd.Env = append(suite.Env(), "PATH="+suite.Bin+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, script)
	}
}

// as runs kubectl as a student.
func (l *class) as(t *testing.T, student string, args ...string) (string, error) {
	t.Helper()
	return suite.Kubectl(t.Context(), l.kubeconfig(student), nil, args...)
}

// may runs kubectl as a student, and fails the test on an error.
func (l *class) may(t *testing.T, student string, args ...string) string {
	t.Helper()
	out, err := l.as(t, student, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ssh runs a command on a machine as a student, with the key and the files that the student was given.
func (l *class) ssh(t *testing.T, student, machine, command string) (string, error) {
	t.Helper()
	return l.sshWith(t, student, student, machine, command)
}

// sshWith is ssh with another key.
func (l *class) sshWith(t *testing.T, key, student, machine, command string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ssh", "-F", "ssh_config", "-i", filepath.Join(l.dir, key), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", machine, command)
	cmd.Dir = l.desk(student)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// working is a student who works: a client that reads and writes all the time. It must never fail.
func (l *class) working(t *testing.T, student string) *harness.Traffic {
	t.Helper()
	configMaps := harness.Client(t, l.kubeconfig(student)).CoreV1().ConfigMaps("default")
	return l.Requests(t, 200*time.Millisecond, func(ctx context.Context, _ int) error {
		_, err := configMaps.List(ctx, metav1.ListOptions{})
		return err
	})
}

func (l *class) testAccess(t *testing.T) {
	for _, student := range slices.Sorted(maps.Keys(l.endpoints)) {
		harness.Says(t, l.may(t, student, "auth", "whoami"), student, "students")
		l.may(t, student, "get", "nodes")
		l.may(t, student, "create", "deployment", "web", "--image=k8s-lab/toolbox:1", "--", "sleep", "3600")
		l.may(t, student, "rollout", "status", "deployment/web", "--timeout=120s")
		for _, forbidden := range [][]string{{"get", "secrets", "--namespace=kube-system"}, {"create", "namespace", "mine"},
			{"create", "clusterrolebinding", "mine", "--clusterrole=cluster-admin", "--user=" + student}, {"delete", "resourcequota", "load-balancers"}} {
			_, err := l.as(t, student, forbidden...)
			harness.Refused(t, err, "orbidden", student)
		}
		_, err := l.as(t, student, "create", "service", "loadbalancer", "costly", "--tcp=80:80")
		harness.Refused(t, err, "exceeded quota: load-balancers", "services.loadbalancers=0")
		_, err = l.as(t, student, "run", "root", "--image=k8s-lab/toolbox:1", `--overrides={"spec": {"volumes": [{"name": "node", "hostPath": {"path": "/"}}]}}`)
		harness.Refused(t, err, "violates PodSecurity", "hostPath")
	}
	// A key of one cluster is nothing in another one.
	_, err := suite.Kubectl(t.Context(), l.stolen(t, l.kubeconfig("ada"), "bob"), nil, "get", "nodes")
	harness.Refused(t, err, "Unauthorized")
}

// stolen copies a kubeconfig for the endpoint of a student, whose certificate is not checked.
func (l *class) stolen(t *testing.T, kubeconfig, student string) string {
	t.Helper()
	text := string(harness.Must[[]byte](t)(os.ReadFile(kubeconfig)))
	text = regexp.MustCompile(`server: \S+`).ReplaceAllString(text, "server: "+l.endpoints[student])
	text = regexp.MustCompile(`certificate-authority-data: \S+`).ReplaceAllString(text, "insecure-skip-tls-verify: true")
	name := filepath.Join(t.TempDir(), "stolen")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func (l *class) testSSH(t *testing.T) {
	out, err := l.ssh(t, "ada", "worker-1", "whoami; sudo whoami; hostname")
	if err != nil || strings.Join(strings.Fields(out), " ") != "student root worker-1" {
		t.Fatalf("%v\n%s", err, out)
	}
	// The key of the student is authorised nowhere else.
	text := l.read(t, "class/ada/ssh_config")
	harness.Says(t, text, "Host worker-0")
	others := []string{l.address(t, "ada"), l.address(t, "bob")} // load balancers
	for _, m := range l.Machines(t) {
		if m.Role != "worker" && m.Role != "lb" {
			others = append(others, m.Host.Address)
		}
	}
	for _, address := range others {
		out, err := exec.CommandContext(t.Context(), "ssh", "-F", "/dev/null", "-i", filepath.Join(l.dir, "ada"), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10",
			"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "student@"+address, "true").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "Permission denied") {
			t.Errorf("%s: %v\n%s", address, err, out)
		}
	}
}

// address returns the address of a student's endpoint.
func (l *class) address(t *testing.T, student string) string {
	t.Helper()
	return harness.Must[*url.URL](t)(url.Parse(l.endpoints[student])).Hostname()
}

// root runs a command as the teacher, who is root on all machines.
func (l *class) root(t *testing.T, student, machine, command string) string {
	t.Helper()
	for _, r := range l.Resources(t) {
		var m harness.Machine
		if r.Type != "k8s_machine" || !strings.Contains(r.Address, fmt.Sprintf("[%q]", student)) {
			continue
		}
		if err := json.Unmarshal(r.Values, &m); err != nil {
			t.Fatal(err)
		}
		if m.Host.Name == machine {
			l.Addresses, l.HostKeys = map[string]string{machine: m.Host.Address}, map[string]string{machine: m.Host.HostKey}
			return l.Sh(t, machine, command)
		}
	}
	t.Fatalf("%s has no %s", student, machine)
	return ""
}

// instances returns the ids of a cluster's instances that are in a state.
func (l *class) instances(t *testing.T, student, state string) (ids []string) {
	t.Helper()
	out := harness.Must[*ec2.DescribeInstancesOutput](t)(l.api.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: []types.Filter{
		{Name: aws.String("tag:k8s-from-scratch/cluster"), Values: []string{student}}, {Name: aws.String("instance-state-name"), Values: []string{state}}}}))
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			ids = append(ids, *i.InstanceId)
		}
	}
	slices.Sort(ids)
	return ids
}

func (l *class) testLockedOut(t *testing.T) {
	if out, err := l.ssh(t, "ada", "worker-1", "mkdir -p -m 700 .ssh; ssh-keygen -q -t ed25519 -N '' -f own; cat own.pub >.ssh/authorized_keys; nohup sleep 3600 >/dev/null 2>&1 &"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	l.set(t, "back_to_lesson", nil) // her snapshot has the rights that she loses
	l.apply(t, "locked_out", []string{"ada"})
	began := time.Now()
	harness.Eventually(t, time.Minute, "Ada's kubeconfig is refused", func() error {
		if _, err := l.as(t, "ada", "get", "pods"); err == nil || !strings.Contains(err.Error(), "Forbidden") {
			return fmt.Errorf("kubectl get pods: %w", err)
		}
		return nil
	})
	t.Logf("refused %s after the apply", time.Since(began).Round(time.Second))
	if out, err := l.ssh(t, "ada", "worker-1", "true"); err == nil || !strings.Contains(out, "Permission denied") && !strings.Contains(out, "Connection closed") {
		t.Errorf("%v\n%s", err, out)
	}
	if left := l.root(t, "ada", "worker-1", "pgrep -u student || :"); left != "" {
		t.Errorf("processes of Ada still run: %s", left)
	}
	l.NoChanges(t)
	l.apply(t, "locked_out", nil)
	if out, err := l.ssh(t, "ada", "worker-1", "true"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	harness.Eventually(t, time.Minute, "Ada works again", func() error {
		_, err := l.as(t, "ada", "get", "pods")
		return err
	})
}

func (l *class) testPaused(t *testing.T) {
	before := maps.Clone(l.endpoints)
	began := time.Now()
	l.apply(t, "paused", []string{"ada", "bob", "cy"})
	t.Logf("paused in %s", time.Since(began).Round(time.Second))
	for student := range l.endpoints {
		if got := l.instances(t, student, "running"); len(got) > 0 {
			t.Errorf("%s: %v run", student, got)
		}
	}
	l.NoChanges(t)
	began = time.Now()
	l.apply(t, "paused", nil)
	t.Logf("resumed in %s", time.Since(began).Round(time.Second))
	l.NoChanges(t)
	for _, student := range []string{"ada", "bob"} {
		if l.endpoints[student] != before[student] {
			t.Errorf("the endpoint of %s was %s, and is %s", student, before[student], l.endpoints[student])
		}
		l.may(t, student, "get", "nodes")
	}
	l.give(t)
	l.may(t, "cy", "get", "nodes")
}

// testExpired gives the class an end that nobody applies.
func (l *class) testExpired(t *testing.T) {
	ends := time.Now().Add(90 * time.Second)
	l.apply(t, "expires_at", ends.UTC().Format(time.RFC3339))
	harness.Eventually(t, time.Until(ends)+3*time.Minute, "every machine powers itself off", func() error {
		for student := range l.endpoints {
			if got := l.instances(t, student, "running"); len(got) > 0 {
				return fmt.Errorf("%s: %v run", student, got)
			}
		}
		return nil
	})
	if time.Now().Before(ends) {
		t.Error("they stopped before the time")
	}
	l.NoChanges(t)
}
