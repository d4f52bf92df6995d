package network

import (
	"context"
	"fmt"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// Parts of our own network that the specification no longer has: of zones that were taken away, and of
// NAT gateways that are shared now. They go once no route leads to them.

// findExcessNATs finds NAT gateways and Elastic IPs that are not wanted.
func (b *builder) findExcessNATs() []aws.Repair {
	if b.spec.adopts() {
		return nil
	}
	wanted := map[string]bool{}
	for _, zone := range b.spec.natZones() {
		wanted[natName(zone)] = true
	}
	var out []aws.Repair
	usable := b.natGateways()
	for name, n := range usable {
		if wanted[name] {
			continue
		}
		f := finding.Finding{Subject: subjectNAT + " " + name, Kind: finding.NATGateway, Problem: finding.NotWanted}
		out = append(out, aws.RepairOf(f, func(ctx context.Context) error {
			gateways := slices.DeleteFunc(b.natsNow(), func(x types.NatGateway) bool { return sdk.ToString(x.NatGatewayId) != n.ID })
			addresses := slices.DeleteFunc(slices.Clone(b.natAddresses), func(x types.Address) bool { return sdk.ToString(x.AllocationId) != n.AllocationID })
			if err := deleteNATs(ctx, b.Client, gateways); err != nil {
				return err
			}
			b.change(func(s *snapshot) {
				s.nats = slices.DeleteFunc(s.nats, func(x types.NatGateway) bool { return sdk.ToString(x.NatGatewayId) == n.ID })
			})
			return releaseAddresses(ctx, b.Client, addresses)
		}))
	}
	for _, a := range b.natAddresses {
		name := b.nameOfNATAddress(a)
		if sdk.ToString(a.AssociationId) != "" || wanted[name] && usable[name].ID == "" {
			continue // in use, or about to be
		}
		if usable[name].AllocationID == sdk.ToString(a.AllocationId) {
			continue // its association is not reported yet
		}
		f := finding.Finding{Subject: subjectNAT + " " + name, Kind: finding.Address, Target: sdk.ToString(a.PublicIp), Problem: finding.NotWanted}
		out = append(out, aws.RepairOf(f, func(ctx context.Context) error { return releaseAddresses(ctx, b.Client, []types.Address{a}) }))
	}
	return out
}

// findExcessSubnets finds subnets that are not wanted. A subnet with machines in it cannot be deleted.
func (b *builder) findExcessSubnets() []aws.Repair {
	if b.spec.adopts() {
		return nil
	}
	var out []aws.Repair
	for _, n := range b.subnets {
		if slices.ContainsFunc(b.spec.places(), func(p place) bool { return p.cidr.String() == sdk.ToString(n.CidrBlock) }) {
			continue
		}
		id := sdk.ToString(n.SubnetId)
		f := finding.Finding{Subject: subjectSubnet + " " + aws.TagMap(n.Tags)[aws.TagResource], Kind: finding.Subnet, Problem: finding.NotWanted}
		out = append(out, aws.RepairOf(f, func(ctx context.Context) error {
			if err := deleteSubnet(ctx, b.Client, id); err != nil {
				return explainBlocked(ctx, b.Client, b.vpcID(), err)
			}
			b.change(func(s *snapshot) {
				s.subnets = slices.DeleteFunc(s.subnets, func(x types.Subnet) bool { return sdk.ToString(x.SubnetId) == id })
			})
			return nil
		}))
	}
	return out
}

// findExcessTables finds route tables that are not wanted.
func (b *builder) findExcessTables() []aws.Repair {
	if b.spec.adopts() {
		return nil
	}
	var out []aws.Repair
	wanted, _ := b.spec.tables()
	for name, t := range b.ownTables() {
		if slices.Contains(wanted, name) {
			continue
		}
		id := sdk.ToString(t.RouteTableId)
		f := finding.Finding{Subject: subjectTable + " " + name, Kind: finding.RouteTable, Problem: finding.NotWanted}
		out = append(out, aws.RepairOf(f, func(ctx context.Context) error {
			if err := deleteTable(ctx, b.Client, id); err != nil {
				return err
			}
			b.change(func(s *snapshot) {
				s.tables = slices.DeleteFunc(s.tables, func(x types.RouteTable) bool { return sdk.ToString(x.RouteTableId) == id })
			})
			return nil
		}))
	}
	return out
}

func deleteSubnet(ctx context.Context, c *aws.Client, id string) error {
	_, err := c.EC2.DeleteSubnet(ctx, &ec2.DeleteSubnetInput{SubnetId: &id}, c.RetryUntilUnused())
	if err = aws.Ignore(err, "InvalidSubnetID.NotFound"); err != nil {
		return fmt.Errorf("delete subnet %s: %w", id, err)
	}
	return nil
}

func deleteTable(ctx context.Context, c *aws.Client, id string) error {
	_, err := c.EC2.DeleteRouteTable(ctx, &ec2.DeleteRouteTableInput{RouteTableId: &id}, c.RetryUntilUnused())
	if err = aws.Ignore(err, "InvalidRouteTableID.NotFound"); err != nil {
		return fmt.Errorf("delete route table %s: %w", id, err)
	}
	return nil
}
