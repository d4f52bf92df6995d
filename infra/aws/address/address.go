// Package address allocates Elastic IPs and associates them with instances. How machines are made may not enter: it
// is given the ids of their instances. The Elastic IPs of NAT gateways belong to package network.
package address

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

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

const kind = "address"

// Spec is the wanted state of an Elastic IP.
type Spec struct {
	Cluster, Name string
	InstanceID    string // the instance it is associated with; empty means none
	Tags          map[string]string
	RemoveTags    []string
	// Claim says who owns the address. Addresses of other owners are neither moved nor released.
	Claim aws.Claim
}

// Address is an Elastic IP as found in EC2.
type Address struct {
	AllocationID  string
	PublicIP      netip.Addr
	PrivateIP     netip.Addr // the address it is associated with; zero if none
	InstanceID    string
	AssociationID string
	Tags          map[string]string
	Claim         aws.Claim // its owner
	Unsettled     []string  // its id, if it has a claim that is not settled
}

// Ensure allocates the Elastic IP, or continues with the one that an interrupted run left,
// and associates it, if necessary taking it from another machine of the same load balancer.
// allocated is the allocation id, empty on creation. With an error it returns what exists by then;
// nothing of it if the error is a ClaimedError.
func Ensure(ctx context.Context, c *aws.Client, allocated string, spec Spec) (Address, error) {
	a, err := claim(ctx, c, allocated, spec)
	if allocated == "" {
		err = aws.Raced(err)
		if errors.Is(err, aws.ErrNotFound) {
			a, err = allocate(ctx, c, spec)
		}
	}
	if err != nil {
		return Address{}, err
	}
	a, err = put(ctx, c, a, spec)
	if err != nil || allocated != "" {
		return a, err
	}
	if err := confirm(ctx, c, a, spec); aws.IsClaimed(err) {
		return Address{}, aws.Raced(err)
	} else if err != nil {
		return a, err
	}
	return a, nil
}

// put sets tags and association.
func put(ctx context.Context, c *aws.Client, a Address, spec Spec) (Address, error) {
	tags := tagsOf(c, spec)
	if len(aws.DiffTags(tags, a.Tags)) > 0 {
		if _, err := c.EC2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{a.AllocationID}, Tags: aws.EC2Tags(tags)}); err != nil {
			return a, fmt.Errorf("elastic IP %s: tag: %w", a.PublicIP, err)
		}
	}
	if err := c.RemoveTags(ctx, []string{a.AllocationID}, spec.RemoveTags, tags); err != nil {
		return a, err
	}
	if spec.InstanceID == "" || a.InstanceID == spec.InstanceID {
		return a, nil
	}
	in := &ec2.AssociateAddressInput{AllocationId: &a.AllocationID, InstanceId: &spec.InstanceID, AllowReassociation: sdk.Bool(true)}
	out, err := c.EC2.AssociateAddress(ctx, in, c.RetryUntilKnown())
	if aws.IsCode(err, "InvalidInstanceID") { // it is starting, or it is gone
		i, seen := c.Instance(ctx, spec.InstanceID)
		if seen == nil && aws.StateOf(i) == types.InstanceStateNamePending {
			_, seen = c.AwaitState(ctx, spec.InstanceID, types.InstanceStateNameRunning)
		}
		if seen != nil {
			return a, fmt.Errorf("elastic IP %s: associate with instance %s: %w", a.PublicIP, spec.InstanceID, errors.Join(err, seen))
		}
		out, err = c.EC2.AssociateAddress(ctx, in, c.RetryUntilKnown())
	}
	if err != nil {
		return a, fmt.Errorf("elastic IP %s: associate with instance %s: %w", a.PublicIP, spec.InstanceID, err)
	}
	a.InstanceID, a.AssociationID = spec.InstanceID, sdk.ToString(out.AssociationId)
	return a, nil
}

// Observe returns how the Elastic IP differs from what is wanted. The findings have no subject. The
// error is ErrNotFound if it was released, and a ClaimedError if it belongs to another owner.
func Observe(ctx context.Context, c *aws.Client, allocated string, spec Spec) (Address, []finding.Finding, error) {
	a, err := Find(ctx, c, allocated, spec)
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
	return a, append(out, aws.DiffTags(tagsOf(c, spec), a.Tags)...), nil
}

