package networks_test

import (
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// mover is a cluster whose machines have no group ssh: the groups of their roles let in SSH.
type mover struct {
	t        *testing.T
	api      *ec2.Client
	network  *providertest.Instance
	machines map[string]*providertest.Instance
}

func (m *mover) sshFromAdmin() []types.IpPermission {
	return []types.IpPermission{{IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(22), ToPort: sdk.Int32(22), IpRanges: []types.IpRange{{CidrIp: sdk.String("198.51.100.7/32")}}}}
}

func (m *mover) instance(machine *providertest.Instance) types.Instance {
	m.t.Helper()
	out, err := m.api.DescribeInstances(m.t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{machine.Get("id").(string)}})
	if err != nil {
		m.t.Error(err)
		return types.Instance{}
	}
	return out.Reservations[0].Instances[0]
}

func (m *mover) groups(machine *providertest.Instance) (ids []string) {
	m.t.Helper()
	for _, g := range m.instance(machine).SecurityGroups {
		ids = append(ids, *g.GroupId)
	}
	slices.Sort(ids)
	return ids
}

func (m *mover) give(machine *providertest.Instance, groups ...string) {
	m.t.Helper()
	providertest.Answer[*ec2.ModifyNetworkInterfaceAttributeOutput](m.t)(m.api.ModifyNetworkInterfaceAttribute(m.t.Context(), &ec2.ModifyNetworkInterfaceAttributeInput{
		NetworkInterfaceId: m.instance(machine).NetworkInterfaces[0].NetworkInterfaceId, Groups: groups,
	}))
}

// letsIn returns which of the groups let in SSH from the admin.
func (m *mover) letsIn(groups []string) (out []string) {
	m.t.Helper()
	found, err := m.api.DescribeSecurityGroups(m.t.Context(), &ec2.DescribeSecurityGroupsInput{GroupIds: groups})
	if err != nil {
		m.t.Error(err)
		return nil
	}
	for _, g := range found.SecurityGroups {
		for _, p := range g.IpPermissions {
			if sdk.ToInt32(p.FromPort) == 22 && slices.ContainsFunc(p.IpRanges, func(r types.IpRange) bool { return *r.CidrIp == "198.51.100.7/32" }) {
				out = append(out, *g.GroupId)
			}
		}
	}
	return out
}

// reachable fails the test unless every machine lets in SSH from the admin.
func (m *mover) reachable(after string) {
	for name, machine := range m.machines {
		if len(m.letsIn(m.groups(machine))) == 0 {
			m.t.Errorf("after %s, %s lets in no SSH", after, name)
		}
	}
}

// goBack makes the cluster one whose roles' groups let in SSH, in AWS and in the state.
func (m *mover) goBack() {
	m.t.Helper()
	groups := m.network.Get("security_group_ids").(providertest.Values)
	ssh := groups["ssh"].(string)
	for name, id := range groups {
		if name != "ssh" {
			providertest.Answer[*ec2.AuthorizeSecurityGroupIngressOutput](m.t)(m.api.AuthorizeSecurityGroupIngress(m.t.Context(), &ec2.AuthorizeSecurityGroupIngressInput{
				GroupId: sdk.String(id.(string)), IpPermissions: m.sshFromAdmin(),
			}))
		}
	}
	for _, machine := range m.machines {
		m.give(machine, slices.DeleteFunc(m.groups(machine), func(id string) bool { return id == ssh })...)
		m.forget(machine)
	}
	providertest.Answer[*ec2.DeleteSecurityGroupOutput](m.t)(m.api.DeleteSecurityGroup(m.t.Context(), &ec2.DeleteSecurityGroupInput{GroupId: &ssh}))
	m.forget(m.network)
}

