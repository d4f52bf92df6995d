package network

import (
	"context"
	"errors"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// creates reports whether the caller does not know any part of the network yet.
func (s Spec) creates() bool {
	return len(s.Known.SecurityGroups) == 0 && (s.adopts() || s.Known.VPCID == "")
}

// judge decides about everything in the snapshot that is, or may be, the network's own. It returns
// what has to be claimed first. known says which ids the caller knows.
func (b *builder) judge(known func(id string) bool) (take []taggedThing, err error) {
	things := b.owned()
	if !b.spec.adopts() {
		for _, v := range b.extra {
			things = append(things, taggedThing{subjectVPC, sdk.ToString(v.VpcId), "", aws.TagMap(v.Tags)})
		}
		for _, g := range b.spare {
			things = append(things, taggedThing{subjectGateway, sdk.ToString(g.InternetGatewayId), "", aws.TagMap(g.Tags)})
		}
	}
	ours := b.hasOurVPC()
	for _, t := range things {
		h := aws.OwnerOf(t.tags)
		lost := ours && h.Unsettled() // by whoever has not got the VPC
		mine, err := b.spec.Claim.Judge(t.subject+" "+t.id, h, known(t.id) && !lost)
		if err != nil {
			return nil, err
		}
		if mine {
			take = append(take, t)
		}
	}
	return take, nil
}

// hasOurVPC reports whether we have made the VPC and it has our claim. Then it decides about its
// parts: of two creates at the same time, each may have claimed parts of the other.
func (b *builder) hasOurVPC() bool {
	return !b.spec.adopts() && b.vpc != nil && b.spec.Claim.ID != "" && aws.OwnerOf(aws.TagMap(b.vpc.Tags)).ID == b.spec.Claim.ID
}

// claim makes sure that everything found is ours before anything is changed.
func (b *builder) claim(ctx context.Context) error {
	known := b.spec.knows()
	take, err := b.judge(known)
	if err != nil || len(take) == 0 {
		return err
	}
	if err := b.TakeOver(ctx, b.spec.Claim, idsOf(take)); err != nil {
		return err
	}
	err = aws.ReadBack(ctx, func(ctx context.Context) error {
		s, err := takeSnapshot(ctx, b.Client, b.spec)
		if err != nil {
			return err
		}
		b.snapshot = s
		late, err := b.allOurs()
		if err != nil || len(late) == 0 {
			return err
		}
		return b.takeParts(ctx, late)
	})
	return b.giveBack(ctx, take, err)
}

// takeParts takes over objects in our network that another create has claimed. It looks at the VPC
// afterwards: whoever takes over the VPC looks at the parts afterwards, so one of the two sees the
// other one.
func (b *builder) takeParts(ctx context.Context, parts []taggedThing) error {
	if err := b.TakeOver(ctx, b.spec.Claim, idsOf(parts)); err != nil {
		return err
	}
	return b.giveBack(ctx, parts, aws.ReadBack(ctx, b.keepsVPC))
}

// giveBack returns err. If err is a ClaimedError, it writes the earlier claims on the parts that
// were taken over and still have our claim: otherwise no owner would have the whole network. Adopted
// parts stay.
func (b *builder) giveBack(ctx context.Context, taken []taggedThing, err error) error {
	if !aws.IsClaimed(err) || b.spec.Claim.Adopt {
		return err
	}
	held, failed := b.StillClaimed(ctx, map[string][]string{b.spec.Claim.ID: idsOf(taken)})
	if failed != nil {
		return errors.Join(err, failed)
	}
	former := map[aws.Claim][]string{}
	for _, t := range taken {
		if h := aws.OwnerOf(t.tags); h.ID != "" && slices.Contains(held[b.spec.Claim.ID], t.id) {
			former[h.Claim] = append(former[h.Claim], t.id)
		}
	}
	for claim, ids := range former {
		err = errors.Join(err, b.TakeOver(ctx, claim, ids))
	}
	return err
}

// keepsVPC returns a ClaimedError if we have made the VPC and another owner has taken it over. A VPC
// that does not exist is no error.
func (b *builder) keepsVPC(ctx context.Context) error {
	id := b.vpcID()
	if b.spec.adopts() || id == "" || b.spec.Claim.ID == "" {
		return nil
	}
	out, err := b.EC2.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{VpcIds: []string{id}}, b.RetryInDoubt())
	if err != nil {
		return aws.Ignore(err, "InvalidVpcID.NotFound")
	}
	for _, v := range out.Vpcs {
		if h := aws.OwnerOf(aws.TagMap(v.Tags)); h.ID != "" && h.ID != b.spec.Claim.ID {
			return &aws.ClaimedError{What: subjectVPC + " " + id, Owner: h.Claim, Known: true}
		}
	}
	return nil
}

