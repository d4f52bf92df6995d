package machines_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestSecurityGroups: a machine has the further groups that are configured, from the launch on, and gets
// others in place. What somebody else does to them is drift, and an import finds them.
func TestSecurityGroups(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	ssh := network.Get("security_group_ids").(map[string]any)["ssh"].(string)
	storage, monitoring, foreign := c.Group(t, network, "storage"), c.Group(t, network, "monitoring"), c.Group(t, network, "foreign")
	config := func(groups ...any) providertest.Values {
		return providertest.With(providertest.WorkerConfig(network), providertest.Values{"security_group_ids": groups})
	}
	worker.Must(config(storage))
	worker.Converged(config(storage))
	c.HasGroups(t, worker, storage)
	id := worker.Get("id")

	imported := c.Instance("k8s_machine")
	imported.Imports(id.(string))
	imported.Converged(config(storage))

	apply := func(config providertest.Values, further ...string) {
		t.Helper()
		ch := worker.Plan(config)
		if len(ch.Replace) > 0 {
			t.Fatalf("would replace the machine because of %v", ch.Replace)
		}
		c.Fatal(worker.Apply(ch))
		worker.Converged(config)
		c.HasGroups(t, worker, further...)
		if worker.Get("id") != id {
			t.Fatal("the machine was replaced")
		}
	}
	apply(config(monitoring, storage), storage, monitoring)
	apply(providertest.WorkerConfig(network))
	apply(config([]any{}...))
	apply(config(storage), storage)

	has := func() (groups []string) {
		for _, g := range c.Found(t, worker).SecurityGroups {
			groups = append(groups, *g.GroupId)
		}
		return groups
	}
	for name, damaged := range map[string][]string{
		"a foreign group": append(has(), foreign),
		"no group ssh":    slices.DeleteFunc(has(), func(id string) bool { return id == ssh }),
	} {
		providertest.Answer[*ec2.ModifyNetworkInterfaceAttributeOutput](t)(c.Client.EC2.ModifyNetworkInterfaceAttribute(t.Context(), &ec2.ModifyNetworkInterfaceAttributeInput{
			NetworkInterfaceId: c.Found(t, worker).NetworkInterfaces[0].NetworkInterfaceId, Groups: damaged,
		}))
		worker.Refresh()
		if ch := worker.Plan(config(storage)); !strings.Contains(worker.Differences(ch), "security groups: found ") {
			t.Errorf("%s is no drift:\n%s", name, worker.Differences(ch))
		}
		apply(config(storage), storage)
	}

	// One that does not exist or is of another VPC is an error, and nothing is lost.
	vpc := *providertest.Answer[*ec2.CreateVpcOutput](t)(c.Client.EC2.CreateVpc(t.Context(), &ec2.CreateVpcInput{CidrBlock: aws.String("10.9.0.0/16")})).Vpc.VpcId
	elsewhere := *providertest.Answer[*ec2.CreateSecurityGroupOutput](t)(c.Client.EC2.CreateSecurityGroup(t.Context(), &ec2.CreateSecurityGroupInput{
		GroupName: aws.String("elsewhere"), Description: aws.String("elsewhere"), VpcId: &vpc})).GroupId
	other := c.Instance("k8s_machine") // is never launched
	fresh := providertest.Values{"name": "worker-1", "private_ip": "10.240.0.21", "pod_cidr": "10.200.1.0/24"}
	refused := func(m *providertest.Instance, config providertest.Values, want string) {
		t.Helper()
		if ch := m.CarryOut(m.Plan(config)); !strings.Contains(ch.Failure(), want) || !at(ch, "security_group_ids") {
			t.Errorf("wanted %s: %q", want, ch.Failure())
		}
	}
	refused(worker, config(storage, "sg-0123456789abcdef0"), "sg-0123456789abcdef0")
	refused(other, providertest.With(config(storage, "sg-0123456789abcdef0"), fresh), "InvalidGroup.NotFound")
	refused(other, providertest.With(config(storage, elsewhere), fresh), "Security group "+elsewhere)
	c.HasGroups(t, worker, storage)
	worker.Refresh()
	apply(config(storage), storage)

	var many []any
	for n := range 15 {
		many = append(many, fmt.Sprintf("sg-%d", n))
	}
	for _, groups := range [][]any{{"web"}, {"sg-xyz"}, many} {
		if ch := c.Instance("k8s_machine").Plan(config(groups...)); ch.Failure() == "" || !at(ch, "security_group_ids") {
			t.Errorf("%v: %q", groups, ch.Failure())
		}
	}
	beyond := c.Instance("k8s_machine").Plan(config(many[:4]...))
	if providertest.Mention(t, providertest.Warnings(beyond), "4 groups are given", "AWS allows 5", "L-2AFB9258"); beyond.Failure() != "" {
		t.Error(beyond.Failure())
	}
	kept := network.Get("ref").(providertest.Values)
	kept["security_group_ids"] = providertest.Values{"worker": "sg-1"}
	providertest.Mention(t, c.Instance("k8s_machine").Plan(providertest.With(config(), providertest.Values{"network": kept})).Failure(),
		"network", "Security group missing", "no entry ssh")
	c.Fatal(worker.Apply(worker.Plan(nil)))
	for _, id := range []string{storage, monitoring, foreign, elsewhere} {
		providertest.Answer[*ec2.DeleteSecurityGroupOutput](t)(c.Client.EC2.DeleteSecurityGroup(t.Context(), &ec2.DeleteSecurityGroupInput{GroupId: &id}))
	}
	providertest.Answer[*ec2.DeleteVpcOutput](t)(c.Client.EC2.DeleteVpc(t.Context(), &ec2.DeleteVpcInput{VpcId: &vpc}))
	c.Fatal(network.Apply(network.Plan(nil)))
	c.Account.Empty()
}
