package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/gorilla/websocket"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

func says(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// exchange sends bytes through a tunnel and returns as many.
func exchange(t *testing.T, ws *websocket.Conn, text string) string {
	t.Helper()
	if err := ws.WriteMessage(websocket.BinaryMessage, []byte(text)); err != nil {
		t.Fatal(err)
	}
	got := ""
	for len(got) < len(text) {
		_, message, err := ws.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		got += string(message)
	}
	return got
}

// closed returns why a tunnel was closed.
func closed(t *testing.T, ws *websocket.Conn) websocket.CloseError {
	t.Helper()
	_ = ws.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, _, err := ws.ReadMessage()
	var why *websocket.CloseError
	if !errors.As(err, &why) {
		t.Fatalf("not closed: %v", err)
	}
	return *why
}

func echo(c net.Conn) { _, _ = io.Copy(c, c) }

func TestTunnel(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	e := l.NewConnectEndpoint(t, s.Subnet)
	address := *l.Await(t, *l.Run(t, s.RunInput()).InstanceId, types.InstanceStateNameRunning).PrivateIpAddress
	ws := cloudtest.Must[*websocket.Conn](t)(l.Tunnel(t, e, address))
	if why := closed(t, ws); why.Text != "Unable to connect to target" || why.Code == websocket.CloseNormalClosure {
		t.Errorf("nobody answers, and it is closed with %+v", why)
	}
	l.Network.SetWell(address+":22", true)
	l.Network.Server = echo
	ws = cloudtest.Must[*websocket.Conn](t)(l.Tunnel(t, e, address))
	if got := exchange(t, ws, "hello"); got != "hello" {
		t.Errorf("got %q", got)
	}
	if n := l.Network.Dials(e.NetworkInterfaceIds[0]); n != 2 {
		t.Errorf("%d connections from the endpoint's interface", n)
	}
	for want, changes := range map[string][]string{
		"InvalidParameter":            {"remotePort", "6443"},
		"ResourceNotFoundException":   {"instanceConnectEndpointId", "eice-00000000000000000"},
		"InvalidSignatureException":   {"region", "eu-west-1"},
		"InvalidSignatureException ":  {"service", "ec2"},
		"InvalidParameter ":           {"privateIpAddress", "192.0.2.1"},
		"InvalidParameter  ":          {"maxTunnelDuration", "3601"},
		"ResourceNotFoundException  ": {"host", "eice-0." + strings.SplitN(*e.DnsName, ".", 2)[1]},
	} {
		_, err := l.Tunnel(t, e, address, changes...)
		says(t, err, strings.TrimSpace(want))
	}
	_, err := l.With(cloudtest.AccessKeyID, "wrong", "").Tunnel(t, e, address)
	says(t, err, "InvalidSignatureException")
	_, err = l.With("AKIAUNKNOWN", "x", "").Tunnel(t, e, address)
	says(t, err, "UnrecognizedClientException")

	asked := cloudtest.Must[*websocket.Conn](t)(l.Tunnel(t, e, address, "maxTunnelDuration", "60"))
	exchange(t, asked, "x")
	l.Clock.Advance(59 * time.Second)
	exchange(t, asked, "x")
	l.Clock.Advance(time.Second)
	if why := closed(t, asked); why.Code != websocket.CloseNormalClosure {
		t.Errorf("closed with %+v", why)
	}
	l.Control(t, http.MethodPost, "/_lab/faults", map[string]any{"kind": "short-tunnels", "seconds": 5, "count": 1}, nil)
	short := cloudtest.Must[*websocket.Conn](t)(l.Tunnel(t, e, address))
	exchange(t, short, "x")
	l.Clock.Advance(5 * time.Second)
	closed(t, short)
	exchange(t, ws, "the first one goes on")
	l.Clock.Advance(time.Hour)
	closed(t, ws)

	ws = cloudtest.Must[*websocket.Conn](t)(l.Tunnel(t, e, address))
	exchange(t, ws, "x")
	if err := l.DeleteConnectEndpoint(t, *e.InstanceConnectEndpointId); err != nil {
		t.Fatal(err)
	}
	closed(t, ws)
	_, err = l.Tunnel(t, e, address)
	says(t, err, "InvalidState")
}

// TestTunnelsAtOnce checks the limit, and that the end of a tunnel makes room.
func TestTunnelsAtOnce(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	e := l.NewConnectEndpoint(t, s.Subnet)
	address := *l.Await(t, *l.Run(t, s.RunInput()).InstanceId, types.InstanceStateNameRunning).PrivateIpAddress
	l.Network.SetWell(address+":22", true)
	l.Network.Server = echo
	var last *websocket.Conn
	for range 20 {
		last = cloudtest.Must[*websocket.Conn](t)(l.Tunnel(t, e, address))
	}
	exchange(t, last, "x")
	_, err := l.Tunnel(t, e, address)
	says(t, err, "ServiceQuotaExceededException")
	if err := last.Close(); err != nil {
		t.Fatal(err)
	}
	cloudtest.Eventually(t, "there is room", func() bool {
		_, err := l.Tunnel(t, e, address)
		return err == nil
	})
}

func TestTunnelPermission(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	e := l.NewConnectEndpoint(t, s.Subnet)
	const allow = `{"Effect":"Allow","Action":"ec2-instance-connect:OpenTunnel","Resource":"arn:aws:ec2:*:*:instance-connect-endpoint/%s","Condition":{"NumericEquals":{"ec2-instance-connect:remotePort":"%s"}}}`
	for _, lacking := range []string{`{"Effect":"Allow","Action":"ec2:*","Resource":"*"}`, fmt.Sprintf(allow, "eice-0", "22"), fmt.Sprintf(allow, "*", "3389")} {
		_, err := l.User(t, lacking).Tunnel(t, e, "192.0.2.1")
		says(t, err, "AccessDeniedException")
	}
	_, err := l.User(t, fmt.Sprintf(allow, *e.InstanceConnectEndpointId, "22")).Tunnel(t, e, "192.0.2.1")
	says(t, err, "InvalidParameter") // and not denied
}

// TestTunnelPackets opens tunnels in a network of real packets: security groups of the endpoint and of
// the machine decide.
func TestTunnelPackets(t *testing.T) {
	l := cloudtest.New(t, cloudtest.WithPackets(t))
	s := l.NewSite(t)
	ctx := t.Context()
	ssh := func(from string) []types.IpPermission {
		return []types.IpPermission{{IpProtocol: aws.String("tcp"), FromPort: aws.Int32(22), ToPort: aws.Int32(22), UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: &from}}}}
	}
	connect, machine := l.NewSecurityGroup(t, s.VPC, "connect"), l.NewSecurityGroup(t, s.VPC, "machine")
	in := s.RunInput()
	in.SecurityGroupIds = []string{machine}
	i := l.Await(t, *l.Run(t, in).InstanceId, types.InstanceStateNameRunning)
	serveSSH(t, l, i)
	e := l.NewConnectEndpoint(t, s.Subnet, connect)
	address := *i.PrivateIpAddress
	if why := closed(t, cloudtest.Must[*websocket.Conn](t)(l.Tunnel(t, e, address))); why.Text != "Unable to connect to target" {
		t.Errorf("a closed group: %+v", why)
	}
	cloudtest.Must[*awsec2.AuthorizeSecurityGroupIngressOutput](t)(l.AuthorizeSecurityGroupIngress(ctx, &awsec2.AuthorizeSecurityGroupIngressInput{GroupId: &machine, IpPermissions: ssh(connect)}))
	ws := cloudtest.Must[*websocket.Conn](t)(l.Tunnel(t, e, address))
	eni := cloudtest.Must[*awsec2.DescribeNetworkInterfacesOutput](t)(l.DescribeNetworkInterfaces(ctx, &awsec2.DescribeNetworkInterfacesInput{NetworkInterfaceIds: e.NetworkInterfaceIds})).NetworkInterfaces[0]
	_, message, err := ws.ReadMessage()
	if err != nil || string(message) != "from "+*eni.PrivateIpAddress {
		t.Errorf("the machine said %q, %v; the endpoint is %s", message, err, *eni.PrivateIpAddress)
	}
	cloudtest.Must[*awsec2.RevokeSecurityGroupEgressOutput](t)(l.RevokeSecurityGroupEgress(ctx, &awsec2.RevokeSecurityGroupEgressInput{GroupId: &connect, IpPermissions: []types.IpPermission{
		{IpProtocol: aws.String("-1"), IpRanges: []types.IpRange{{CidrIp: aws.String("0.0.0.0/0")}}},
	}}))
	if why := closed(t, cloudtest.Must[*websocket.Conn](t)(l.Tunnel(t, e, address))); why.Text != "Unable to connect to target" {
		t.Errorf("without a way out of the endpoint's group: %+v", why)
	}
}

// serveSSH gives an instance its address and a server on port 22, which says who the client is.
func serveSSH(t *testing.T, l *cloudtest.Lab, i types.Instance) {
	t.Helper()
	listener := l.Listen(t, i, "22")
	context.AfterFunc(t.Context(), func() { listener.Close() }) //nolint:errcheck // the test is over
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
			fmt.Fprint(conn, "from ", host)
		}
	}()
}
