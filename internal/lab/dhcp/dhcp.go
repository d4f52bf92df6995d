// Package dhcp is the DHCP server of the local EC2. It gives an instance its address, route and
// resolver, as Amazon's does (RFC 2131; VPC user guide, "DHCP option sets in Amazon VPC").
//
// It answers on a socket that the caller opens in a VPC's router, and asks a [Source] for each
// interface's lease. It keeps no state: an interface's address never changes, so its lease is
// always the same.
package dhcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/net/ipv4"
)

const (
	// Listen is where the server listens inside a VPC's router.
	Listen = "0.0.0.0:67"
	// LeaseTime is the lease time, as on EC2.
	LeaseTime = time.Hour
)

// Lease is what the server sends to an interface.
type Lease struct {
	Address  netip.Prefix // the private address, with the length of the subnet's CIDR
	Router   netip.Addr   // default gateway, and the server's own address
	Resolver netip.Addr
	Domain   string // "ec2.internal"
	Hostname string // without the domain: "ip-10-240-0-10"
	MTU      uint16 // in bytes
}

// Source returns the lease of the interface that has a MAC address and is behind a link of the
// router; link is the link's index there. It returns false when another interface is behind the
// link, so that no interface learns the address of another one.
type Source func(link int, mac net.HardwareAddr) (Lease, bool)

// Serve answers on conn, a UDP socket on [Listen], until conn is closed. It calls leased with an
// interface's MAC address each time the interface is given its address, also on a renewal.
func Serve(conn net.PacketConn, source Source, leased func(mac net.HardwareAddr), log *slog.Logger) error {
	packets := ipv4.NewPacketConn(conn)
	if err := packets.SetControlMessage(ipv4.FlagInterface, true); err != nil {
		return fmt.Errorf("ask for the link of each DHCP request: %w", err)
	}
	buffer := make([]byte, 1<<16)
	for {
		n, meta, _, err := packets.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive a DHCP request: %w", err)
		}
		if meta == nil || meta.IfIndex == 0 {
			continue // received before SetControlMessage; the client tries again
		}
		request, err := dhcpv4.FromBytes(buffer[:n])
		if err != nil {
			continue // not DHCP, or garbled; a client tries again
		}
		lease, ok := source(meta.IfIndex, request.ClientHWAddr)
		if !ok {
			continue
		}
		reply, err := answer(request, lease)
		if err != nil {
			log.Warn("a DHCP request could not be answered", "mac", request.ClientHWAddr.String(), "error", err)
		}
		if reply == nil {
			continue
		}
		out := &ipv4.ControlMessage{Src: lease.Router.AsSlice()}
		to := &net.UDPAddr{IP: request.ClientIPAddr, Port: dhcpv4.ClientPort}
		if reply.MessageType() == dhcpv4.MessageTypeNak || request.ClientIPAddr.IsUnspecified() {
			// A client without an address receives only broadcasts, and only on its own link.
			out.IfIndex, to.IP = meta.IfIndex, net.IPv4bcast
		}
		_, err = packets.WriteTo(reply.ToBytes(), out, to)
		switch {
		case err == nil && reply.MessageType() == dhcpv4.MessageTypeAck:
			leased(request.ClientHWAddr)
		case err != nil && !errors.Is(err, net.ErrClosed):
			log.Warn("a DHCP answer could not be sent", "mac", request.ClientHWAddr.String(), "error", err)
		}
	}
}

// answer returns the reply to a request, or nil if there is none (RFC 2131, section 4.3).
func answer(request *dhcpv4.DHCPv4, lease Lease) (*dhcpv4.DHCPv4, error) {
	server := net.IP(lease.Router.AsSlice())
	chosen := request.ServerIdentifier()
	switch {
	case request.OpCode != dhcpv4.OpcodeBootRequest, !request.GatewayIPAddr.IsUnspecified(), chosen != nil && !chosen.Equal(server):
		return nil, nil //nolint:nilnil // a reply, a relayed request, or one for another server
	case request.MessageType() == dhcpv4.MessageTypeDiscover:
		return dhcpv4.NewReplyFromRequest(request, lease.options(dhcpv4.MessageTypeOffer), lease.grant())
	case request.MessageType() == dhcpv4.MessageTypeInform && lease.is(request.ClientIPAddr):
		return dhcpv4.NewReplyFromRequest(request, lease.options(dhcpv4.MessageTypeAck))
	case request.MessageType() != dhcpv4.MessageTypeRequest:
		return nil, nil //nolint:nilnil // a release, for example, changes nothing: the interface keeps its address
	case lease.is(wanted(request)):
		return dhcpv4.NewReplyFromRequest(request, lease.options(dhcpv4.MessageTypeAck), lease.grant())
	default:
		return dhcpv4.NewReplyFromRequest(request, dhcpv4.WithMessageType(dhcpv4.MessageTypeNak), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(server)))
	}
}

// wanted returns the address that a request asks for: the one in its option, else the client's own.
func wanted(request *dhcpv4.DHCPv4) net.IP {
	if ip := request.RequestedIPAddress(); ip != nil {
		return ip
	}
	return request.ClientIPAddr
}

func (l Lease) is(ip net.IP) bool { return net.IP(l.Address.Addr().AsSlice()).Equal(ip) }

// options returns the options of every reply, for a message type.
func (l Lease) options(kind dhcpv4.MessageType) dhcpv4.Modifier {
	return func(reply *dhcpv4.DHCPv4) {
		reply.ServerIPAddr = l.Router.AsSlice()
		for _, option := range []dhcpv4.Option{
			dhcpv4.OptMessageType(kind),
			dhcpv4.OptServerIdentifier(l.Router.AsSlice()),
			dhcpv4.OptSubnetMask(net.CIDRMask(l.Address.Bits(), 32)),
			dhcpv4.OptRouter(l.Router.AsSlice()),
			dhcpv4.OptDNS(l.Resolver.AsSlice()),
			dhcpv4.OptDomainName(l.Domain),
			dhcpv4.OptHostName(l.Hostname),
			dhcpv4.OptGeneric(dhcpv4.OptionInterfaceMTU, binary.BigEndian.AppendUint16(nil, l.MTU)),
		} {
			reply.UpdateOption(option)
		}
	}
}

// grant gives the client the address and the lease time.
func (l Lease) grant() dhcpv4.Modifier {
	return func(reply *dhcpv4.DHCPv4) {
		reply.YourIPAddr = l.Address.Addr().AsSlice()
		reply.UpdateOption(dhcpv4.OptIPAddressLeaseTime(LeaseTime))
	}
}
