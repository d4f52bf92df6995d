package elbv2_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awselb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// apiServer is an API server on an instance.
type apiServer struct {
	id    string
	ready atomic.Bool
}

// serveAPI gives an instance its address and an HTTPS server on port 6443, which answers with the
// instance's id and the client's address.
func serveAPI(t *testing.T, l *cloudtest.Lab, i types.Instance) *apiServer {
	t.Helper()
	s := &apiServer{id: *i.InstanceId}
	s.ready.Store(true)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" && !s.ready.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprint(w, s.id, " ", host)
	}))
	_ = server.Listener.Close() // the one of the host
	server.Listener = l.Listen(t, i, "6443")
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.Close)
	return s
}

// ask opens a connection to a load balancer's address, and returns the server's answer.
func ask(ctx context.Context, address string) (string, error) {
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a certificate of httptest
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+":443/", nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// TestLoadBalancerPackets is the endpoint of an API with two servers, from the load balancer to the last
// packet.
func TestLoadBalancerPackets(t *testing.T) {
	l := cloudtest.New(t, cloudtest.WithPackets(t))
	ctx := t.Context()
	b := &balanced{Lab: l, Site: l.NewSite(t)}
	b.subnetB = newSubnet(t, l, b.VPC, "10.240.1.0/24", "us-east-1b")
	cloudtest.Must[*awsec2.AssociateRouteTableOutput](t)(l.AssociateRouteTable(ctx, &awsec2.AssociateRouteTableInput{RouteTableId: &b.Table, SubnetId: &b.subnetB}))
	cloudtest.Must[*awsec2.AuthorizeSecurityGroupIngressOutput](t)(l.AuthorizeSecurityGroupIngress(ctx, &awsec2.AuthorizeSecurityGroupIngressInput{
		GroupId: &b.Group, IpPermissions: []types.IpPermission{{
			IpProtocol: aws.String("tcp"), FromPort: aws.Int32(6443), ToPort: aws.Int32(6443), IpRanges: []types.IpRange{{CidrIp: aws.String("0.0.0.0/0")}},
		}},
	}))
	servers := map[string]*apiServer{}
	for zone, subnet := range map[string]string{"us-east-1a": b.Subnet, "us-east-1b": b.subnetB} {
		in := b.RunInput()
		in.SubnetId = &subnet
		servers[zone] = serveAPI(t, l, l.Run(t, in))
	}
	a, z := servers["us-east-1a"], servers["us-east-1b"]

	in := b.balancerInput("api")
	in.Scheme = elbtypes.LoadBalancerSchemeEnumInternetFacing
	b.arn = *cloudtest.Must[*awselb.CreateLoadBalancerOutput](t)(l.ELB.CreateLoadBalancer(ctx, in)).LoadBalancers[0].LoadBalancerArn
	group := b.groupInput("api")
	group.HealthCheckProtocol, group.HealthCheckPath = elbtypes.ProtocolEnumHttps, aws.String("/readyz")
	group.Matcher = &elbtypes.Matcher{HttpCode: aws.String("200")}
	b.targetGroup = *cloudtest.Must[*awselb.CreateTargetGroupOutput](t)(l.ELB.CreateTargetGroup(ctx, group)).TargetGroups[0].TargetGroupArn
	b.register(t, a.id, z.id)
	b.listen(t, b.arn, b.targetGroup, 443)
	until := func(what string, f func() bool) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); !f(); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it never came to this: %s; %v", what, b.health(t))
			}
		}
	}
	until("both are healthy", func() bool { h := b.health(t); return h[a.id] == "healthy" && h[z.id] == "healthy" })
	nodes := map[string]string{}
	for _, n := range b.interfaces(t) {
		nodes[*n.AvailabilityZone] = *n.Association.PublicIp
	}
	operator := l.Packets.Slice().Operator.String()
	answers := func(address, want string) {
		t.Helper()
		until(address+" answers "+want, func() bool { got, err := ask(ctx, address); return err == nil && got == want })
	}
	for zone, s := range servers {
		answers(nodes[zone], s.id+" "+operator)
	}

	a.ready.Store(false)
	until("A is unhealthy", func() bool { return b.health(t)[a.id] == "unhealthy Target.FailedHealthChecks" })
	if got := b.names(t); len(got) != 1 || got[0] != nodes["us-east-1b"] {
		t.Errorf("the name has %v", got)
	}
	cloudtest.Must[*awselb.ModifyLoadBalancerAttributesOutput](t)(b.ELB.ModifyLoadBalancerAttributes(ctx, &awselb.ModifyLoadBalancerAttributesInput{
		LoadBalancerArn: &b.arn, Attributes: []elbtypes.LoadBalancerAttribute{{Key: aws.String("load_balancing.cross_zone.enabled"), Value: aws.String("true")}},
	}))
	answers(nodes["us-east-1a"], z.id+" "+operator)

	b.Fault(t, cloudtest.Fields{"kind": "zone", "zone": "us-east-1b"})
	a.ready.Store(true)
	until("A is healthy again", func() bool { return b.health(t)[a.id] == "healthy" })
	until("B is cut off", func() bool { return b.health(t)[z.id] == "unhealthy Target.FailedHealthChecks" })
	answers(nodes["us-east-1a"], a.id+" "+operator)
	if _, err := ask(ctx, nodes["us-east-1b"]); err == nil {
		t.Error("the node of the zone that is cut off answers")
	}
	cloudtest.Must[*awselb.DeleteLoadBalancerOutput](t)(b.ELB.DeleteLoadBalancer(ctx, &awselb.DeleteLoadBalancerInput{LoadBalancerArn: &b.arn}))
	if _, err := ask(ctx, nodes["us-east-1a"]); err == nil {
		t.Error("a load balancer that is deleted answers")
	}
	until("its interfaces are gone", func() bool { return len(b.interfaces(t)) == 0 })
}
