package network

import (
	"cmp"
	"context"
	"fmt"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/route"
)

func (b *builder) createSubnet(ctx context.Context, p place) error {
	tags := b.want(b.spec.name(p))
	out, err := b.createSubnetSomewhere(ctx, p, tags)
	if aws.IsCode(err, "InvalidSubnet.Conflict") {
		return b.adoptSubnet(ctx, p, err)
	}
	if err != nil {
		return fmt.Errorf("create subnet %s: %w", p.cidr, err)
	}
	out.Subnet.Tags = aws.EC2Tags(tags)
	b.change(func(s *snapshot) { s.subnets = append(s.subnets, *out.Subnet) })
	return nil
}

// createSubnetSomewhere makes a subnet in its zone. If EC2 makes none in a zone that was chosen, it takes the next one.
func (b *builder) createSubnetSomewhere(ctx context.Context, p place, tags map[string]string) (*ec2.CreateSubnetOutput, error) {
	for {
		zones, err := b.chosenZones(ctx)
		if err != nil {
			return nil, err
		}
		out, err := b.EC2.CreateSubnet(ctx, &ec2.CreateSubnetInput{
			VpcId:             sdk.String(b.vpcID()),
			CidrBlock:         sdk.String(p.cidr.String()),
			AvailabilityZone:  &zones[p.zone],
			TagSpecifications: []types.TagSpecification{aws.TagSpecification(types.ResourceTypeSubnet, tags)},
		}, b.RetryUntilKnown())
		if !closedZone(err) || !b.chooseOther(p.zone, zones[p.zone]) {
			return out, err
		}
	}
}

// adoptSubnet adopts the subnet that an earlier attempt made, whose response was lost.
func (b *builder) adoptSubnet(ctx context.Context, p place, conflict error) error {
	found, err := listSubnets(ctx, b.Client, aws.Filter("vpc-id", b.vpcID()))
	if err != nil {
		return fmt.Errorf("look for subnet %s: %w", p.cidr, err)
	}
	for _, n := range found {
		if sdk.ToString(n.CidrBlock) == p.cidr.String() && b.mine(n.SubnetId, n.Tags) {
			if err := b.claimLate(ctx, taggedThing{b.subjectSubnet(p), sdk.ToString(n.SubnetId), b.spec.name(p), aws.TagMap(n.Tags)}); err != nil {
				return err
			}
			b.change(func(s *snapshot) { s.subnets = append(s.subnets, n) })
			return nil
		}
	}
	return fmt.Errorf("create subnet %s: another subnet of %s overlaps it: %w", p.cidr, b.vpcID(), conflict)
}

func (b *builder) createGateway(ctx context.Context) error {
	tags := b.want("")
	out, err := b.EC2.CreateInternetGateway(ctx, &ec2.CreateInternetGatewayInput{
		TagSpecifications: []types.TagSpecification{aws.TagSpecification(types.ResourceTypeInternetGateway, tags)},
	})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	out.InternetGateway.Tags = aws.EC2Tags(tags)
	b.change(func(s *snapshot) { s.gateway = out.InternetGateway })
	return b.attachGateway(ctx)
}

func (b *builder) attachGateway(ctx context.Context) error {
	_, err := b.EC2.AttachInternetGateway(ctx, &ec2.AttachInternetGatewayInput{
		InternetGatewayId: b.gateway.InternetGatewayId, VpcId: sdk.String(b.vpcID()),
	}, b.RetryUntilKnown())
	switch {
	case err == nil || aws.IsCode(err, "Resource.AlreadyAssociated"):
		return b.attached(ctx)
	case aws.IsCode(err, "InvalidParameterValue"):
		return b.adoptGateway(ctx, fmt.Errorf("attach: %w", err))
	}
	return fmt.Errorf("attach: %w", err)
}

// attached waits until EC2 shows the attachment of our gateway, without which it refuses routes to it. A gateway that is
// attached to another VPC keeps another attachment, which the next look finds.
func (b *builder) attached(ctx context.Context) error {
	id := sdk.ToString(b.gateway.InternetGatewayId)
	return aws.Poll(ctx, "wait for its attachment", func(ctx context.Context) (bool, string, error) {
		out, err := b.EC2.DescribeInternetGateways(ctx, &ec2.DescribeInternetGatewaysInput{InternetGatewayIds: []string{id}}, b.RetryUntilKnown())
		if err != nil {
			return false, "", err
		}
		for _, w := range out.InternetGateways {
			if attachedTo(w, b.vpcID()) {
				b.change(func(s *snapshot) { s.gateway.Attachments = w.Attachments })
				return true, "", nil
			}
			if len(w.Attachments) > 0 {
				return false, "", fmt.Errorf("%s is attached to another VPC, %s", id, sdk.ToString(w.Attachments[0].VpcId))
			}
		}
		return false, "EC2 does not show it yet", nil
	})
}

