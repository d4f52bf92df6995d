package plans

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/bench/hosts"
)

// o is what TestMain has found for the tests.
var o options

func TestMain(m *testing.M) {
	ServeIfPlugin()
	if os.Getuid() != 0 {
		fmt.Println("skipped: needs root for namespaces")
		return
	}
	// This program is the provider of the tests, too, which saves linking another one.
	o = options{Provider: selfProgram, Mirror: os.Getenv("K8S_BENCH_TEST_MIRROR")}
	if err := find(context.Background(), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Args = os.Args[:len(os.Args)-2] // the testing package does not know what find has added
	_ = os.Setenv("K8S_BENCH_TEST_MIRROR", o.Mirror)
	inside, err := hosts.Enter(context.Background(), privateNetwork, publicNetwork)
	if inside {
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestSmallFleet measures three workers without a control plane, as "make bench" measures more.
func TestSmallFleet(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	var printed, log strings.Builder
	small := o
	small.Log = &log
	all, err := measureAll(ctx, t.TempDir(), small, []int{3}, &printed)
	t.Log("\n" + printed.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	if len(all) != 2 {
		t.Fatalf("figures of %d plans", len(all))
	}
	for _, f := range all {
		// The controller and the load balancer are looked at, the workers only in EC2. No machine needs a
		// second connection.
		if f.Machines != 5 || f.Shakes < 2 || f.Shakes > 5 || f.Trips < 2 || f.Trips > 5 || f.EC2 == 0 || f.SSM == 0 || f.Bytes == 0 || f.CPU == 0 || f.Memory == 0 {
			t.Errorf("%+v", f)
		}
		// Without a log level Terraform shows nothing of the provider's log.
		if f.Log > 10_000 {
			t.Errorf("the provider has logged %d bytes that nobody reads", f.Log)
		}
	}
}

// TestSmallClass applies, plans and destroys two clusters in one account at once.
func TestSmallClass(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	var printed, log strings.Builder
	small := o
	small.Log = &log
	all, err := measureClass(ctx, t.TempDir(), small, 2, &printed)
	t.Log("\n" + printed.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	if len(all) != 3 || all[0].Calls["ec2"] < 2*20 || all[0].Calls["ssm"] == 0 || all[1].Calls["ec2"] == 0 {
		t.Errorf("%+v", all)
	}
}

func TestJudge(t *testing.T) {
	at := func(workers int, ec2 int, memory int64) figures {
		return figures{Plan: "empty", Workers: workers, Machines: workers + 2, EC2: ec2, Memory: memory << 20, Wall: time.Second, CPU: 100 * time.Millisecond}
	}
	for _, test := range []struct {
		name string
		all  []figures
		want string // in the error; empty for none
	}{
		{"constant", []figures{at(6, 10, 60), at(50, 10, 60), at(200, 10, 60)}, ""},
		{"linear", []figures{at(6, 10, 10), at(50, 12, 50), at(200, 20, 200)}, ""},
		{"linear calls", []figures{at(6, 10, 60), at(50, 50, 60)}, "EC2 calls, empty plan: 10 with 6 workers and 50 with 50"},
		{"quadratic memory", []figures{at(50, 10, 60), at(200, 10, 960)}, "memory, empty plan"},
		{"small ones may grow as they like", []figures{at(6, 1, 1), at(50, 1, 50)}, ""},
	} {
		err := judge(test.all)
		if test.want == "" && err != nil || !strings.Contains(fmt.Sprint(err), test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestAims(t *testing.T) {
	f := figures{Plan: "empty", Workers: 200, Machines: 202, CPU: 2030 * time.Millisecond, Memory: 250 << 20}
	got := strings.Join(aims([]figures{{Plan: "empty", Workers: 6, Machines: 8}, f}), "\n")
	for _, want := range []string{"missed: 10.0 ms", "reached: 250 MB"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
}

func TestDrifting(t *testing.T) {
	got := drifting(`
  # k8s_worker_pool.this[0] will be updated in-place
  ~ resource "k8s_worker_pool" "this" {
      ~ drift   = {
          - "worker-3" = "file /etc/kubernetes/kubelet.yaml: other content" -> null
          - "worker-1" = <<-EOT
                file /etc/kubernetes/kubelet.yaml: content differs
                  not wanted: x
            EOT -> null
        }
        id      = "bench"
`)
	if strings.Join(got, " ") != "worker-1 worker-3" {
		t.Errorf("%q", got)
	}
}
