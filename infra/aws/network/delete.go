package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// Delete deletes everything that Ensure made for the cluster, including duplicates left by an
// interrupted run. An adopted VPC stays. What does not exist is no error. It waits until the
// interfaces of terminated machines are gone. Nothing is deleted if a part of it belongs to another
// owner. The error is a ClaimedError if that part is the VPC, or a group in an adopted VPC. Nothing is
// deleted either if controllers in the cluster have left objects, unless Spec.DeleteLeftovers says so: the
// error is a LeftoversError.
func Delete(ctx context.Context, c *aws.Client, spec Spec) error {
	spec.IgnoreRules = RuleFilter{} // others' rules are deleted with the groups
	spec.lookForParts = true
	own := Spec{Cluster: spec.Cluster, Claim: spec.Claim, ownOnly: true, lookForParts: true}
	s, err := takeSnapshot(ctx, c, spec)
	if errors.Is(err, aws.ErrNotFound) && !spec.adopts() {
		s, err = takeSnapshot(ctx, c, own)
	}
	if err == nil {
		err = deletable(c, spec, s)
	}
	var left leftovers
	if err == nil {
		left, err = findLeftovers(ctx, c, spec, s)
	}
	if err == nil {
		err = left.check(spec)
	}
	if err == nil {
		err = left.remove(ctx, c)
	}
	for err == nil && (s.vpc != nil || s.gateway != nil) {
		if err = deleteEndpoints(ctx, c, s.endpoints); err == nil { // it uses a group and a subnet
			err = deleteGroups(ctx, c, append(slices.Collect(maps.Values(s.groups)), left.groups...))
		}
		if err == nil {
			err = left.removeVolumes(ctx, c)
			left.volumes = nil // the next round is about duplicates of the network
		}
		if spec.adopts() || err != nil {
			break
		}
		if err == nil {
			err = deleteParts(ctx, c, s)
		}
		if err != nil {
			break
		}
		s, err = takeSnapshot(ctx, c, own) // duplicates
	}
	if err != nil && left.unseen != nil {
		err = errors.Join(err, fmt.Errorf("load balancers that controllers in the cluster have left could not be looked for: %w", left.unseen))
	}
	if err != nil && !errors.Is(err, aws.ErrNotFound) {
		return explainBlocked(ctx, c, s.vpcID(), fmt.Errorf("delete the network of cluster %s: %w", spec.Cluster, err))
	}
	return nil
}

// deletable returns an error if a part of the network belongs to another owner.
func deletable(c *aws.Client, spec Spec, s snapshot) error {
	b := &builder{Client: c, spec: spec, snapshot: s}
	b.extra, b.spare = nil, nil // looked at when it is their turn
	if spec.adopts() || s.vpc == nil || aws.OwnerOf(aws.TagMap(s.vpc.Tags)).ID != spec.Claim.ID {
		_, err := b.allOurs()
		return err
	}
	// The VPC is ours, and stays in the state. Remains of a create that has lost the VPC, and parts
	// that have lost their tags, are deleted with it.
	b.spec.Claim.Adopt = false
	if _, err := b.judge(b.unclaimed()); err != nil {
		return errors.New(err.Error())
	}
	return nil
}

// deleteGroups deletes the groups, after the rules that refer to other groups. All other rules are
// deleted with their group.
func deleteGroups(ctx context.Context, c *aws.Client, groups []types.SecurityGroup) error {
	b := &builder{Client: c}
	ours := map[string]bool{}
	for _, group := range groups {
		ours[sdk.ToString(group.GroupId)] = true
	}
	g, gctx := parallel.WithContext(ctx)
	for _, group := range groups {
		for egress, all := range map[bool][]types.IpPermission{false: group.IpPermissions, true: group.IpPermissionsEgress} {
			if rules := slices.DeleteFunc(rulesOf(all), func(r rule) bool { return !ours[r.source] }); len(rules) > 0 {
				g.Go(func() error {
					err := b.revoke(gctx, sdk.ToString(group.GroupId), rules, egress)
					return aws.Ignore(err, "InvalidGroup.NotFound")
				})
			}
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	g, gctx = parallel.WithContext(ctx)
	for _, group := range groups {
		g.Go(func() error {
			return deleteGroup(gctx, c, group)
		})
	}
	return g.Wait()
}

// deleteGroup deletes a security group once nothing uses it any more.
func deleteGroup(ctx context.Context, c *aws.Client, group types.SecurityGroup) error {
	_, err := c.EC2.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: group.GroupId}, c.RetryUntilUnused())
	if err = aws.Ignore(err, "InvalidGroup.NotFound"); err != nil {
		return fmt.Errorf("delete security group %s (%s): %w", sdk.ToString(group.GroupName), sdk.ToString(group.GroupId), err)
	}
	return nil
}

