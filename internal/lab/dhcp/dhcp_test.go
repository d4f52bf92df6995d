package dhcp

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

var example = Lease{
	Address: netip.MustParsePrefix("10.240.1.10/24"), Router: netip.MustParseAddr("10.240.1.1"), Resolver: netip.MustParseAddr("10.240.0.2"),
	Domain: "ec2.internal", Hostname: "ip-10-240-1-10", MTU: 9001,
}

func request(t *testing.T, kind dhcpv4.MessageType, changes ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	r, err := dhcpv4.New(append([]dhcpv4.Modifier{dhcpv4.WithMessageType(kind), dhcpv4.WithHwAddr(net.HardwareAddr{2, 0, 0, 0, 0, 1})}, changes...)...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func has(ip string) dhcpv4.Modifier { return dhcpv4.WithClientIP(net.ParseIP(ip).To4()) }
func asks(ip string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.ParseIP(ip)))
}

func of(server string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.ParseIP(server)))
}

func TestAnswers(t *testing.T) {
	const none = dhcpv4.MessageTypeNone
	for _, test := range []struct {
		name    string
		request *dhcpv4.DHCPv4
		want    dhcpv4.MessageType
	}{
		{"discover", request(t, dhcpv4.MessageTypeDiscover), dhcpv4.MessageTypeOffer},
		{"request for the offered address", request(t, dhcpv4.MessageTypeRequest, asks("10.240.1.10"), of("10.240.1.1")), dhcpv4.MessageTypeAck},
		{"request for the offer of another server", request(t, dhcpv4.MessageTypeRequest, asks("10.240.1.10"), of("10.240.1.9")), none},
		{"request after a reboot", request(t, dhcpv4.MessageTypeRequest, asks("10.240.1.10")), dhcpv4.MessageTypeAck},
		{"request for the address of another interface", request(t, dhcpv4.MessageTypeRequest, asks("10.240.1.11")), dhcpv4.MessageTypeNak},
		{"renewal", request(t, dhcpv4.MessageTypeRequest, has("10.240.1.10")), dhcpv4.MessageTypeAck},
		{"renewal of the address of another interface", request(t, dhcpv4.MessageTypeRequest, has("10.240.1.11")), dhcpv4.MessageTypeNak},
		{"inform", request(t, dhcpv4.MessageTypeInform, has("10.240.1.10")), dhcpv4.MessageTypeAck},
		{"inform from the address of another interface", request(t, dhcpv4.MessageTypeInform, has("10.240.1.11")), none},
		{"release", request(t, dhcpv4.MessageTypeRelease, has("10.240.1.10"), of("10.240.1.1")), none},
		{"decline", request(t, dhcpv4.MessageTypeDecline, asks("10.240.1.10"), of("10.240.1.1")), none},
		{"relayed", request(t, dhcpv4.MessageTypeDiscover, dhcpv4.WithGatewayIP(net.IP{10, 240, 1, 10})), none},
	} {
		t.Run(test.name, func(t *testing.T) {
			reply, err := answer(test.request, example)
			if err != nil {
				t.Fatal(err)
			}
			got := none
			if reply != nil {
				got = reply.MessageType()
			}
			if got != test.want {
				t.Errorf("answered with %s, want %s", got, test.want)
			}
		})
	}
}

func TestWhatAnInterfaceIsTold(t *testing.T) {
	reply, err := answer(request(t, dhcpv4.MessageTypeRequest, has("10.240.1.10")), example)
	if err != nil {
		t.Fatal(err)
	}
	mtu, _ := dhcpv4.GetUint16(dhcpv4.OptionInterfaceMTU, reply.Options)
	for _, test := range []struct{ what, got, want string }{
		{"address", reply.YourIPAddr.String(), "10.240.1.10"},
		{"mask", net.IP(reply.SubnetMask()).String(), "255.255.255.0"},
		{"server", reply.ServerIdentifier().String(), "10.240.1.1"},
		{"router", reply.Router()[0].String(), "10.240.1.1"},
		{"resolver", reply.DNS()[0].String(), "10.240.0.2"},
		{"domain", reply.DomainName(), "ec2.internal"},
		{"host name", reply.HostName(), "ip-10-240-1-10"},
		{"lease", reply.IPAddressLeaseTime(0).String(), time.Hour.String()},
	} {
		if test.got != test.want {
			t.Errorf("%s: %s, want %s", test.what, test.got, test.want)
		}
	}
	if mtu != 9001 {
		t.Errorf("MTU: %d", mtu)
	}
	if reply, err = answer(request(t, dhcpv4.MessageTypeInform, has("10.240.1.10")), example); err != nil {
		t.Fatal(err)
	}
	if !reply.YourIPAddr.IsUnspecified() || reply.IPAddressLeaseTime(0) != 0 {
		t.Errorf("the answer to an inform assigns the address %s", reply.YourIPAddr)
	}
}
