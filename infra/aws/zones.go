package aws

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// DefaultInstanceType is the instance type of machines for which none is given.
const DefaultInstanceType = "t3.medium"

// regionZone is the name of an availability zone: that of its region, and a letter. Local Zones and Wavelength Zones have
// their place between them, such as us-west-2-lax-1a, and sort before it.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-regions-availability-zones.html
var regionZone = regexp.MustCompile(`^[a-z]+(-[a-z]+)+-[0-9]+[a-z]$`)

// CheckZone refuses the name of a zone in which networks cannot be.
func CheckZone(name string) error {
	if !regionZone.MatchString(name) {
		return fmt.Errorf("%q is not the name of an availability zone, such as eu-central-1a. Local Zones and Wavelength Zones, whose names have a place in them, cannot be used: "+
			"their public addresses belong to another network border group, and not all have NAT gateways", name)
	}
	return nil
}

// OfferingZones returns the availability zones of the region that offer each of the instance types,
// sorted, without Local Zones and Wavelength Zones. A type that the region does not know has none.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceTypeOfferings.html
func (c *Client) OfferingZones(ctx context.Context, instanceTypes ...string) (map[string][]string, error) {
	zones := map[string][]string{}
	for _, t := range instanceTypes {
		zones[t] = nil
	}
	offerings, err := All(ctx, ec2.NewDescribeInstanceTypeOfferingsPaginator(c.EC2, &ec2.DescribeInstanceTypeOfferingsInput{
		LocationType: types.LocationTypeAvailabilityZone, Filters: []types.Filter{Filter("instance-type", instanceTypes...)},
	}), func(p *ec2.DescribeInstanceTypeOfferingsOutput) []types.InstanceTypeOffering {
		return p.InstanceTypeOfferings
	})
	if err != nil {
		return nil, fmt.Errorf("ask which availability zones offer %s: %w", strings.Join(instanceTypes, ", "), err)
	}
	for _, o := range offerings {
		if zone := sdk.ToString(o.Location); regionZone.MatchString(zone) {
			zones[string(o.InstanceType)] = append(zones[string(o.InstanceType)], zone)
		}
	}
	for _, z := range zones {
		slices.Sort(z)
	}
	return zones, nil
}

// InZones says where an instance type is offered.
func InZones(zones []string) string {
	if len(zones) == 0 {
		return "is not offered in this region"
	}
	return "is offered in " + strings.Join(zones, ", ")
}

// ZoneOfSubnet returns the availability zone of a subnet.
func (c *Client) ZoneOfSubnet(ctx context.Context, subnet string) (string, error) {
	out, err := c.EC2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: []string{subnet}}, c.RetryUntilKnown())
	if err != nil {
		return "", fmt.Errorf("find the availability zone of %s: %w", subnet, err)
	}
	if len(out.Subnets) == 0 {
		return "", fmt.Errorf("subnet %s %w", subnet, ErrNotFound)
	}
	return sdk.ToString(out.Subnets[0].AvailabilityZone), nil
}

// offersOf returns the zones that offer an instance type, as OfferingZones does.
func (c *Client) offersOf(ctx context.Context, instanceType string) ([]string, error) {
	return c.offers.Get(instanceType, func() ([]string, error) {
		found, err := c.OfferingZones(ctx, instanceType)
		return found[instanceType], err
	})
}

// KnownZoneOfSubnet returns the availability zone of a subnet, empty if it cannot be found out. It asks once for each.
func (c *Client) KnownZoneOfSubnet(ctx context.Context, subnet string) string {
	zone, _ := c.subnetZones.Get(subnet, func() (string, error) { return c.ZoneOfSubnet(ctx, subnet) })
	return zone
}

// offeredError is a refusal of an instance type, with where it is offered.
type offeredError struct {
	error
	instanceType string
	zones        []string
}

func (e *offeredError) Unwrap() error { return e.error }

// WithZones adds to a refusal of an instance type where EC2 offers it, if EC2 says so.
func (c *Client) WithZones(ctx context.Context, err error, instanceType string) error {
	if !IsCode(err, "Unsupported", "InsufficientInstanceCapacity") {
		return err
	}
	zones, failed := c.offersOf(ctx, instanceType)
	if failed != nil {
		return err
	}
	return &offeredError{err, instanceType, zones}
}

// offered says where a refused instance type is offered; it is empty if that is not known.
func offered(err error) string {
	if e := (*offeredError)(nil); errors.As(err, &e) {
		return e.instanceType + " " + InZones(e.zones) + ". "
	}
	return ""
}
