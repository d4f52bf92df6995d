package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// offeringZones returns the availability zones of the region that offer each of the instance types,
// sorted. A type that the region does not know has none.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceTypeOfferings.html
func (c *Client) offeringZones(ctx context.Context, instanceTypes ...string) (map[string][]string, error) {
	zones := map[string][]string{}
	for _, t := range instanceTypes {
		zones[t] = nil
	}
	pages := ec2.NewDescribeInstanceTypeOfferingsPaginator(c.EC2, &ec2.DescribeInstanceTypeOfferingsInput{
		LocationType: types.LocationTypeAvailabilityZone, Filters: []types.Filter{filter("instance-type", instanceTypes...)},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("ask which availability zones offer %s: %w", strings.Join(instanceTypes, ", "), err)
		}
		for _, o := range page.InstanceTypeOfferings {
			zones[string(o.InstanceType)] = append(zones[string(o.InstanceType)], sdk.ToString(o.Location))
		}
	}
	for _, z := range zones {
		slices.Sort(z)
	}
	return zones, nil
}

// zoneChoice keeps the zones that a network's missing subnets are made in, so that subnets made at the
// same time agree.
type zoneChoice struct {
	mu    sync.Mutex
	zones []string
}

// chosenZones returns the availability zone for each of the specification's zones: that of the subnets
// that exist, else the one with a name, else one that offers all instance types and is none of the
// others.
func (b *builder) chosenZones(ctx context.Context) ([]string, error) {
	b.choice.mu.Lock()
	defer b.choice.mu.Unlock()
	if b.choice.zones != nil {
		return b.choice.zones, nil
	}
	existing := make([]string, len(b.spec.zones()))
	b.change(func(s *snapshot) {
		for _, p := range b.spec.places() {
			if n := s.subnet(p.cidr); n != nil {
				existing[p.zone] = sdk.ToString(n.AvailabilityZone)
			}
		}
	})
	zones, err := b.chooseZones(ctx, b.spec, existing)
	if err == nil {
		b.choice.zones = zones
	}
	return zones, err
}

// chooseZones completes the zones that exist already; an empty name stands for one to be chosen.
func (c *Client) chooseZones(ctx context.Context, spec NetworkSpec, existing []string) ([]string, error) {
	zones := slices.Clone(existing)
	named, missing := 0, 0
	for i := range zones {
		if zones[i] != "" {
			continue
		}
		if missing++; spec.zones()[i] != "" {
			zones[i] = spec.zones()[i]
			named++
		}
	}
	wanted := spec.InstanceTypes
	switch {
	case missing == 0, missing == named && len(wanted) == 0: // the types are not known
		return zones, nil
	case len(wanted) == 0:
		wanted = []string{DefaultInstanceType}
	}
	offered, err := c.offeringZones(ctx, wanted...)
	if err != nil {
		return nil, err
	}
	common := offered[wanted[0]]
	var offers []string
	for _, t := range slices.Sorted(maps.Keys(offered)) {
		common = slices.DeleteFunc(slices.Clone(common), func(zone string) bool { return !slices.Contains(offered[t], zone) })
		offers = append(offers, t+" "+inZones(offered[t]))
	}
	var errs invalid.Fields
	for i, zone := range zones {
		switch {
		case existing[i] != "":
		case zone != "" && len(spec.InstanceTypes) > 0 && !slices.Contains(common, zone):
			errs.Say("availability_zones", "Zone without the instance types", "%s does not offer all of instance_types: %s.", zone, strings.Join(offers, "; "))
		case zone == "":
			free := slices.DeleteFunc(slices.Clone(common), func(z string) bool { return slices.Contains(zones, z) })
			switch {
			case len(free) > 0:
				zones[i] = free[0]
			case len(common) == 0:
				errs.Say("instance_types", "No zone has all instance types", "No availability zone of %s offers all of them: %s.", c.Region, strings.Join(offers, "; "))
				return nil, errs.Err()
			default:
				errs.Say("zone_count", "Too few zones", "%s has %d availability zones that offer all instance types, and %d are wanted: %s.", c.Region, len(common), len(zones), strings.Join(offers, "; "))
				return nil, errs.Err()
			}
		}
	}
	return zones, errs.Err()
}

// inZones says where an instance type is offered.
func inZones(zones []string) string {
	if len(zones) == 0 {
		return "is not offered in this region"
	}
	return "is offered in " + strings.Join(zones, ", ")
}

// zoneCache keeps what does not change while the client lives, so that machines that are refused
// together ask only once: where instance types are offered, and the zones of subnets.
type zoneCache struct {
	mu      sync.Mutex
	offers  map[string][]string // by instance type
	subnets map[string]string   // by id
}

// offersOf returns the zones that offer an instance type, as offeringZones does.
func (c *Client) offersOf(ctx context.Context, instanceType string) ([]string, error) {
	c.zones.mu.Lock()
	defer c.zones.mu.Unlock()
	if found, ok := c.zones.offers[instanceType]; ok {
		return found, nil
	}
	found, err := c.offeringZones(ctx, instanceType)
	if err != nil {
		return nil, err
	}
	if c.zones.offers == nil {
		c.zones.offers = map[string][]string{}
	}
	c.zones.offers[instanceType] = found[instanceType]
	return found[instanceType], nil
}

// subnetZoneName returns the availability zone of a subnet, empty if it cannot be found out.
func (c *Client) subnetZoneName(ctx context.Context, subnet string) string {
	c.zones.mu.Lock()
	defer c.zones.mu.Unlock()
	if zone := c.zones.subnets[subnet]; zone != "" {
		return zone
	}
	zone, err := c.zoneOf(ctx, subnet)
	if err != nil {
		return ""
	}
	if c.zones.subnets == nil {
		c.zones.subnets = map[string]string{}
	}
	c.zones.subnets[subnet] = zone
	return zone
}

// offeredError is a refusal of an instance type, with where it is offered.
type offeredError struct {
	error
	instanceType string
	zones        []string
}

func (e *offeredError) Unwrap() error { return e.error }

// withZones adds to a refusal of an instance type where EC2 offers it, if EC2 says so.
func (c *Client) withZones(ctx context.Context, err error, instanceType string) error {
	if !IsCode(err, "Unsupported", "InsufficientInstanceCapacity") {
		return err
	}
	zones, failed := c.offersOf(ctx, instanceType)
	if failed != nil {
		return err
	}
	return &offeredError{err, instanceType, zones}
}

// notLaunched says what could not be launched, and where if that matters.
func (c *Client) notLaunched(ctx context.Context, spec MachineSpec, image string, err error) error {
	what := fmt.Sprintf("machine %s: launch %s with %s", spec.Name, spec.InstanceType, image)
	if IsCode(err, "Unsupported", "InsufficientInstanceCapacity") {
		if zone := c.subnetZoneName(ctx, spec.SubnetID); zone != "" {
			what += " in " + zone
		}
	}
	return fmt.Errorf("%s: %w", what, aboutSpot(aboutPlacement(aboutProfile(c.withZones(ctx, err, spec.InstanceType)))))
}

// offered says where a refused instance type is offered; it is empty if that is not known.
func offered(err error) string {
	if e := (*offeredError)(nil); errors.As(err, &e) {
		return e.instanceType + " " + inZones(e.zones) + ". "
	}
	return ""
}
