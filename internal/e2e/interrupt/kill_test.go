package interrupt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// victim is the process that is killed.
type victim string

const (
	provider victim = "provider"
	cli      victim = "CLI" // and after a while also the provider that it leaves behind
)

// operation is the operation during which a process is killed.
type operation string

const (
	create  operation = "create"
	update  operation = "update"
	destroy operation = "destroy"
)

// TestKilled kills the provider or the CLI K8S_INTERRUPT_COUNT times at random moments of create,
// update and destroy.
func TestKilled(t *testing.T) {
	count := int(fromEnvironment(t, "K8S_INTERRUPT_COUNT", 0))
	if count == 0 {
		t.Skip("TestTrouble kills once in each of create, update and destroy; make soak PART=kills-1 kills fifty times")
	}
	k := newKiller(t, "killed")
	// If an operation ends before it could be interrupted, the next one is interrupted earlier.
	for tries := 0; k.kills < count && !t.Failed(); tries++ {
		if tries == 2*count+5 {
			t.Fatalf("only %d of %d operations could be interrupted", k.kills, count)
		}
		op := k.choose(count - k.kills)
		v := k.victim()
		t.Run(fmt.Sprintf("%d %s without %s", k.kills+1, op, v), func(t *testing.T) { k.round(t, op, v) })
	}
	t.Logf("figures: %d kills, made good %d times, the slowest apply in %s", k.kills, k.good, k.slowest.Round(100*time.Millisecond))
	if t.Failed() || !k.exists {
		return
	}
	k.cluster.Destroy(t)
}

type killer struct {
	rng     *rand.Rand
	cluster *cluster
	victims []victim // killed in turn
	exists  bool     // whether there is a cluster
	kills   int
	// good counts the operations after a kill that succeeded; slowest is the longest apply among
	// them.
	good    int
	slowest time.Duration
	// typical is how long an operation takes, as measured so far.
	typical map[operation]time.Duration
}

func newKiller(t *testing.T, name string) *killer {
	t.Helper()
	k := &killer{
		rng: source(t), cluster: newCluster(t, name), victims: []victim{provider, cli},
		typical: map[operation]time.Duration{create: 30 * time.Second, update: 15 * time.Second, destroy: 6 * time.Second},
	}
	k.rng.Shuffle(len(k.victims), func(i, j int) { k.victims[i], k.victims[j] = k.victims[j], k.victims[i] })
	return k
}

// victim returns the process to kill next.
func (k *killer) victim() victim { return k.victims[k.kills%len(k.victims)] }

// choose returns an operation that is possible now. The last one is always a destroy, so that even
// a few kills cover each kind.
func (k *killer) choose(left int) operation {
	switch {
	case !k.exists:
		return create
	case left == 1 || left > 4 && k.rng.IntN(4) == 0:
		return destroy
	default:
		return update
	}
}

// round interrupts one operation and checks that the next apply succeeds.
func (k *killer) round(t *testing.T, op operation, v victim) {
	c := k.cluster
	var before world
	if op == update {
		before = look(t, c, true)
		c.change(t)
	}
	killed := k.interrupt(t, op, v)
	k.restoreState(t)
	// After a destroy comes another destroy or, in longer runs, an apply that creates the cluster
	// again.
	if op == destroy && (k.kills%2 == 0 || !killed) {
		c.Destroy(t)
		k.exists = false
		k.made(killed)
		return
	}
	if op == create {
		before = look(t, c, false)
	}
	k.converge(t, before)
	k.made(killed && !t.Failed())
}

// converge applies, and checks that there is one complete cluster with everything that existed
// before.
func (k *killer) converge(t *testing.T, before world) {
	t.Helper()
	start := time.Now()
	if _, err := k.cluster.WS.Apply(t.Context()); err != nil {
		t.Fatalf("the apply after the interruption: %v", err)
	}
	took := time.Since(start)
	t.Logf("converged in %s", took.Round(100*time.Millisecond))
	k.exists = true
	after := look(t, k.cluster, true)
	after.whole(t)
	after.kept(t, before)
	start = time.Now()
	k.cluster.NoChanges(t)
	k.cluster.quiet = time.Since(start)
	k.slowest = max(k.slowest, took)
}

func (k *killer) made(good bool) {
	if good {
		k.good++
	}
}

// interrupt starts an operation, kills its victim at a random moment, and reports whether the
// operation was still running.
func (k *killer) interrupt(t *testing.T, op operation, v victim) bool {
	t.Helper()
	moment := time.Duration(k.rng.Int64N(int64(k.typical[op])))
	grace := time.Duration(k.rng.Int64N(int64(2 * time.Second)))
	verb := "apply"
	if op == destroy {
		verb = "destroy"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := k.cluster.WS.Command(ctx, verb, "-auto-approve", "-no-color")
	var out bytes.Buffer
	cmd.Stdout = io.MultiWriter(&out, k.cluster.WS.Log)
	cmd.Stderr = cmd.Stdout
	start := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	select {
	case err = <-ended:
		k.typical[op] = time.Since(start) * 9 / 10
		if err != nil {
			t.Fatalf("%s failed before it was interrupted: %v\n%s", op, err, out.String())
		}
		t.Logf("%s ended after %s, before it could be interrupted", op, time.Since(start).Round(100*time.Millisecond))
		return false
	case <-time.After(moment):
	}
	providers := harness.Providers(t, cmd.Process.Pid)
	if v == cli {
		kill(t, cmd.Process.Pid)
		time.Sleep(grace)
	}
	// Between two phases there may briefly be no provider, or one that has finished its work and
	// would have exited anyway; the next one is killed too.
	for deadline := time.Now().Add(2 * time.Minute); len(ended) == 0; time.Sleep(10 * time.Millisecond) {
		for _, pid := range providers {
			kill(t, pid)
		}
		if time.Now().After(deadline) {
			t.Fatalf("terraform %s still runs two minutes after its %s was killed:\n%s", verb, v, out.String())
		}
		if v == provider {
			providers = harness.Providers(t, cmd.Process.Pid)
		}
	}
	err = <-ended
	if err == nil {
		t.Logf("%s ended just as it was interrupted", op)
		return false
	}
	k.kills++
	t.Logf("%s interrupted after %s", op, moment.Round(10*time.Millisecond))
	return true
}

// restoreState restores the backup of the state. A person has to do so if Terraform was killed
// between emptying its local state file and writing it again: a destroy would find nothing to do,
// and an apply would be refused.
func (k *killer) restoreState(t *testing.T) {
	t.Helper()
	state := filepath.Join(k.cluster.WS.Dir, "terraform.tfstate")
	if now, err := os.ReadFile(state); err == nil && len(bytes.TrimSpace(now)) > 0 {
		return
	}
	backup, err := os.ReadFile(state + ".backup")
	if errors.Is(err, os.ErrNotExist) {
		return // of the very first apply: nothing is settled
	}
	if err != nil {
		t.Fatalf("the state file is empty and has no backup: %v", err)
	}
	t.Log("Terraform was killed while it wrote its state: putting the backup back")
	if err := os.WriteFile(state, backup, 0o600); err != nil {
		t.Fatal(err)
	}
}

// kill kills a process. A process that has just exited is no error.
func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatalf("kill %d: %v", pid, err)
	}
}
