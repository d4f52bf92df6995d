package awstest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/ec2/fault"
)

// small is the network and one worker: everything that has an order.
func small(ctx context.Context, c *infraaws.Client, connect infraaws.Connect) (infraaws.Network, infraaws.Machine, error) {
	n, err := c.EnsureNetwork(ctx, networkSpec())
	if err != nil {
		return n, infraaws.Machine{}, err
	}
	m, err := make1(ctx, c, connect, machineSpecs(n)[3])
	return n, m, err
}

// TestKilledAnywhere kills the process at every call it makes, once before the
// call arrives and once after it took effect, and expects the next run to end
// with the same cluster, nothing twice, and a deletion that leaves nothing.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	for _, arrives := range []bool{false, true} {
		for at := 1; ; at++ {
			done := false
			t.Run(fmt.Sprintf("call %d arrives %v", at, arrives), func(t *testing.T) {
				a := newAccount(t)
				ssh := newMachines(t, a.client(&wire{}))
				ctx, cancel := context.WithCancel(deadline(t))
				defer cancel()
				dying := &wire{dieAt: at, arrives: arrives, cancel: cancel}
				_, _, err := small(ctx, a.client(dying), ssh.on(dying))
				done = err == nil && len(dying.calls) < at

				ctx = deadline(t)
				w := &wire{}
				c := a.client(w)
				n, m, err := small(ctx, c, ssh.on(w))
				if err != nil {
					t.Fatalf("after %v: %v", dying.calls, err)
				}
				unchanged(ctx, t, c, networkSpec(), n)
				asWanted(ctx, t, c, m.ID, machineSpecs(n)[3])
				if got := ssh.hostKey(m.ID); got != m.HostKey {
					t.Errorf("uses host key %s, on record is %s", got, m.HostKey)
				}
				o := a.Cloud.Overview()
				if len(o.Instances) != 1 || len(o.Groups) != 3+len(o.VPCs) || len(o.Gateways) != 1 {
					t.Errorf("after dying at %s: %d VPCs, %d instances, %d groups, %d gateways",
						dying.calls[min(at, len(dying.calls))-1], len(o.VPCs), len(o.Instances), len(o.Groups), len(o.Gateways))
				}
				if err := c.DeleteMachine(ctx, m.ID, machineSpecs(n)[3]); err != nil {
					t.Fatal(err)
				}
				if err := c.DeleteNetwork(ctx, networkSpec()); err != nil {
					t.Fatal(err)
				}
				a.Empty()
			})
			if done || t.Failed() {
				t.Logf("%d calls", at-1)
				break
			}
		}
	}
}

// TestKilledWhileDeleting kills every deletion at every call.
func TestKilledWhileDeleting(t *testing.T) {
	t.Parallel()
	for at := 1; ; at++ {
		done := false
		t.Run(fmt.Sprintf("call %d", at), func(t *testing.T) {
			a := newAccount(t)
			w := &wire{}
			c := a.client(w)
			ssh := newMachines(t, c)
			n, m, err := small(deadline(t), c, ssh.on(w))
			if err != nil {
				t.Fatal(err)
			}
			spec := machineSpecs(n)[3]
			remove := func(ctx context.Context, c *infraaws.Client) error {
				if err := c.DeleteMachine(ctx, m.ID, spec); err != nil {
					return err
				}
				known := networkSpec()
				known.Known = n
				return c.DeleteNetwork(ctx, known)
			}
			ctx, cancel := context.WithCancel(deadline(t))
			defer cancel()
			dying := &wire{dieAt: at, arrives: at%2 == 0, cancel: cancel}
			done = remove(ctx, a.client(dying)) == nil
			if err := remove(deadline(t), c); err != nil {
				t.Fatalf("after %v: %v", dying.calls, err)
			}
			a.Empty()
		})
		if done || t.Failed() {
			break
		}
	}
}

