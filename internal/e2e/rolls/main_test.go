// Package rolls_test changes the configuration of one running cluster of examples/ha-cluster, with
// real Terraform, while clients use it: etcd's release, audit policy, admission, arguments and
// settings of every component, containerd on two nodes at a time, and the keys that encrypt
// secrets. It checks which units restart, in which order, and the state after a roll that fails
// half way. Package lifecycle_test covers upgrades of Kubernetes, package instances_test replaced
// machines.
package rolls_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// The etcd releases of the upgrade. K8S_ETCD_UPGRADE sets other ones: "3.6.16,3.7.3".
var etcdBefore, etcdAfter, _ = strings.Cut(cmp.Or(os.Getenv("K8S_ETCD_UPGRADE"), "3.6.15,3.6.16"), ",")

const (
	containerdBefore = "2.2.0"
	containerdAfter  = "2.3.7"
)

var (
	suite       *harness.Suite
	controllers = harness.Numbered("controller", 3)
	workers     = harness.Numbered("worker", 3)
	machines    = slices.Concat(controllers, workers, []string{"lb-0"})
)

// kubernetesVersion is the Kubernetes release of the installation.
var kubernetesVersion = cmp.Or(os.Getenv("K8S_E2E_KUBERNETES"), harness.KubernetesVersion)

func TestMain(m *testing.M) {
	if etcdAfter == "" {
		fmt.Fprintf(os.Stderr, "K8S_ETCD_UPGRADE=%s must be two releases with a comma between them\n", etcdBefore)
		os.Exit(2)
	}
	os.Exit(harness.Main(m, func(s *harness.Suite) { suite = s }, "--kubernetes", "v"+kubernetesVersion+",v"+harness.KubernetesVersion, "--etcd", "v"+etcdAfter+",v"+etcdBefore, "--containerd", "v"+containerdAfter+",v"+containerdBefore))
}

// world is the cluster under test and its configuration.
type world struct {
	*harness.Cluster
	main string // the example's main.tf
	vars map[string]any
	// arguments are added to the example's resources, or replace theirs: resource type to argument
	// to expression.
	arguments  map[string]arguments
	containerd string // release
}

type arguments map[string]string

// TestRolls tests one cluster. Its steps depend on one another.
func TestRolls(t *testing.T) {
	example := filepath.Join(suite.Root, "examples", "ha-cluster")
	source, err := os.ReadFile(filepath.Join(example, "main.tf"))
	if err != nil {
		t.Fatal(err)
	}
	ws := suite.Workspace(t, "rolls", suite.CLI, example)
	suite.Restrict(t, ws)
	w := &world{
		Cluster: suite.Cluster(ws), main: string(source),
		vars:       map[string]any{"workers": len(workers), "etcd_version": etcdBefore, "kubernetes_version": kubernetesVersion},
		containerd: containerdBefore,
	}
	w.plain()
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"install", w.testInstall},
		{"refused by the plan", w.testRefused},
		{"etcd: hand-overs", w.testHandOvers},
		{"etcd: orphaned hold", w.testOrphanedHold},
		{"etcd: no room on the last machine", w.testNoRoom},
		{"etcd: refused by the next release", w.testRefusedByNext},
		{"etcd: upgrade", w.testEtcdUpgrade},
		{"etcd: stalls", w.testStall},
		{"audit policy: fails on the second machine", w.testFailsOnSecond},
		{"audit policy: resumed", w.testResumed},
		{"load balancer that would lose its servers", w.testUnbalanced},
		{"settings", w.testSettings},
		{"sign-in", w.testSignIn},
		{"access", w.testAccess},
		{"files", w.testFiles},
		{"registries", w.testRegistries},
		{"unknown flag", w.testUnknownFlag},
		{"refused values", w.testRefusedValues},
		{"sandbox image that does not exist", w.testNoSandbox},
		{"drain that cannot end", w.testDrainBounded},
		{"two nodes at a time", w.testTwoAtATime},
		{"encryption: a second key", w.testSecondKey},
		{"encryption: the second writes", w.testSecondWrites},
		{"encryption: the first is dropped", w.testFirstDropped},
		{"reboots", w.testReboots},
		{"destroy", func(t *testing.T) {
			suite.PermitDestroy(t)
			if _, err := w.WS.Destroy(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		if !t.Run(step.name, step.run) {
			w.Stop(t)
		}
	}
}

// write writes the present configuration to the working directory.
func (w *world) write(t *testing.T) {
	t.Helper()
	vars, err := json.Marshal(w.vars)
	if err != nil {
		t.Fatal(err)
	}
	main := w.main
	for resource, args := range w.arguments {
		header := "resource \"" + resource + "\" \"this\" {\n"
		before, rest, found := strings.Cut(main, header)
		block, after, closed := strings.Cut(rest, "\n}\n")
		if !found || !closed {
			t.Fatalf("the example has no %q any more", header)
		}
		for _, name := range slices.Sorted(maps.Keys(args)) {
			line := "  " + name + " = " + args[name]
			given := regexp.MustCompile(`(?m)^  ` + name + ` += .*$`)
			if given.MatchString(block) {
				block = given.ReplaceAllLiteralString(block, line)
			} else {
				block += "\n" + line
			}
		}
		main = before + header + block + "\n}\n" + after
	}
	for name, content := range map[string]string{"test.auto.tfvars.json": string(vars), "main.tf": main} {
		if err := w.WS.WriteFile(name, content); err != nil {
			t.Fatal(err)
		}
	}
}

// plain removes all arguments except the release of containerd.
func (w *world) plain() {
	w.arguments = map[string]arguments{"k8s_pki": {}, "k8s_etcd_cluster": {}, "k8s_control_plane": {},
		"k8s_worker_pool": {"containerd_version": strconv.Quote(w.containerd)}}
}

func (w *world) apply(t *testing.T) {
	t.Helper()
	w.write(t)
	if _, err := w.WS.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// wantRestarted checks that exactly these units were restarted since.
func wantRestarted(t *testing.T, before map[string]harness.Unit, want ...string) map[string]harness.Unit {
	t.Helper()
	return suite.OnlyRestarted(t, before, machines, want...)
}

// plannedFiles returns, by resource, the entries of the files attributes that a plan changes.
func (w *world) plannedFiles(t *testing.T) map[string][]string {
	t.Helper()
	w.write(t)
	if _, _, err := w.WS.Plan(t.Context(), "-out=rolls.tfplan"); err != nil {
		t.Fatal(err)
	}
	text, err := w.WS.Run(t.Context(), "show", "-json", "rolls.tfplan")
	if err != nil {
		t.Fatal(err)
	}
	type values struct {
		Files map[string][]string `json:"files"`
	}
	var plan struct {
		Changes []struct {
			Address string `json:"address"`
			Change  struct {
				Before values `json:"before"`
				After  values `json:"after"`
			} `json:"change"`
		} `json:"resource_changes"`
	}
	if err := json.Unmarshal([]byte(text), &plan); err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, c := range plan.Changes {
		before, after := c.Change.Before.Files, c.Change.After.Files
		for _, file := range slices.Sorted(maps.Keys(after)) {
			if !slices.Equal(before[file], after[file]) {
				out[c.Address] = append(out[c.Address], file)
			}
		}
	}
	return out
}
