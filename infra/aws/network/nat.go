package network

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// NATGateway is a NAT gateway of a network.
type NATGateway struct {
	ID, AllocationID, AvailabilityZone string
	// PublicIP is the address from which the machines behind it reach the internet.
	PublicIP netip.Addr
}

// natBudget is several times what EC2 takes to make or to delete a NAT gateway, which is one or two
// minutes.
const natBudget = 10 * time.Minute

// mayHaveNATGateways reports whether the network wants NAT gateways or may have some.
func (s Spec) mayHaveNATGateways() bool {
	return !s.adopts() && (s.NATGateways != NoNATGateways || len(s.Known.NATGateways) > 0 || s.lookForParts)
}

// natParts returns the network's NAT gateways and their Elastic IPs, whoever owns them.
func natParts(ctx context.Context, c *aws.Client, spec Spec, tagged []types.Filter) (nats []types.NatGateway, addresses []types.Address, err error) {
	filters, mine := tagged, spec.mine()
	if spec.Known.VPCID != "" {
		filters = []types.Filter{aws.Filter("vpc-id", spec.Known.VPCID)} // they may have lost their tags
	}
	all, err := aws.All(ctx, ec2.NewDescribeNatGatewaysPaginator(c.EC2, &ec2.DescribeNatGatewaysInput{Filter: filters}),
		func(p *ec2.DescribeNatGatewaysOutput) []types.NatGateway { return p.NatGateways })
	if err != nil {
		return nil, nil, err
	}
	for _, n := range all {
		if mine(n.NatGatewayId, n.Tags) {
			nats = append(nats, n)
		}
	}
	slices.SortFunc(nats, func(a, b types.NatGateway) int { return aws.CompareIDs(a.NatGatewayId, b.NatGatewayId) })
	found, err := c.EC2.DescribeAddresses(ctx, &ec2.DescribeAddressesInput{Filters: tagged})
	if err != nil {
		return nil, nil, err
	}
	addresses = found.Addresses
	var lost []string // those that have lost their tags
	for _, n := range spec.Known.NATGateways {
		if n.AllocationID != "" && !slices.ContainsFunc(addresses, func(a types.Address) bool { return sdk.ToString(a.AllocationId) == n.AllocationID }) {
			lost = append(lost, n.AllocationID)
		}
	}
	if len(lost) > 0 {
		found, err := c.EC2.DescribeAddresses(ctx, &ec2.DescribeAddressesInput{Filters: []types.Filter{aws.Filter("allocation-id", lost...)}})
		if err != nil {
			return nil, nil, err
		}
		addresses = append(addresses, found.Addresses...)
	}
	return nats, addresses, nil
}

// natUsable reports whether a NAT gateway forwards, or is about to.
func natUsable(n types.NatGateway) bool {
	return n.State == types.NatGatewayStateAvailable || n.State == types.NatGatewayStatePending
}

// nameOfPart returns the name of a part by what is known of it, or else by its tags.
func nameOfPart(tags []types.Tag, isKnown func(name string) bool, names iter.Seq[string]) string {
	for name := range names {
		if isKnown(name) {
			return name
		}
	}
	return aws.TagMap(tags)[aws.TagResource]
}

// nameOfTable, nameOfNAT and nameOfNATAddress return the names of our own parts.
func (s *snapshot) nameOfTable(t types.RouteTable) string {
	return nameOfPart(t.Tags, func(name string) bool { return s.known.RouteTables[name] == sdk.ToString(t.RouteTableId) }, maps.Keys(s.known.RouteTables))
}

func (s *snapshot) nameOfNAT(n types.NatGateway) string {
	return nameOfPart(n.Tags, func(name string) bool { return s.known.NATGateways[name].ID == sdk.ToString(n.NatGatewayId) }, maps.Keys(s.known.NATGateways))
}

func (s *snapshot) nameOfNATAddress(a types.Address) string {
	return nameOfPart(a.Tags, func(name string) bool { return s.known.NATGateways[name].AllocationID == sdk.ToString(a.AllocationId) }, maps.Keys(s.known.NATGateways))
}

