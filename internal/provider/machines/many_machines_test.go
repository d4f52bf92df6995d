package machines_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// machineFleet is a network and machines that Terraform makes and terminates at once.
type machineFleet struct {
	providertest.Cloud
	network  *providertest.Instance
	machines []*providertest.Instance
}

func newMachineFleet(t *testing.T, size int) *machineFleet {
	t.Helper()
	f := &machineFleet{Cloud: providertest.NewCloud(t, account.Large)}
	f.network = f.Instance("k8s_network")
	f.network.Must(providertest.NetworkConfig())
	for range size {
		f.machines = append(f.machines, f.Instance("k8s_machine"))
	}
	return f
}

func (f *machineFleet) config(n int) providertest.Values {
	return providertest.With(providertest.WorkerConfig(f.network), providertest.Values{
		"name": fmt.Sprint("worker-", n), "private_ip": fmt.Sprint("10.240.0.", 20+n), "pod_cidr": fmt.Sprintf("10.200.%d.0/24", n),
	})
}

// each runs f for each machine, all at once, as with a -parallelism of their number. It returns the
// errors by the machine's number.
func (f *machineFleet) each(do func(n int, m *providertest.Instance) providertest.Change) map[int]string {
	failed := map[int]string{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for n, m := range f.machines {
		all.Go(func() {
			if said := do(n, m); len(said.Errors) > 0 {
				mu.Lock()
				defer mu.Unlock()
				failed[n] = said.Failure()
			}
		})
	}
	all.Wait()
	return failed
}

// create makes the machines that have no state.
func (f *machineFleet) create() map[int]string {
	return f.each(func(n int, m *providertest.Instance) providertest.Change {
		if !m.State.IsNull() {
			return providertest.Change{}
		}
		return m.CarryOut(m.Plan(f.config(n)))
	})
}

// TestManyMachines makes, changes and terminates 10 and 100 machines, all at once, in an account
// whose calls are throttled as in AWS. Few calls are refused, and no machine costs more calls because
// there are others. It has the processor for itself: a late answer would make it ask again.
func TestManyMachines(t *testing.T) {
	for _, size := range []int{10, 100} {
		f := newMachineFleet(t, size)
		once := map[string]int{"DescribeImages": 1, "GetParameter": 1}
		each := map[string]int{"RunInstances": 1, "ModifyNetworkInterfaceAttribute": 1, "CreateRoute": 1, "CreateTags": 1,
			"DescribeInstanceAttribute": 1} // of the machines of the test: they read their user data
		f.counts("create", once, each, func() map[int]string { return f.create() })
		if up := len(f.Account.Cloud.Overview().Instances); up != size {
			t.Errorf("%d instances", up)
		}
		f.counts("change", nil, map[string]int{"CreateTags": 1}, func() map[int]string {
			return f.each(func(n int, m *providertest.Instance) providertest.Change {
				return m.CarryOut(m.Plan(providertest.With(f.config(n), providertest.Values{"tags": providertest.Values{"room": "12"}})))
			})
		})
		f.counts("delete", nil, map[string]int{"TerminateInstances": 1, "DeleteRoute": 1}, func() map[int]string {
			return f.each(func(_ int, m *providertest.Instance) providertest.Change { return m.Dismiss() })
		})
		f.Fatal(f.network.Dismiss().Errors)
		f.Account.Empty()
	}
}

// counts checks how many calls do makes once and for each machine, and which are refused. Two
// DescribeInstances for each machine are allowed: launches are half a second apart, and so are
// these calls. Few other calls are made while machines wait, whether they are shared or only about
// those that boot slowly: between two of them, there are ten milliseconds for each machine.
func (f *machineFleet) counts(what string, once, each map[string]int, do func() map[int]string) {
	f.T.Helper()
	f.Account.ForgetCalls()
	began := time.Now()
	if failed := do(); len(failed) > 0 {
		f.T.Fatalf("%s %d machines: %v", what, len(f.machines), failed)
	}
	calls, size := f.Account.Calls(), len(f.machines)
	waited := int(time.Since(began)/(10*time.Millisecond)) / size
	refused := f.Account.Refused()
	throttled := refused["RequestLimitExceeded"] // what this computer has held up arrives at once
	f.T.Logf("figures: %s of %d machines: %v, %d throttled", what, size, calls, throttled)
	if delete(refused, "RequestLimitExceeded"); throttled > 5+size/2 || len(refused) > 0 {
		f.T.Errorf("%s %d machines: %d throttled, refused otherwise: %v", what, size, throttled, refused)
	}
	for action, n := range calls {
		switch action {
		case "DescribeInstances":
			if n > 2*size+20+waited {
				f.T.Errorf("%s %d machines: %d %s", what, size, n, action)
			}
		case "DescribeRouteTables", "DescribeVolumes", "DescribeInstanceStatus":
			if n > 12+size/4+waited {
				f.T.Errorf("%s %d machines: %d %s", what, size, n, action)
			}
		default:
			if want := once[action] + each[action]*size; n < want || n > want+throttled {
				f.T.Errorf("%s %d machines: %d %s, want %d", what, size, n, action, want)
			}
		}
	}
}

// TestCapacityRunsOut has room for 18 of 30 machines. 18 machines are made. The other machines fail
// with an error each and leave nothing, and the next apply makes them.
func TestCapacityRunsOut(t *testing.T) {
	t.Parallel()
	const size, room = 30, 18
	f := newMachineFleet(t, size)
	f.Account.Fault(fault.Fault{Kind: fault.Capacity, Instances: room, InstanceType: "t3.*", Zone: "us-east-1a"})
	f.Account.ForgetCalls()
	failed := f.create()
	if len(failed) != size-room {
		t.Errorf("%d machines failed, want %d", len(failed), size-room)
	}
	for n, said := range failed {
		providertest.Mention(t, said, fmt.Sprintf("Cannot make machine worker-%d: machine worker-%d: launch t3.medium", n, n), "in us-east-1a:", "InsufficientInstanceCapacity",
			"t3.medium is offered in us-east-1a, us-east-1b, us-east-1d, us-east-1e.", "run apply again later", "another instance_type, a subnet in another zone, or fewer machines")
		if !f.machines[n].State.IsNull() {
			t.Errorf("machine %d failed and is in the state", n)
		}
	}
	if o := f.Account.Cloud.Overview(); len(o.Instances) != room || len(o.Volumes) != room || len(o.Addresses) != 0 {
		t.Errorf("there is room for %d: %d instances, %d volumes, %d addresses", room, len(o.Instances), len(o.Volumes), len(o.Addresses))
	}
	if calls := f.Account.Calls(); calls["RunInstances"] < size || calls["RunInstances"] > size+5+f.Account.Refused()["RequestLimitExceeded"] || calls["DescribeInstanceTypeOfferings"] != 1 || calls["DescribeSubnets"] != 1 {
		t.Errorf("a lack of capacity is asked about again and again: %v", calls)
	}

	f.Account.Calm()
	if failed := f.create(); len(failed) > 0 {
		t.Errorf("the next apply: %v", failed)
	}
	for n := range 3 {
		f.machines[n].Refresh()
		f.machines[n].Converged(f.config(n))
	}
	if failed := f.each(func(_ int, m *providertest.Instance) providertest.Change { return m.Dismiss() }); len(failed) > 0 {
		t.Errorf("delete: %v", failed)
	}
	f.Fatal(f.network.Dismiss().Errors)
	f.Account.Empty()
}
