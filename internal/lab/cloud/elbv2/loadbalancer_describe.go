package elbv2

import (
	"slices"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// hostedZone is the hosted zone of Network Load Balancers in us-east-1.
const hostedZone = "Z26RNL4JYFTOTI"

type loadBalancerItem struct {
	ARN           string     `xml:"LoadBalancerArn"`
	DNSName       string     `xml:"DNSName"`
	HostedZone    string     `xml:"CanonicalHostedZoneId"`
	Created       time.Time  `xml:"CreatedTime"`
	Name          string     `xml:"LoadBalancerName"`
	Scheme        string     `xml:"Scheme"`
	VPC           string     `xml:"VpcId"`
	State         string     `xml:"State>Code"`
	Type          string     `xml:"Type"`
	Zones         []zoneItem `xml:"AvailabilityZones>member"`
	Groups        []string   `xml:"SecurityGroups>member"`
	IPAddressType string     `xml:"IpAddressType"`
}

type zoneItem struct {
	Zone      string        `xml:"ZoneName"`
	Subnet    string        `xml:"SubnetId"`
	Addresses []addressItem `xml:"LoadBalancerAddresses>member"`
}

type addressItem struct {
	IP         string `xml:"IpAddress,omitempty"`
	Allocation string `xml:"AllocationId,omitempty"`
	PrivateIP  string `xml:"PrivateIPv4Address,omitempty"`
}

// loadBalancerItem shows the addresses that somebody has chosen, as AWS does.
func (t *tx) loadBalancerItem(b *loadBalancer) loadBalancerItem {
	item := loadBalancerItem{
		ARN: b.ARN, DNSName: b.DNSName, HostedZone: hostedZone, Created: b.Created, Name: b.Name, Scheme: b.Scheme, VPC: b.VPC,
		State: b.state(t.now), Type: "network", Groups: b.Groups, IPAddressType: "ipv4",
	}
	for _, n := range b.Nodes {
		z := zoneItem{Zone: n.Zone, Subnet: n.Subnet}
		switch {
		case n.Allocation != "":
			z.Addresses = []addressItem{{IP: t.s.cfg.Compute.NodeAddresses(n.Interface).Public.String(), Allocation: n.Allocation}}
		case n.PrivateIP != "":
			z.Addresses = []addressItem{{PrivateIP: n.PrivateIP}}
		}
		item.Zones = append(item.Zones, z)
	}
	return item
}

type describeLoadBalancersRequest struct {
	page
	LoadBalancerArns []string `query:"LoadBalancerArns.member"`
	Names            []string `query:"Names.member"`
}

func describeLoadBalancers(t *tx, in *describeLoadBalancersRequest) (any, error) {
	if len(in.LoadBalancerArns) > 0 && len(in.Names) > 0 {
		return nil, invalid("Load balancer names and load balancer ARNs cannot be specified at the same time")
	}
	var found []*loadBalancer
	for _, arn := range in.LoadBalancerArns {
		b, err := t.loadBalancer(arn)
		if err != nil {
			return nil, err
		}
		found = append(found, b)
	}
	all := sorted(t.st.LoadBalancers)
	if len(in.LoadBalancerArns) == 0 {
		all = slices.DeleteFunc(all, func(b *loadBalancer) bool { return t.s.cfg.Faults.Hidden(b.ARN, t.now) })
	}
	for _, name := range in.Names {
		i := slices.IndexFunc(all, func(b *loadBalancer) bool { return b.Name == name })
		if i < 0 {
			return nil, wire.Refuse("LoadBalancerNotFound", "Load balancers '[%s]' not found", name)
		}
		found = append(found, all[i])
	}
	if len(in.LoadBalancerArns)+len(in.Names) == 0 {
		found = all
	}
	found, next, err := cut(in.page, found, func(b *loadBalancer) string { return b.ARN })
	if err != nil {
		return nil, err
	}
	out := loadBalancersAnswer{NextMarker: next}
	for _, b := range found {
		out.LoadBalancers = append(out.LoadBalancers, t.loadBalancerItem(b))
	}
	return out, nil
}
