package ec2

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// SubnetFacts is what load balancers need to know of a subnet.
type SubnetFacts struct {
	ID, VPC, Zone string
	Free          int  // addresses
	Internet      bool // its VPC has an internet gateway
}

// InstanceFacts is what target groups need to know of an instance.
type InstanceFacts struct {
	VPC, Zone, State string
	PrivateIP        netip.Addr
}

// NodeRequest asks for the interface of a load balancer's node.
type NodeRequest struct {
	Subnet     string
	PrivateIP  string // empty for any
	Allocation string // of an Elastic IP
	Public     bool   // an automatic public address, if there is no Elastic IP
}

// look runs f on the live state, which it does not change.
func (c *Compute) look(f func(*tx)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&tx{c: c, st: c.st, now: c.cfg.Clock.Now()})
}

// SubnetFacts returns the facts about a subnet, if it exists.
func (c *Compute) SubnetFacts(id string) (facts SubnetFacts, ok bool) {
	c.look(func(t *tx) {
		s := t.st.Subnets[id]
		if s == nil || c.faults.Hidden(id, t.now) {
			return
		}
		facts, ok = SubnetFacts{s.ID, s.VPC, s.Zone, t.freeAddresses(s), t.gatewayOf(s.VPC) != nil}, true
	})
	return facts, ok
}

// InstanceFacts returns the facts about an instance, if it exists.
func (c *Compute) InstanceFacts(id string) (facts InstanceFacts, ok bool) {
	c.look(func(t *tx) {
		i := t.st.Instances[id]
		if i == nil {
			return
		}
		facts, ok = InstanceFacts{VPC: i.VPC, Zone: i.Zone, State: i.State.String()}, true
		if e := t.st.Interfaces[i.Interface]; e != nil {
			facts.PrivateIP = e.PrivateIP
		}
	})
	return facts, ok
}

// HasVPC reports whether a VPC exists.
func (c *Compute) HasVPC(id string) (ok bool) {
	c.look(func(t *tx) { ok = t.st.VPCs[id] != nil })
	return ok
}

// HasGroup reports whether a security group exists in a VPC.
func (c *Compute) HasGroup(vpc, id string) (ok bool) {
	c.look(func(t *tx) { ok = t.st.Groups[id] != nil && t.st.Groups[id].VPC == vpc })
	return ok
}

// ElasticIP reports whether an Elastic IP exists, and whether it is associated.
func (c *Compute) ElasticIP(allocation string) (exists, used bool) {
	c.look(func(t *tx) {
		a := t.st.Addresses[allocation]
		exists = a != nil && !c.faults.Hidden(allocation, t.now)
		used = exists && a.Interface != ""
	})
	return exists, used
}

// NodeAddresses returns the addresses of an interface, zero if it has none.
func (c *Compute) NodeAddresses(id string) (private, public netip.Addr) {
	c.look(func(t *tx) {
		if e := t.st.Interfaces[id]; e != nil {
			private, public = e.PrivateIP, t.publicIP(e)
		}
	})
	return private, public
}

// AddNodes makes the interfaces of a load balancer's nodes, all or none.
func (c *Compute) AddNodes(balancer string, groups []string, nodes []NodeRequest) (interfaces []string, err error) {
	err = c.update("", nil, func(t *tx) error {
		for _, n := range nodes {
			s := t.st.Subnets[n.Subnet]
			if s == nil {
				return kindSubnet.notFoundError(n.Subnet)
			}
			ip, err := t.takeAddress(s, n.PrivateIP)
			if err != nil {
				return err
			}
			e := &iface{
				ID: t.newID(kindInterface.prefix), VPC: s.VPC, Subnet: s.ID, Balancer: balancer, AttachmentID: t.newID("ela-attach"),
				AttachTime: t.now, Description: "ELB " + balancer, MAC: mac(ip), PrivateIP: ip, Groups: groups,
			}
			t.st.Interfaces[e.ID] = e
			interfaces = append(interfaces, e.ID)
			if n.Allocation != "" {
				a := t.st.Addresses[n.Allocation]
				if a == nil || a.Interface != "" {
					return wire.Refuse("InvalidIPAddress.InUse", "Address %s is in use.", n.Allocation)
				}
				a.Interface, a.AssociationID = e.ID, t.newID("eipassoc")
			} else if n.Public {
				var ok bool
				if e.PublicIP, ok = t.takePublicIP(); !ok {
					return errors.New("the local EC2 has no free public address")
				}
			}
		}
		return nil
	})
	return interfaces, err
}

// SetNodeGroups sets the security groups of a load balancer's interfaces.
func (c *Compute) SetNodeGroups(interfaces, groups []string) error {
	return c.update("", nil, func(t *tx) error {
		for _, id := range interfaces {
			if e := t.st.Interfaces[id]; e != nil {
				e.Groups = groups
			}
		}
		return nil
	})
}

// RemoveNodes removes interfaces of load balancers.
func (c *Compute) RemoveNodes(interfaces []string) error {
	return c.removeNodes(func(id string) bool { return slices.Contains(interfaces, id) })
}

// KeepNodes removes the interfaces of load balancers that are not among the given ones.
func (c *Compute) KeepNodes(interfaces []string) error {
	return c.removeNodes(func(id string) bool { return !slices.Contains(interfaces, id) })
}

func (c *Compute) removeNodes(which func(id string) bool) error {
	found := false
	c.look(func(t *tx) {
		for _, e := range t.st.Interfaces {
			found = found || e.Balancer != "" && which(e.ID)
		}
	})
	if !found {
		return nil
	}
	return c.update("", nil, func(t *tx) error {
		for _, e := range sorted(t.st.Interfaces) {
			if e.Balancer != "" && which(e.ID) {
				t.dropInterface(e)
			}
		}
		return nil
	})
}
