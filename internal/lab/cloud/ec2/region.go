package ec2

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

var regionActions = map[string]action{
	"DescribeRegions":           reads(describeRegions),
	"DescribeAvailabilityZones": reads(describeZones),
	"DescribeAccountAttributes": reads(describeAccount),
}

// zones returns the region's availability zones.
func (c *Compute) zones() []string {
	return []string{c.cfg.Region + "a", c.cfg.Region + "b", c.cfg.Region + "c", c.cfg.Region + "d", c.cfg.Region + "e"}
}

// constrained reports whether the account can make no subnets in an availability zone, which offers its types all the same.
// AWS closes a zone that it cannot expand to accounts that have nothing there.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-regions-availability-zones.html
func (c *Compute) constrained(zone string) bool { return zone == c.cfg.Region+"d" }

// localZone is a Local Zone in which the account has opted in.
// https://docs.aws.amazon.com/local-zones/latest/ug/concepts-local-zones.html
func (c *Compute) localZone() string { return c.cfg.Region + "-lax-1a" }

// allZones returns the zones that the account may use, in the order in which EC2 lists them.
func (c *Compute) allZones() []string { return append([]string{c.localZone()}, c.zones()...) }

// borderGroup returns the group of zones in which a zone's public addresses are.
func (c *Compute) borderGroup(zone string) string {
	if zone == c.localZone() {
		return c.localGroup()
	}
	return c.cfg.Region
}

// localGroup is the border group of the Local Zone.
func (c *Compute) localGroup() string { return c.cfg.Region + "-lax-1" }

// Zones returns the names of the region's availability zones.
func (c *Compute) Zones() []string { return c.zones() }

// zoneID returns the account-independent id of a zone: use1-az1 for us-east-1a.
func (c *Compute) zoneID(zone string) string {
	parts := strings.Split(c.cfg.Region, "-")
	id := parts[0]
	for _, p := range parts[1:] {
		id += p[:1]
	}
	if zone == c.localZone() {
		return id + "-lax1-az1"
	}
	return id + "-az" + strconv.Itoa(int(zone[len(zone)-1]-'a')+1)
}

// zone returns the zone with a name and id, for something that can be there unless it is refused. If both are empty, EC2 chooses any of its zones: here
// the one that lacks the most instance types.
func (c *Compute) zone(name, id string, refused func(zone string) bool) (string, error) {
	poorest := slices.DeleteFunc(c.allZones(), refused)
	slices.SortStableFunc(poorest, func(a, b string) int { return cmp.Compare(len(lacking(b)), len(lacking(a))) })
	for _, z := range poorest {
		if (name == "" && (id != "" || z != c.localZone()) || name == z) && (id == "" || id == c.zoneID(z)) {
			return z, nil
		}
	}
	return "", invalidValue("Value (%s) for parameter availabilityZone is invalid. Subnets can currently only be created in the following availability zones: %s.",
		name+id, strings.Join(slices.Sorted(slices.Values(poorest)), ", "))
}

func (c *Compute) arn(resource string) string {
	return "arn:" + wire.Partition(c.cfg.Region) + ":ec2:" + c.cfg.Region + ":" + c.cfg.AccountID + ":" + resource
}

type regionItem struct {
	Name     string `xml:"regionName"`
	Endpoint string `xml:"regionEndpoint"`
	OptIn    string `xml:"optInStatus"`
}

var regionFields = fields[regionItem]{
	"region-name":   func(_ *tx, r *regionItem) []string { return one(r.Name) },
	"endpoint":      func(_ *tx, r *regionItem) []string { return one(r.Endpoint) },
	"opt-in-status": func(_ *tx, r *regionItem) []string { return one(r.OptIn) },
}

type describeRegionsRequest struct {
	request
	AllRegions  bool
	RegionNames []string `query:"RegionName"`
	Filters     []filter `query:"Filter"`
}

type describeRegionsResponse struct {
	Regions []regionItem `xml:"regionInfo>item"`
}

// describeRegions knows only the lab's own region.
func describeRegions(t *tx, in *describeRegionsRequest) (any, error) {
	for _, name := range in.RegionNames {
		if name != t.c.cfg.Region {
			return nil, invalidValue("Invalid region names provided: %s", name)
		}
	}
	if err := checkFilters(in.Filters, regionFields); err != nil {
		return nil, err
	}
	r := regionItem{t.c.cfg.Region, "ec2." + t.c.cfg.Region + "." + wire.Domain(t.c.cfg.Region), "opt-in-not-required"}
	var out describeRegionsResponse
	if t.matches("", in.Filters, func(f string) []string { return regionFields[f](t, &r) }) {
		out.Regions = []regionItem{r}
	}
	return out, nil
}