// natGateways returns all usable NAT gateways by name.
func (s *snapshot) natGateways() map[string]NATGateway {
	zones := map[string]string{}
	for _, subnet := range s.subnets {
		zones[sdk.ToString(subnet.SubnetId)] = sdk.ToString(subnet.AvailabilityZone)
	}
	out := map[string]NATGateway{}
	for _, n := range s.nats {
		name := s.nameOfNAT(n)
		if _, double := out[name]; double || !natUsable(n) {
			continue
		}
		gateway := NATGateway{ID: sdk.ToString(n.NatGatewayId), AvailabilityZone: zones[sdk.ToString(n.SubnetId)]}
		for _, a := range n.NatGatewayAddresses {
			gateway.AllocationID = sdk.ToString(a.AllocationId)
			gateway.PublicIP, _ = netip.ParseAddr(sdk.ToString(a.PublicIp))
		}
		out[name] = gateway
	}
	return out
}

const subjectNAT = "NAT gateway"

// findNATGateways finds missing NAT gateways. They need the public subnets and an attached internet
// gateway.
func (b *builder) findNATGateways() []aws.Repair {
	var out []aws.Repair
	usable := b.natGateways()
	for _, zone := range b.spec.natZones() {
		name := natName(zone)
		if usable[name].ID != "" {
			continue
		}
		f := finding.Finding{Subject: subjectNAT + " " + name, Kind: finding.NATGateway, Problem: finding.Missing}
		for _, n := range b.nats {
			if n.State == types.NatGatewayStateFailed && aws.TagMap(n.Tags)[aws.TagResource] == name {
				f.Cause = natFailure(n)
			}
		}
		out = append(out, aws.RepairOf(f, func(ctx context.Context) error { return b.createNAT(ctx, zone) }))
	}
	return out
}

// natFailure says why a NAT gateway has failed.
func natFailure(n types.NatGateway) string {
	return fmt.Sprintf("%s failed: %s: %s", sdk.ToString(n.NatGatewayId), sdk.ToString(n.FailureCode), sdk.ToString(n.FailureMessage))
}

// createNAT makes a zone's NAT gateway in its public subnet, in place of one that has failed. It uses the Elastic IP of one that was
// deleted, so that the cluster keeps the address from which others know it.
func (b *builder) createNAT(ctx context.Context, zone int) error {
	i := slices.IndexFunc(b.spec.places(), func(p place) bool { return p.public && p.zone == zone })
	subnet := b.subnet(b.spec.places()[i].cidr)
	if subnet == nil {
		return errors.New("it has no public subnet")
	}
	name := natName(zone)
	failed := slices.DeleteFunc(b.natsNow(), func(n types.NatGateway) bool {
		return n.State != types.NatGatewayStateFailed || aws.TagMap(n.Tags)[aws.TagResource] != name
	})
	if err := deleteNATs(ctx, b.Client, failed); err != nil {
		return err
	}
	address, err := b.natAddress(ctx, name)
	if err != nil {
		return err
	}
	tags := b.want(name)
	out, err := b.EC2.CreateNatGateway(ctx, &ec2.CreateNatGatewayInput{
		SubnetId: subnet.SubnetId, AllocationId: address.AllocationId, ConnectivityType: types.ConnectivityTypePublic,
		TagSpecifications: []types.TagSpecification{aws.TagSpecification(types.ResourceTypeNatgateway, tags)},
	}, b.RetryUntilKnown())
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	made := *out.NatGateway
	made.Tags = aws.EC2Tags(tags)
	if len(made.NatGatewayAddresses) == 0 {
		made.NatGatewayAddresses = []types.NatGatewayAddress{{AllocationId: address.AllocationId, PublicIp: address.PublicIp}}
	}
	b.change(func(s *snapshot) { s.nats = append(s.nats, made) })
	return natReady(ctx, b.Client, sdk.ToString(made.NatGatewayId))
}

// natsNow returns the NAT gateways, which other repairs change at the same time.
func (b *builder) natsNow() (nats []types.NatGateway) {
	b.change(func(s *snapshot) { nats = slices.Clone(s.nats) })
	return nats
}

