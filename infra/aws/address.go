package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

const kindAddress = "address"

// AddressSpec is the wanted state of an Elastic IP.
type AddressSpec struct {
	Cluster, Name string
	InstanceID    string // the instance it is associated with; empty means none
	Tags          map[string]string
	RemoveTags    []string
	// Claim says whose the address is. What it does not own is neither moved nor released.
	Claim Claim
}

// Address is an Elastic IP as found in EC2.
type Address struct {
	AllocationID  string
	PublicIP      netip.Addr
	PrivateIP     netip.Addr // the address it is associated with; zero if none
	InstanceID    string
	AssociationID string
	Tags          map[string]string
	Claim         Claim    // whose it is
	Unsettled     []string // its id, if it carries a claim that is not settled
}

// EnsureAddress allocates the Elastic IP, or continues with the one that an interrupted run left,
// and associates it, if necessary taking it from another machine of the same load balancer.
// allocated is the allocation id, empty on creation. With an error it returns what exists by then;
// nothing of it if the error is a ClaimedError.
func (c *Client) EnsureAddress(ctx context.Context, allocated string, spec AddressSpec) (Address, error) {
	a, err := c.claimAddress(ctx, allocated, spec)
	if allocated == "" {
		err = raced(err)
		if errors.Is(err, ErrNotFound) {
			a, err = c.allocate(ctx, spec)
		}
	}
	if err != nil {
		return Address{}, err
	}
	a, err = c.putAddress(ctx, a, spec)
	if err != nil || allocated != "" {
		return a, err
	}
	if err := c.confirmAddress(ctx, a, spec); isClaimed(err) {
		return Address{}, raced(err)
	} else if err != nil {
		return a, err
	}
	return a, nil
}

// putAddress sets tags and association.
func (c *Client) putAddress(ctx context.Context, a Address, spec AddressSpec) (Address, error) {
	tags := c.addressTags(spec)
	if len(diffTags(tags, a.Tags)) > 0 {
		if _, err := c.EC2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{a.AllocationID}, Tags: ec2Tags(tags)}); err != nil {
			return a, fmt.Errorf("elastic IP %s: tag: %w", a.PublicIP, err)
		}
	}
	if err := c.deleteTags(ctx, []string{a.AllocationID}, spec.RemoveTags, tags); err != nil {
		return a, err
	}
	if spec.InstanceID == "" || a.InstanceID == spec.InstanceID {
		return a, nil
	}
	in := &ec2.AssociateAddressInput{AllocationId: &a.AllocationID, InstanceId: &spec.InstanceID, AllowReassociation: sdk.Bool(true)}
	out, err := c.EC2.AssociateAddress(ctx, in, c.retryUntilKnown())
	if IsCode(err, "InvalidInstanceID") { // it is starting, or it is gone
		i, seen := c.instance(ctx, spec.InstanceID)
		if seen == nil && stateOf(i) == types.InstanceStateNamePending {
			_, seen = c.waitState(ctx, spec.InstanceID, types.InstanceStateNameRunning)
		}
		if seen != nil {
			return a, fmt.Errorf("elastic IP %s: associate with instance %s: %w", a.PublicIP, spec.InstanceID, errors.Join(err, seen))
		}
		out, err = c.EC2.AssociateAddress(ctx, in, c.retryUntilKnown())
	}
	if err != nil {
		return a, fmt.Errorf("elastic IP %s: associate with instance %s: %w", a.PublicIP, spec.InstanceID, err)
	}
	a.InstanceID, a.AssociationID = spec.InstanceID, sdk.ToString(out.AssociationId)
	return a, nil
}

// ObserveAddress returns how the Elastic IP differs from what is wanted. The findings have no
// subject. The error is ErrNotFound if it was released, and a ClaimedError if it is another's.
func (c *Client) ObserveAddress(ctx context.Context, allocated string, spec AddressSpec) (Address, []finding.Finding, error) {
	a, err := c.FindAddress(ctx, allocated, spec)
	if err == nil {
		_, err = spec.judge(a, true)
	}
	if err != nil {
		return Address{}, nil, err
	}
	var out []finding.Finding
	if spec.InstanceID != "" && spec.InstanceID != a.InstanceID {
		f := finding.Finding{Kind: finding.Address, Target: a.PublicIP.String(), Problem: finding.Value, Found: a.InstanceID, Wanted: spec.InstanceID}
		if a.InstanceID == "" {
			f.Problem = finding.Detached
		}
		out = append(out, f)
	}
	return a, append(out, diffTags(c.addressTags(spec), a.Tags)...), nil
}

