package machines_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// TestCreditsTogether: a refresh asks once for the credits of all machines of a cluster.
func TestCreditsTogether(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	var machines []*providertest.Instance
	config := func(n int) providertest.Values {
		return providertest.Values{"name": fmt.Sprintf("worker-%d", n), "role": "worker", "network": network.Get("ref"), "cpu_credits": []any{"standard", "unlimited", nil}[n%3]}
	}
	for n := range 5 {
		machines = append(machines, c.Instance("k8s_machine"))
		machines[n].Must(config(n))
	}
	providertest.RefreshAll(machines) // settles their claims
	c = c.Process(t)
	for n := range machines {
		machines[n] = c.Taken(machines[n])
	}
	providertest.RefreshAll(machines)
	asked := 0
	for _, call := range c.Calls() {
		if call == "DescribeInstanceCreditSpecifications" {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times: %q", asked, c.Calls())
	}
	for n, m := range machines {
		m.Converged(config(n))
	}
}

// TestCPUCredits: a machine has the credit option that is configured, from the launch on, and gets another
// one in place, without a stop. What somebody else chooses is drift.
func TestCPUCredits(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	config := func(option any, more ...providertest.Values) providertest.Values {
		out := providertest.With(providertest.WorkerConfig(network), providertest.Values{"cpu_credits": option})
		for _, m := range more {
			out = providertest.With(out, m)
		}
		return out
	}
	worker.Must(config("standard"))
	worker.Converged(config("standard"))
	c.HasCredits(t, worker, "standard")
	id := worker.Get("id")

	apply := func(config providertest.Values, want string) {
		t.Helper()
		ch, before := worker.Plan(config), len(c.Calls())
		if len(ch.Replace) > 0 {
			t.Fatalf("would replace the machine because of %v", ch.Replace)
		}
		c.Fatal(worker.Apply(ch))
		worker.Converged(config)
		c.HasCredits(t, worker, want)
		if worker.Get("id") != id {
			t.Fatal("the machine was replaced")
		}
		if calls := c.Calls()[before:]; config["instance_type"] == nil && slices.Contains(calls, "StopInstances") {
			t.Errorf("it was stopped: %q", calls)
		}
	}
	apply(config("unlimited"), "unlimited")
	apply(config("standard"), "standard")
	apply(config(nil), "standard")

	before := len(c.Calls())
	worker.Refresh()
	if calls := c.Calls()[before:]; slices.Contains(calls, "DescribeInstanceCreditSpecifications") {
		t.Errorf("a refresh asks for credits that nobody has configured: %q", calls)
	}
	apply(config("standard"), "standard")

	providertest.Answer[*ec2.ModifyInstanceCreditSpecificationOutput](t)(c.Client.EC2.ModifyInstanceCreditSpecification(t.Context(), &ec2.ModifyInstanceCreditSpecificationInput{
		InstanceCreditSpecifications: []types.InstanceCreditSpecificationRequest{{InstanceId: sdk.String(id.(string)), CpuCredits: sdk.String("unlimited")}}}))
	worker.Refresh()
	if ch := worker.Plan(config("standard")); !strings.Contains(worker.Differences(ch), "CPU credits: found unlimited, wanted standard") {
		t.Errorf("another option is no drift:\n%s", worker.Differences(ch))
	}
	apply(config("standard"), "standard")

	off := func(option string) providertest.Values {
		return providertest.With(config(option), providertest.Values{"power_state": reference.Stopped})
	}
	worker.Must(off("standard"))
	worker.Must(off("unlimited"))
	worker.Converged(off("unlimited"))
	c.HasCredits(t, worker, "unlimited")
	worker.Must(config("standard"))
	c.HasCredits(t, worker, "standard")

	imported := c.Instance("k8s_machine")
	imported.Imports(id.(string))
	imported.Must(config("standard"))
	imported.Converged(config("standard"))

	// A type without credits, and from there one with them.
	m5, t3 := providertest.Values{"instance_type": "m5.large"}, providertest.Values{"instance_type": "t3a.medium"}
	c.Fatal(worker.Apply(worker.Plan(config(nil, m5))))
	worker.Converged(config(nil, m5))
	if ch := worker.Plan(config("standard", m5)); !strings.Contains(ch.Failure(), "m5.large is no burstable instance type") || !at(ch, "cpu_credits") {
		t.Errorf("m5.large with credits: %q", ch.Failure())
	}
	apply(config("unlimited", t3), "unlimited")

	if ch := worker.Plan(config("many")); !strings.Contains(ch.Failure(), "one of") || !at(ch, "cpu_credits") {
		t.Errorf("an unknown option: %q", ch.Failure())
	}
	c.Fatal(worker.Apply(worker.Plan(nil)))
	c.Fatal(network.Apply(network.Plan(nil)))
	c.Account.Empty()
}
