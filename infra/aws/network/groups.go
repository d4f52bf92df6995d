package network

import (
	"context"
	"fmt"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// GroupSSH is the name of the security group that lets in SSH. Every machine has it beside the group of its role, so that each
// of many networks needs one rule in a group, and not two. It is no role of machines.
const GroupSSH aws.MachineRole = "ssh"

// Groups returns the names of the security groups of machines: one for each role, and GroupSSH.
func Groups() []aws.MachineRole { return append(aws.MachineRoles(), GroupSSH) }

// MachineGroups returns the ids of the security groups that a machine of the role has: that of the role, and GroupSSH. Missing
// groups are left out.
func (n Network) MachineGroups(role aws.MachineRole) []string {
	return slices.DeleteFunc([]string{n.SecurityGroups[role], n.SecurityGroups[GroupSSH]}, func(id string) bool { return id == "" })
}

// wantedGroups returns the names of the security groups that the network wants.
func (s Spec) wantedGroups() []aws.MachineRole {
	if s.InstanceConnect {
		return append(Groups(), roleConnect)
	}
	return Groups()
}

// shareSSH gives the group ssh to the cluster's machines that have only the group of their role. Their rules for SSH are about to
// be removed from that group, and only a later change of each machine would give it the other one.
func (b *builder) shareSSH(ctx context.Context, ids map[aws.MachineRole]string) error {
	b.sharing.Lock()
	defer b.sharing.Unlock()
	if b.shared {
		return nil
	}
	g, gctx := parallel.WithContext(ctx)
	err := b.EachInstance(ctx, func(i types.Instance) {
		if aws.IsGone(i) {
			return
		}
		for _, n := range i.NetworkInterfaces {
			if groups, lacks := withSSH(n, ids); lacks {
				g.Go(func() error {
					return b.setGroups(gctx, sdk.ToString(n.NetworkInterfaceId), sdk.ToString(i.InstanceId), groups)
				})
			}
		}
	}, append(aws.KindFilters(aws.KindMachine, b.spec.Cluster), aws.Filter("vpc-id", b.vpcID()))...)
	if failed := g.Wait(); err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("let SSH reach machines before the rules change: %w", err)
	}
	b.shared = true
	return nil
}

// withSSH returns the groups of an interface and the group ssh. lacks says whether the interface has a role's group without it.
func withSSH(n types.InstanceNetworkInterface, ids map[aws.MachineRole]string) (groups []string, lacks bool) {
	for _, g := range n.Groups {
		groups = append(groups, sdk.ToString(g.GroupId))
	}
	lacks = slices.ContainsFunc(aws.MachineRoles(), func(role aws.MachineRole) bool { return slices.Contains(groups, ids[role]) })
	return append(groups, ids[GroupSSH]), lacks && !slices.Contains(groups, ids[GroupSSH])
}

// setGroups sets the security groups of an instance's interface, which may be gone by now.
func (b *builder) setGroups(ctx context.Context, networkInterface, instance string, groups []string) error {
	_, err := b.EC2.ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{
		NetworkInterfaceId: &networkInterface, Groups: groups,
	}, b.RetryUntilKnown())
	if err = aws.Ignore(err, "InvalidNetworkInterfaceID.NotFound"); err != nil {
		return fmt.Errorf("security groups of instance %s: %w", instance, err)
	}
	return nil
}
