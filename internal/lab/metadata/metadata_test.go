package metadata

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/dhcp"
)

const vpc = "vpc-1"

// source is a Source with one instance.
type source struct {
	i    Instance
	role Role
	err  error
}

func (s source) InstanceByAddress(vpcID string, addr netip.Addr) (Instance, bool) {
	return s.i, vpcID == vpc && addr == s.i.PrivateIP
}

func (s source) AddressLeased(string, net.HardwareAddr) {}

func (s source) InstanceByMAC(vpcID string, mac net.HardwareAddr) (Instance, bool) {
	return s.i, vpcID == vpc && mac.String() == s.i.MAC
}

func (s source) BalancerAddresses(name string) ([]netip.Addr, bool) {
	if name != "api-0123.elb.us-east-1.amazonaws.com" {
		return nil, false
	}
	return []netip.Addr{netip.MustParseAddr("10.240.0.9"), netip.MustParseAddr("10.240.1.9")}, true
}

func (s source) PrivateAddressOf(vpcID string, public netip.Addr) (netip.Addr, bool) {
	return s.i.PrivateIP, vpcID == vpc && public == s.i.PublicIP
}

func (s source) Role(Instance) (Role, error) { return s.role, s.err }

func example() Instance {
	return Instance{
		ID: "i-1", ImageID: "ami-1", Type: "t3.small", Region: "us-east-1", Zone: "us-east-1a", MAC: "02:0e:0a:f0:00:0a",
		PrivateIP: netip.MustParseAddr("10.240.0.10"), PublicIP: netip.MustParseAddr("203.0.113.9"), PrivateName: "ip-10-240-0-10.ec2.internal",
		PublicName: "ec2-203-0-113-9.compute-1.amazonaws.com", Groups: []string{"web", "ssh"}, KeyName: "me", PublicKey: "ssh-ed25519 AAAA",
		UserData: []byte("#cloud-config\n"), Tags: map[string]string{"Name": "x"}, Enabled: true, TokenRequired: true, HopLimit: 1,
	}
}

func TestLease(t *testing.T) {
	now := example()
	now.InterfaceID, now.SubnetCIDR, now.VPCCIDR = "eni-1", netip.MustParsePrefix("10.240.1.0/24"), netip.MustParsePrefix("10.240.0.0/16")
	leases := New(source{i: now}, loopback{}, nil, slog.New(slog.DiscardHandler)).leases(vpc)
	mac, err := net.ParseMAC(now.MAC)
	if err != nil {
		t.Fatal(err)
	}
	want := dhcp.Lease{
		Address: netip.MustParsePrefix("10.240.0.10/24"), Router: netip.MustParseAddr("10.240.1.1"), Resolver: netip.MustParseAddr("10.240.0.2"),
		Hostname: "ip-10-240-0-10", Domain: "ec2.internal", MTU: 9001,
	}
	if got, ok := leases(1, mac); !ok || got != want {
		t.Errorf("%+v %v, want %+v", got, ok, want)
	}
	mac[5]++
	if got, ok := leases(1, mac); ok {
		t.Errorf("an unknown MAC address gets %+v", got)
	}
	mac[5]--
	now.InterfaceID = "eni-2"
	leases = New(source{i: now}, loopback{}, nil, slog.New(slog.DiscardHandler)).leases(vpc)
	if got, ok := leases(1, mac); ok {
		t.Errorf("another interface gets %+v", got)
	}
}

type client struct {
	*service
	from string
}

func (c client) do(method, path string, headers ...string) (int, string) {
	r := httptest.NewRequestWithContext(context.Background(), method, path, nil)
	r.RemoteAddr = c.from
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	body, _ := io.ReadAll(w.Result().Body)
	return w.Code, strings.TrimSpace(string(body))
}

func newClient(i Instance, now *time.Time) client {
	return client{&service{vpcID: vpc, source: source{i: i}, secret: []byte("secret"), now: func() time.Time { return *now }}, "10.240.0.10:4711"}
}

