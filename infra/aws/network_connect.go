package aws

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
	"golang.org/x/sync/errgroup"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// The network's own EC2 Instance Connect Endpoint, and its security group.

// roleConnect is the name of both in tags. It is no role of machines.
const roleConnect Role = "connect"

const subjectConnect = "instance connect endpoint"

// connectBudget is several times what EC2 takes to make or to delete an endpoint, which is some minutes.
const connectBudget = 15 * time.Minute

// ConnectParts identifies the network's own EC2 Instance Connect Endpoint and its security group.
type ConnectParts struct {
	EndpointID      string `json:"endpoint_id,omitempty"`
	SecurityGroupID string `json:"security_group_id,omitempty"`
}

// mayConnect reports whether the network wants an endpoint or may have one.
func (s NetworkSpec) mayConnect() bool {
	return s.InstanceConnect || s.Known.Connect != ConnectParts{} || s.lookForParts
}

// groupRoles returns the names of the security groups that the network wants.
func (s NetworkSpec) groupRoles() []Role {
	if s.InstanceConnect {
		return append(Roles(), roleConnect)
	}
	return Roles()
}

// connectParts returns the network's endpoints, also those that are being deleted.
func (c *Client) connectParts(ctx context.Context, spec NetworkSpec, within []types.Filter) (found []types.Ec2InstanceConnectEndpoint, err error) {
	mine := spec.mine()
	pages := ec2.NewDescribeInstanceConnectEndpointsPaginator(c.EC2, &ec2.DescribeInstanceConnectEndpointsInput{Filters: within})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, e := range page.InstanceConnectEndpoints {
			if e.State != types.Ec2InstanceConnectEndpointStateDeleteComplete && mine(e.InstanceConnectEndpointId, e.Tags) {
				found = append(found, e)
			}
		}
	}
	slices.SortFunc(found, func(a, b types.Ec2InstanceConnectEndpoint) int {
		return compareStrings(a.InstanceConnectEndpointId, b.InstanceConnectEndpointId)
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
func (s *snapshot) groupIDs() map[Role]string {
	out := map[Role]string{}
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
		out = append(out, taggedThing{subjectGroup(roleConnect), sdk.ToString(g.GroupId), string(roleConnect), TagMap(g.Tags)})
	}
	if e := b.endpoint(); e != nil {
		out = append(out, taggedThing{subjectConnect, sdk.ToString(e.InstanceConnectEndpointId), string(roleConnect), TagMap(e.Tags)})
	}
	return out
}

// wantedEgressOf returns the outgoing rules of a security group: everything for machines, and SSH within the
// VPC for the endpoint.
func (b *builder) wantedEgressOf(role Role) []rule {
	if role != roleConnect {
		return wantedEgress
	}
	vpc := b.spec.VPCCIDR
	if b.vpc != nil {
		vpc, _ = netip.ParsePrefix(sdk.ToString(b.vpc.CidrBlock))
	}
	return []rule{{protocol: "tcp", from: portSSH, to: portSSH, source: vpc.String()}}
}

// findConnect finds a missing endpoint, and one that does not do what it is for: EC2 makes another one then.
func (b *builder) findConnect() []Repair {
	if !b.spec.InstanceConnect {
		return nil
	}
	e := b.endpoint()
	if e == nil {
		return []Repair{RepairOf(finding.Finding{Subject: subjectConnect, Kind: finding.InstanceConnect, Problem: finding.Missing}, b.createEndpoint)}
	}
	f := finding.Finding{Subject: subjectConnect, Kind: finding.InstanceConnect, Problem: finding.Value}
	group := b.groupIDs()[roleConnect]
	switch {
	case e.State == types.Ec2InstanceConnectEndpointStateCreateInProgress: // by a run that has ended
		f.Found, f.Wanted = string(e.State), string(types.Ec2InstanceConnectEndpointStateCreateComplete)
		return []Repair{RepairOf(f, func(ctx context.Context) error {
			return b.endpointReady(ctx, sdk.ToString(e.InstanceConnectEndpointId))
		})}
	case !usable(e.State):
		f.Found, f.Wanted, f.Cause = string(e.State), string(types.Ec2InstanceConnectEndpointStateCreateComplete), sdk.ToString(e.StateMessage)
	case sdk.ToBool(e.PreserveClientIp):
		f.Found, f.Wanted = "the address of the client", "its own address as the source"
	case group != "" && !slices.Equal(e.SecurityGroupIds, []string{group}):
		f.Found, f.Wanted = strings.Join(e.SecurityGroupIds, ", "), group
	default:
		return nil
	}
	return []Repair{RepairOf(f, func(ctx context.Context) error {
		if err := b.deleteEndpoints(ctx, []types.Ec2InstanceConnectEndpoint{*e}); err != nil {
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
	if err := b.deleteEndpoints(ctx, leaving); err != nil {
		return err
	}
	tags := b.want(string(roleConnect))
	out, err := b.EC2.CreateInstanceConnectEndpoint(ctx, &ec2.CreateInstanceConnectEndpointInput{
		SubnetId: &subnet, SecurityGroupIds: []string{group}, PreserveClientIp: sdk.Bool(false),
		TagSpecifications: []types.TagSpecification{TagSpecification(types.ResourceTypeInstanceConnectEndpoint, tags)},
	}, b.RetryUntilKnown())
	if err != nil {
		return b.adoptEndpoint(ctx, err)
	}
	made := *out.InstanceConnectEndpoint
	made.Tags = EC2Tags(tags)
	b.change(func(s *snapshot) { s.endpoints = append(s.endpoints, made) })
	return b.endpointReady(ctx, sdk.ToString(made.InstanceConnectEndpointId))
}

// adoptEndpoint adopts the endpoint that an earlier attempt made, whose response was lost, or says that the
// VPC has another one.
func (b *builder) adoptEndpoint(ctx context.Context, failed error) error {
	failed = fmt.Errorf("create: %w", failed)
	out, err := b.EC2.DescribeInstanceConnectEndpoints(ctx, &ec2.DescribeInstanceConnectEndpointsInput{Filters: []types.Filter{filter("vpc-id", b.vpcID())}})
	if err != nil {
		return failed
	}
	for _, e := range out.InstanceConnectEndpoints {
		id := sdk.ToString(e.InstanceConnectEndpointId)
		switch {
		case e.State == types.Ec2InstanceConnectEndpointStateDeleteComplete:
		case b.mine(e.InstanceConnectEndpointId, e.Tags):
			if err := b.claimLate(ctx, taggedThing{subjectConnect, id, string(roleConnect), TagMap(e.Tags)}); err != nil {
				return err
			}
			b.change(func(s *snapshot) { s.endpoints = append(s.endpoints, e) })
			return b.endpointReady(ctx, id)
		default:
			return fmt.Errorf("%s has the endpoint %s, which is not this cluster's, and a VPC has one at most: remove instance_connect_endpoint, and let that one's security groups reach the machines: %w", b.vpcID(), id, failed)
		}
	}
	return failed
}

// endpointReady waits until an endpoint opens tunnels.
func (c *Client) endpointReady(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, connectBudget, fmt.Errorf("not within %s", connectBudget))
	defer cancel()
	return Poll(ctx, "wait until it is ready", func(ctx context.Context) (bool, string, error) {
		e, err := c.describeEndpoint(ctx, id)
		switch {
		case err != nil:
			return false, "", err
		case e == nil:
			return false, id + " is not known yet", nil
		case usable(e.State):
			return true, "", nil
		case e.State != types.Ec2InstanceConnectEndpointStateCreateInProgress:
			return false, "", fmt.Errorf("%s is %s: %s", id, e.State, sdk.ToString(e.StateMessage))
		}
		return false, fmt.Sprintf("%s is %s", id, e.State), nil
	})
}

// describeEndpoint returns an endpoint; nil if EC2 does not know it, or not yet.
func (c *Client) describeEndpoint(ctx context.Context, id string) (*types.Ec2InstanceConnectEndpoint, error) {
	out, err := c.EC2.DescribeInstanceConnectEndpoints(ctx, &ec2.DescribeInstanceConnectEndpointsInput{InstanceConnectEndpointIds: []string{id}})
	if err != nil {
		return nil, Ignore(err, "InvalidInstanceConnectEndpointId.NotFound")
	}
	for _, e := range out.InstanceConnectEndpoints {
		return &e, nil
	}
	return nil, nil
}

// deleteEndpoints deletes endpoints and waits until they are gone: until then they keep their subnet and
// their security group.
func (c *Client) deleteEndpoints(ctx context.Context, endpoints []types.Ec2InstanceConnectEndpoint) error {
	ctx, cancel := context.WithTimeoutCause(ctx, connectBudget, fmt.Errorf("not within %s", connectBudget))
	defer cancel()
	g, gctx := errgroup.WithContext(ctx)
	for _, e := range endpoints {
		id := sdk.ToString(e.InstanceConnectEndpointId)
		g.Go(func() error {
			_, err := c.EC2.DeleteInstanceConnectEndpoint(gctx, &ec2.DeleteInstanceConnectEndpointInput{InstanceConnectEndpointId: &id})
			if err = Ignore(err, "InvalidInstanceConnectEndpointId.NotFound"); err != nil {
				return fmt.Errorf("delete %s %s: %w", tunnelEndpoint, id, err)
			}
			return Poll(gctx, "wait until "+id+" is deleted", func(ctx context.Context) (bool, string, error) {
				now, err := c.describeEndpoint(ctx, id)
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
func (b *builder) findExcessConnect() []Repair {
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
	return []Repair{RepairOf(f, func(ctx context.Context) error {
		if err := b.deleteEndpoints(ctx, b.endpoints); err != nil {
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
	if err := b.deleteGroup(ctx, roleConnect, group); err != nil {
		return err
	}
	b.change(func(s *snapshot) { delete(s.groups, roleConnect) })
	return nil
}