// TestLostAnswers loses the answer to every call once, so that the SDK makes
// the call again although it took effect.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for at := 1; ; at++ {
		done := false
		t.Run(fmt.Sprintf("call %d", at), func(t *testing.T) {
			a, ctx := newAccount(t), deadline(t)
			ssh := newMachines(t, a.client(&wire{}))
			w := &wire{loseAt: at}
			c := a.client(w)
			n, m, err := small(ctx, c, ssh.on(w))
			if err != nil {
				t.Fatalf("%v: %v", w.calls, err)
			}
			unchanged(ctx, t, c, networkSpec(), n)
			address, err := c.EnsureAddress(ctx, "", infraaws.AddressSpec{Cluster: "demo", Name: "lb", InstanceID: m.ID})
			if err != nil {
				t.Fatal(err)
			}
			known := networkSpec()
			known.Known = n
			if err := errors.Join(
				c.DeleteAddress(ctx, address.AllocationID),
				c.DeleteMachine(ctx, m.ID, machineSpecs(n)[3]),
				c.DeleteNetwork(ctx, known),
			); err != nil {
				t.Fatalf("%v: %v", w.calls, err)
			}
			a.Empty()
			done = w.loseAt != 0
		})
		if done || t.Failed() {
			break
		}
	}
}

func TestThrottled(t *testing.T) {
	t.Parallel()
	a, ctx, w := newAccount(t), deadline(t), &wire{}
	a.Fault(fault.Fault{Kind: fault.Throttle, Fraction: 0.2})
	c := a.client(w)
	n, m, err := small(ctx, c, newMachines(t, c).on(w))
	if err != nil {
		t.Fatal(err)
	}
	unchanged(ctx, t, c, networkSpec(), n)
	if err := c.DeleteMachine(ctx, m.ID, machineSpecs(n)[3]); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteNetwork(ctx, networkSpec()); err != nil {
		t.Fatal(err)
	}
	a.Calm()
	a.Empty()
}

// TestEventualConsistency hides every new id for a while.
func TestEventualConsistency(t *testing.T) {
	t.Parallel()
	a, ctx, w := newAccount(t), deadline(t), &wire{}
	a.Fault(fault.Fault{Kind: fault.Eventual, Milliseconds: 700})
	c := a.client(w)
	n, m, err := small(ctx, c, newMachines(t, a.client(&wire{})).on(w))
	if err != nil {
		t.Fatal(err)
	}
	// Asked at once, EC2 may not know the machine; it must not count as gone.
	if _, _, err := c.ObserveMachine(ctx, m.ID, machineSpecs(n)[3]); err != nil {
		t.Error(err)
	}
	known := networkSpec()
	known.Known = n
	if _, _, err := c.ObserveNetwork(ctx, known); err != nil {
		t.Error(err)
	}
	if err := c.DeleteMachine(ctx, m.ID, machineSpecs(n)[3]); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteNetwork(ctx, known); err != nil {
		t.Fatal(err)
	}
	a.Calm()
	a.Empty()
}

// TestNoCapacity fails at once and says what to do; the next run goes on.
func TestNoCapacity(t *testing.T) {
	t.Parallel()
	a, ctx, w := newAccount(t), deadline(t), &wire{}
	a.Fault(fault.Fault{Kind: fault.Capacity, Count: 1})
	c := a.client(w)
	ssh := newMachines(t, c)
	started := time.Now()
	_, _, err := small(ctx, c, ssh.on(w))
	if infraaws.ErrorCode(err) != "InsufficientInstanceCapacity" || infraaws.Advice(err) == "" || !strings.Contains(err.Error(), "worker-0") {
		t.Fatalf("got %v", err)
	}
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	if _, _, err := small(ctx, c, ssh.on(w)); err != nil {
		t.Fatal(err)
	}
}

// TestDiesDuringBringUp: an instance that ends while its SSH is waited for is
// reported at once, not at the deadline.
func TestDiesDuringBringUp(t *testing.T) {
	t.Parallel()
	a, ctx, w := newAccount(t), deadline(t), &wire{}
	c := a.client(w)
	n := ensured(ctx, t, c, networkSpec())
	l, err := c.LaunchMachine(ctx, machineSpecs(n)[0], random)
	if err != nil {
		t.Fatal(err)
	}
	never := func(infraaws.Machine, []string) infraaws.Shell { return deaf{} }
	ended := make(chan error, 1)
	go func() {
		_, err := l.Bring(ctx, never)
		ended <- err
	}()
	time.Sleep(300 * time.Millisecond)
	if err := c.DeleteMachine(ctx, l.Machine().ID, machineSpecs(n)[0]); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, infraaws.ErrNotFound) || !strings.Contains(err.Error(), "controller-0") {
			t.Errorf("got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("still waiting")
	}
}
