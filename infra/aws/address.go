package aws

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

const kindAddress = "address"

// AddressSpec is what is wanted of an Elastic IP.
type AddressSpec struct {
	Cluster, Name string
	InstanceID    string // with which it is associated; empty means with none
	Tags          map[string]string
	RemoveTags    []string
}

// Address is an Elastic IP as it is.
type Address struct {
	AllocationID  string
	PublicIP      netip.Addr
	PrivateIP     netip.Addr // to which it leads; zero when not associated
	InstanceID    string
	AssociationID string
	Tags          map[string]string
}

// EnsureAddress allocates the Elastic IP, or adopts the one an interrupted run
// left behind, and associates it, taking it away from another machine if
// need be. allocated is empty for a first creation. On an error it
// returns what exists by then.
func (c *Client) EnsureAddress(ctx context.Context, allocated string, spec AddressSpec) (Address, error) {
	a, err := c.findAddress(ctx, allocated, spec)
	if errors.Is(err, ErrNotFound) && allocated == "" {
		a, err = c.allocate(ctx, spec)
	}
	if err != nil {
		return Address{}, err
	}
	tags := c.tags(spec.Cluster, kindAddress, spec.Name, spec.Tags)
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
	out, err := c.EC2.AssociateAddress(ctx, &ec2.AssociateAddressInput{
		AllocationId: &a.AllocationID, InstanceId: &spec.InstanceID, AllowReassociation: sdk.Bool(true),
	}, c.settling())
	if err != nil {
		return a, fmt.Errorf("elastic IP %s: associate with instance %s: %w", a.PublicIP, spec.InstanceID, err)
	}
	a.InstanceID, a.AssociationID = spec.InstanceID, sdk.ToString(out.AssociationId)
	return a, nil
}

// ObserveAddress says in words how the Elastic IP differs from what is wanted.
// The error is ErrNotFound when it was released.
func (c *Client) ObserveAddress(ctx context.Context, allocated string, spec AddressSpec) (Address, []string, error) {
	a, err := c.findAddress(ctx, allocated, spec)
	if err != nil {
		return Address{}, nil, err
	}
	var words []string
	switch {
	case spec.InstanceID == a.InstanceID || spec.InstanceID == "":
	case a.InstanceID == "":
		words = append(words, fmt.Sprintf("Elastic IP %s: not associated, wanted %s", a.PublicIP, spec.InstanceID))
	default:
		words = append(words, fmt.Sprintf("Elastic IP %s: associated with %s, wanted %s", a.PublicIP, a.InstanceID, spec.InstanceID))
	}
	return a, append(words, diffTags(c.tags(spec.Cluster, kindAddress, spec.Name, spec.Tags), a.Tags)...), nil
}

// DeleteAddress releases the Elastic IP, associated or not. What is gone
// already is no error.
func (c *Client) DeleteAddress(ctx context.Context, allocated string) error {
	a, err := c.findAddress(ctx, allocated, AddressSpec{})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if a.AssociationID != "" {
		_, err := c.EC2.DisassociateAddress(ctx, &ec2.DisassociateAddressInput{AssociationId: &a.AssociationID})
		if err = ignore(err, "InvalidAssociationID.NotFound"); err != nil {
			return fmt.Errorf("elastic IP %s: disassociate: %w", a.PublicIP, err)
		}
	}
	_, err = c.EC2.ReleaseAddress(ctx, &ec2.ReleaseAddressInput{AllocationId: &allocated}, c.vanishing())
	if err = ignore(err, "InvalidAllocationID.NotFound"); err != nil {
		return fmt.Errorf("elastic IP %s: release: %w", a.PublicIP, err)
	}
	return nil
}

func (c *Client) allocate(ctx context.Context, spec AddressSpec) (Address, error) {
	tags := c.tags(spec.Cluster, kindAddress, spec.Name, spec.Tags)
	out, err := c.EC2.AllocateAddress(ctx, &ec2.AllocateAddressInput{
		Domain:            types.DomainTypeVpc,
		TagSpecifications: []types.TagSpecification{specification(types.ResourceTypeElasticIp, tags)},
	})
	if err != nil {
		return Address{}, fmt.Errorf("allocate an Elastic IP for %s: %w", spec.Name, err)
	}
	a := Address{AllocationID: sdk.ToString(out.AllocationId), Tags: tags}
	a.PublicIP, _ = netip.ParseAddr(sdk.ToString(out.PublicIp))
	return a, nil
}

// findAddress finds by allocation id, or by tags when that is empty.
func (c *Client) findAddress(ctx context.Context, allocated string, spec AddressSpec) (Address, error) {
	in := &ec2.DescribeAddressesInput{AllocationIds: []string{allocated}}
	if allocated == "" {
		in = &ec2.DescribeAddressesInput{Filters: []types.Filter{
			tagFilter(TagCluster, spec.Cluster), tagFilter(TagKind, kindAddress), tagFilter(TagResource, spec.Name),
		}}
	}
	out, err := c.EC2.DescribeAddresses(ctx, in)
	if err = ignore(err, "InvalidAllocationID.NotFound"); err != nil {
		return Address{}, fmt.Errorf("describe the Elastic IP of %s: %w", spec.Name, err)
	}
	if out == nil || len(out.Addresses) == 0 {
		return Address{}, fmt.Errorf("elastic IP %s %w", allocated, ErrNotFound)
	}
	found := out.Addresses[0]
	a := Address{
		AllocationID: sdk.ToString(found.AllocationId), AssociationID: sdk.ToString(found.AssociationId),
		InstanceID: sdk.ToString(found.InstanceId), Tags: tagMap(found.Tags),
	}
	a.PublicIP, _ = netip.ParseAddr(sdk.ToString(found.PublicIp))
	a.PrivateIP, _ = netip.ParseAddr(sdk.ToString(found.PrivateIpAddress))
	return a, nil
}
