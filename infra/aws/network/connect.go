package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/tunnel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// The network's own EC2 Instance Connect Endpoint, and its security group.

// roleConnect is the name of both in tags. It is no role of machines.
const roleConnect aws.MachineRole = "connect"

const subjectConnect = "instance connect endpoint"

// connectBudget is several times what EC2 takes to make or to delete an endpoint, which is some minutes.
const connectBudget = 15 * time.Minute

// ConnectParts identifies the network's own EC2 Instance Connect Endpoint and its security group.
type ConnectParts struct {
	EndpointID      string `json:"endpoint_id,omitempty"`
	SecurityGroupID string `json:"security_group_id,omitempty"`
}

// mayConnect reports whether the network wants an endpoint or may have one.
func (s Spec) mayConnect() bool {
	return s.InstanceConnect || s.Known.Connect != ConnectParts{} || s.lookForParts
}

// connectParts returns the network's endpoints, also those that are being deleted.
func connectParts(ctx context.Context, c *aws.Client, spec Spec, within []types.Filter) (found []types.Ec2InstanceConnectEndpoint, err error) {
	mine := spec.mine()
	all, err := listEndpoints(ctx, c, within...)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		if e.State != types.Ec2InstanceConnectEndpointStateDeleteComplete && mine(e.InstanceConnectEndpointId, e.Tags) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b types.Ec2InstanceConnectEndpoint) int {
		return aws.CompareIDs(a.InstanceConnectEndpointId, b.InstanceConnectEndpointId)
	})
	return found, nil
}

// endpoint returns the network's endpoint, unless it is being deleted.
func (s *snapshot) endpoint() *types.Ec2InstanceConnectEndpoint {
	for i, e := range s.endpoints {
		if e.State != types.Ec2InstanceConnectEndpointStateDeleteInProgress && e.State != types.Ec2InstanceConnectEndpointStateDeleteComplete {
			return &s.endpoints[i]
		}
	}
	return nil
}

// groupIDs returns the ids of the network's security groups, also that of its endpoint.
func (s *snapshot) groupIDs() map[aws.MachineRole]string {
	out := map[aws.MachineRole]string{}
	for role, g := range s.groups {
		out[role] = sdk.ToString(g.GroupId)
	}
	return out
}

func (s *snapshot) connect() ConnectParts {
	out := ConnectParts{SecurityGroupID: s.groupIDs()[roleConnect]}
	if e := s.endpoint(); e != nil {
		out.EndpointID = sdk.ToString(e.InstanceConnectEndpointId)
	}
	return out
}

// ownedConnectParts returns the endpoint and its group with their tags.
func (b *builder) ownedConnectParts() []taggedThing {
	var out []taggedThing
	if g, ok := b.groups[roleConnect]; ok {
		out = append(out, taggedThing{subjectGroup(roleConnect), sdk.ToString(g.GroupId), string(roleConnect), aws.TagMap(g.Tags)})
	}
	if e := b.endpoint(); e != nil {
		out = append(out, taggedThing{subjectConnect, sdk.ToString(e.InstanceConnectEndpointId), string(roleConnect), aws.TagMap(e.Tags)})
	}
	return out
}

// wantedEgressOf returns the outgoing rules of a security group: everything for machines, and SSH within the
// VPC for the endpoint.
func (b *builder) wantedEgressOf(role aws.MachineRole) []rule {
	if role != roleConnect {
		return wantedEgress
	}
	vpc := b.spec.VPCCIDR
	if b.vpc != nil {
		vpc, _ = netip.ParsePrefix(sdk.ToString(b.vpc.CidrBlock))
	}
	return []rule{{protocol: "tcp", from: portSSH, to: portSSH, source: vpc.String()}}
}