// adoptGateway adopts the gateway that another create has attached to the VPC, instead of our own.
func (b *builder) adoptGateway(ctx context.Context, conflict error) error {
	found, err := listGateways(ctx, b.Client, aws.Filter("attachment.vpc-id", b.vpcID()))
	if err != nil {
		return fmt.Errorf("look for the internet gateway of %s: %w", b.vpcID(), err)
	}
	for _, w := range found {
		if !b.mine(w.InternetGatewayId, w.Tags) {
			continue
		}
		if err := b.claimLate(ctx, taggedThing{subjectGateway, sdk.ToString(w.InternetGatewayId), "", aws.TagMap(w.Tags)}); err != nil {
			return err
		}
		spare := *b.gateway
		b.change(func(s *snapshot) { s.gateway = &w })
		return deleteGateway(ctx, b.Client, spare)
	}
	return conflict
}

func (b *builder) createTable(ctx context.Context, name string) error {
	tags := b.want(name)
	out, err := b.EC2.CreateRouteTable(ctx, &ec2.CreateRouteTableInput{
		VpcId:             sdk.String(b.vpcID()),
		TagSpecifications: []types.TagSpecification{aws.TagSpecification(types.ResourceTypeRouteTable, tags)},
	}, b.RetryUntilKnown())
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	out.RouteTable.Tags = aws.EC2Tags(tags)
	b.change(func(s *snapshot) { s.tables = append(s.tables, *out.RouteTable) })
	return nil
}

// associate makes our table the subnet's, replacing another one if necessary. It waits until EC2
// reports the association, by which machines find their route tables.
func (b *builder) associate(ctx context.Context, table, subnet string) error {
	if err := b.putAssociation(ctx, table, subnet); err != nil {
		return err
	}
	return aws.Poll(ctx, "wait until it is the subnet's", func(ctx context.Context) (bool, string, error) {
		tables, err := listTables(ctx, b.Client, aws.Filter("association.subnet-id", subnet))
		if err != nil {
			return false, "", err
		}
		found := route.TableOf(tables, subnet)
		if found == nil || sdk.ToString(found.RouteTableId) == table {
			return found != nil, "the subnet has no route table of its own yet", nil
		}
		if err := b.keepsVPC(ctx); err != nil { // another create has replaced it
			return false, "", err
		}
		return false, "the subnet has another route table", b.putAssociation(ctx, table, subnet)
	})
}

func (b *builder) putAssociation(ctx context.Context, table, subnet string) error {
	_, err := b.EC2.AssociateRouteTable(ctx, &ec2.AssociateRouteTableInput{RouteTableId: &table, SubnetId: &subnet}, b.RetryUntilKnown())
	if !aws.IsCode(err, "Resource.AlreadyAssociated") {
		return err
	}
	tables, err := listTables(ctx, b.Client, aws.Filter("association.subnet-id", subnet))
	if err != nil {
		return err
	}
	for _, t := range tables {
		for _, a := range t.Associations {
			if sdk.ToString(a.SubnetId) == subnet && sdk.ToString(t.RouteTableId) != table {
				_, err := b.EC2.ReplaceRouteTableAssociation(ctx, &ec2.ReplaceRouteTableAssociationInput{
					AssociationId: a.RouteTableAssociationId, RouteTableId: &table,
				})
				return err
			}
		}
	}
	return nil
}

var roleDescriptions = map[aws.MachineRole]string{
	aws.RoleLoadBalancer: "Kubernetes cluster %s: load balancers of the API",
	aws.RoleController:   "Kubernetes cluster %s: controllers",
	aws.RoleEtcd:         "Kubernetes cluster %s: members of etcd",
	aws.RoleWorker:       "Kubernetes cluster %s: workers",
	GroupSSH:             "Kubernetes cluster %s: SSH to all machines",
	roleConnect:          "Kubernetes cluster %s: EC2 Instance Connect Endpoint",
}

