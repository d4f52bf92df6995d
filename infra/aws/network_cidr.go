package aws

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
)

// Rules of VPCs for networks and addresses. Each check ignores values that are not
// known.

// CheckNodeCIDR returns an error for a subnet outside its VPC.
func CheckNodeCIDR(subnet, vpc netip.Prefix) error {
	if subnet.IsValid() && vpc.IsValid() && (subnet.Bits() < vpc.Bits() || !vpc.Contains(subnet.Addr())) {
		return fmt.Errorf("%s does not lie within %s", subnet, vpc)
	}
	return nil
}

// CheckPodCIDR returns an error for a pod network to which a VPC can have no route:
// one that overlaps the VPC's own.
func CheckPodCIDR(pods, vpc netip.Prefix) error {
	if pods.Overlaps(vpc) {
		return fmt.Errorf("pod_cidr %s overlaps the VPC's %s: EC2 accepts no routes to machines within its own network", pods, vpc)
	}
	return nil
}

// CheckPrivateIP returns an error if a machine cannot have the address: it is in none
// of the subnets, or AWS reserves it (the first four of each subnet and the last).
// https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html
func CheckPrivateIP(ip netip.Addr, subnets []netip.Prefix) error {
	var names []string
	for _, s := range subnets {
		names = append(names, s.String())
		if !s.Contains(ip) {
			continue
		}
		address, first := ip.As4(), s.Masked().Addr().As4()
		offset := binary.BigEndian.Uint32(address[:]) - binary.BigEndian.Uint32(first[:])
		if last := uint32(1)<<(32-s.Bits()) - 1; offset < 4 || offset == last {
			return fmt.Errorf("%s is kept by AWS: the first four addresses of %s and the last cannot be used", ip, s)
		}
		return nil
	}
	return fmt.Errorf("%s does not lie within %s", ip, strings.Join(names, ", "))
}