func TestMetadataPaths(t *testing.T) {
	now := time.Now()
	c := newClient(example(), &now)
	_, token := c.do("PUT", "/latest/api/token", ttlHeader, "60")
	for path, want := range map[string]string{
		"/latest":                                              "dynamic\nmeta-data\nuser-data",
		"/latest/meta-data/instance-id":                        "i-1",
		"/2021-03-23/meta-data/instance-id":                    "i-1",
		"/2018-09-24/meta-data/instance-id":                    "i-1",
		"/2009-04-04/meta-data/local-hostname":                 "ip-10-240-0-10.ec2.internal",
		"/latest/meta-data/security-groups":                    "web\nssh",
		"/latest/meta-data/placement":                          "availability-zone\navailability-zone-id\nregion",
		"/latest/meta-data/placement/availability-zone":        "us-east-1a",
		"/latest/meta-data/public-keys/":                       "0=me",
		"/latest/meta-data/public-keys/0/":                     "openssh-key",
		"/latest/meta-data/public-keys/0/openssh-key":          "ssh-ed25519 AAAA",
		"/latest/meta-data/network/interfaces/macs/":           "02:0e:0a:f0:00:0a/",
		"/latest/meta-data/public-ipv4":                        "203.0.113.9",
		"/latest/user-data":                                    "#cloud-config",
		"/latest/dynamic/instance-identity/":                   "document",
		"/latest/meta-data/network/interfaces/macs/nobody/mac": "Not Found",
		"/latest/meta-data/iam/info":                           "Not Found", // without a profile
		"/latest/meta-data/tags/instance/Name":                 "Not Found", // only if enabled
		"/1999-01-01/meta-data/instance-id":                    "Not Found",
	} {
		code, got := c.do("GET", path, tokenHeader, token)
		if got != want || (code == http.StatusOK) == (want == "Not Found") {
			t.Errorf("%s: %d %q, want %q", path, code, got, want)
		}
	}
}

func TestMetadataTokens(t *testing.T) {
	const path = "/latest/meta-data/instance-id"
	now := time.Now()
	c := newClient(example(), &now)
	code := func(method, path string, headers ...string) int {
		code, _ := c.do(method, path, headers...)
		return code
	}
	_, token := c.do("PUT", "/latest/api/token", ttlHeader, "60")
	for _, tc := range []struct {
		name string
		got  int
		want int
	}{
		{"without a token", code("GET", path), 401},
		{"with one", code("GET", path, tokenHeader, token), 200},
		{"with a forged one", code("GET", path, tokenHeader, token[:len(token)-8]+"AAAAAAA="), 401},
		{"no lifetime", code("PUT", "/latest/api/token"), 400},
		{"lifetime too long", code("PUT", "/latest/api/token", ttlHeader, "21601"), 400},
		{"through a proxy", code("PUT", "/latest/api/token", ttlHeader, "60", "X-Forwarded-For", "10.0.0.1"), 403},
		{"elsewhere", code("PUT", "/latest/token", ttlHeader, "60"), 404},
		{"another method", code("POST", path, tokenHeader, token), 405},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, tc.got, tc.want)
		}
	}
	now = now.Add(61 * time.Second)
	if got := code("GET", path, tokenHeader, token); got != 401 {
		t.Errorf("with an expired token: %d", got)
	}
	other := example()
	other.ID = "i-2"
	now = now.Add(-61 * time.Second)
	if got, _ := newClient(other, &now).do("GET", path, tokenHeader, token); got != 401 {
		t.Errorf("with another instance's token: %d", got)
	}
	optional := example()
	optional.TokenRequired = false
	if got, _ := newClient(optional, &now).do("GET", path); got != 200 {
		t.Errorf("version 1 where it is allowed: %d", got)
	}
	disabled := example()
	disabled.Enabled = false
	if got, _ := newClient(disabled, &now).do("PUT", "/latest/api/token", ttlHeader, "60"); got != 403 {
		t.Errorf("turned off: %d", got)
	}
	c.from = "10.240.0.11:4711"
	if got := code("PUT", "/latest/api/token", ttlHeader, "60"); got != 404 {
		t.Errorf("from an unused address: %d", got)
	}
	tagged := example()
	tagged.ShowTags = true
	if _, got := newClient(tagged, &now).do("GET", "/latest/meta-data/tags/instance/Name", tokenHeader, token); got != "x" {
		t.Errorf("a tag: %q", got)
	}
}