// allOurs returns a ClaimedError for anything in the snapshot that belongs to another owner, and
// the objects in our VPC that another create has claimed in vain. Adopting does not help: by now
// our claim has been written.
func (b *builder) allOurs() (late []taggedThing, err error) {
	adopt := b.spec.Claim.Adopt
	b.spec.Claim.Adopt = false
	defer func() { b.spec.Claim.Adopt = adopt }()
	return b.judge(func(string) bool { return true })
}

// unclaimed returns a function that recognises the ids of what has no claim.
func (b *builder) unclaimed() func(id string) bool {
	claimed := map[string]bool{}
	for _, t := range b.owned() {
		claimed[t.id] = aws.OwnerOf(t.tags).ID != ""
	}
	return func(id string) bool { return !claimed[id] }
}

// claimLate claims what was found only when it could not be made.
func (b *builder) claimLate(ctx context.Context, t taggedThing) error {
	take, err := b.spec.Claim.Judge(t.subject+" "+t.id, aws.OwnerOf(t.tags), b.spec.knows()(t.id))
	if err != nil || !take {
		return err
	}
	return b.takeParts(ctx, []taggedThing{t})
}

// knows returns a function that recognises the ids that the caller knows.
func (s Spec) knows() func(id string) bool {
	s.Cluster = "" // of mine, only the ids
	mine := s.mine()
	return func(id string) bool { return mine(&id, nil) }
}

// confirm looks at a new network again, by its tags: another create may have made a network at the
// same time, or have taken over this one. Then this create has lost.
func confirm(ctx context.Context, c *aws.Client, spec Spec) error {
	if spec.Claim.ID == "" {
		return nil
	}
	s, err := takeSnapshot(ctx, c, spec)
	if err != nil {
		return err
	}
	b := &builder{Client: c, spec: spec, snapshot: s}
	b.spec.Claim.Adopt = false
	left, lost := b.judge(func(string) bool { return false })
	if lost == nil && (spec.adopts() && len(left) > 0 || slices.Contains(idsOf(left), s.vpcID())) {
		_, lost = b.allOurs()
	}
	switch {
	case lost == nil && len(left) == 0:
		return nil
	case lost == nil:
		lost = b.takeParts(ctx, left)
		if aws.IsUnknown(lost) { // whoever has lost it has deleted it meanwhile
			lost = b.keepsVPC(ctx)
		}
	}
	return lost
}

// concede deletes what only this create has made, after another create has won.
func concede(ctx context.Context, c *aws.Client, spec Spec, made Network) error {
	if spec.adopts() {
		return nil
	}
	spec.Known = made
	if err := Delete(ctx, c, spec); !aws.IsClaimed(err) {
		return err
	}
	return deleteSpareGateways(ctx, c, spec)
}

// network returns the network as the snapshot has it.
func (b *builder) network() Network {
	n := b.snapshot.network(b.spec)
	for _, t := range b.owned() {
		if h := aws.OwnerOf(t.tags); h.Unsettled() && h.ID == b.spec.Claim.ID {
			n.Unsettled = append(n.Unsettled, t.id)
		}
	}
	return n
}
