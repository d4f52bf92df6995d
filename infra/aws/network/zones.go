package network

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// zoneChoice keeps the zones that a network's missing subnets are made in, so that subnets made at the
// same time agree.
type zoneChoice struct {
	mu     sync.Mutex
	zones  []string
	closed []string // in which EC2 makes no subnets
}

// chooseOther takes back the choice of one zone because EC2 makes no subnets in it. It returns false if there is no other
// choice: the zone has a name, or has a subnet of the network.
func (b *builder) chooseOther(zone int, closed string) bool {
	b.choice.mu.Lock()
	defer b.choice.mu.Unlock()
	if b.choice.zones[zone] != closed { // another subnet of the zone was refused too
		return true
	}
	if b.spec.zones()[zone] != "" || b.existingZones()[zone] != "" {
		return false
	}
	b.choice.closed = append(b.choice.closed, closed)
	// The other choices stay: their subnets may be on their way.
	b.choice.zones = slices.Clone(b.choice.zones)
	b.choice.zones[zone] = ""
	return true
}

// existingZones returns the availability zones of the subnets that exist, by the specification's zones.
func (b *builder) existingZones() []string {
	existing := make([]string, len(b.spec.zones()))
	b.change(func(s *snapshot) {
		for _, p := range b.spec.places() {
			if n := s.subnet(p.cidr); n != nil {
				existing[p.zone] = sdk.ToString(n.AvailabilityZone)
			}
		}
	})
	return existing
}

// chosenZones returns the availability zone for each of the specification's zones: that of the subnets
// that exist, else the one with a name, else one that offers all instance types and is none of the
// others.
func (b *builder) chosenZones(ctx context.Context) ([]string, error) {
	b.choice.mu.Lock()
	defer b.choice.mu.Unlock()
	chosen := b.choice.zones
	if chosen == nil {
		chosen = b.existingZones()
	} else if !slices.Contains(chosen, "") {
		return chosen, nil
	}
	zones, err := chooseZones(ctx, b.Client, b.spec, chosen, b.choice.closed)
	if err == nil {
		b.choice.zones = zones
	}
	return zones, err
}

// chooseZones completes the zones that exist already; an empty name stands for one to be chosen, which is none of the
// closed ones.
func chooseZones(ctx context.Context, c *aws.Client, spec Spec, existing, closed []string) ([]string, error) {
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
		wanted = []string{aws.DefaultInstanceType}
	}
	offered, err := c.OfferingZones(ctx, wanted...)
	if err != nil {
		return nil, err
	}
	common := offered[wanted[0]]
	var offers []string
	for _, t := range slices.Sorted(maps.Keys(offered)) {
		common = slices.DeleteFunc(slices.Clone(common), func(zone string) bool { return !slices.Contains(offered[t], zone) })
		offers = append(offers, t+" "+aws.InZones(offered[t]))
	}
	var errs invalid.Fields
	for i, zone := range zones {
		switch {
		case existing[i] != "":
		case zone != "" && len(spec.InstanceTypes) > 0 && !slices.Contains(common, zone):
			errs.Say("availability_zones", "Zone without the instance types", "%s does not offer all of instance_types: %s.", zone, strings.Join(offers, "; "))
		case zone == "":
			free := slices.DeleteFunc(slices.Clone(common), func(z string) bool { return slices.Contains(zones, z) || slices.Contains(closed, z) })
			switch {
			case len(free) > 0:
				zones[i] = free[0]
			case len(common) == 0:
				errs.Say("instance_types", "No zone has all instance types", "No availability zone of %s offers all of them: %s.", c.Region, strings.Join(offers, "; "))
				return nil, errs.Err()
			default:
				errs.Say("zone_count", "Too few zones", "%s has %d availability zones that offer all instance types, and %d are wanted: %s.%s", c.Region, len(common), len(zones), strings.Join(offers, "; "), noSubnets(closed))
				return nil, errs.Err()
			}
		}
	}
	return zones, errs.Err()
}

// noSubnets says that zones are closed.
func noSubnets(closed []string) string {
	if len(closed) == 0 {
		return ""
	}
	return " EC2 makes no subnets for this account in " + strings.Join(slices.Sorted(slices.Values(closed)), ", ") + "."
}