// DeleteAddress releases the Elastic IP, associated or not, and any other of the same claim, left
// by an allocation whose response was lost. An Elastic IP that does not exist is no error. The
// error is a ClaimedError if it is another's.
func (c *Client) DeleteAddress(ctx context.Context, allocated string, claim Claim) error {
	a, err := c.FindAddress(ctx, allocated, AddressSpec{})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err == nil {
		claim.Adopt = false
		_, err = AddressSpec{Claim: claim}.judge(a, true)
	}
	if err != nil {
		return err
	}
	if a.AssociationID != "" {
		// An association that was made a moment ago may not be known yet.
		_, err := c.EC2.DisassociateAddress(ctx, &ec2.DisassociateAddressInput{AssociationId: &a.AssociationID}, c.retryOn(doubtAttempts, "InvalidAssociationID.NotFound"))
		if err = ignore(err, "InvalidAssociationID.NotFound"); err != nil {
			return fmt.Errorf("elastic IP %s: disassociate: %w", a.PublicIP, err)
		}
	}
	doomed := []Address{a}
	if a.Tags[TagCluster] != "" && a.Tags[TagKind] == kindAddress {
		same, err := c.addresses(ctx, "", AddressSpec{Cluster: a.Tags[TagCluster], Name: a.Tags[TagResource]})
		if err != nil {
			return err
		}
		for _, other := range same {
			if other.AllocationID != allocated && other.AssociationID == "" && other.Claim.ID == claim.ID {
				doomed = append(doomed, other)
			}
		}
	}
	for _, d := range doomed {
		_, err = c.EC2.ReleaseAddress(ctx, &ec2.ReleaseAddressInput{AllocationId: &d.AllocationID}, c.retryUntilUnused())
		if err = ignore(err, "InvalidAllocationID.NotFound"); err != nil {
			return fmt.Errorf("elastic IP %s: release: %w", d.PublicIP, err)
		}
	}
	return nil
}

func (c *Client) allocate(ctx context.Context, spec AddressSpec) (Address, error) {
	tags := c.addressTags(spec)
	out, err := c.EC2.AllocateAddress(ctx, &ec2.AllocateAddressInput{
		Domain:            types.DomainTypeVpc,
		TagSpecifications: []types.TagSpecification{specification(types.ResourceTypeElasticIp, tags)},
	})
	if err != nil {
		return Address{}, fmt.Errorf("allocate an Elastic IP for %s of cluster %s: %w", spec.Name, spec.Cluster, err)
	}
	a := Address{AllocationID: sdk.ToString(out.AllocationId), Tags: tags, Claim: spec.Claim}
	a.unsettle()
	a.PublicIP, _ = netip.ParseAddr(sdk.ToString(out.PublicIp))
	return a, nil
}

// FindAddress returns an Elastic IP by its allocation id, or by the specification's cluster and name
// if that is empty, whoever's it is. Of several with these tags it prefers one that is associated.
// The error is ErrNotFound if there is none.
func (c *Client) FindAddress(ctx context.Context, allocated string, spec AddressSpec) (Address, error) {
	all, err := c.addresses(ctx, allocated, spec)
	if err != nil {
		return Address{}, err
	}
	if len(all) == 0 {
		return Address{}, fmt.Errorf("elastic IP %s %w", allocated, ErrNotFound)
	}
	return all[0], nil
}