// findConnect finds a missing endpoint, and an endpoint that does not work: EC2 then makes another one.
func (b *builder) findConnect() []aws.Repair {
	if !b.spec.InstanceConnect {
		return nil
	}
	e := b.endpoint()
	if e == nil {
		return []aws.Repair{aws.RepairOf(finding.Finding{Subject: subjectConnect, Kind: finding.InstanceConnect, Problem: finding.Missing}, b.createEndpoint)}
	}
	f := finding.Finding{Subject: subjectConnect, Kind: finding.InstanceConnect, Problem: finding.Value}
	group := b.groupIDs()[roleConnect]
	switch {
	case e.State == types.Ec2InstanceConnectEndpointStateCreateInProgress: // by a run that has ended
		f.Found, f.Wanted = string(e.State), string(types.Ec2InstanceConnectEndpointStateCreateComplete)
		return []aws.Repair{aws.RepairOf(f, func(ctx context.Context) error {
			return endpointReady(ctx, b.Client, sdk.ToString(e.InstanceConnectEndpointId))
		})}
	case !tunnel.Usable(e.State):
		f.Found, f.Wanted, f.Cause = string(e.State), string(types.Ec2InstanceConnectEndpointStateCreateComplete), sdk.ToString(e.StateMessage)
	case sdk.ToBool(e.PreserveClientIp):
		f.Found, f.Wanted = "the address of the client", "its own address as the source"
	case group != "" && !slices.Equal(e.SecurityGroupIds, []string{group}):
		f.Found, f.Wanted = strings.Join(e.SecurityGroupIds, ", "), group
	default:
		return nil
	}
	return []aws.Repair{aws.RepairOf(f, func(ctx context.Context) error {
		if err := deleteEndpoints(ctx, b.Client, []types.Ec2InstanceConnectEndpoint{*e}); err != nil {
			return err
		}
		return b.createEndpoint(ctx)
	})}
}

// connectSubnet returns the subnet for the endpoint. EC2 chooses its address, which must not be one that a
// machine is to have: so it is beside NAT gateways, if there are some. ok is false if the subnet is missing.
func (b *builder) connectSubnet() (id string, ok bool) {
	subnets := b.network().Subnets
	if len(subnets) == 0 {
		return "", false
	}
	if i := slices.IndexFunc(subnets, func(s Subnet) bool { return s.Public }); i >= 0 && !b.spec.adopts() {
		return subnets[i].ID, true
	}
	return subnets[0].ID, true
}

// createEndpoint makes the endpoint. It waits for one that is being deleted:
// a VPC has one at most.
func (b *builder) createEndpoint(ctx context.Context) error {
	subnet, ok := b.connectSubnet()
	group := b.groupIDs()[roleConnect]
	if !ok || group == "" {
		return errors.New("its subnet or its security group is missing")
	}
	leaving := slices.DeleteFunc(slices.Clone(b.endpoints), func(e types.Ec2InstanceConnectEndpoint) bool {
		return e.State != types.Ec2InstanceConnectEndpointStateDeleteInProgress
	})
	if err := deleteEndpoints(ctx, b.Client, leaving); err != nil {
		return err
	}
	tags := b.want(string(roleConnect))
	out, err := b.EC2.CreateInstanceConnectEndpoint(ctx, &ec2.CreateInstanceConnectEndpointInput{
		SubnetId: &subnet, SecurityGroupIds: []string{group}, PreserveClientIp: sdk.Bool(false),
		TagSpecifications: []types.TagSpecification{aws.TagSpecification(types.ResourceTypeInstanceConnectEndpoint, tags)},
	}, b.RetryUntilKnown())
	if err != nil {
		return b.adoptEndpoint(ctx, err)
	}
	made := *out.InstanceConnectEndpoint
	made.Tags = aws.EC2Tags(tags)
	b.change(func(s *snapshot) { s.endpoints = append(s.endpoints, made) })
	return endpointReady(ctx, b.Client, sdk.ToString(made.InstanceConnectEndpointId))
}

// adoptEndpoint adopts the endpoint that an earlier attempt made, whose response was lost, or says that the
// VPC has another one.
func (b *builder) adoptEndpoint(ctx context.Context, failed error) error {
	failed = fmt.Errorf("create: %w", failed)
	found, err := listEndpoints(ctx, b.Client, aws.Filter("vpc-id", b.vpcID()))
	if err != nil {
		return failed
	}
	for _, e := range found {
		id := sdk.ToString(e.InstanceConnectEndpointId)
		switch {
		case e.State == types.Ec2InstanceConnectEndpointStateDeleteComplete:
		case b.mine(e.InstanceConnectEndpointId, e.Tags):
			if err := b.claimLate(ctx, taggedThing{subjectConnect, id, string(roleConnect), aws.TagMap(e.Tags)}); err != nil {
				return err
			}
			b.change(func(s *snapshot) { s.endpoints = append(s.endpoints, e) })
			return endpointReady(ctx, b.Client, id)
		default:
			return fmt.Errorf("%s has the endpoint %s of another owner, and a VPC can have only one: remove instance_connect_endpoint, and let the security groups of that endpoint reach the machines: "+
				"%w", b.vpcID(), id, failed)
		}
	}
	return failed
}

