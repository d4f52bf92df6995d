package ec2

import "strings"

var dhcpOptionsActions = map[string]action{"DescribeDhcpOptions": reads(describeDHCPOptions)}

// dhcpOptions is the region's default set of DHCP options, which every VPC has. There are no others
// here.
type dhcpOptions struct{ ID string }

// defaultDHCPOptions returns the options of every VPC. The id is the account's: dopt-0 and its
// number.
func (c *Compute) defaultDHCPOptions() *dhcpOptions {
	return &dhcpOptions{ID: kindDHCPOptions.prefix + "-" + (strings.Repeat("0", 17) + c.cfg.AccountID)[len(c.cfg.AccountID):]}
}

type dhcpOptionsItem struct {
	ID      string              `xml:"dhcpOptionsId"`
	OwnerID string              `xml:"ownerId"`
	Options []dhcpConfiguration `xml:"dhcpConfigurationSet>item"`
	Tags    []tag               `xml:"tagSet>item"`
}

type dhcpConfiguration struct {
	Key    string   `xml:"key"`
	Values []string `xml:"valueSet>item>value"`
}

// domainName returns the domain of private names: ec2.internal in us-east-1, and
// REGION.compute.internal elsewhere.
func domainName(region string) string {
	if region == "us-east-1" {
		return "ec2.internal"
	}
	return region + ".compute.internal"
}

func (t *tx) dhcpOptionsItem(o *dhcpOptions) dhcpOptionsItem {
	return dhcpOptionsItem{ID: o.ID, OwnerID: t.c.cfg.AccountID, Tags: t.tags(o.ID), Options: []dhcpConfiguration{
		{"domain-name", []string{domainName(t.c.cfg.Region)}},
		{"domain-name-servers", []string{"AmazonProvidedDNS"}},
	}}
}

var dhcpOptionsFields = fields[dhcpOptions]{
	"dhcp-options-id": func(_ *tx, o *dhcpOptions) []string { return one(o.ID) },
	"key":             func(*tx, *dhcpOptions) []string { return []string{"domain-name", "domain-name-servers"} },
	"value": func(t *tx, _ *dhcpOptions) []string {
		return []string{domainName(t.c.cfg.Region), "AmazonProvidedDNS"}
	},
	"owner-id": func(t *tx, _ *dhcpOptions) []string { return one(t.c.cfg.AccountID) },
}

type describeDHCPOptionsRequest struct {
	describeRequest
	DhcpOptionsIds []string `query:"DhcpOptionsId"`
}

type describeDHCPOptionsResponse struct {
	Options   []dhcpOptionsItem `xml:"dhcpOptionsSet>item"`
	NextToken string            `xml:"nextToken,omitempty"`
}

func describeDHCPOptions(t *tx, in *describeDHCPOptionsRequest) (any, error) {
	o := t.c.defaultDHCPOptions()
	items, next, err := describe(t, selection[dhcpOptions]{
		kindDHCPOptions, map[string]*dhcpOptions{o.ID: o}, "dhcpOptionsId", in.DhcpOptionsIds, dhcpOptionsFields, in.describeRequest, 5,
	}, t.dhcpOptionsItem)
	return describeDHCPOptionsResponse{items, next}, err
}
