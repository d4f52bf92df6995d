package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/sync/errgroup"
)

// DeleteNetwork deletes everything that EnsureNetwork made for the cluster, including duplicates
// left by an interrupted run. An adopted VPC stays. What does not exist is no error. It waits until
// the interfaces of terminated machines are gone. Nothing is deleted if a part of it is another's,
// and the error is a ClaimedError if that is the VPC, or a group in an adopted VPC.
func (c *Client) DeleteNetwork(ctx context.Context, spec NetworkSpec) error {
	spec.IgnoreRules = RuleFilter{} // others' rules are deleted with the groups
	spec.lookForParts = true
	own := NetworkSpec{Cluster: spec.Cluster, Claim: spec.Claim, ownOnly: true, lookForParts: true}
	s, err := c.takeSnapshot(ctx, spec)
	if errors.Is(err, ErrNotFound) && !spec.adopts() {
		s, err = c.takeSnapshot(ctx, own)
	}
	if err == nil {
		err = c.deletable(spec, s)
	}
	for err == nil && (s.vpc != nil || s.gateway != nil) {
		if err = c.deleteEndpoints(ctx, s.endpoints); err == nil { // it uses a group and a subnet
			err = c.deleteGroups(ctx, s)
		}
		if spec.adopts() || err != nil {
			break
		}
		if err == nil {
			err = c.deleteParts(ctx, s)
		}
		if err != nil {
			break
		}
		s, err = c.takeSnapshot(ctx, own) // duplicates
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return c.explainBlocked(ctx, s.vpcID(), fmt.Errorf("delete the network of cluster %s: %w", spec.Cluster, err))
	}
	return nil
}

// deletable returns an error if a part of the network is another's.
func (c *Client) deletable(spec NetworkSpec, s snapshot) error {
	b := &builder{Client: c, spec: spec, snapshot: s}
	b.extra, b.spare = nil, nil // looked at when it is their turn
	if spec.adopts() || s.vpc == nil || HolderOf(TagMap(s.vpc.Tags)).ID != spec.Claim.ID {
		_, err := b.allOurs()
		return err
	}
	// The VPC is ours, and stays in the state. What a create that has lost it has left in it, and what
	// has lost its tags, goes with it.
	b.spec.Claim.Adopt = false
	if _, err := b.judge(b.unclaimed()); err != nil {
		return errors.New(err.Error())
	}
	return nil
}

