package topologies_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/prometheus/procfs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// sizeThatFits is the size of the clusters of TestClassFits. make soak PART=class sets it.
var sizeThatFits = os.Getenv("K8S_CLASS_FITS")

// TestClassFits lets students join until this computer has no room for more: an apply fails, or memory is short. Nothing else may keep
// the computer busy.
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
		most   = 40      // for whom the lab has addresses and processors
		fewest = 4       // that must fit
		own    = 1 << 30 // bytes of memory that a computer needs for itself
	)
	students := map[string]any{}
	free, fit := *memory(t).MemAvailable*1024, "none"
	for len(students) < most {
		for range together {
			students[fmt.Sprintf("s%02d", len(students)+1)] = map[string]any{"size": sizeThatFits}
		}
		l.set(t, "students", students)
		began := time.Now()
		if out, err := l.WS.Apply(t.Context(), "-parallelism=30"); err != nil {
			_, why, _ := strings.Cut(out+err.Error(), "Error: ")
			t.Logf("%d clusters do not fit: %.2000s", len(students), why)
			break
		}
		before := free
		free, fit = l.rested(t, time.Since(began))
		if t.Logf("%s", fit); free < own+before-free {
			break // the next ones would need more than there is
		}
	}
	if len(l.endpoints) < fewest {
		t.Errorf("%d clusters fit, wanted %d", len(l.endpoints), fewest)
	}
	t.Logf("figures: what fits: %s", fit)
	if _, err := l.WS.Destroy(t.Context(), "-parallelism=30"); err != nil {
		t.Fatal(err)
	}
	suite.Empty(t)
}

func memory(t *testing.T) procfs.Meminfo {
	t.Helper()
	return harness.Must[procfs.Meminfo](t)(harness.Must[procfs.FS](t)(procfs.NewDefaultFS()).Meminfo())
}

// idle returns how many seconds processors have had nothing to do.
func idle(t *testing.T) float64 {
	t.Helper()
	return harness.Must[procfs.Stat](t)(harness.Must[procfs.FS](t)(procfs.NewDefaultFS()).Stat()).CPUTotal.Idle
}

// rested lets the clusters rest. It returns how many bytes of memory are left then, and a line with what else is left and how long a
// student waits.
func (l *class) rested(t *testing.T, applied time.Duration) (free uint64, line string) {
	t.Helper()
	if err := l.WS.Output(t.Context(), "endpoints", &l.endpoints); err != nil {
		t.Fatal(err)
	}
	l.give(t)
	time.Sleep(time.Minute)
	const measured = 30 * time.Second
	before := idle(t)
	time.Sleep(measured)
	spare := (idle(t) - before) / measured.Seconds()
	free = *memory(t).MemAvailable * 1024
	var waits []time.Duration
	for _, student := range slices.Sorted(maps.Keys(l.endpoints)) {
		api := harness.Client(t, l.kubeconfig(student)).CoreV1()
		for range 5 {
			began := time.Now()
			nodes, err := api.Nodes().List(t.Context(), metav1.ListOptions{})
			waits = append(waits, time.Since(began))
			if err != nil || len(nodes.Items) == 0 {
				t.Errorf("%s: %v, %v", student, nodes, err)
			}
		}
		l.may(t, student, "wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s")
	}
	slices.Sort(waits)
	l.NoChanges(t)
	return free, fmt.Sprintf("%d clusters of size %s, the last ones applied in %s, %.1f GiB of memory and %.2f processors left, the slowest of %d requests %s", len(l.endpoints), sizeThatFits,
		applied.Round(time.Second), float64(free)/(1<<30), spare, len(waits), waits[len(waits)-1].Round(time.Millisecond))
}