// endpointReady waits until an endpoint opens tunnels.
func endpointReady(ctx context.Context, c *aws.Client, id string) error {
	ctx, cancel := patience.Within(ctx, connectBudget)
	defer cancel()
	return aws.Poll(ctx, "wait until it is ready", func(ctx context.Context) (bool, string, error) {
		e, err := describeEndpoint(ctx, c, id)
		switch {
		case err != nil:
			return false, "", err
		case e == nil:
			return false, id + " is not known yet", nil
		case tunnel.Usable(e.State):
			return true, "", nil
		case e.State != types.Ec2InstanceConnectEndpointStateCreateInProgress:
			return false, "", fmt.Errorf("%s is %s: %s", id, e.State, sdk.ToString(e.StateMessage))
		}
		return false, fmt.Sprintf("%s is %s", id, e.State), nil
	})
}

// describeEndpoint returns an endpoint; nil if EC2 does not know it, or not yet.
func describeEndpoint(ctx context.Context, c *aws.Client, id string) (*types.Ec2InstanceConnectEndpoint, error) {
	out, err := c.EC2.DescribeInstanceConnectEndpoints(ctx, &ec2.DescribeInstanceConnectEndpointsInput{InstanceConnectEndpointIds: []string{id}})
	if err != nil {
		return nil, aws.Ignore(err, "InvalidInstanceConnectEndpointId.NotFound")
	}
	for _, e := range out.InstanceConnectEndpoints {
		return &e, nil
	}
	return nil, nil
}

// deleteEndpoints deletes endpoints and waits until they are gone: until then they keep their subnet and
// their security group.
func deleteEndpoints(ctx context.Context, c *aws.Client, endpoints []types.Ec2InstanceConnectEndpoint) error {
	ctx, cancel := patience.Within(ctx, connectBudget)
	defer cancel()
	g, gctx := parallel.WithContext(ctx)
	for _, e := range endpoints {
		id := sdk.ToString(e.InstanceConnectEndpointId)
		g.Go(func() error {
			_, err := c.EC2.DeleteInstanceConnectEndpoint(gctx, &ec2.DeleteInstanceConnectEndpointInput{InstanceConnectEndpointId: &id})
			if err = aws.Ignore(err, "InvalidInstanceConnectEndpointId.NotFound"); err != nil {
				return fmt.Errorf("delete %s %s: %w", tunnel.EndpointName, id, err)
			}
			return aws.Poll(gctx, "wait until "+id+" is deleted", func(ctx context.Context) (bool, string, error) {
				now, err := describeEndpoint(ctx, c, id)
				if err != nil || now == nil {
					return err == nil, "", err
				}
				return now.State == types.Ec2InstanceConnectEndpointStateDeleteComplete, "it is " + string(now.State), nil
			})
		})
	}
	return g.Wait()
}

// findExcessConnect finds an endpoint and its security group that are not wanted any more.
func (b *builder) findExcessConnect() []aws.Repair {
	if b.spec.InstanceConnect {
		return nil
	}
	group, ok := b.groups[roleConnect]
	f := finding.Finding{Subject: subjectConnect, Kind: finding.InstanceConnect, Problem: finding.NotWanted}
	switch {
	case b.endpoint() != nil:
	case ok:
		f.Subject, f.Kind = subjectGroup(roleConnect), finding.SecurityGroup
	default:
		return nil
	}
	return []aws.Repair{aws.RepairOf(f, func(ctx context.Context) error {
		if err := deleteEndpoints(ctx, b.Client, b.endpoints); err != nil {
			return err
		}
		b.change(func(s *snapshot) { s.endpoints = nil })
		return b.deleteConnectGroup(ctx, group)
	})}
}

func (b *builder) deleteConnectGroup(ctx context.Context, group types.SecurityGroup) error {
	if group.GroupId == nil {
		return nil
	}
	if err := deleteGroup(ctx, b.Client, group); err != nil {
		return err
	}
	b.change(func(s *snapshot) { delete(s.groups, roleConnect) })
	return nil
}
