// Package exercises_test runs the pages of examples/labs, as a learner does who types every command, and compares what
// is printed with the pages. All pages use one cluster.
package exercises_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/exercise"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/exercise/session"
)

var suite *harness.Suite

// measured are the lines in which pages print how long something took.
var measured = regexp.MustCompile(`(?m)^.* after \d+ s$`)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, func(s *harness.Suite) { suite = s })) }

// pages returns the pages in the order of the index. Every page is in the index.
func pages(t *testing.T, dir string) (list []exercise.Page, names []string) {
	t.Helper()
	read := harness.Must[[]byte](t)
	names = exercise.Index(string(read(os.ReadFile(filepath.Join(dir, "README.md")))))
	files := harness.Must[[]string](t)(filepath.Glob(filepath.Join(dir, "*.md")))
	for _, f := range files {
		if name := filepath.Base(f); name != "README.md" && !slices.Contains(names, name) {
			t.Errorf("%s is not in the table of README.md", name)
		}
	}
	for _, name := range names {
		text := read(os.ReadFile(filepath.Join(dir, name)))
		list = append(list, harness.Must[exercise.Page](t)(exercise.Parse("examples/labs/"+name, string(text))))
	}
	return list, names
}

func TestExercises(t *testing.T) {
	labs := filepath.Join(suite.Root, "examples", "labs")
	list, names := pages(t, labs)
	c := suite.Cluster(suite.Workspace(t, "exercises", suite.CLI, filepath.Join(suite.Root, "examples", "ha-cluster")))
	here := t.TempDir() // where the learner types
	for file, to := range map[string]string{"labs.tf": c.WS.Dir, "labs_override.tf": c.WS.Dir, "labs.sh": here, "break.sh": here} {
		if err := os.WriteFile(filepath.Join(to, file), harness.Must[[]byte](t)(os.ReadFile(filepath.Join(labs, file))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.Apply(t)
	c.Learn(t)
	before := objects(t, c)
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + here, "IMAGE=k8s-lab/toolbox:1", "TF_CLI_ARGS_plan=-no-color", "TF_CLI_ARGS_apply=-no-color",
		"BASH_ENV=" + shell(t, c, here)}
	step := harness.Steps(t)
	var took []string
	for i, page := range list {
		step(strings.TrimSuffix(names[i], ".md"), func(t *testing.T) {
			began := time.Now()
			err := session.Play(t.Context(), page, here, env, harness.WithLong(), func(b exercise.Block, lasted time.Duration, printed string, err error) error {
				took = append(took, measured.FindAllString(printed, -1)...)
				t.Logf("%6.2f s  %s:%d %s\n%s", lasted.Seconds(), b.File, b.Line, b.Section, printed)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("the page took %.1f s", time.Since(began).Seconds())
		})
	}
	step("nothing is left", func(t *testing.T) {
		harness.Eventually(t, time.Minute, "the objects of the exercises are deleted", func() error {
			if now := objects(t, c); now != before {
				return fmt.Errorf("there are\n%s\nthere were\n%s", now, before)
			}
			return nil
		})
		c.NoChanges(t)
	})
	t.Logf("figures: %s", strings.Join(took, "; "))
}

// objects returns the names of all objects that a page might leave, and the labels and taints of the nodes.
func objects(t *testing.T, c *harness.Cluster) string {
	t.Helper()
	return c.Kubectl(t, "get", "--namespace=default", "--output=name", strings.Join([]string{"namespaces", "pods", "deployments", "replicasets", "services",
		"jobs", "cronjobs", "horizontalpodautoscalers", "apiservices", "configmaps", "secrets", "serviceaccounts", "roles", "rolebindings", "clusterroles", "clusterrolebindings", "priorityclasses", "persistentvolumes", "persistentvolumeclaims", "certificatesigningrequests",
		"mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"}, ",")) +
		c.Kubectl(t, "get", "nodes", "--output=jsonpath={range .items[*]}{.metadata.labels} {.spec.taints} {.spec.unschedulable}{\"\\n\"}{end}")
}

// shell writes what a learner's shell has read: the environment of the cluster, and the functions of the exercises.
func shell(t *testing.T, c *harness.Cluster, here string) string {
	t.Helper()
	c.LayOut(t, filepath.Join(here, ".demo"))
	file := filepath.Join(here, "shell")
	if err := os.WriteFile(file, []byte(". .demo/env\n. ./labs.sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