// Delete releases the Elastic IP, associated or not, and any other of the same claim, left by an
// allocation whose response was lost. An Elastic IP that does not exist is no error. The error is a
// ClaimedError if it belongs to another owner.
func Delete(ctx context.Context, c *aws.Client, allocated string, claim aws.Claim) error {
	a, err := Find(ctx, c, allocated, Spec{})
	if errors.Is(err, aws.ErrNotFound) {
		return nil
	}
	if err == nil {
		claim.Adopt = false
		_, err = Spec{Claim: claim}.judge(a, true)
	}
	if err != nil {
		return err
	}
	doomed := []Address{a}
	if a.Tags[aws.TagCluster] != "" && a.Tags[aws.TagKind] == kind {
		same, err := list(ctx, c, "", Spec{Cluster: a.Tags[aws.TagCluster], Name: a.Tags[aws.TagResource]})
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
		if err := release(ctx, c, d); err != nil {
			return fmt.Errorf("elastic IP %s: %w", d.PublicIP, err)
		}
	}
	return nil
}

// ended reports whether the Elastic IP no longer has its association. A policy that asks for tags refuses to end it again.
func ended(ctx context.Context, c *aws.Client, a Address) bool {
	now, err := Find(ctx, c, a.AllocationID, Spec{})
	return err == nil && now.AssociationID != a.AssociationID
}

// release removes the association of an Elastic IP and releases it. EC2 may show neither the last association nor the end
// of the one before, so it looks again as long as the Elastic IP is in use.
func release(ctx context.Context, c *aws.Client, a Address) error {
	attempts := 0
	return aws.Poll(ctx, "release", func(ctx context.Context) (bool, string, error) {
		if a.AssociationID != "" {
			// An association that was made a moment ago may not be known yet, and so its tags, which a policy may ask for.
			_, err := c.EC2.DisassociateAddress(ctx, &ec2.DisassociateAddressInput{AssociationId: &a.AssociationID}, c.RetryOn(aws.DoubtAttempts, "InvalidAssociationID.NotFound", "UnauthorizedOperation"))
			if aws.IsCode(err, "UnauthorizedOperation") && ended(ctx, c, a) {
				err = nil
			}
			if err = aws.Ignore(err, "InvalidAssociationID.NotFound"); err != nil {
				return false, "", fmt.Errorf("disassociate: %w", err)
			}
		}
		_, err := c.EC2.ReleaseAddress(ctx, &ec2.ReleaseAddressInput{AllocationId: &a.AllocationID})
		if attempts++; !aws.IsCode(err, "InvalidIPAddress.InUse") || attempts >= aws.AddressAttempts {
			return true, "", aws.Ignore(err, "InvalidAllocationID.NotFound")
		}
		inUse := err
		if a, err = Find(ctx, c, a.AllocationID, Spec{}); errors.Is(err, aws.ErrNotFound) {
			return true, "", nil
		}
		return false, inUse.Error(), err
	})
}

func allocate(ctx context.Context, c *aws.Client, spec Spec) (Address, error) {
	tags := tagsOf(c, spec)
	out, err := c.EC2.AllocateAddress(ctx, &ec2.AllocateAddressInput{
		Domain:            types.DomainTypeVpc,
		TagSpecifications: []types.TagSpecification{aws.TagSpecification(types.ResourceTypeElasticIp, tags)},
	})
	if err != nil {
		return Address{}, fmt.Errorf("allocate an Elastic IP for %s of cluster %s: %w", spec.Name, spec.Cluster, err)
	}
	a := Address{AllocationID: sdk.ToString(out.AllocationId), Tags: tags, Claim: spec.Claim}
	a.unsettle()
	a.PublicIP, _ = netip.ParseAddr(sdk.ToString(out.PublicIp))
	return a, nil
}