func (c *Client) addresses(ctx context.Context, allocated string, spec AddressSpec) ([]Address, error) {
	in := &ec2.DescribeAddressesInput{AllocationIds: []string{allocated}}
	if allocated == "" {
		in = &ec2.DescribeAddressesInput{Filters: []types.Filter{
			tagFilter(TagCluster, spec.Cluster), tagFilter(TagKind, kindAddress), tagFilter(TagResource, spec.Name),
		}}
	}
	out, err := c.EC2.DescribeAddresses(ctx, in, c.retryInDoubt())
	if IsCode(err, "InvalidAllocationID.NotFound") {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("describe the Elastic IP %s%s: %w", spec.Name, allocated, err)
	}
	var all []Address
	for _, found := range out.Addresses {
		a := Address{
			AllocationID: sdk.ToString(found.AllocationId), AssociationID: sdk.ToString(found.AssociationId),
			InstanceID: sdk.ToString(found.InstanceId), Tags: tagMap(found.Tags), Claim: Held(tagMap(found.Tags)),
		}
		a.unsettle()
		a.PublicIP, _ = netip.ParseAddr(sdk.ToString(found.PublicIp))
		a.PrivateIP, _ = netip.ParseAddr(sdk.ToString(found.PrivateIpAddress))
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b Address) int {
		if (a.AssociationID == "") != (b.AssociationID == "") {
			return strings.Compare(b.AssociationID, a.AssociationID)
		}
		return strings.Compare(a.AllocationID, b.AllocationID)
	})
	return all, nil
}

// unsettle sets Unsettled.
func (a *Address) unsettle() {
	if holderOf(a.Tags).unsettled() {
		a.Unsettled = []string{a.AllocationID}
	}
}

func (c *Client) addressTags(spec AddressSpec) map[string]string {
	out := c.clusterTags(spec.Cluster, kindAddress, spec.Name, spec.Tags)
	maps.Copy(out, spec.Claim.tags())
	return out
}

// judge decides about an Elastic IP. known says that the caller knows its id.
func (s AddressSpec) judge(a Address, known bool) (take bool, err error) {
	return s.Claim.judge("elastic IP "+a.PublicIP.String()+" ("+a.AllocationID+")", holderOf(a.Tags), known)
}

// claimAddress returns the Elastic IP of an allocation id, or the one that an interrupted create
// has left. It, and all others that were left, are claimed before anything is changed.
func (c *Client) claimAddress(ctx context.Context, allocated string, spec AddressSpec) (Address, error) {
	found, err := c.addresses(ctx, allocated, spec)
	if err != nil {
		return Address{}, err
	}
	if len(found) == 0 {
		return Address{}, fmt.Errorf("elastic IP %s %w", allocated, ErrNotFound)
	}
	var take []string
	for _, a := range found {
		left, err := spec.judge(a, allocated != "")
		if err != nil {
			return Address{}, err
		}
		if left {
			take = append(take, a.AllocationID)
		}
	}
	if len(take) == 0 {
		return found[0], nil
	}
	if err := c.takeOver(ctx, spec.Claim, take); err != nil {
		return Address{}, err
	}
	err = readBack(ctx, func(ctx context.Context) error {
		if found, err = c.addresses(ctx, allocated, spec); err != nil {
			return err
		}
		return spec.allOurs(found)
	})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("elastic IP %s %w any more", spec.Name, ErrNotFound)
	}
	if err != nil {
		return Address{}, err
	}
	return found[0], nil
}

// allOurs returns a ClaimedError for an Elastic IP that has not our claim.
func (s AddressSpec) allOurs(found []Address) error {
	s.Claim.Adopt = false // it has been written by now
	for _, a := range found {
		if _, err := s.judge(a, true); err != nil {
			return err
		}
	}
	return nil
}

// confirmAddress looks at a new Elastic IP again, by its tags. Whoever finds another's beside it,
// or that it is another's by now, has lost, and releases what is still its own.
func (c *Client) confirmAddress(ctx context.Context, made Address, spec AddressSpec) error {
	if spec.Claim.ID == "" {
		return nil
	}
	found, err := c.addresses(ctx, "", spec)
	if err != nil {
		return err
	}
	lost := spec.allOurs(found)
	if lost == nil {
		return nil
	}
	if err := c.DeleteAddress(ctx, made.AllocationID, spec.Claim); err != nil && !isClaimed(err) {
		return errors.Join(lost, err)
	}
	return lost
}
