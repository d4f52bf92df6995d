package awstest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsaddress "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/address"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
)

// small creates the network and one worker, which covers every step that depends on another.
func small(ctx context.Context, c *infraaws.Client, connect machine.Connect) (network.Network, machine.Machine, error) {
	n, err := network.Ensure(ctx, c, networkSpec())
	if err != nil {
		return n, machine.Machine{}, err
	}
	m, err := make1(ctx, c, connect, machineSpecs(n)[3])
	return n, m, err
}

// whole creates the small cluster and an address, and deletes everything again. It returns the
// number of calls for the creation.
func whole(ctx context.Context, c *infraaws.Client, w *wire, connect func(*wire) machine.Connect) (int, error) {
	n, m, err := small(ctx, c, connect(w))
	if err != nil {
		return w.count(), err
	}
	address, err := awsaddress.Ensure(ctx, c, "", awsaddress.Spec{Cluster: "demo", Name: "lb", InstanceID: m.ID})
	if err != nil {
		return w.count(), err
	}
	made := w.count()
	known := networkSpec()
	known.Known = n
	for _, err := range []error{
		awsaddress.Delete(ctx, c, address.AllocationID, infraaws.Claim{}),
		machine.Delete(ctx, c, m.ID, machineSpecs(n)[3]),
		network.Delete(ctx, c, known),
	} {
		if err != nil {
			return made, err
		}
	}
	return made, nil
}

// undisturbed returns the number of calls of a creation, and of a creation with deletion.
func undisturbed(t *testing.T) (made, all int) {
	t.Helper()
	a, w := newAccount(t), &wire{}
	made, err := whole(deadline(t), a.client(w), w, a.newMachines(t, a.client(&wire{})).on)
	if err != nil {
		t.Fatal(err)
	}
	a.Empty()
	return made, w.count()
}

// TestKilledAnywhere kills the process at every call of a creation, once before the call arrives
// and once after it took effect. The next run must end with the same cluster, without duplicates,
// and the deletion must leave nothing.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	made, _ := undisturbed(t)
	for at := range made {
		for _, arrives := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d arrives %v", at+1, arrives), func(t *testing.T) {
				t.Parallel()
				a := newAccount(t)
				ssh := a.newMachines(t, a.client(&wire{}))
				ctx, cancel := context.WithCancel(deadline(t))
				defer cancel()
				dying := &wire{dieAt: at + 1, arrives: arrives, cancel: cancel}
				_, _ = whole(ctx, a.client(dying), dying, ssh.on)
				if dying.count() <= at {
					t.Fatalf("it made only %d calls", dying.count())
				}

				ctx = deadline(t)
				w := &wire{}
				c := a.client(w)
				n, m, err := small(ctx, c, ssh.on(w))
				if err != nil {
					t.Fatalf("after %v: %v", dying.calls, err)
				}
				address, err := awsaddress.Ensure(ctx, c, "", awsaddress.Spec{Cluster: "demo", Name: "lb", InstanceID: m.ID})
				if err != nil {
					t.Fatalf("after %v: %v", dying.calls, err)
				}
				unchanged(ctx, t, c, networkSpec(), n)
				asWanted(ctx, t, c, m.ID, machineSpecs(n)[3])
				if got := ssh.HostKey(m.ID); got != m.HostKey {
					t.Errorf("uses host key %s, on record is %s", got, m.HostKey)
				}
				o := a.Cloud.Overview()
				if len(o.Instances) != 1 || len(o.VPCs) != 1 || len(o.Gateways) != 1 || len(o.Addresses) != 1 {
					t.Errorf("after dying at %s: %d VPCs, %d instances, %d gateways, %d addresses",
						dying.calls[at], len(o.VPCs), len(o.Instances), len(o.Gateways), len(o.Addresses))
				}
				known := networkSpec()
				known.Known = n
				if err := errors.Join(
					awsaddress.Delete(ctx, c, address.AllocationID, infraaws.Claim{}),
					machine.Delete(ctx, c, m.ID, machineSpecs(n)[3]),
					network.Delete(ctx, c, known),
				); err != nil {
					t.Fatal(err)
				}
				a.Empty()
			})
		}
	}
}

// TestKilledWhileDeleting kills a deletion at every call and repeats it.
func TestKilledWhileDeleting(t *testing.T) {
	t.Parallel()
	made, all := undisturbed(t)
	for at := range all - made {
		t.Run(fmt.Sprintf("call %d", at+1), func(t *testing.T) {
			t.Parallel()
			a := newAccount(t)
			ssh := a.newMachines(t, a.client(&wire{}))
			w := &wire{}
			c := a.client(w)
			n, m, err := small(deadline(t), c, ssh.on(w))
			if err != nil {
				t.Fatal(err)
			}
			spec := machineSpecs(n)[3]
			remove := func(ctx context.Context, c *infraaws.Client) error {
				if err := machine.Delete(ctx, c, m.ID, spec); err != nil {
					return err
				}
				known := networkSpec()
				known.Known = n
				return network.Delete(ctx, c, known)
			}
			ctx, cancel := context.WithCancel(deadline(t))
			defer cancel()
			dying := &wire{dieAt: at + 1, arrives: at%2 == 0, cancel: cancel}
			_ = remove(ctx, a.client(dying))
			if err := remove(deadline(t), c); err != nil {
				t.Fatalf("after %v: %v", dying.calls, err)
			}
			a.Empty()
		})
	}
}