func deleteParts(ctx context.Context, c *aws.Client, s snapshot) error {
	vpc := s.vpcID()
	if err := deleteNATs(ctx, c, s.nats); err != nil {
		return err
	}
	if err := releaseAddresses(ctx, c, s.natAddresses); err != nil {
		return err
	}
	g, gctx := parallel.WithContext(ctx)
	if s.gateway != nil {
		for _, w := range append(s.spare, *s.gateway) {
			if s.mine(w.InternetGatewayId, w.Tags) && (len(w.Attachments) > 0 || !s.others(w.Tags)) {
				g.Go(func() error { return deleteGateway(gctx, c, w) })
			}
		}
	}
	g.Go(func() error {
		for _, n := range s.subnets {
			if err := deleteSubnet(gctx, c, sdk.ToString(n.SubnetId)); err != nil {
				return err
			}
		}
		for _, t := range s.tables {
			if !s.mine(t.RouteTableId, t.Tags) {
				continue // the main table is deleted with the VPC
			}
			if err := deleteTable(gctx, c, sdk.ToString(t.RouteTableId)); err != nil {
				return err
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil || vpc == "" {
		return err
	}
	_, err := c.EC2.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: &vpc}, c.RetryUntilUnused())
	if err = aws.Ignore(err, "InvalidVpcID.NotFound"); err != nil {
		return fmt.Errorf("delete VPC %s: %w", vpc, err)
	}
	return nil
}

func deleteGateway(ctx context.Context, c *aws.Client, w types.InternetGateway) error {
	id := w.InternetGatewayId
	for _, a := range w.Attachments {
		_, err := c.EC2.DetachInternetGateway(ctx, &ec2.DetachInternetGatewayInput{InternetGatewayId: id, VpcId: a.VpcId}, c.RetryUntilUnused())
		if err = aws.Ignore(err, "Gateway.NotAttached", "InvalidInternetGatewayID.NotFound", "InvalidVpcID.NotFound"); err != nil {
			return fmt.Errorf("detach internet gateway %s: %w", sdk.ToString(id), err)
		}
	}
	_, err := c.EC2.DeleteInternetGateway(ctx, &ec2.DeleteInternetGatewayInput{InternetGatewayId: id}, c.RetryUntilUnused())
	if err = aws.Ignore(err, "InvalidInternetGatewayID.NotFound"); err != nil {
		return fmt.Errorf("delete internet gateway %s: %w", sdk.ToString(id), err)
	}
	return nil
}

// deleteSpareGateways deletes the gateways with our claim that are attached to nothing. All other
// parts of a network are in its VPC.
func deleteSpareGateways(ctx context.Context, c *aws.Client, spec Spec) error {
	found, err := listGateways(ctx, c, aws.TagFilter(aws.TagCluster, spec.Cluster), aws.TagFilter(aws.TagKind, aws.KindNetwork))
	if err != nil {
		return fmt.Errorf("look for internet gateways: %w", err)
	}
	for _, w := range found {
		if len(w.Attachments) == 0 && aws.OwnerOf(aws.TagMap(w.Tags)).ID == spec.Claim.ID {
			if err := deleteGateway(ctx, c, w); err != nil {
				return err
			}
		}
	}
	return nil
}

// explainBudget is several times what EC2 takes to list network interfaces.
const explainBudget = 15 * time.Second

// explainBlocked adds to an error about a VPC in use which network interfaces use it.
func explainBlocked(ctx context.Context, c *aws.Client, vpc string, err error) error {
	if vpc == "" || !aws.IsCode(err, "DependencyViolation", "AuthFailure.AddressInUse") {
		return err
	}
	// The deletion may have used up its time.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience.Of(ctx, explainBudget))
	defer cancel()
	found, failed := listInterfaces(ctx, c, aws.Filter("vpc-id", vpc))
	if failed != nil {
		return errors.Join(err, failed)
	}
	var users []string
	for _, i := range found {
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
func MadeVPC(ctx context.Context, c *aws.Client, cluster, id string) (bool, error) {
	out, err := c.EC2.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{VpcIds: []string{id}})
	switch {
	case aws.IsCode(err, "InvalidVpcID.NotFound"):
		return false, fmt.Errorf("VPC %s of cluster %s %w", id, cluster, aws.ErrNotFound)
	case err != nil:
		return false, fmt.Errorf("look at VPC %s: %w", id, err)
	}
	return slices.ContainsFunc(out.Vpcs, func(v types.Vpc) bool {
		tags := aws.TagMap(v.Tags)
		return tags[aws.TagCluster] == cluster && tags[aws.TagKind] == aws.KindNetwork
	}), nil
}
