package expired_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// paused is what must be the same after a pause.
type paused struct {
	endpoint string
	members  map[string]string // of etcd
	nodes    string            // with their uids
	hostKeys map[string]string
	private  map[string]string // private addresses
}

// identity returns what a pause keeps.
func (w *world) identity(t *testing.T) paused {
	t.Helper()
	p := paused{endpoint: w.Endpoint, members: w.Members(t), hostKeys: maps.Clone(w.HostKeys), private: map[string]string{}}
	p.nodes = w.Kubectl(t, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.metadata.uid}{"\n"}{end}`)
	for _, r := range w.Resources(t) {
		var m struct {
			Name      string `json:"name"`
			PrivateIP string `json:"private_ip"`
		}
		if r.Type == "k8s_machine" && json.Unmarshal(r.Values, &m) == nil {
			p.private[m.Name] = m.PrivateIP
		}
	}
	return p
}

// instances returns the states of the account's instances, by name.
func instances(t *testing.T) map[string]string {
	t.Helper()
	out, err := ec2.NewFromConfig(suite.AWS()).DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			for _, tag := range i.Tags {
				if *tag.Key == "k8s-from-scratch/name" {
					found[*tag.Value] = string(i.State.Name)
				}
			}
		}
	}
	return found
}

// testPaused pauses the cluster; with K8S_POWER it gives it certificates before that end soon. Half a
// quorum is refused in the plan. The plan of the paused cluster is empty and quick; a change of a role
// is refused.
func (w *world) testPaused(t *testing.T) {
	w.LearnMachines(t)
	w.before = w.identity(t)
	leader := w.leader(t)

	half := "resource \"k8s_machine\" \"controller\" {\n  power_state = count.index == 0 ? \"running\" : \"stopped\"\n}\n"
	if err := w.WS.WriteFile("half_override.tf", half); err != nil {
		t.Fatal(err)
	}
	_, text, err := w.WS.Plan(t.Context())
	if err == nil || !strings.Contains(text+err.Error(), "The cluster cannot do without these machines") {
		t.Errorf("two of three controllers: %v\n%s", err, text)
	}
	if err := w.WS.WriteFile("half_override.tf", ""); err != nil {
		t.Fatal(err)
	}

	if power {
		w.certificatesEndSoon(t)
	}
	start := time.Now()
	w.Apply(t, "-var=paused=true")
	t.Logf("the pause took %s", time.Since(start).Round(100*time.Millisecond))
	for name, state := range instances(t) {
		if state != "stopped" {
			t.Errorf("%s is %s", name, state)
		}
	}
	if order := suite.Order(t, "pause: stopping etcd.service"); len(order) != 3 || order[2] != leader {
		t.Errorf("members stopped in the order %s; the leader was %s", order, leader)
	}

	w.right()
	start = time.Now()
	changes, text, err := w.WS.Plan(t.Context(), "-var=paused=true")
	if err != nil || changes || strings.Contains(text, "Warning") {
		t.Errorf("the plan of the paused cluster: changes %t, %v\n%s", changes, err, text)
	}
	t.Logf("the plan of the paused cluster took %s", time.Since(start).Round(100*time.Millisecond))
	_, text, err = w.WS.Plan(t.Context(), "-var=paused=true", "-var=kubernetes_version=1.37.1")
	if err == nil || !strings.Contains(text+err.Error(), "The machines are stopped") {
		t.Errorf("an upgrade of the paused cluster: %v\n%s", err, text)
	}
}

// certificatesEndSoon gives the cluster certificates that outlast a pause, but not by much.
func (w *world) certificatesEndSoon(t *testing.T) {
	t.Helper()
	start := time.Now()
	w.drift0(t)
	life := 4*time.Since(start) + 90*time.Second
	w.ends = time.Now().Add(life)
	w.endingIn(life)
	w.Apply(t)
	if left := time.Until(w.ends); left < 0 {
		t.Fatalf("the certificates ended %s before the pause", -left)
	}
}

// leader returns the controller whose member of etcd leads.
func (w *world) leader(t *testing.T) string {
	t.Helper()
	for _, m := range controllers {
		if strings.Contains(suite.Console(t, m, harness.Etcdctl+"endpoint status"), ", true, false,") {
			return m
		}
	}
	t.Fatal("no member leads")
	return ""
}

// testResumed resumes the cluster: it is the same one. If its certificates have ended meanwhile, it has
// other ones.
func (w *world) testResumed(t *testing.T) {
	if left := time.Until(w.ends); left > 0 {
		t.Logf("the certificates end in %s", left.Round(time.Second))
		time.Sleep(left)
	}
	w.right()
	start := time.Now()
	w.Apply(t)
	t.Logf("the resume took %s", time.Since(start).Round(100*time.Millisecond))
	w.LearnMachines(t)
	if after := w.identity(t); !reflect.DeepEqual(after, w.before) {
		t.Errorf("it was %+v, it is %+v", w.before, after)
	}
	for name, state := range instances(t) {
		if state != "running" {
			t.Errorf("%s is %s", name, state)
		}
	}
	if out := w.Kubectl(t, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status} {.spec.unschedulable}{"\n"}{end}`); out != "worker-0 True \n" {
		t.Errorf("nodes: %s", out)
	}
	if out := w.Kubectl(t, "get", "configmap/kept", "secret/kept", "-o", "jsonpath={.items[*].data}"); out != `{"a":"b"} {"c":"ZA=="}` {
		t.Errorf("the data is %s", out)
	}
	w.Kubectl(t, "rollout", "status", "--namespace=kube-system", "deployment/coredns", "--timeout=90s")
	for _, m := range slices.Sorted(slices.Values(withLeaves)) {
		if out := suite.Console(t, m, `for f in /etc/kubernetes/pki/*.crt /etc/etcd/pki/*.crt; do
			case $f in *ca.crt | */ca-* | *'*'*) continue ;; esac; openssl x509 -noout -checkend 86400 -in $f >/dev/null || echo $f; done; true`); out != "" {
			t.Errorf("certificates of %s that end within a day: %q", m, out)
		}
	}
	w.NoChanges(t)
}