// TestLostAnswers loses the answer to every call once, so that the SDK repeats a call that took
// effect.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	_, all := undisturbed(t)
	for at := range all {
		t.Run(fmt.Sprintf("call %d", at+1), func(t *testing.T) {
			t.Parallel()
			a := newAccount(t)
			w := &wire{loseAt: at + 1}
			if _, err := whole(deadline(t), a.client(w), w, a.newMachines(t, a.client(&wire{})).on); err != nil {
				t.Fatalf("the answer to %s was lost: %v", w.calls[at], err)
			}
			a.Empty()
		})
	}
}

func TestThrottled(t *testing.T) {
	t.Parallel()
	a, ctx, w := newAccount(t), deadline(t), &wire{}
	a.Fault(fault.Fault{Kind: fault.Throttle, Fraction: 0.2})
	c := a.client(w)
	n, m, err := small(ctx, c, a.newMachines(t, c).on(w))
	if err != nil {
		t.Fatal(err)
	}
	unchanged(ctx, t, c, networkSpec(), n)
	if err := machine.Delete(ctx, c, m.ID, machineSpecs(n)[3]); err != nil {
		t.Fatal(err)
	}
	if err := network.Delete(ctx, c, networkSpec()); err != nil {
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
	n, m, err := small(ctx, c, a.newMachines(t, a.client(&wire{})).on(w))
	if err != nil {
		t.Fatal(err)
	}
	// Right after its creation EC2 may not know the machine; it must not count as deleted.
	if _, _, err := machine.Observe(ctx, c, m.ID, machineSpecs(n)[3]); err != nil {
		t.Error(err)
	}
	known := networkSpec()
	known.Known = n
	if _, _, err := network.Observe(ctx, c, known); err != nil {
		t.Error(err)
	}
	if err := machine.Delete(ctx, c, m.ID, machineSpecs(n)[3]); err != nil {
		t.Fatal(err)
	}
	if err := network.Delete(ctx, c, known); err != nil {
		t.Fatal(err)
	}
	a.Calm()
	a.Empty()
}

// TestShortPages makes and deletes the small cluster while every answer ends after one item.
func TestShortPages(t *testing.T) {
	t.Parallel()
	a, w := newAccount(t), &wire{}
	a.Fault(fault.Fault{Kind: fault.ShortPages, Items: 1})
	if _, err := whole(deadline(t), a.client(w), w, a.newMachines(t, a.client(&wire{})).on); err != nil {
		t.Fatal(err)
	}
	a.Empty()
}

// TestNoCapacity checks that missing capacity is an immediate error with advice, and that the next
// run continues.
func TestNoCapacity(t *testing.T) {
	t.Parallel()
	a, ctx, w := newAccount(t), deadline(t), &wire{}
	a.Fault(fault.Fault{Kind: fault.Capacity, Count: 1})
	c := a.client(w)
	ssh := a.newMachines(t, c)
	_, _, err := small(ctx, c, ssh.on(w))
	if infraaws.ErrorCode(err) != "InsufficientInstanceCapacity" || infraaws.Advice(err) == "" || !strings.Contains(err.Error(), "worker-0") {
		t.Fatalf("got %v", err)
	}
	if n := counts(w.calls)["RunInstances"]; n != 1 {
		t.Errorf("it was tried %d times", n)
	}
	if _, _, err := small(ctx, c, ssh.on(w)); err != nil {
		t.Fatal(err)
	}
}

// TestDiesDuringBringUp checks that an instance that is terminated while its SSH is awaited is
// reported at once, not at the deadline.
func TestDiesDuringBringUp(t *testing.T) {
	t.Parallel()
	a, ctx, w := newAccount(t), deadline(t), &wire{}
	c := a.client(w)
	n := ensured(ctx, t, c, networkSpec())
	l, err := machine.Launch(ctx, c, machineSpecs(n)[0], random)
	if err != nil {
		t.Fatal(err)
	}
	id := l.Machine().ID
	never := func(machine.Machine, []string) machine.Shell { return deaf{} }
	ended := make(chan error, 1)
	go func() {
		_, err := l.Bring(ctx, never)
		ended <- err
	}()
	time.Sleep(300 * time.Millisecond)
	if err := machine.Delete(ctx, c, id, machineSpecs(n)[0]); err != nil {
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