// forget removes the group ssh from a state.
func (m *mover) forget(i *providertest.Instance) {
	m.t.Helper()
	state, err := tftypes.Transform(i.State, func(p *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
		if last, ok := p.LastStep().(tftypes.AttributeName); !ok || last != "security_group_ids" || !v.Type().Is(tftypes.Map{}) {
			return v, nil
		}
		var groups map[string]tftypes.Value
		if err := v.As(&groups); err != nil {
			return v, err
		}
		delete(groups, "ssh")
		return tftypes.NewValue(v.Type(), groups), nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	i.State = state
}

// TestMoveToGroupSSH applies, with everyday.json and as a member, the configuration of a cluster whose machines have no group ssh.
// After every call to AWS every machine still lets in SSH, and the groups of roles have no rule for SSH in the end.
func TestMoveToGroupSSH(t *testing.T) {
	t.Parallel()
	for name, entity := range map[string]func(*testing.T, providertest.Cloud) iam.Entity{
		"everyday": func(t *testing.T, _ providertest.Cloud) iam.Entity {
			return iam.Entity{Policies: []string{providertest.ReadPolicy(t, "everyday.json").Without("")}}
		},
		"member": member,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := providertest.NewCloud(t)
			moveToGroupSSH(t, c, entity(t, c))
		})
	}
}

func moveToGroupSSH(t *testing.T, c providertest.Cloud, e iam.Entity) {
	m := &mover{t, c.Client.EC2, c.Instance("k8s_network"), map[string]*providertest.Instance{}}
	m.network.Must(providertest.NetworkConfig())
	group := func(name string) string { // that the policies let machines have
		id := c.Group(t, m.network, name)
		providertest.Answer[*ec2.CreateTagsOutput](t)(m.api.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{id}, Tags: []types.Tag{{Key: sdk.String(infraaws.TagCluster), Value: sdk.String("demo")}}}))
		return id
	}
	further := []any{group("further"), group("another")}
	config := func(name string) providertest.Values {
		network := providertest.Values{"network": m.network.Get("ref")}
		return providertest.With(map[string]providertest.Values{
			"controller-0": {"name": "controller-0", "role": "controller", "private_ip": "10.240.0.10"},
			"worker-0":     {"name": "worker-0", "role": "worker", "private_ip": "10.240.0.20", "pod_cidr": "10.200.0.0/24", "security_group_ids": further},
			"lb-0":         {"name": "lb-0", "role": "lb", "private_ip": "10.240.0.30"},
		}[name], network)
	}
	for _, name := range []string{"controller-0", "worker-0", "lb-0"} {
		m.machines[name] = c.Instance("k8s_machine")
		m.machines[name].Must(config(name))
	}
	m.goBack()
	m.reachable("the way back")

	u := providertest.Answer[iam.User](t)(c.Account.Cloud.Identities().PutUser("terraform", e))
	c.More = providertest.Values{"access_key": u.AccessKeyID, "secret_key": u.SecretAccessKey}
	next := c.ProcessOver(t, &providertest.Wire{After: m.reachable})
	m.network = next.Taken(m.network)
	for name, machine := range m.machines {
		m.machines[name] = next.Taken(machine)
		m.machines[name].Look()
	}
	m.network.Look()
	many := providertest.With(providertest.NetworkConfig(), providertest.Values{"admin_cidrs": admins(30)})

	// A machine that has as many groups as AWS allows keeps the rules that it needs.
	full := m.groups(m.machines["worker-0"])
	m.give(m.machines["worker-0"], append(slices.Clone(full), group("third"), group("fourth"))...)
	providertest.Mention(t, m.network.CarryOut(m.network.Plan(many)).Failure(), "let SSH reach machines before the rules change", m.machines["worker-0"].Get("id").(string), "SecurityGroupsPerInterfaceLimitExceeded")
	m.give(m.machines["worker-0"], full...)

	m.network.Look()
	m.network.Must(many)
	m.network.Converged(many)
	groups := m.network.Get("security_group_ids").(providertest.Values)
	for name, id := range groups {
		if lets := m.letsIn([]string{id.(string)}); (len(lets) > 0) != (name == "ssh") {
			t.Errorf("the group %s lets in SSH: %v", name, lets)
		}
	}
	for name, machine := range m.machines {
		before := len(next.Calls())
		machine.Must(config(name))
		machine.Converged(config(name))
		for _, call := range next.Calls()[before:] {
			if strings.HasPrefix(call, "Modify") {
				t.Errorf("%s: %s", name, call)
			}
		}
	}
	if got, want := m.groups(m.machines["worker-0"]), []string{groups["worker"].(string), groups["ssh"].(string), further[0].(string), further[1].(string)}; !slices.Equal(got, sorted(want)) {
		t.Errorf("worker-0 has the groups %v, want %v", got, want)
	}
}

func sorted(ids []string) []string { slices.Sort(ids); return ids }