func (b *builder) createGroup(ctx context.Context, role aws.MachineRole) error {
	tags := b.want(string(role))
	name := b.spec.Cluster + "-" + string(role)
	out, err := b.EC2.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{
		GroupName:         &name,
		Description:       sdk.String(fmt.Sprintf(roleDescriptions[role], b.spec.Cluster)),
		VpcId:             sdk.String(b.vpcID()),
		TagSpecifications: []types.TagSpecification{aws.TagSpecification(types.ResourceTypeSecurityGroup, tags)},
	}, b.RetryUntilKnown())
	if aws.IsCode(err, "InvalidGroup.Duplicate") {
		return b.adoptGroup(ctx, role, name)
	}
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	b.change(func(s *snapshot) {
		s.groups[role] = types.SecurityGroup{
			GroupId: out.GroupId, VpcId: sdk.String(s.vpcID()), Tags: aws.EC2Tags(tags),
			IpPermissionsEgress: permissions(wantedEgress), // the rule that EC2 gives every new group
		}
	})
	return nil
}

// adoptGroup adopts the group that an earlier attempt made, whose response was lost.
func (b *builder) adoptGroup(ctx context.Context, role aws.MachineRole, name string) error {
	found, err := listGroups(ctx, b.Client, aws.Filter("vpc-id", b.vpcID()), aws.Filter("group-name", name))
	if err != nil {
		return fmt.Errorf("look for %s: %w", name, err)
	}
	for _, g := range found {
		if b.mine(g.GroupId, g.Tags) {
			if err := b.claimLate(ctx, taggedThing{subjectGroup(role), sdk.ToString(g.GroupId), string(role), aws.TagMap(g.Tags)}); err != nil {
				return err
			}
			b.change(func(s *snapshot) { s.groups[role] = g })
			return nil
		}
	}
	return fmt.Errorf("a group named %s exists in %s and is not this cluster's", name, b.vpcID())
}

func (b *builder) authorize(ctx context.Context, group string, rules []rule, egress bool) error {
	if len(rules) == 0 {
		return nil
	}
	var err error
	if p := permissions(rules); egress {
		_, err = b.EC2.AuthorizeSecurityGroupEgress(ctx, &ec2.AuthorizeSecurityGroupEgressInput{GroupId: &group, IpPermissions: p}, b.RetryUntilKnown())
	} else {
		_, err = b.EC2.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &group, IpPermissions: p}, b.RetryUntilKnown())
	}
	if !aws.IsCode(err, "InvalidPermission.Duplicate") {
		if err != nil {
			return fmt.Errorf("add rules: %w", err)
		}
		return nil
	}
	// EC2 adds none of them if it has one, which it did not show. It may still not show it: so each is added alone.
	if len(rules) > 1 {
		for _, r := range rules {
			if err := b.authorize(ctx, group, []rule{r}, egress); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *builder) revoke(ctx context.Context, group string, rules []rule, egress bool) error {
	if len(rules) == 0 {
		return nil
	}
	var err error
	if p := permissions(rules); egress {
		_, err = b.EC2.RevokeSecurityGroupEgress(ctx, &ec2.RevokeSecurityGroupEgressInput{GroupId: &group, IpPermissions: p})
	} else {
		_, err = b.EC2.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{GroupId: &group, IpPermissions: p})
	}
	if err != nil && !aws.IsCode(err, "InvalidPermission.NotFound") {
		return fmt.Errorf("remove rules: %w", err)
	}
	return nil
}

// putDefaultRoute makes the default route to a gateway, or replaces the existing one. to has the gateway.
func (b *builder) putDefaultRoute(ctx context.Context, table string, to ec2.CreateRouteInput) error {
	to.RouteTableId, to.DestinationCidrBlock = &table, sdk.String(anywhere)
	_, err := b.EC2.CreateRoute(ctx, &to, b.RetryUntilKnown())
	if aws.IsCode(err, "RouteAlreadyExists") {
		_, err = b.EC2.ReplaceRoute(ctx, &ec2.ReplaceRouteInput{
			RouteTableId: to.RouteTableId, DestinationCidrBlock: to.DestinationCidrBlock, GatewayId: to.GatewayId, NatGatewayId: to.NatGatewayId,
		}, b.RetryUntilKnown())
	}
	if err != nil {
		return fmt.Errorf("route %s in %s: %w", anywhere, table, err)
	}
	target := cmp.Or(sdk.ToString(to.GatewayId), sdk.ToString(to.NatGatewayId))
	return aws.Poll(ctx, "wait for the route "+anywhere, func(ctx context.Context) (bool, string, error) {
		out, err := b.EC2.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{RouteTableIds: []string{table}}, b.RetryUntilKnown())
		if err != nil || len(out.RouteTables) == 0 {
			return false, "", err
		}
		return len(diffDefaultRoute(out.RouteTables[0], target)) == 0, "EC2 does not show it yet", nil
	})
}

// anywhere is the destination of a default route.
const anywhere = "0.0.0.0/0"
