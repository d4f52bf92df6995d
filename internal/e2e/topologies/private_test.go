package topologies_test

import (
	"net"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// TestPrivate builds a cluster that is reached through a bastion only.
func TestPrivate(t *testing.T) {
	inSoak(t)
	c := open(t, "private")
	c.Bastion = "bastion"
	step := harness.Steps(t)
	api := ec2.NewFromConfig(suite.AWS())
	var bastion struct {
		Address  string
		HostKeys []string `json:"host_keys"`
	}
	step("apply", func(t *testing.T) {
		c.Apply(t)
		if err := c.WS.Output(t.Context(), "bastion", &bastion); err != nil {
			t.Fatal(err)
		}
	})
	step("second plan is empty", c.NoChanges)
	nat := ""
	step("one machine has a public address", func(t *testing.T) {
		out := harness.Must[*ec2.DescribeInstancesOutput](t)(api.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{
			Filters: []types.Filter{{Name: aws.String("instance-state-name"), Values: []string{"running"}}},
		}))
		machines := 0
		for _, r := range out.Reservations {
			for _, i := range r.Instances {
				machines++
				if public := aws.ToString(i.PublicIpAddress); public != "" && public != bastion.Address {
					t.Errorf("%s has the address %s", aws.ToString(i.InstanceId), public)
				}
			}
		}
		addresses := harness.Must[*ec2.DescribeAddressesOutput](t)(api.DescribeAddresses(t.Context(), &ec2.DescribeAddressesInput{})).Addresses
		if machines != 7 || len(addresses) != 1 {
			t.Fatalf("%d machines, Elastic IPs %v", machines, addresses)
		}
		nat = aws.ToString(addresses[0].PublicIp)
	})
	proxy := suite.SOCKS(t, bastion.Address, "22", bastion.HostKeys[0])
	step("the API through the bastion", func(t *testing.T) {
		c.LearnThrough(t, "socks5://"+proxy)
		if host, _, _ := strings.Cut(strings.TrimPrefix(c.Endpoint, "https://"), ":"); !net.ParseIP(host).IsPrivate() {
			t.Fatalf("the endpoint is %s", c.Endpoint)
		}
		c.Create(t, harness.Web)
		c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=120s")
		c.PodEgressFrom(t, []string{nat}, harness.Numbered("worker", 2)...)
	})
	step("damage is found and repaired through the bastion", func(t *testing.T) {
		suite.Console(t, "lb-0", "echo '# damaged' >>/etc/haproxy/haproxy.cfg")
		suite.Console(t, "worker-1", "systemctl stop kubelet")
		changes, text, err := c.WS.Plan(t.Context())
		if err != nil || !changes {
			t.Fatalf("changes %t, %v", changes, err)
		}
		harness.Says(t, text, "module.cluster.k8s_lb.this", "haproxy.cfg", "kubelet.service: stopped, wanted running")
		c.Apply(t)
		c.NoChanges(t)
	})
	step("without the way from the bastion to the API", func(t *testing.T) {
		group := harness.Must[*ec2.DescribeSecurityGroupsOutput](t)(api.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{
			Filters: []types.Filter{{Name: aws.String("group-name"), Values: []string{"demo-lb"}}},
		})).SecurityGroups[0]
		harness.Must[*ec2.RevokeSecurityGroupIngressOutput](t)(api.RevokeSecurityGroupIngress(t.Context(), &ec2.RevokeSecurityGroupIngressInput{
			GroupId: group.GroupId, IpPermissions: []types.IpPermission{{
				IpProtocol: aws.String("tcp"), FromPort: aws.Int32(6443), ToPort: aws.Int32(6443), UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: group.GroupId}},
			}},
		}))
		changes, text, err := c.WS.Plan(t.Context())
		if err != nil || !changes {
			t.Fatalf("changes %t, %v", changes, err)
		}
		harness.Says(t, text, "module.cluster.k8s_network.this", "tcp 6443 from group lb")
		c.Apply(t)
		c.NoChanges(t)
	})
	step("destroy leaves nothing", c.Destroy)
}