// Find returns an Elastic IP by its allocation id, or by the specification's cluster and name if
// that is empty, whoever owns it. Of several with these tags it prefers one that is associated. The
// error is ErrNotFound if there is none.
func Find(ctx context.Context, c *aws.Client, allocated string, spec Spec) (Address, error) {
	all, err := list(ctx, c, allocated, spec)
	if err != nil {
		return Address{}, err
	}
	if len(all) == 0 {
		return Address{}, fmt.Errorf("elastic IP %s %w", allocated, aws.ErrNotFound)
	}
	return all[0], nil
}

func list(ctx context.Context, c *aws.Client, allocated string, spec Spec) ([]Address, error) {
	in := &ec2.DescribeAddressesInput{AllocationIds: []string{allocated}}
	if allocated == "" {
		in = &ec2.DescribeAddressesInput{Filters: []types.Filter{
			aws.TagFilter(aws.TagCluster, spec.Cluster), aws.TagFilter(aws.TagKind, kind), aws.TagFilter(aws.TagResource, spec.Name),
		}}
	}
	out, err := c.EC2.DescribeAddresses(ctx, in, c.RetryInDoubt())
	if aws.IsCode(err, "InvalidAllocationID.NotFound") {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("describe the Elastic IP %s%s: %w", spec.Name, allocated, err)
	}
	var all []Address
	for _, found := range out.Addresses {
		a := Address{
			AllocationID: sdk.ToString(found.AllocationId), AssociationID: sdk.ToString(found.AssociationId),
			InstanceID: sdk.ToString(found.InstanceId), Tags: aws.TagMap(found.Tags), Claim: aws.ClaimIn(aws.TagMap(found.Tags)),
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
	if aws.OwnerOf(a.Tags).Unsettled() {
		a.Unsettled = []string{a.AllocationID}
	}
}

func tagsOf(c *aws.Client, spec Spec) map[string]string {
	out := c.ClusterTags(spec.Cluster, kind, spec.Name, spec.Tags)
	maps.Copy(out, spec.Claim.Tags())
	return out
}

// judge decides about an Elastic IP. known says that the caller knows its id.
func (s Spec) judge(a Address, known bool) (take bool, err error) {
	return s.Claim.Judge("elastic IP "+a.PublicIP.String()+" ("+a.AllocationID+")", aws.OwnerOf(a.Tags), known)
}

// claim returns the Elastic IP of an allocation id, or the one that an interrupted create
// has left. It, and all others that were left, are claimed before anything is changed.
func claim(ctx context.Context, c *aws.Client, allocated string, spec Spec) (Address, error) {
	found, err := list(ctx, c, allocated, spec)
	if err != nil {
		return Address{}, err
	}
	if len(found) == 0 {
		return Address{}, fmt.Errorf("elastic IP %s %w", allocated, aws.ErrNotFound)
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
	if err := c.TakeOver(ctx, spec.Claim, take); err != nil {
		return Address{}, err
	}
	err = aws.ReadBack(ctx, func(ctx context.Context) error {
		if found, err = list(ctx, c, allocated, spec); err != nil {
			return err
		}
		return spec.allOurs(found)
	})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("elastic IP %s %w any more", spec.Name, aws.ErrNotFound)
	}
	if err != nil {
		return Address{}, err
	}
	return found[0], nil
}

// allOurs returns a ClaimedError for an Elastic IP without our claim.
func (s Spec) allOurs(found []Address) error {
	s.Claim.Adopt = false // it has been written by now
	for _, a := range found {
		if _, err := s.judge(a, true); err != nil {
			return err
		}
	}
	return nil
}

// confirm looks at a new Elastic IP again, by its tags. A create has lost if it finds the Elastic
// IP of another create beside its own, or if another create has taken its Elastic IP over. It then
// releases the address if it still owns it.
func confirm(ctx context.Context, c *aws.Client, made Address, spec Spec) error {
	if spec.Claim.ID == "" {
		return nil
	}
	found, err := list(ctx, c, "", spec)
	if err != nil {
		return err
	}
	lost := spec.allOurs(found)
	if lost == nil {
		return nil
	}
	if err := Delete(ctx, c, made.AllocationID, spec.Claim); err != nil && !aws.IsClaimed(err) {
		return errors.Join(lost, err)
	}
	return lost
}
