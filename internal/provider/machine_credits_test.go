package provider

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// hasCredits fails the test unless the machine has the credit option.
func (c cloud) hasCredits(t *testing.T, machine *instance, want string) {
	t.Helper()
	out := answer[*ec2.DescribeInstanceCreditSpecificationsOutput](t)(c.client.EC2.DescribeInstanceCreditSpecifications(t.Context(),
		&ec2.DescribeInstanceCreditSpecificationsInput{InstanceIds: []string{machine.get("id").(string)}}))
	if got := sdk.ToString(out.InstanceCreditSpecifications[0].CpuCredits); got != want {
		t.Errorf("the machine has the credit option %s, want %s", got, want)
	}
}

// TestCreditsTogether: a refresh asks once for the credits of all machines of a cluster.
func TestCreditsTogether(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network := c.instance("k8s_network")
	network.must(networkConfig())
	var machines []*instance
	config := func(n int) values {
		return values{"name": fmt.Sprintf("worker-%d", n), "role": "worker", "network": network.get("ref"), "cpu_credits": []any{"standard", "unlimited", nil}[n%3]}
	}
	for n := range 5 {
		machines = append(machines, c.instance("k8s_machine"))
		machines[n].must(config(n))
	}
	refreshAll(machines) // settles their claims
	c = c.process(t)
	for n := range machines {
		machines[n] = c.taken(machines[n])
	}
	refreshAll(machines)
	asked := 0
	for _, call := range c.calls() {
		if call == "DescribeInstanceCreditSpecifications" {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times: %q", asked, c.calls())
	}
	for n, m := range machines {
		m.settled(config(n))
	}
}

// TestCPUCredits: a machine has the credit option that is configured, from the launch on, and gets another
// one in place, without a stop. What somebody else chooses is drift.
func TestCPUCredits(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	config := func(option any, more ...values) values {
		out := with(workerConfig(network), values{"cpu_credits": option})
		for _, m := range more {
			out = with(out, m)
		}
		return out
	}
	worker.must(config("standard"))
	worker.settled(config("standard"))
	c.hasCredits(t, worker, "standard")
	id := worker.get("id")

	apply := func(config values, want string) {
		t.Helper()
		ch, before := worker.plan(config), len(c.calls())
		if len(ch.replace) > 0 {
			t.Fatalf("would replace the machine because of %v", ch.replace)
		}
		c.fatal(worker.apply(ch))
		worker.settled(config)
		c.hasCredits(t, worker, want)
		if worker.get("id") != id {
			t.Fatal("it is another machine")
		}
		if calls := c.calls()[before:]; config["instance_type"] == nil && slices.Contains(calls, "StopInstances") {
			t.Errorf("it was stopped: %q", calls)
		}
	}
	apply(config("unlimited"), "unlimited")
	apply(config("standard"), "standard")
	apply(config(nil), "standard")

	before := len(c.calls())
	worker.refresh()
	if calls := c.calls()[before:]; slices.Contains(calls, "DescribeInstanceCreditSpecifications") {
		t.Errorf("a refresh asks for credits that nobody has configured: %q", calls)
	}
	apply(config("standard"), "standard")

	answer[*ec2.ModifyInstanceCreditSpecificationOutput](t)(c.client.EC2.ModifyInstanceCreditSpecification(t.Context(), &ec2.ModifyInstanceCreditSpecificationInput{
		InstanceCreditSpecifications: []types.InstanceCreditSpecificationRequest{{InstanceId: sdk.String(id.(string)), CpuCredits: sdk.String("unlimited")}}}))
	worker.refresh()
	if ch := worker.plan(config("standard")); !strings.Contains(worker.differences(ch), "CPU credits: found unlimited, wanted standard") {
		t.Errorf("another option is no drift:\n%s", worker.differences(ch))
	}
	apply(config("standard"), "standard")

	off := func(option string) values { return with(config(option), values{"power_state": reference.Stopped}) }
	worker.must(off("standard"))
	worker.must(off("unlimited"))
	worker.settled(off("unlimited"))
	c.hasCredits(t, worker, "unlimited")
	worker.must(config("standard"))
	c.hasCredits(t, worker, "standard")

	imported := c.instance("k8s_machine")
	imported.imports(id.(string))
	imported.must(config("standard"))
	imported.settled(config("standard"))

	// A type without credits, and from there one with them.
	m5, t3 := values{"instance_type": "m5.large"}, values{"instance_type": "t3a.medium"}
	c.fatal(worker.apply(worker.plan(config(nil, m5))))
	worker.settled(config(nil, m5))
	if ch := worker.plan(config("standard", m5)); !strings.Contains(ch.failure(), "m5.large is no burstable instance type") || !at(ch, "cpu_credits") {
		t.Errorf("m5.large with credits: %q", ch.failure())
	}
	apply(config("unlimited", t3), "unlimited")

	if ch := worker.plan(config("many")); !strings.Contains(ch.failure(), "one of") || !at(ch, "cpu_credits") {
		t.Errorf("an unknown option: %q", ch.failure())
	}
	c.fatal(worker.apply(worker.plan(nil)))
	c.fatal(network.apply(network.plan(nil)))
	c.account.Empty()
}
