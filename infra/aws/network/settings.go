package network

import (
	"context"
	"errors"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/route"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

func (b *builder) findSettings() []aws.Repair {
	out := b.findRules(slices.DeleteFunc(b.spec.wantedGroups(), func(g aws.MachineRole) bool { return g == GroupSSH })...)
	out = append(out, b.findTags()...)
	if b.spec.adopts() {
		return out
	}
	for _, p := range b.spec.places() {
		out = append(out, b.findSubnetSettings(p)...)
	}
	names, natOf := b.spec.tables()
	for _, name := range names {
		out = append(out, b.findDefaultRoute(name, natOf[name])...)
	}
	return out
}

// findSubnetSettings finds a subnet that gives machines public addresses against the specification, or
// has another route table.
func (b *builder) findSubnetSettings(p place) []aws.Repair {
	subnet := b.subnet(p.cidr)
	if subnet == nil {
		return nil // a finding of its own
	}
	var out []aws.Repair
	id, subject := sdk.ToString(subnet.SubnetId), b.subjectSubnet(p)
	if sdk.ToBool(subnet.MapPublicIpOnLaunch) != p.public {
		f := finding.Finding{Subject: subject, Kind: finding.Subnet, Problem: finding.NoPublicIP}
		if !p.public {
			f.Problem = finding.PublicIP
		}
		out = append(out, aws.RepairOf(f, func(ctx context.Context) error {
			_, err := b.EC2.ModifySubnetAttribute(ctx, &ec2.ModifySubnetAttributeInput{
				SubnetId: &id, MapPublicIpOnLaunch: &types.AttributeBooleanValue{Value: sdk.Bool(p.public)},
			}, b.RetryUntilKnown())
			if err != nil {
				return err
			}
			return b.mapsPublicIPs(ctx, id, p.public)
		}))
	}
	if table := b.ownTables()[p.table()]; table != nil && !route.Associated(*table, id) {
		f := finding.Finding{Subject: subjectTable + " " + p.table(), Kind: finding.RouteTable, Target: b.spec.name(p), Problem: finding.Detached}
		out = append(out, aws.RepairOf(f, func(ctx context.Context) error {
			return b.associate(ctx, sdk.ToString(table.RouteTableId), id)
		}))
	}
	return out
}

// mapsPublicIPs waits until EC2 shows whether a subnet gives machines public addresses.
func (b *builder) mapsPublicIPs(ctx context.Context, subnet string, wanted bool) error {
	return aws.Poll(ctx, "wait until its setting is known", func(ctx context.Context) (bool, string, error) {
		out, err := b.EC2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: []string{subnet}}, b.RetryUntilKnown())
		if err != nil || len(out.Subnets) == 0 {
			return false, "", err
		}
		return sdk.ToBool(out.Subnets[0].MapPublicIpOnLaunch) == wanted, "EC2 does not show it yet", nil
	})
}

// findDefaultRoute finds a default route of one of our tables that leads elsewhere than to the internet
// gateway or to the NAT gateway.
func (b *builder) findDefaultRoute(name string, natZone int) []aws.Repair {
	table := b.ownTables()[name]
	if table == nil {
		return nil
	}
	id := sdk.ToString(table.RouteTableId)
	var target string
	put := func(ctx context.Context) error {
		return b.putDefaultRoute(ctx, id, ec2.CreateRouteInput{GatewayId: &target})
	}
	if name == publicTable {
		if b.gateway == nil {
			return nil
		}
		target = sdk.ToString(b.gateway.InternetGatewayId)
	} else {
		if target = b.natGateways()[natName(natZone)].ID; target == "" {
			return nil
		}
		put = func(ctx context.Context) error {
			if err := natReady(ctx, b.Client, target); err != nil {
				return err
			}
			return b.putDefaultRoute(ctx, id, ec2.CreateRouteInput{NatGatewayId: &target})
		}
	}
	var out []aws.Repair
	for _, f := range diffDefaultRoute(*table, target) {
		f.Subject = subjectTable + " " + name
		out = append(out, aws.RepairOf(f, put))
	}
	return out
}

// findRules finds how the rules of groups differ from what is wanted.
func (b *builder) findRules(of ...aws.MachineRole) []aws.Repair {
	ids := b.groupIDs()
	if slices.ContainsFunc(b.spec.wantedGroups(), func(role aws.MachineRole) bool { return ids[role] == "" }) {
		return nil // the missing group is a finding of its own, and rules need its id
	}
	var out []aws.Repair
	wanted := wantedRules(b.spec, ids)
	for _, role := range of {
		group := b.groups[role]
		others := func(egress bool) func(rule) bool {
			return func(r rule) bool { return egress && r == egressIPv6 || b.ignored[groupRule{ids[role], egress, r}] }
		}
		missing, unexpected := diffRules(wanted[role], rulesOf(group.IpPermissions))
		out = append(out, b.ruleRepairs(role, ids, missing, slices.DeleteFunc(unexpected, others(false)), false)...)
		missing, unexpected = diffRules(b.wantedEgressOf(role), rulesOf(group.IpPermissionsEgress))
		out = append(out, b.ruleRepairs(role, ids, missing, slices.DeleteFunc(unexpected, others(true)), true)...)
	}
	return out
}

// ruleRepairs makes one repair for all rules of a group in one direction; none if nothing differs. It adds rules first, so that
// nobody is shut out who may come in before and after.
func (b *builder) ruleRepairs(role aws.MachineRole, ids map[aws.MachineRole]string, missing, unexpected []rule, egress bool) []aws.Repair {
	var differs []finding.Finding
	say := func(rules []rule, problem finding.Problem) {
		for _, r := range rules {
			differs = append(differs, finding.Finding{Subject: subjectGroup(role), Kind: finding.Rule, Target: r.in(ids, egress), Problem: problem})
		}
	}
	say(missing, finding.Missing)
	say(unexpected, finding.NotWanted)
	if len(differs) == 0 {
		return nil
	}
	return []aws.Repair{{Findings: differs, Fix: func(ctx context.Context) error {
		err := b.authorize(ctx, ids[role], missing, egress)
		full := len(unexpected) > 0 && aws.IsCode(err, "RulesPerSecurityGroupLimitExceeded")
		if err != nil && !full {
			return err
		}
		if !egress && role != GroupSSH && slices.ContainsFunc(unexpected, rule.letsSSH) {
			if err := b.shareSSH(ctx, ids); err != nil {
				return err
			}
		}
		if err := b.revoke(ctx, ids[role], unexpected, egress); err != nil || !full {
			return err
		}
		if err := b.authorize(ctx, ids[role], missing, egress); err != nil { // who could come in before still can
			return errors.Join(err, b.authorize(ctx, ids[role], unexpected, egress))
		}
		return nil
	}}}
}

// diffDefaultRoute returns what is wrong with the default route: at most one finding.
func diffDefaultRoute(t types.RouteTable, gateway string) []finding.Finding {
	f := finding.Finding{Subject: subjectTable, Kind: finding.Route, Target: "0.0.0.0/0", Problem: finding.Missing, Wanted: gateway}
	for _, r := range t.Routes {
		if sdk.ToString(r.DestinationCidrBlock) != f.Target {
			continue
		}
		if route.TargetOf(r) == gateway && r.State != types.RouteStateBlackhole {
			return nil
		}
		f.Problem, f.Found, f.Cause = finding.Value, route.TargetOf(r), string(r.State)
		break
	}
	return []finding.Finding{f}
}
