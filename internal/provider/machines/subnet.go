package machines

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	awsnetwork "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// chosen reports whether a value was chosen, by the configuration or by an earlier apply.
func chosen(v types.String) bool { return !v.IsNull() && !v.IsUnknown() }

// candidates returns the subnets that subnet_id and availability_zone leave. What is not known yet
// excludes nothing.
func (m machineModel) candidates(subnets []reference.Subnet) []reference.Subnet {
	differs := func(a, b types.String) bool { return chosen(a) && chosen(b) && !a.Equal(b) }
	return slices.DeleteFunc(slices.Clone(subnets), func(s reference.Subnet) bool {
		return differs(m.SubnetID, s.ID) || differs(m.AvailabilityZone, s.AvailabilityZone)
	})
}

// subnet returns the machine's subnet: of the candidates the one that contains its private address, else
// the first one that is public or private as the machine is, else the first one.
func (m machineModel) subnet(ctx context.Context, diags *diag.Diagnostics) reference.Subnet {
	network, _ := reference.OfNetwork.Read(ctx, m.Network, diags)
	return m.subnetOf(network.KnownSubnets(ctx, diags))
}

func (m machineModel) subnetOf(subnets []reference.Subnet) reference.Subnet {
	subnets = m.candidates(subnets)
	if ip := tf.Addr(m.PrivateIP); ip.IsValid() {
		for _, s := range subnets {
			if tf.Prefix(s.CIDR).Contains(ip) {
				return s
			}
		}
	}
	for _, s := range subnets {
		if s.Public.ValueBool() == m.AssociatePublicIP.ValueBool() {
			return s
		}
	}
	if len(subnets) > 0 {
		return subnets[0]
	}
	return reference.Subnet{}
}

// planZone plans the zone of a machine that does not exist yet, if all subnets in which it can be are in the same one.
func (m *machineModel) planZone(ctx context.Context, diags *diag.Diagnostics) {
	network, _ := reference.OfNetwork.Read(ctx, m.Network, diags)
	subnets := m.candidates(network.KnownSubnets(ctx, diags))
	if !m.AvailabilityZone.IsUnknown() || len(subnets) == 0 {
		return
	}
	zone := subnets[0].AvailabilityZone
	if chosen(zone) && !slices.ContainsFunc(subnets, func(s reference.Subnet) bool { return !s.AvailabilityZone.Equal(zone) }) {
		m.AvailabilityZone = zone
	}
}

// checkSubnet returns errors for a subnet, a zone and a private address that the network does not have or
// that contradict one another.
func (m machineModel) checkSubnet(ctx context.Context, config machineModel, network reference.Network, diags *diag.Diagnostics) (errs invalid.Fields) {
	m.SubnetID, m.AvailabilityZone = config.SubnetID, config.AvailabilityZone // what was chosen earlier may be gone
	all := network.KnownSubnets(ctx, diags)
	if len(all) == 0 {
		return awsnetwork.CheckPrivateIP(tf.Addr(m.PrivateIP), []netip.Prefix{tf.Prefix(network.NodeCIDR)})
	}
	names := func(of func(reference.Subnet) types.String) (out []string, known bool) {
		known = true
		for _, s := range all {
			if v := of(s); !chosen(v) {
				known = false
			} else if !slices.Contains(out, v.ValueString()) {
				out = append(out, v.ValueString())
			}
		}
		return out, known
	}
	ids, idsKnown := names(func(s reference.Subnet) types.String { return s.ID })
	zones, zonesKnown := names(func(s reference.Subnet) types.String { return s.AvailabilityZone })
	switch {
	case chosen(m.SubnetID) && idsKnown && !slices.Contains(ids, m.SubnetID.ValueString()):
		errs.Say("subnet_id", "Not a subnet of the network", "%s is none of the network's subnets: %s.", m.SubnetID.ValueString(), strings.Join(ids, ", "))
	case chosen(m.AvailabilityZone) && zonesKnown && !slices.Contains(zones, m.AvailabilityZone.ValueString()):
		errs.Say("availability_zone", "Not a zone of the network", "The network has no subnet in %s, only in %s.", m.AvailabilityZone.ValueString(), strings.Join(zones, ", "))
	}
	subnets := m.candidates(all)
	if len(errs) > 0 {
		return errs
	}
	if len(subnets) == 0 {
		errs.Say("availability_zone", "Subnet of another zone", "Subnet %s is not in %s.", m.SubnetID.ValueString(), m.AvailabilityZone.ValueString())
		return errs
	}
	var ranges []netip.Prefix
	for _, s := range subnets {
		ranges = append(ranges, tf.Prefix(s.CIDR))
	}
	if errs = awsnetwork.CheckPrivateIP(tf.Addr(m.PrivateIP), ranges); len(errs) > 0 {
		return errs
	}
	at := m.subnetOf(all)
	settled := chosen(m.SubnetID) || tf.Addr(m.PrivateIP).IsValid() || len(subnets) == 1 || chosen(m.AvailabilityZone) && zonesKnown
	if settled && m.AssociatePublicIP.ValueBool() && tf.AllKnown(at.Public) && !at.Public.IsNull() && !at.Public.ValueBool() {
		errs.Say("associate_public_ip_address", "Public address in a private subnet",
			"%s would be in %s, whose default route does not lead to an internet gateway: nothing could reach it at a public address. Set associate_public_ip_address to false, or choose a public subnet.",
			m.Name.ValueString(), at.CIDR.ValueString())
	}
	return errs
}
