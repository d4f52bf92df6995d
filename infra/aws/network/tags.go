package network

import (
	"context"
	"maps"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// ownedNATParts returns our NAT gateways and their Elastic IPs.
func (b *builder) ownedNATParts() []taggedThing {
	var out []taggedThing
	for _, n := range b.nats {
		if natUsable(n) {
			name := b.nameOfNAT(n)
			out = append(out, taggedThing{subjectNAT + " " + name, sdk.ToString(n.NatGatewayId), name, aws.TagMap(n.Tags)})
		}
	}
	for _, a := range b.natAddresses {
		name := b.nameOfNATAddress(a)
		out = append(out, taggedThing{"Elastic IP of " + name, sdk.ToString(a.AllocationId), name, aws.TagMap(a.Tags)})
	}
	return out
}

// owned returns our resources with the tags they have.
func (b *builder) owned() []taggedThing {
	var out []taggedThing
	for _, role := range Groups() {
		if g, ok := b.groups[role]; ok {
			out = append(out, taggedThing{subjectGroup(role), sdk.ToString(g.GroupId), string(role), aws.TagMap(g.Tags)})
		}
	}
	out = append(out, b.ownedConnectParts()...)
	if b.spec.adopts() || b.vpc == nil {
		return out
	}
	out = append(out, taggedThing{subjectVPC, b.vpcID(), "", aws.TagMap(b.vpc.Tags)})
	names := map[string]string{}
	for _, p := range b.spec.places() {
		names[p.cidr.String()] = b.spec.name(p)
	}
	for _, s := range b.subnets {
		tags := aws.TagMap(s.Tags)
		name, wanted := names[sdk.ToString(s.CidrBlock)]
		if !wanted {
			name = tags[aws.TagResource]
		}
		out = append(out, taggedThing{subjectSubnet + " " + name, sdk.ToString(s.SubnetId), name, tags})
	}
	if b.gateway != nil {
		out = append(out, taggedThing{subjectGateway, sdk.ToString(b.gateway.InternetGatewayId), "", aws.TagMap(b.gateway.Tags)})
	}
	for name, t := range b.ownTables() {
		out = append(out, taggedThing{subjectTable + " " + name, sdk.ToString(t.RouteTableId), name, aws.TagMap(t.Tags)})
	}
	return append(out, b.ownedNATParts()...)
}

type taggedThing struct {
	subject, id, name string
	tags              map[string]string
}

func idsOf(things []taggedThing) []string {
	out := make([]string, len(things))
	for i, t := range things {
		out[i] = t.id
	}
	return out
}

func (b *builder) findTags() []aws.Repair {
	var out []aws.Repair
	for _, t := range b.owned() {
		if differs := aws.DiffTags(b.want(t.name), t.tags); len(differs) > 0 {
			out = append(out, aws.Repair{Findings: finding.About(t.subject, differs), Fix: func(ctx context.Context) error {
				_, err := b.EC2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{t.id}, Tags: aws.EC2Tags(b.want(t.name))}, b.RetryUntilKnown())
				return err
			}})
		}
	}
	return out
}

func (b *builder) removeTags(ctx context.Context) error {
	var ids []string
	for _, t := range b.owned() {
		ids = append(ids, t.id)
	}
	return b.RemoveTags(ctx, ids, b.spec.RemoveTags, b.want(""))
}

// Tags by which Kubernetes' cloud integrations choose the subnets of load balancers: with public addresses, and without.
// https://docs.aws.amazon.com/eks/latest/userguide/network-load-balancing.html
const (
	roleELB         = "kubernetes.io/role/elb"
	roleInternalELB = "kubernetes.io/role/internal-elb"
)

// want returns the tags of one part of the network; for groups, name is one of Groups. GroupSSH has no tag of Kubernetes' cloud
// integrations: of the groups of a machine they change the rules of that with the tag, and refuse two of them.
func (b *builder) want(name string) map[string]string {
	out := b.ClusterTags(b.spec.Cluster, aws.KindNetwork, name, b.spec.Tags)
	if name == string(GroupSSH) {
		for _, key := range aws.Inside(b.spec.Cluster).Tags() {
			delete(out, key)
		}
	}
	for _, p := range b.spec.places() {
		switch {
		case name != b.spec.name(p):
		case p.public:
			out[roleELB] = "1"
		default:
			out[roleInternalELB] = "1"
		}
	}
	maps.Copy(out, b.spec.Claim.Tags())
	return out
}
