package elbv2

import (
	"fmt"
	"slices"
)

type setSecurityGroupsRequest struct {
	LoadBalancerArn                                      string
	SecurityGroups                                       []string `query:"SecurityGroups.member"`
	EnforceSecurityGroupInboundRulesOnPrivateLinkTraffic string
}

type securityGroupsAnswer struct {
	IDs []string `xml:"SecurityGroupIds>member"`
}

func setSecurityGroups(t *tx, in *setSecurityGroupsRequest) (any, error) {
	b, err := t.loadBalancer(in.LoadBalancerArn)
	if err != nil {
		return nil, err
	}
	switch {
	case !b.Grouped:
		return nil, badConfiguration("You cannot set security groups on a Network Load Balancer that was created without security groups")
	case len(in.SecurityGroups) == 0:
		return nil, badConfiguration("You must specify at least one security group for a Network Load Balancer that was created with security groups")
	}
	groups := slices.Sorted(slices.Values(in.SecurityGroups))
	if err := t.checkGroups(b.VPC, groups); err != nil {
		return nil, err
	}
	if err := t.s.cfg.Compute.SetNodeGroups(b.interfaces(), groups); err != nil {
		return nil, fmt.Errorf("security groups of nodes: %w", err)
	}
	b.Groups = groups
	t.changed()
	return securityGroupsAnswer{groups}, nil
}

type setSubnetsRequest struct {
	LoadBalancerArn string
	IpAddressType   string
	Subnets         []string        `query:"Subnets.member"`
	SubnetMappings  []subnetMapping `query:"SubnetMappings.member"`
}

type subnetsAnswer struct {
	Zones         []zoneItem `xml:"AvailabilityZones>member"`
	IPAddressType string     `xml:"IpAddressType"`
}

// setSubnets adds and removes zones. A zone that stays keeps its subnet and its addresses.
func setSubnets(t *tx, in *setSubnetsRequest) (any, error) {
	b, err := t.loadBalancer(in.LoadBalancerArn)
	if err != nil {
		return nil, err
	}
	mappings, err := asMappings(in.Subnets, in.SubnetMappings)
	if err != nil {
		return nil, err
	}
	if _, err := t.checkMappings(b.VPC, b.Scheme, mappings); err != nil {
		return nil, err
	}
	var added []subnetMapping
	kept := map[string]bool{}
	for _, m := range mappings {
		s, _ := t.s.cfg.Compute.Subnet(m.SubnetId)
		n, there := b.nodeIn(s.Zone)
		switch {
		case !there:
			added = append(added, m)
		case n.Subnet != m.SubnetId || m.AllocationId != "" && m.AllocationId != n.Allocation ||
			m.PrivateIPv4Address != "" && m.PrivateIPv4Address != n.PrivateIP:
			return nil, badConfiguration("The subnet and the addresses of an Availability Zone that is enabled cannot be changed: %s", s.Zone)
		default:
			kept[n.Interface] = true
		}
	}
	if err := t.addNodes(b, added); err != nil {
		return nil, err
	}
	for _, m := range added {
		s, _ := t.s.cfg.Compute.Subnet(m.SubnetId)
		n, _ := b.nodeIn(s.Zone)
		kept[n.Interface] = true
	}
	for _, id := range b.interfaces() {
		if !kept[id] {
			t.release(id)
		}
	}
	b.Nodes = slices.DeleteFunc(b.Nodes, func(n node) bool { return !kept[n.Interface] })
	t.changed()
	return subnetsAnswer{t.loadBalancerItem(b).Zones, "ipv4"}, nil
}