// deleteGroups deletes the groups, after the rules that refer to other groups. All other rules are
// deleted with their group.
func (c *Client) deleteGroups(ctx context.Context, s snapshot) error {
	b := &builder{Client: c}
	ours := map[string]bool{}
	for _, group := range s.groups {
		ours[sdk.ToString(group.GroupId)] = true
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, group := range s.groups {
		for egress, all := range map[bool][]types.IpPermission{false: group.IpPermissions, true: group.IpPermissionsEgress} {
			if rules := slices.DeleteFunc(rulesOf(all), func(r rule) bool { return !ours[r.source] }); len(rules) > 0 {
				g.Go(func() error {
					err := b.revoke(gctx, sdk.ToString(group.GroupId), permissions(rules), egress)
					return Ignore(err, "InvalidGroup.NotFound")
				})
			}
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	g, gctx = errgroup.WithContext(ctx)
	for role, group := range s.groups {
		g.Go(func() error {
			return c.deleteGroup(gctx, role, group)
		})
	}
	return g.Wait()
}

// deleteGroup deletes a security group once nothing uses it any more.
func (c *Client) deleteGroup(ctx context.Context, role Role, group types.SecurityGroup) error {
	_, err := c.EC2.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: group.GroupId}, c.RetryUntilUnused())
	if err = Ignore(err, "InvalidGroup.NotFound"); err != nil {
		return fmt.Errorf("delete security group %s (%s): %w", role, sdk.ToString(group.GroupId), err)
	}
	return nil
}

func (c *Client) deleteParts(ctx context.Context, s snapshot) error {
	vpc := s.vpcID()
	if err := c.deleteNATs(ctx, s.nats); err != nil {
		return err
	}
	if err := c.releaseAddresses(ctx, s.natAddresses); err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	if s.gateway != nil {
		for _, w := range append(s.spare, *s.gateway) {
			if s.mine(w.InternetGatewayId, w.Tags) && (len(w.Attachments) > 0 || !s.others(w.Tags)) {
				g.Go(func() error { return c.deleteGateway(gctx, w) })
			}
		}
	}
	g.Go(func() error {
		for _, n := range s.subnets {
			if err := c.deleteSubnet(gctx, sdk.ToString(n.SubnetId)); err != nil {
				return err
			}
		}
		for _, t := range s.tables {
			if !s.mine(t.RouteTableId, t.Tags) {
				continue // the main table is deleted with the VPC
			}
			if err := c.deleteTable(gctx, sdk.ToString(t.RouteTableId)); err != nil {
				return err
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil || vpc == "" {
		return err
	}
	_, err := c.EC2.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: &vpc}, c.RetryUntilUnused())
	if err = Ignore(err, "InvalidVpcID.NotFound"); err != nil {
		return fmt.Errorf("delete VPC %s: %w", vpc, err)
	}
	return nil
}

func (c *Client) deleteGateway(ctx context.Context, w types.InternetGateway) error {
	id := w.InternetGatewayId
	for _, a := range w.Attachments {
		_, err := c.EC2.DetachInternetGateway(ctx, &ec2.DetachInternetGatewayInput{InternetGatewayId: id, VpcId: a.VpcId}, c.RetryUntilUnused())
		if err = Ignore(err, "Gateway.NotAttached", "InvalidInternetGatewayID.NotFound", "InvalidVpcID.NotFound"); err != nil {
			return fmt.Errorf("detach internet gateway %s: %w", sdk.ToString(id), err)
		}
	}
	_, err := c.EC2.DeleteInternetGateway(ctx, &ec2.DeleteInternetGatewayInput{InternetGatewayId: id}, c.RetryUntilUnused())
	if err = Ignore(err, "InvalidInternetGatewayID.NotFound"); err != nil {
		return fmt.Errorf("delete internet gateway %s: %w", sdk.ToString(id), err)
	}
	return nil
}

// deleteSpareGateways deletes the gateways with our claim that are attached to nothing. All other
// parts of a network are in its VPC.
func (c *Client) deleteSpareGateways(ctx context.Context, spec NetworkSpec) error {
	out, err := c.EC2.DescribeInternetGateways(ctx, &ec2.DescribeInternetGatewaysInput{
		Filters: []types.Filter{TagFilter(TagCluster, spec.Cluster), TagFilter(TagKind, kindNetwork)},
	})
	if err != nil {
		return fmt.Errorf("look for internet gateways: %w", err)
	}
	for _, w := range out.InternetGateways {
		if len(w.Attachments) == 0 && HolderOf(TagMap(w.Tags)).ID == spec.Claim.ID {
			if err := c.deleteGateway(ctx, w); err != nil {
				return err
			}
		}
	}
	return nil
}

// explainBudget is several times what EC2 takes to list network interfaces.
const explainBudget = 15 * time.Second

// explainBlocked adds what still uses the VPC to an error that only says that something does.
func (c *Client) explainBlocked(ctx context.Context, vpc string, err error) error {
	if vpc == "" || !IsCode(err, "DependencyViolation", "AuthFailure.AddressInUse") {
		return err
	}
	// The deletion may have used up its time.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainBudget)
	defer cancel()
	out, failed := c.EC2.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{Filters: []types.Filter{filter("vpc-id", vpc)}})
	if failed != nil {
		return errors.Join(err, failed)
	}
	var users []string
	for _, i := range out.NetworkInterfaces {
		who := sdk.ToString(i.NetworkInterfaceId)
		if a := i.Attachment; a != nil && sdk.ToString(a.InstanceId) != "" {
			who += " of instance " + sdk.ToString(a.InstanceId)
		} else if d := sdk.ToString(i.Description); d != "" {
			who += " (" + d + ")"
		}
		users = append(users, who)
	}
	if len(users) == 0 {
		return err
	}
	return fmt.Errorf("%w; network interfaces still in %s: %s", err, vpc, strings.Join(users, ", "))
}

// MadeVPC reports whether a VPC was made for the cluster's network, and not adopted. The error is
// ErrNotFound if there is no such VPC.
func (c *Client) MadeVPC(ctx context.Context, cluster, id string) (bool, error) {
	out, err := c.EC2.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{VpcIds: []string{id}})
	switch {
	case IsCode(err, "InvalidVpcID.NotFound"):
		return false, fmt.Errorf("VPC %s of cluster %s %w", id, cluster, ErrNotFound)
	case err != nil:
		return false, fmt.Errorf("look at VPC %s: %w", id, err)
	}
	return slices.ContainsFunc(out.Vpcs, func(v types.Vpc) bool {
		tags := TagMap(v.Tags)
		return tags[TagCluster] == cluster && tags[TagKind] == kindNetwork
	}), nil
}
