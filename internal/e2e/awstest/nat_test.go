package awstest

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
)

// privateSpec is a network with private subnets in two zones and a NAT gateway in each.
func privateSpec() network.Spec {
	spec := networkSpec()
	spec.Zones, spec.NATGateways, spec.PublicCIDR = []string{"", ""}, network.NATGatewayPerZone, netip.MustParsePrefix("10.240.128.0/28")
	return spec
}

// TestPrivateNetworkKilledAnywhere kills the process at every call of the creation of a private network,
// before the call arrives or after it took effect. The next run ends with the same network, without a
// second NAT gateway or Elastic IP, and its deletion leaves nothing.
func TestPrivateNetworkKilledAnywhere(t *testing.T) {
	t.Parallel()
	account, counted := newAccount(t), &wire{}
	n, err := network.Ensure(deadline(t), account.client(counted), privateSpec())
	if err != nil {
		t.Fatal(err)
	}
	subnets, err := account.client(&wire{}).EC2.DescribeSubnets(deadline(t), &ec2.DescribeSubnetsInput{})
	if err != nil || len(subnets.Subnets) != 4 {
		t.Fatalf("subnets: %v, %v", subnets, err)
	}
	for _, s := range subnets.Subnets {
		// Controllers in the cluster choose the subnets of load balancers by these tags.
		tags, role := infraaws.TagMap(s.Tags), "kubernetes.io/role/internal-elb"
		if strings.HasPrefix(*s.CidrBlock, "10.240.128.") {
			role = "kubernetes.io/role/elb"
		}
		if tags[role] != "1" || tags["kubernetes.io/role/elb"]+tags["kubernetes.io/role/internal-elb"] != "1" {
			t.Errorf("subnet %s has the tags %v, wanted %s", *s.CidrBlock, tags, role)
		}
	}
	calls := counted.count()
	deleted := privateSpec()
	deleted.Known = n
	if err := network.Delete(deadline(t), account.client(&wire{}), deleted); err != nil {
		t.Fatal(err)
	}
	account.Empty()
	for at := range calls {
		for _, arrives := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d arrives %v", at+1, arrives), func(t *testing.T) {
				t.Parallel()
				a := newAccount(t)
				ctx, cancel := context.WithCancel(deadline(t))
				defer cancel()
				dying := &wire{dieAt: at + 1, arrives: arrives, cancel: cancel}
				if _, err := network.Ensure(ctx, a.client(dying), privateSpec()); err == nil {
					t.Skipf("it made only %d calls this time", dying.count()) // how often it polls varies
				}
				ctx = deadline(t)
				c := a.client(&wire{})
				n, err := network.Ensure(ctx, c, privateSpec())
				if err != nil {
					t.Fatalf("after %v: %v", dying.calls, err)
				}
				unchanged(ctx, t, c, privateSpec(), n)
				if o := a.Cloud.Overview(); len(o.VPCs) != 1 || len(o.Gateways) != 1 || len(o.NATGateways) != 2 || len(o.Addresses) != 2 {
					t.Errorf("after dying at %v: %d VPCs, %d gateways, %d NAT gateways, %d addresses", dying.calls, len(o.VPCs), len(o.Gateways), len(o.NATGateways), len(o.Addresses))
				}
				known := privateSpec()
				known.Known = n
				if err := network.Delete(ctx, c, known); err != nil {
					t.Fatal(err)
				}
				a.Empty()
			})
		}
	}
}
