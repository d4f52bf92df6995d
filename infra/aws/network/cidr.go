package network

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// Rules of VPCs for networks and addresses. Each check ignores values that are not known.

// Bounds of the prefix length of a VPC and of a subnet.
const (
	ShortestPrefix = 16
	LongestPrefix  = 28
)

// CheckPodCIDR returns an error for a pod network to which a VPC can have no route: one that
// overlaps the VPC's own.
func CheckPodCIDR(pods, vpc netip.Prefix) (errs invalid.Fields) {
	if pods.Overlaps(vpc) {
		errs.Say("pod_cidr", "Overlapping networks",
			"pod_cidr %s overlaps the VPC's %s: EC2 accepts no routes to machines within its own network.", pods, vpc)
	}
	return errs
}

// CheckPrivateIP returns an error if a machine cannot have the address: it is in none of the
// subnets, or AWS reserves it (the first four of each subnet and the last).
// https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html
func CheckPrivateIP(ip netip.Addr, subnets []netip.Prefix) (errs invalid.Fields) {
	const field, problem = "private_ip", "Unusable private address"
	var names []string
	for _, s := range subnets {
		if !ip.IsValid() || !s.IsValid() {
			return nil
		}
		names = append(names, s.String())
		if !s.Contains(ip) {
			continue
		}
		address, first := ip.As4(), s.Masked().Addr().As4()
		offset := binary.BigEndian.Uint32(address[:]) - binary.BigEndian.Uint32(first[:])
		if last := uint32(1)<<(32-s.Bits()) - 1; offset < 4 || offset == last {
			errs.Say(field, problem, "%s is reserved by AWS: the first four addresses of %s and the last one cannot be used", ip, s)
		}
		return errs
	}
	errs.Say(field, problem, "%s does not lie within %s", ip, strings.Join(names, ", "))
	return errs
}
