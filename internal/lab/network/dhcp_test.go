package network

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/dhcp"
)

const macA, macB = "02:00:0a:f0:00:0a", "02:00:0a:f0:00:0b"

// dhcpLab is a network whose router answers DHCP, and whose interfaces A and B have no address yet.
// B has no source/destination check, like a worker.
func dhcpLab(t *testing.T) (l *lab, taken chan string) {
	vpc := threeInterfaces()
	vpc.Interfaces[0].MAC, vpc.Interfaces[1].MAC = macA, macB
	vpc.Interfaces[1].SourceDestCheck = false
	vpc.SecurityGroups[0].Egress = nil // DHCP works whatever the groups say
	l, taken = newLab(t), make(chan string, 8)
	l.cfg.VPCs = []VPC{vpc}
	if err := l.Apply(t.Context(), l.cfg); err != nil {
		t.Fatal(err)
	}
	conn, err := l.ListenUDP(t.Context(), "vpc-1", dhcp.Listen)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		served <- dhcp.Serve(conn, l.lease, func(mac net.HardwareAddr) { taken <- mac.String() }, slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() {
		conn.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l, taken
}

func (l *lab) lease(index int, mac net.HardwareAddr) (dhcp.Lease, bool) {
	id, err := l.InterfaceAt("vpc-1", index)
	i, ok := l.cfg.VPCs[0].iface(id)
	if err != nil || !ok {
		l.t.Errorf("a DHCP request came from the link of %q: %v", id, err)
	}
	return dhcp.Lease{
		Address: netip.PrefixFrom(i.PrivateIP, 24), Router: netip.MustParseAddr(gwA), Resolver: netip.MustParseAddr("10.240.0.2"),
		Domain: "ec2.internal", Hostname: "ip-10-240-0-10", MTU: 9001,
	}, i.MAC == mac.String()
}

// client speaks DHCP on an interface that has no address.
func (l *lab) client(place string, options ...nclient4.ClientOpt) *nclient4.Client {
	l.t.Helper()
	var client *nclient4.Client
	err := l.at(place, func() (err error) {
		client, err = nclient4.New(guestLink, append([]nclient4.ClientOpt{nclient4.WithTimeout(time.Second), nclient4.WithRetry(7)}, options...)...)
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { client.Close() })
	return client
}

func TestAddressByDHCP(t *testing.T) {
	l, taken := dhcpLab(t)
	lease, err := l.client("eni-a").Request(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ack := lease.ACK
	if !ack.YourIPAddr.Equal(net.ParseIP(ipA)) || !ack.ServerIdentifier().Equal(net.ParseIP(gwA)) {
		t.Errorf("told the address %s by %s", ack.YourIPAddr, ack.ServerIdentifier())
	}
	if mac := <-taken; mac != macA {
		t.Errorf("the address was taken by %s, want %s", mac, macA)
	}
	l.lookupBeforeAddress()
	l.apply() // the machine configures itself
	l.renews(lease)
}

// lookupBeforeAddress checks that only DHCP works for a machine without an address.
func (l *lab) lookupBeforeAddress() {
	l.t.Helper()
	other, err := l.ListenUDP(l.t.Context(), "vpc-1", "0.0.0.0:69")
	if err != nil {
		l.t.Fatal(err)
	}
	defer other.Close()
	// The client sends from 0.0.0.0 to a port other than DHCP's.
	client := l.client("eni-a", nclient4.WithServerAddr(&net.UDPAddr{IP: net.IPv4bcast, Port: 69}))
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	if _, err := client.DiscoverOffer(ctx); err == nil {
		l.t.Error("an answer came from a port that nobody serves")
	}
	_ = other.SetReadDeadline(time.Now().Add(patience))
	if n, from, err := other.ReadFrom(make([]byte, 1500)); err == nil {
		l.t.Errorf("%d bytes came from %s, without an address, to another port", n, from)
	}
}

// renews asks again from the leased address, by unicast and by broadcast.
func (l *lab) renews(lease *nclient4.Lease) {
	l.t.Helper()
	socket := l.listenUDP("eni-a", ipA+":68")
	defer socket.Close()
	renewal, err := dhcpv4.NewRenewFromAck(lease.ACK)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, to := range []string{gwA, "255.255.255.255"} {
		if _, err := socket.WriteTo(renewal.ToBytes(), &net.UDPAddr{IP: net.ParseIP(to), Port: 67}); err != nil {
			l.t.Fatal(err)
		}
		buffer := make([]byte, 1500)
		_ = socket.SetReadDeadline(time.Now().Add(answerWithin))
		n, from, err := socket.ReadFrom(buffer)
		if err != nil {
			l.t.Fatalf("renewal sent to %s: %v", to, err)
		}
		ack, err := dhcpv4.FromBytes(buffer[:n])
		if err != nil || ack.MessageType() != dhcpv4.MessageTypeAck || from.String() != gwA+":67" {
			l.t.Errorf("renewal sent to %s: %v from %s, %v", to, ack, from, err)
		}
	}
}

func TestNobodyGetsAnothersAddress(t *testing.T) {
	l, taken := dhcpLab(t)
	mac, err := net.ParseMAC(macA)
	if err != nil {
		t.Fatal(err)
	}
	if lease, err := l.client("eni-b", nclient4.WithHWAddr(mac), nclient4.WithTimeout(patience), nclient4.WithRetry(1)).Request(t.Context()); err == nil {
		t.Errorf("B was told A's address: %s", lease.ACK)
	}
	if len(taken) != 0 {
		t.Errorf("B took the address of %s", <-taken)
	}
	if _, err := l.client("eni-b").Request(t.Context()); err != nil {
		t.Errorf("B is not told its own address: %v", err)
	}
}
