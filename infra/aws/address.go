package aws

import (
	"context"
	"errors"
	"fmt"
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
}

// Address is an Elastic IP as found in EC2.
type Address struct {
	AllocationID  string
	PublicIP      netip.Addr
	PrivateIP     netip.Addr // the address it is associated with; zero if none
	InstanceID    string
	AssociationID string
	Tags          map[string]string
}

// EnsureAddress allocates the Elastic IP, or adopts the one that an interrupted run left, and
// associates it, if necessary taking it from another machine. allocated is the allocation id, empty
// on creation. With an error it returns what exists by then.
func (c *Client) EnsureAddress(ctx context.Context, allocated string, spec AddressSpec) (Address, error) {
	a, err := c.findAddress(ctx, allocated, spec)
	if errors.Is(err, ErrNotFound) && allocated == "" {
		a, err = c.allocate(ctx, spec)
	}
	if err != nil {
		return Address{}, err
	}
	tags := c.clusterTags(spec.Cluster, kindAddress, spec.Name, spec.Tags)
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
	}, c.retryUntilKnown())
	if err != nil {
		return a, fmt.Errorf("elastic IP %s: associate with instance %s: %w", a.PublicIP, spec.InstanceID, err)
	}
	a.InstanceID, a.AssociationID = spec.InstanceID, sdk.ToString(out.AssociationId)
	return a, nil
}

// ObserveAddress returns how the Elastic IP differs from what is wanted. The findings have no
// subject. The error is ErrNotFound if it was released.
func (c *Client) ObserveAddress(ctx context.Context, allocated string, spec AddressSpec) (Address, []finding.Finding, error) {
	a, err := c.findAddress(ctx, allocated, spec)
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
	return a, append(out, diffTags(c.clusterTags(spec.Cluster, kindAddress, spec.Name, spec.Tags), a.Tags)...), nil
}

// DeleteAddress releases the Elastic IP, associated or not, and any other left by an allocation
// whose response was lost. An Elastic IP that does not exist is no error.
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
	doomed := []Address{a}
	if a.Tags[TagCluster] != "" && a.Tags[TagKind] == kindAddress {
		same, err := c.addresses(ctx, "", AddressSpec{Cluster: a.Tags[TagCluster], Name: a.Tags[TagResource]})
		if err != nil {
			return err
		}
		for _, other := range same {
			if other.AllocationID != allocated && other.AssociationID == "" {
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
	tags := c.clusterTags(spec.Cluster, kindAddress, spec.Name, spec.Tags)
	out, err := c.EC2.AllocateAddress(ctx, &ec2.AllocateAddressInput{
		Domain:            types.DomainTypeVpc,
		TagSpecifications: []types.TagSpecification{specification(types.ResourceTypeElasticIp, tags)},
	})
	if err != nil {
		return Address{}, fmt.Errorf("allocate an Elastic IP for %s of cluster %s: %w", spec.Name, spec.Cluster, err)
	}
	a := Address{AllocationID: sdk.ToString(out.AllocationId), Tags: tags}
	a.PublicIP, _ = netip.ParseAddr(sdk.ToString(out.PublicIp))
	return a, nil
}

// findAddress finds an Elastic IP by allocation id, or by tags if that is empty. If several have
// the tags, it prefers one that is associated.
func (c *Client) findAddress(ctx context.Context, allocated string, spec AddressSpec) (Address, error) {
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
	out, err := c.EC2.DescribeAddresses(ctx, in, c.retryOn(doubtAttempts, notYet...))
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
			InstanceID: sdk.ToString(found.InstanceId), Tags: tagMap(found.Tags),
		}
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