// natAddress returns the Elastic IP for a NAT gateway: an unused one of ours, or a new one. It waits for
// one that a NAT gateway has which is being deleted.
func (b *builder) natAddress(ctx context.Context, name string) (types.Address, error) {
	nats := b.natsNow()
	var addresses []types.Address
	b.change(func(s *snapshot) { addresses = slices.Clone(s.natAddresses) })
	for _, a := range addresses {
		id := sdk.ToString(a.AllocationId)
		if b.nameOfNATAddress(a) != name {
			continue
		}
		i := slices.IndexFunc(nats, func(n types.NatGateway) bool {
			return n.State == types.NatGatewayStateDeleting && len(n.NatGatewayAddresses) > 0 && sdk.ToString(n.NatGatewayAddresses[0].AllocationId) == id
		})
		switch {
		case i >= 0:
			ctx, cancel := patience.Within(ctx, natBudget)
			defer cancel()
			return a, natGone(ctx, b.Client, sdk.ToString(nats[i].NatGatewayId))
		case sdk.ToString(a.AssociationId) == "":
			return a, nil
		}
	}
	tags := b.want(name)
	out, err := b.EC2.AllocateAddress(ctx, &ec2.AllocateAddressInput{
		Domain: types.DomainTypeVpc, TagSpecifications: []types.TagSpecification{aws.TagSpecification(types.ResourceTypeElasticIp, tags)},
	})
	if err != nil {
		return types.Address{}, fmt.Errorf("allocate its Elastic IP: %w", err)
	}
	made := types.Address{AllocationId: out.AllocationId, PublicIp: out.PublicIp, Tags: aws.EC2Tags(tags)}
	b.change(func(s *snapshot) { s.natAddresses = append(s.natAddresses, made) })
	return made, nil
}

// natReady waits until a NAT gateway forwards.
func natReady(ctx context.Context, c *aws.Client, id string) error {
	ctx, cancel := patience.Within(ctx, natBudget)
	defer cancel()
	return aws.Poll(ctx, "wait until it is available", func(ctx context.Context) (bool, string, error) {
		n, err := describeNAT(ctx, c, id)
		switch {
		case err != nil:
			return false, "", err
		case n == nil:
			return false, id + " is not known yet", nil
		case n.State == types.NatGatewayStateFailed:
			return false, "", errors.New(natFailure(*n))
		case !natUsable(*n):
			return false, "", fmt.Errorf("%s is %s", id, n.State)
		}
		return n.State == types.NatGatewayStateAvailable, fmt.Sprintf("%s is %s", id, n.State), nil
	})
}

// describeNAT returns a NAT gateway; nil if EC2 does not know it, or not yet.
func describeNAT(ctx context.Context, c *aws.Client, id string) (*types.NatGateway, error) {
	out, err := c.EC2.DescribeNatGateways(ctx, &ec2.DescribeNatGatewaysInput{NatGatewayIds: []string{id}})
	if err != nil {
		return nil, aws.Ignore(err, "NatGatewayNotFound", "InvalidNatGatewayID.NotFound")
	}
	for _, n := range out.NatGateways {
		return &n, nil
	}
	return nil, nil
}

// deleteNATs deletes NAT gateways and waits until they are gone: until then they keep their subnet and
// their Elastic IP, which keeps the internet gateway.
func deleteNATs(ctx context.Context, c *aws.Client, nats []types.NatGateway) error {
	ctx, cancel := patience.Within(ctx, natBudget)
	defer cancel()
	g, gctx := parallel.WithContext(ctx)
	for _, n := range nats {
		if n.State == types.NatGatewayStateDeleted { // EC2 forgets it by itself
			continue
		}
		id := sdk.ToString(n.NatGatewayId)
		g.Go(func() error {
			_, err := c.EC2.DeleteNatGateway(gctx, &ec2.DeleteNatGatewayInput{NatGatewayId: &id}, c.RetryUntilUnused())
			if err = aws.Ignore(err, "NatGatewayNotFound"); err != nil {
				return fmt.Errorf("delete NAT gateway %s: %w", id, err)
			}
			return natGone(gctx, c, id)
		})
	}
	return g.Wait()
}

// natGone waits until a NAT gateway is deleted.
func natGone(ctx context.Context, c *aws.Client, id string) error {
	return aws.Poll(ctx, "wait until NAT gateway "+id+" is deleted", func(ctx context.Context) (bool, string, error) {
		now, err := describeNAT(ctx, c, id)
		if err != nil || now == nil {
			return err == nil, "", err
		}
		return now.State == types.NatGatewayStateDeleted, "it is " + string(now.State), nil
	})
}

func releaseAddresses(ctx context.Context, c *aws.Client, addresses []types.Address) error {
	for _, a := range addresses {
		_, err := c.EC2.ReleaseAddress(ctx, &ec2.ReleaseAddressInput{AllocationId: a.AllocationId}, c.RetryUntilUnused())
		if err = aws.Ignore(err, "InvalidAllocationID.NotFound"); err != nil {
			return fmt.Errorf("release Elastic IP %s %s of a NAT gateway: %w", sdk.ToString(a.AllocationId), sdk.ToString(a.PublicIp), err)
		}
	}
	return nil
}