// TestSpotMetadata checks that a Spot instance sees the notice of its interruption, and nothing
// before it.
func TestSpotMetadata(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	plain, spot, noticed := example(), example(), example()
	spot.Spot, noticed.Spot = true, true
	noticed.Recommended, noticed.Ends = now, now.Add(2*time.Minute)
	for _, tc := range []struct {
		i                          Instance
		cycle, action, end, advice string
	}{
		{plain, "on-demand", "Not Found", "Not Found", "Not Found"},
		{spot, "spot", "Not Found", "Not Found", "Not Found"},
		{noticed, "spot", `{"action":"terminate","time":"2026-05-01T12:02:00Z"}`, "2026-05-01T12:02:00Z", `{"noticeTime":"2026-05-01T12:00:00Z"}`},
	} {
		c := newClient(tc.i, &now)
		_, token := c.do("PUT", "/latest/api/token", ttlHeader, "60")
		for path, want := range map[string]string{
			"instance-life-cycle": tc.cycle, "spot/instance-action": tc.action, "spot/termination-time": tc.end, "events/recommendations/rebalance": tc.advice,
		} {
			code, got := c.do("GET", "/latest/meta-data/"+path, tokenHeader, token)
			if got != want || (code == http.StatusOK) == (want == "Not Found") {
				t.Errorf("%s: %d %q, want %q", path, code, got, want)
			}
		}
	}
}

// TestEventMetadata checks that an instance sees its scheduled events, and those that are over apart from them.
func TestEventMetadata(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	i := example()
	c := newClient(i, &now)
	_, token := c.do("PUT", "/latest/api/token", ttlHeader, "60")
	if _, got := c.do("GET", "/latest/meta-data/events/maintenance/scheduled", tokenHeader, token); got != "[]" {
		t.Errorf("without events: %q", got)
	}
	i.Events = []Event{{ID: "a", Code: "system-reboot", Description: "scheduled reboot", State: "active", NotBefore: now, NotAfter: now.Add(2 * time.Hour)}, {ID: "b", State: "completed", NotBefore: now}}
	c = newClient(i, &now)
	_, token = c.do("PUT", "/latest/api/token", ttlHeader, "60")
	for path, want := range map[string]map[string]string{
		"scheduled": {"NotBefore": "1 May 2026 12:00:00 GMT", "Code": "system-reboot", "Description": "scheduled reboot", "EventId": "a", "NotAfter": "1 May 2026 14:00:00 GMT", "State": "active"},
		"history":   {"NotBefore": "1 May 2026 12:00:00 GMT", "Code": "", "Description": "", "EventId": "b", "State": "completed"},
	} {
		_, text := c.do("GET", "/latest/meta-data/events/maintenance/"+path, tokenHeader, token)
		var got []map[string]string
		if err := json.Unmarshal([]byte(text), &got); err != nil || len(got) != 1 || !maps.Equal(got[0], want) {
			t.Errorf("%s: %s, %v", path, text, err)
		}
	}
}

// loopback opens the sockets of a VPC on this host, and sends the resolver's address to dns.
type loopback struct{ dns chan string }

func (loopback) InterfaceAt(string, int) (string, error) { return "eni-1", nil }

func (l loopback) ListenTCP(ctx context.Context, _, _ string) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
}

