package topologies_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/tunnel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// TestPrivateEndpoint builds a cluster without a bastion, which is reached through an EC2 Instance Connect
// Endpoint only.
func TestPrivateEndpoint(t *testing.T) {
	inSoak(t)
	c := open(t, "private-endpoint")
	step := harness.Steps(t)
	api := ec2.NewFromConfig(suite.AWS())
	relay := struct {
		Instance  string `json:"instance_id"`
		PrivateIP string `json:"private_ip"`
		HostKey   string `json:"host_key"`
	}{}
	step("apply", func(t *testing.T) {
		c.Apply(t)
		if err := c.WS.Output(t.Context(), "relay", &relay); err != nil {
			t.Fatal(err)
		}
	})
	step("second plan is empty", c.NoChanges)
	step("no machine has a public address", func(t *testing.T) {
		out := harness.Must[*ec2.DescribeInstancesOutput](t)(api.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{
			Filters: []types.Filter{{Name: aws.String("instance-state-name"), Values: []string{"running"}}},
		}))
		machines := 0
		for _, r := range out.Reservations {
			for _, i := range r.Instances {
				machines++
				if public := aws.ToString(i.PublicIpAddress); public != "" {
					t.Errorf("%s has the address %s", aws.ToString(i.InstanceId), public)
				}
			}
		}
		addresses := harness.Must[*ec2.DescribeAddressesOutput](t)(api.DescribeAddresses(t.Context(), &ec2.DescribeAddressesInput{})).Addresses
		if machines != 6 || len(addresses) != 1 {
			t.Fatalf("%d machines, Elastic IPs %v", machines, addresses)
		}
	})
	local := tunnelled(t, remote.Host{Name: "lb-0", Address: relay.PrivateIP, Instance: relay.Instance})
	host, port, _ := net.SplitHostPort(local)
	proxy := suite.SOCKS(t, host, port, relay.HostKey)
	step("the API over SSH through a tunnel", func(t *testing.T) {
		c.LearnThrough(t, "socks5://"+proxy)
		if host, _, _ := strings.Cut(strings.TrimPrefix(c.Endpoint, "https://"), ":"); !net.ParseIP(host).IsPrivate() {
			t.Fatalf("the endpoint is %s", c.Endpoint)
		}
		c.Create(t, harness.Web)
		c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=120s")
	})
	step("damage is found and repaired through tunnels", func(t *testing.T) {
		suite.Console(t, "lb-0", "echo '# damaged' >>/etc/haproxy/haproxy.cfg")
		suite.Console(t, "worker-1", "systemctl stop kubelet")
		group := harness.Must[*ec2.DescribeSecurityGroupsOutput](t)(api.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{
			Filters: []types.Filter{{Name: aws.String("group-name"), Values: []string{"demo-connect"}}},
		})).SecurityGroups[0]
		harness.Must[*ec2.AuthorizeSecurityGroupIngressOutput](t)(api.AuthorizeSecurityGroupIngress(t.Context(), &ec2.AuthorizeSecurityGroupIngressInput{
			GroupId: group.GroupId, IpPermissions: []types.IpPermission{{
				IpProtocol: aws.String("tcp"), FromPort: aws.Int32(80), ToPort: aws.Int32(80), IpRanges: []types.IpRange{{CidrIp: aws.String("192.0.2.0/24")}},
			}},
		}))
		changes, text, err := c.WS.Plan(t.Context())
		if err != nil || !changes {
			t.Fatalf("changes %t, %v", changes, err)
		}
		harness.Says(t, text, "module.cluster.k8s_lb.this", "haproxy.cfg", "kubelet.service: stopped, wanted running", "tcp 80 from 192.0.2.0/24")
		c.Apply(t)
		c.NoChanges(t)
	})
	step("destroy leaves nothing", c.Destroy)
}

// tunnelled listens on this computer until the test ends, leads each connection to the SSH server of a
// machine through a tunnel, and returns its address. People use "aws ec2-instance-connect open-tunnel".
func tunnelled(t *testing.T, to remote.Host) string {
	t.Helper()
	credentials := harness.Must[aws.Credentials](t)(suite.AWS().Credentials.Retrieve(t.Context()))
	at := aws.ToString(suite.AWS().BaseEndpoint)
	ways := tunnel.New(tunnel.Config{Client: func() (*infraaws.Client, error) {
		return infraaws.New(t.Context(), infraaws.Config{
			Region: suite.AWS().Region, AccessKey: credentials.AccessKeyID, SecretKey: credentials.SecretAccessKey,
			Endpoints: infraaws.Endpoints{EC2: at, InstanceConnect: at, STS: at},
		})
	}})
	listener := harness.Must[net.Listener](t)((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))
	context.AfterFunc(t.Context(), func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				tunnel, err := ways.Open(t.Context(), to)
				if err != nil {
					return
				}
				context.AfterFunc(t.Context(), func() { _ = tunnel.Close() })
				go func() {
					_, _ = io.Copy(tunnel, conn)
					_ = tunnel.Close()
				}()
				_, _ = io.Copy(conn, tunnel)
			}()
		}
	}()
	return listener.Addr().String()
}
