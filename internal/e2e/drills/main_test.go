// Package drills_test damages one cluster of examples/ha-cluster in the ways that clusters are damaged,
// while clients write and read through the Elastic IP. A recorder says after each drill how long
// nobody got an answer, whether acknowledged writes are gone, and whether the history is
// linearizable. It takes too long for `make test`: K8S_DRILLS=1 runs it.
package drills_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/recorder"
)

var (
	suite       *harness.Suite
	controllers = harness.Numbered("controller", 3)
)

func TestMain(m *testing.M) {
	if os.Getenv("K8S_DRILLS") == "" {
		fmt.Println("skipped: make soak PART=drills runs the drills")
		os.Exit(0)
	}
	os.Exit(harness.Main(m, func(s *harness.Suite) { suite = s }, releases...))
}

// releases are what the labs serve.
var releases = []string{"--kubernetes", "v" + harness.KubernetesVersion + ",v" + harness.NextKubernetesVersion}

// world is the cluster and its configuration.
type world struct {
	*harness.Cluster
	lab  *harness.Suite
	ec2  *ec2.Client
	vars map[string]any
	// records counts the records, each of which has registers of its own. began is when the last one
	// did.
	records int
	began   time.Time
}

// identity reads the copies of the cluster's keys.
var identity = func() *age.X25519Identity {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		panic(err) // without randomness nothing here works
	}
	return id
}()

const copies = "example-copies"

// newWorld returns the example with snapshots of etcd, copies of its keys, and with a variable for the
// generations of etcd's authority.
func newWorld(t *testing.T, lab *harness.Suite, name string) *world {
	t.Helper()
	example := filepath.Join(lab.Root, "examples", "ha-cluster")
	source, err := os.ReadFile(filepath.Join(example, "main.tf"))
	if err != nil {
		t.Fatal(err)
	}
	const at = "resource \"k8s_pki\" \"this\" {\n"
	if strings.Count(string(source), at) != 1 {
		t.Fatalf("the example has no %q any more", at)
	}
	w := &world{
		Cluster: lab.Cluster(lab.Workspace(t, name, lab.CLI, example)), lab: lab, ec2: ec2.NewFromConfig(lab.AWS()),
		vars: map[string]any{"snapshot_bucket": harness.SnapshotBucket},
	}
	for name, content := range map[string]string{
		"profile_override.tf": harness.ProfileOverride,
		"main.tf":             strings.Replace(string(source), at, at+"  generations = { etcd_ca = var.etcd_ca }\n", 1),
		"drills.tf": fmt.Sprintf("variable \"etcd_ca\" {\n  type    = list(number)\n  default = [1]\n}\n\n"+
			"resource \"k8s_pki_copy\" \"this\" {\n  pki        = k8s_pki.this.ref\n  recipients = [%q]\n  bucket     = %q\n}\n\n"+
			"output \"key_copy\" {\n  value = k8s_pki_copy.this.key\n}\n", identity.Recipient(), copies),
	} {
		if err := w.WS.WriteFile(name, content); err != nil {
			t.Fatal(err)
		}
	}
	lab.KeepSnapshots(t)
	if out, err := lab.Lab(t.Context(), "bucket", copies); err != nil {
		t.Fatalf("k8s-lab bucket: %v\n%s", err, out)
	}
	w.set(t, nil)
	return w
}

// set sets Terraform variables.
func (w *world) set(t *testing.T, vars map[string]any) {
	t.Helper()
	for name, value := range vars {
		w.vars[name] = value
	}
	text, err := json.Marshal(w.vars)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WS.WriteFile("test.auto.tfvars.json", string(text)); err != nil {
		t.Fatal(err)
	}
}

// record runs act under a recorder until the cluster has converged, and logs the figures.
func (w *world) record(t *testing.T, name string, act func(*testing.T)) (result recorder.Result) {
	t.Helper()
	w.Learn(t)
	config, err := clientcmd.BuildConfigFromFlags("", w.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	w.records++
	registers, err := recorder.NewConfigMaps(t.Context(), config, fmt.Sprintf("drill-%d", w.records), recorder.Usual.Registers)
	if err != nil {
		t.Fatal(err)
	}
	w.began = time.Now()
	var (
		ops    []recorder.Op
		record = recorder.Start(t.Context(), registers, recorder.Usual)
	)
	defer func() { // also after t.FailNow
		result, ops = record.End(t.Context(), time.Minute)
		t.Logf("figures: %s: %s", name, result)
		t.Logf("%.0f operations a second for %s", float64(result.Operations)/time.Since(w.began).Seconds(), time.Since(w.began).Round(time.Second))
		for i, reason := range recorder.Reasons(ops) {
			if i < 8 {
				t.Log(reason)
			}
		}
		for _, key := range result.Wrong {
			if result.Undone > 0 {
				break // it went back, which is known
			}
			for _, op := range ops {
				if op.Key == key {
					t.Logf("register %d: %+v", key, op)
				}
			}
		}
	}()
	time.Sleep(quiet)
	act(t)
	w.Apply(t)
	w.NoChanges(t)
	w.healthy(t)
	time.Sleep(quiet)
	return result
}

// quiet is how long a record sees the cluster undisturbed, before and after.
const quiet = 5 * time.Second

// healthy waits until every member of etcd, every API server and every node is well.
func (w *world) healthy(t *testing.T) {
	t.Helper()
	for _, c := range controllers {
		harness.Eventually(t, 2*time.Minute, "health of "+c, func() error {
			out, err := w.lab.TryConsole(t.Context(), c, harness.Etcdctl+"endpoint health && curl -sS --fail --cacert /etc/kubernetes/pki/ca.crt https://127.0.0.1:6443/readyz")
			if err == nil && !strings.HasSuffix(strings.TrimSpace(out), "ok") {
				err = fmt.Errorf("%s: %s", c, out)
			}
			return err
		})
	}
	if members := w.Members(t); len(members) != len(controllers) {
		t.Fatalf("voters of etcd: %v", members)
	}
	harness.Eventually(t, 3*time.Minute, "the nodes", func() error {
		out, err := w.lab.Kubectl(t.Context(), w.Kubeconfig, nil, "get", "nodes", "-o", `jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status} {end}`)
		if err == nil && strings.TrimSpace(out) != "True True" {
			err = fmt.Errorf("ready: %s", out)
		}
		return err
	})
}

// leader returns the controller whose member leads. It asks the others only, if one is named.
func (w *world) leader(t *testing.T, except string) string {
	t.Helper()
	var leader string
	harness.Eventually(t, time.Minute, "a leader of etcd", func() error {
		for _, c := range controllers {
			if c == except {
				continue
			}
			out, err := w.lab.TryConsole(t.Context(), c, harness.Etcdctl+"endpoint status --write-out=json")
			if err != nil {
				return err
			}
			var answer []struct {
				Status struct {
					Header struct {
						Member uint64 `json:"member_id"`
					} `json:"header"`
					Leader uint64 `json:"leader"`
				} `json:"Status"`
			}
			if err := json.Unmarshal([]byte(out), &answer); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			if s := answer[0].Status; s.Leader == s.Header.Member {
				leader = c
				return nil
			}
		}
		return errors.New("nobody leads")
	})
	return leader
}
