package topologies_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/prometheus/procfs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// sizeThatFits is the size of the clusters of TestClassFits. make soak PART=class sets it.
var sizeThatFits = os.Getenv("K8S_CLASS_FITS")

// TestClassFits lets students join until this computer has no room for more: at rest less than half of its processors is left, or less
// memory than the next ones need. With less, the apply for the next ones takes so much that managers and schedulers lose their leases,
// start again, and take the rest. Nothing else may keep the computer busy.
func TestClassFits(t *testing.T) {
	if sizeThatFits == "" {
		t.Skip("make soak PART=class runs it")
	}
	copyModule(t, suite.Dir, "modules/cluster")
	l := class{Cluster: suite.Cluster(suite.Workspace(t, "classroom-fits", suite.CLI, filepath.Join(suite.Root, "examples", "classroom"))),
		api: ec2.NewFromConfig(suite.AWS()), dir: t.TempDir(), settings: map[string]any{}}
	destroyIfFailed(t, l.WS)
	together := 2 // join at a time
	if sizeThatFits == "one" {
		together = 4
	}
	const (
		most = 48      // for whom the lab has addresses and processors
		own  = 1 << 30 // bytes of memory that a computer needs for itself
	)
	half := float64(runtime.NumCPU()) / 2
	students := map[string]any{}
	now := room{memory: available(t)}
	for {
		for range together {
			students[fmt.Sprintf("s%02d", len(students)+1)] = map[string]any{"size": sizeThatFits}
		}
		began := time.Now()
		l.apply(t, "students", students)
		applied, before := time.Since(began), now
		now = l.rested(t)
		t.Logf("%d clusters of size %s: the last %d applied in %s, %.1f GiB of memory and %.2f processors left, the slowest of %d requests %s", len(students), sizeThatFits, together,
			applied.Round(time.Second), float64(now.memory)/(1<<30), now.processors, len(now.waits), now.waits[len(now.waits)-1].Round(time.Millisecond))
		if now.processors < half || now.memory < own+before.memory-now.memory {
			break
		}
		if len(students) >= most {
			t.Errorf("%d clusters, and there is room for more", len(students))
			break
		}
	}
	t.Logf("figures: %d clusters of size %s, with %.1f GiB of memory and %.2f processors left", len(students), sizeThatFits, float64(now.memory)/(1<<30), now.processors)
	if _, err := l.WS.Destroy(t.Context(), "-parallelism=30"); err != nil {
		t.Fatal(err)
	}
	suite.Empty(t)
}

// room is what a computer has left.
type room struct {
	memory     int64   // bytes
	processors float64 // that had nothing to do
	waits      []time.Duration
}

func files(t *testing.T) procfs.FS {
	t.Helper()
	return harness.Must[procfs.FS](t)(procfs.NewDefaultFS())
}

func available(t *testing.T) int64 {
	t.Helper()
	return int64(*harness.Must[procfs.Meminfo](t)(files(t).Meminfo()).MemAvailable) << 10
}

// idled returns how many seconds processors have had nothing to do.
func idled(t *testing.T) float64 {
	t.Helper()
	return harness.Must[procfs.Stat](t)(files(t).Stat()).CPUTotal.Idle
}

// rested lets the clusters rest, and returns what is left then, and how long students wait for an answer. The plan is empty, and all
// nodes are Ready.
func (l *class) rested(t *testing.T) (left room) {
	t.Helper()
	l.give(t)
	time.Sleep(time.Minute)
	const measured = 30 * time.Second
	before := idled(t)
	time.Sleep(measured)
	left.processors, left.memory = (idled(t)-before)/measured.Seconds(), available(t)
	for student := range l.endpoints {
		api := harness.Client(t, l.kubeconfig(student)).CoreV1()
		for range 5 {
			asked := time.Now()
			nodes, err := api.Nodes().List(t.Context(), metav1.ListOptions{})
			left.waits = append(left.waits, time.Since(asked))
			if err != nil || len(nodes.Items) == 0 {
				t.Errorf("%s: %v, %v", student, nodes, err)
			}
		}
		l.may(t, student, "wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s")
	}
	slices.Sort(left.waits)
	l.NoChanges(t)
	return left
}