func (l loopback) ListenUDP(ctx context.Context, _, addr string) (net.PacketConn, error) {
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", "127.0.0.1:0")
	if err == nil && addr == "10.240.0.2:53" {
		l.dns <- conn.LocalAddr().String()
	}
	return conn, err
}

func TestResolver(t *testing.T) {
	at := loopback{make(chan string, 1)}
	servers := New(source{i: example()}, at, map[string]netip.Addr{"www.example.net": netip.MustParseAddr("203.0.113.62")}, slog.New(slog.DiscardHandler))
	if err := servers.Sync(t.Context(), map[string]netip.Prefix{vpc: netip.MustParsePrefix("10.240.0.0/16")}); err != nil {
		t.Fatal(err)
	}
	defer servers.Close()
	address := <-at.dns
	for _, tc := range []struct {
		name  string
		qtype uint16
		rcode int
		want  string
	}{
		{"ip-10-240-0-10.ec2.internal.", dns.TypeA, dns.RcodeSuccess, "10.240.0.10"},
		{"IP-10-240-0-10.EC2.internal.", dns.TypeA, dns.RcodeSuccess, "10.240.0.10"},
		{"ip-10-240-0-10.us-east-1.compute.internal.", dns.TypeA, dns.RcodeSuccess, "10.240.0.10"},
		{"ip-10-240-0-10.ec2.internal.", dns.TypeAAAA, dns.RcodeSuccess, ""},
		{"ip-10-240-0-11.ec2.internal.", dns.TypeA, dns.RcodeNameError, ""},
		{"ip-10-240-0-10.example.com.", dns.TypeA, dns.RcodeNameError, ""},
		{"ec2-203-0-113-9.compute-1.amazonaws.com.", dns.TypeA, dns.RcodeSuccess, "10.240.0.10"},
		{"ec2-203-0-113-8.compute-1.amazonaws.com.", dns.TypeA, dns.RcodeSuccess, "203.0.113.8"},
		{"api-0123.ELB.us-east-1.amazonaws.com.", dns.TypeA, dns.RcodeSuccess, "10.240.0.9 10.240.1.9"},
		{"api-0123.elb.us-east-1.amazonaws.com.", dns.TypeAAAA, dns.RcodeSuccess, ""},
		{"other-0123.elb.us-east-1.amazonaws.com.", dns.TypeA, dns.RcodeNameError, ""},
		{"10.0.240.10.in-addr.arpa.", dns.TypePTR, dns.RcodeSuccess, "ip-10-240-0-10.ec2.internal."},
		{"11.0.240.10.in-addr.arpa.", dns.TypePTR, dns.RcodeNameError, ""},
		{"www.Example.net.", dns.TypeA, dns.RcodeSuccess, "203.0.113.62"},
		{"www.example.net.", dns.TypeAAAA, dns.RcodeSuccess, ""},
		{"deb.debian.org.", dns.TypeA, dns.RcodeNameError, ""},
	} {
		q := new(dns.Msg)
		q.SetQuestion(tc.name, tc.qtype)
		r, err := dns.ExchangeContext(t.Context(), q, address)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		var found []string
		for _, record := range r.Answer {
			switch rr := record.(type) {
			case *dns.A:
				found = append(found, rr.A.String())
			case *dns.PTR:
				found = append(found, rr.Ptr)
			}
		}
		slices.Sort(found)
		got := strings.Join(found, " ")
		if r.Rcode != tc.rcode || got != tc.want {
			t.Errorf("%s %s: %s %q, want %s %q", tc.name, dns.TypeToString[tc.qtype], dns.RcodeToString[r.Rcode], got, dns.RcodeToString[tc.rcode], tc.want)
		}
	}
	if err := servers.Sync(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := dns.Exchange(new(dns.Msg).SetQuestion("x.", dns.TypeA), address); err == nil {
		t.Error("the resolver of a VPC that is gone still answers")
	}
}
