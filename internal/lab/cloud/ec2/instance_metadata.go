package ec2

import (
	"encoding/base64"
	"net"
	"net/netip"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/metadata"
)

// InstanceByAddress implements metadata.Source.
func (c *Compute) InstanceByAddress(vpcID string, addr netip.Addr) (metadata.Instance, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &tx{c: c, st: c.st, now: c.cfg.Clock.Now()}
	for _, e := range c.st.Interfaces {
		if e.VPC == vpcID && e.PrivateIP == addr && e.Instance != "" {
			return t.metadata(c.st.Instances[e.Instance], e), true
		}
	}
	return metadata.Instance{}, false
}

// InstanceByMAC implements metadata.Source.
func (c *Compute) InstanceByMAC(vpcID string, mac net.HardwareAddr) (metadata.Instance, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &tx{c: c, st: c.st, now: c.cfg.Clock.Now()}
	for _, e := range c.st.Interfaces {
		if e.VPC == vpcID && e.MAC == mac.String() && e.Instance != "" {
			return t.metadata(c.st.Instances[e.Instance], e), true
		}
	}
	return metadata.Instance{}, false
}

// AddressLeased implements metadata.Source: from then on the machine answers ARP, so EC2's
// reachability check passes.
func (c *Compute) AddressLeased(vpcID string, mac net.HardwareAddr) {
	m, ok := c.InstanceByMAC(vpcID, mac)
	if !ok || c.answering(m.ID) {
		return // an unknown address, or a renewal
	}
	c.save(m.ID, func(_ *tx, i *instance) { i.Answering = i.up() })
}

func (c *Compute) answering(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.st.Instances[id] != nil && c.st.Instances[id].Answering
}

// PrivateAddressOf implements metadata.Source.
func (c *Compute) PrivateAddressOf(vpcID string, public netip.Addr) (netip.Addr, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &tx{c: c, st: c.st}
	for _, e := range c.st.Interfaces {
		if e.VPC == vpcID && t.publicIP(e) == public {
			return e.PrivateIP, true
		}
	}
	return netip.Addr{}, false
}

func (t *tx) metadata(i *instance, e *iface) metadata.Instance {
	userData, _ := base64.StdEncoding.DecodeString(i.UserData) // valid, since it was checked when it was set
	m := metadata.Instance{
		ID: i.ID, ImageID: i.Image, Type: i.Type, ReservationID: i.Reservation, LaunchIndex: i.LaunchIndex, Launched: i.LaunchTime,
		AccountID: t.c.cfg.AccountID, Region: t.c.cfg.Region, Partition: wire.Partition(t.c.cfg.Region), Domain: wire.Domain(t.c.cfg.Region), Zone: i.Zone, ZoneID: t.c.zoneID(i.Zone),
		VPCID: i.VPC, SubnetID: i.Subnet, InterfaceID: e.ID, MAC: e.MAC,
		VPCCIDR: t.st.VPCs[i.VPC].CIDR, SubnetCIDR: t.st.Subnets[i.Subnet].CIDR,
		PrivateIP: e.PrivateIP, PublicIP: t.publicIP(e), PrivateName: t.privateDNS(e.PrivateIP),
		Groups: groupNames(t, e.Groups), GroupIDs: e.Groups, KeyName: i.KeyName, PublicKey: i.PublicKey, UserData: userData, Tags: t.st.Tags[i.ID],
		Enabled: i.Metadata.Endpoint == "enabled", TokenRequired: i.Metadata.Tokens == "required", HopLimit: i.Metadata.HopLimit,
		ShowTags: i.Metadata.Tags == "enabled",
	}
	if a := t.profileOf(i.ID); a != nil && a.Ended.IsZero() {
		m.Profile = &metadata.Profile{ARN: a.Profile.ARN, ID: a.Profile.ID, Since: a.Since}
	}
	if s := i.Spot; s != nil {
		m.Spot, m.Recommended, m.Ends = true, s.Recommended, s.Ends
	}
	m.Events = t.events(i)
	if m.PublicIP.IsValid() {
		m.PublicName = t.publicDNS(e.VPC, m.PublicIP)
	}
	return m
}