type zoneItem struct {
	Name        string `xml:"zoneName"`
	ID          string `xml:"zoneId"`
	State       string `xml:"zoneState"`
	Region      string `xml:"regionName"`
	Group       string `xml:"groupName"`
	BorderGroup string `xml:"networkBorderGroup"`
	Type        string `xml:"zoneType"`
	OptIn       string `xml:"optInStatus"`
}

var zoneFields = fields[zoneItem]{
	"zone-name":     func(_ *tx, z *zoneItem) []string { return one(z.Name) },
	"zone-id":       func(_ *tx, z *zoneItem) []string { return one(z.ID) },
	"zone-type":     func(_ *tx, z *zoneItem) []string { return one(z.Type) },
	"state":         func(_ *tx, z *zoneItem) []string { return one(z.State) },
	"region-name":   func(_ *tx, z *zoneItem) []string { return one(z.Region) },
	"group-name":    func(_ *tx, z *zoneItem) []string { return one(z.Group) },
	"opt-in-status": func(_ *tx, z *zoneItem) []string { return one(z.OptIn) },
}

type describeZonesRequest struct {
	request
	AllAvailabilityZones bool
	ZoneNames            []string `query:"ZoneName"`
	ZoneIds              []string `query:"ZoneId"`
	Filters              []filter `query:"Filter"`
}

type describeZonesResponse struct {
	Zones []zoneItem `xml:"availabilityZoneInfo>item"`
}

func describeZones(t *tx, in *describeZonesRequest) (any, error) {
	for _, name := range in.ZoneNames {
		if !slices.Contains(t.c.allZones(), name) {
			return nil, invalidValue("Invalid availability zone: [%s]", name)
		}
	}
	for _, id := range in.ZoneIds {
		if !slices.ContainsFunc(t.c.allZones(), func(z string) bool { return t.c.zoneID(z) == id }) {
			return nil, invalidValue("Invalid availability zone-id: [%s]", id)
		}
	}
	if err := checkFilters(in.Filters, zoneFields); err != nil {
		return nil, err
	}
	var out describeZonesResponse
	for _, name := range t.c.allZones() {
		z := zoneItem{name, t.c.zoneID(name), "available", t.c.cfg.Region, t.c.borderGroup(name), t.c.borderGroup(name), "availability-zone", "opt-in-not-required"}
		switch {
		case name == t.c.localZone():
			z.Type, z.OptIn = "local-zone", "opted-in"
		case t.c.constrained(name):
			z.State = "constrained"
		}
		if len(in.ZoneNames) > 0 && !slices.Contains(in.ZoneNames, name) || len(in.ZoneIds) > 0 && !slices.Contains(in.ZoneIds, z.ID) {
			continue
		}
		if t.matches("", in.Filters, func(f string) []string { return zoneFields[f](t, &z) }) {
			out.Zones = append(out.Zones, z)
		}
	}
	return out, nil
}

type accountRequest struct {
	request
	AttributeNames []string `query:"AttributeName"`
}

type accountAttribute struct {
	Name   string   `xml:"attributeName"`
	Values []string `xml:"attributeValueSet>item>attributeValue"`
}

type accountResponse struct {
	Attributes []accountAttribute `xml:"accountAttributeSet>item"`
}

func describeAccount(t *tx, in *accountRequest) (any, error) {
	q, inVPC := t.c.cfg.Quotas, "none"
	if v := t.defaultVPC(); v != nil {
		inVPC = v.ID
	}
	all := []accountAttribute{
		{"supported-platforms", []string{"VPC"}},
		{"default-vpc", []string{inVPC}},
		{"max-instances", []string{"20"}}, // from before there were quotas for vCPUs
		{"vpc-max-security-groups-per-interface", []string{strconv.Itoa(q.GroupsPerInterface)}},
		{"max-elastic-ips", []string{"0"}},
		{"vpc-max-elastic-ips", []string{strconv.Itoa(q.Addresses)}},
	}
	for _, name := range in.AttributeNames {
		if !slices.ContainsFunc(all, func(a accountAttribute) bool { return a.Name == name }) {
			return nil, wire.Refuse("InvalidParameterValue", "Value (%s) for parameter attributeName is invalid. Unknown attribute.", name)
		}
	}
	var out accountResponse
	for _, a := range all {
		if len(in.AttributeNames) == 0 || slices.Contains(in.AttributeNames, a.Name) {
			out.Attributes = append(out.Attributes, a)
		}
	}
	return out, nil
}
