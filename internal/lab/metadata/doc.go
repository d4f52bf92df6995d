// Package metadata runs the services of a VPC at well-known addresses: the instance metadata
// service (169.254.169.254, version 2), the Amazon-provided DNS server (VPC base + 2, and
// 169.254.169.253) and the DHCP server.
//
// It asks a Source which instance a request comes from. It knows nothing of the EC2 API, of state,
// or of how the listeners get into a VPC.
package metadata

import (
	"net"
	"net/netip"
	"time"
)

// Source knows the instances of every VPC.
type Source interface {
	// InstanceByAddress returns the instance whose private address in a VPC is addr.
	InstanceByAddress(vpcID string, addr netip.Addr) (Instance, bool)
	// InstanceByMAC returns the instance whose interface in a VPC has a MAC address.
	InstanceByMAC(vpcID string, mac net.HardwareAddr) (Instance, bool)
	// AddressLeased is called when DHCP has given the interface with a MAC address its address.
	AddressLeased(vpcID string, mac net.HardwareAddr)
	// PrivateAddressOf returns the private address behind a public one in the same VPC.
	PrivateAddressOf(vpcID string, public netip.Addr) (netip.Addr, bool)
	// BalancerAddresses returns the addresses behind the name of a load balancer, in lower case and without a
	// dot at the end.
	BalancerAddresses(name string) ([]netip.Addr, bool)
	// Role returns what the instance's profile, which it must have, gives it now.
	Role(Instance) (Role, error)
}

// Event is a scheduled event of an instance. State is active, completed or canceled.
type Event struct {
	ID, Code, Description, State string
	NotBefore, NotAfter          time.Time // NotAfter may be zero
}

// Instance is what the metadata service returns to an instance about itself.
type Instance struct {
	ID, ImageID, Type, ReservationID  string
	LaunchIndex                       int
	Launched                          time.Time
	AccountID, Region, Zone, ZoneID   string
	Partition, Domain                 string // of the region
	VPCID, SubnetID, InterfaceID, MAC string
	VPCCIDR, SubnetCIDR               netip.Prefix
	PrivateIP, PublicIP               netip.Addr // PublicIP is zero when there is none
	PrivateName, PublicName           string     // DNS names; PublicName may be empty
	Groups, GroupIDs                  []string
	KeyName, PublicKey                string // of the key pair, if any
	UserData                          []byte // decoded
	Tags                              map[string]string
	Profile                           *Profile // nil when there is none

	Spot        bool      // a Spot instance
	Recommended time.Time // when EC2 recommended to replace it; zero before
	Ends        time.Time // when an interruption ends it; zero before its notice
	Events      []Event   // that are scheduled, and that were

	Enabled       bool // the service answers at all
	TokenRequired bool // version 2 only
	HopLimit      int  // IP TTL of answers
	ShowTags      bool
}
