package lifecycle_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// site is the VPC that the cluster adopts. It has two subnets: the first has its own route table,
// the second the VPC's main one. An administrator has given them the cluster's tag, as the guide on IAM asks for.
type site struct {
	api     *ec2.Client
	vpc     string
	gateway string
	subnets []string
	table   string // of the first subnet
	main    string
}

func newSite(t *testing.T) *site {
	t.Helper()
	ctx := t.Context()
	s := &site{api: ec2.NewFromConfig(suite.AWS())}
	s.vpc = *harness.Must[*ec2.CreateVpcOutput](t)(s.api.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: aws.String("10.240.0.0/16")})).Vpc.VpcId
	s.gateway = *harness.Must[*ec2.CreateInternetGatewayOutput](t)(s.api.CreateInternetGateway(ctx, &ec2.CreateInternetGatewayInput{})).InternetGateway.InternetGatewayId
	harness.Must[*ec2.AttachInternetGatewayOutput](t)(s.api.AttachInternetGateway(ctx, &ec2.AttachInternetGatewayInput{InternetGatewayId: &s.gateway, VpcId: &s.vpc}))
	for _, cidr := range []string{"10.240.0.0/24", "10.240.1.0/24"} {
		out := harness.Must[*ec2.CreateSubnetOutput](t)(s.api.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: &s.vpc, CidrBlock: &cidr, AvailabilityZone: aws.String("us-east-1a")}))
		s.subnets = append(s.subnets, *out.Subnet.SubnetId)
	}
	s.table = *harness.Must[*ec2.CreateRouteTableOutput](t)(s.api.CreateRouteTable(ctx, &ec2.CreateRouteTableInput{VpcId: &s.vpc})).RouteTable.RouteTableId
	harness.Must[*ec2.AssociateRouteTableOutput](t)(s.api.AssociateRouteTable(ctx, &ec2.AssociateRouteTableInput{RouteTableId: &s.table, SubnetId: &s.subnets[0]}))
	tables := harness.Must[*ec2.DescribeRouteTablesOutput](t)(s.api.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{Filters: []types.Filter{
		{Name: aws.String("vpc-id"), Values: []string{s.vpc}}, {Name: aws.String("association.main"), Values: []string{"true"}}}}))
	s.main = *tables.RouteTables[0].RouteTableId
	for _, table := range []string{s.table, s.main} {
		harness.Must[*ec2.CreateRouteOutput](t)(s.api.CreateRoute(ctx, &ec2.CreateRouteInput{
			RouteTableId: &table, DestinationCidrBlock: aws.String("0.0.0.0/0"), GatewayId: &s.gateway}))
	}
	// Without the tag nobody who is bound to the cluster may make anything in the VPC.
	harness.Must[*ec2.CreateTagsOutput](t)(s.api.CreateTags(ctx, &ec2.CreateTagsInput{
		Resources: append([]string{s.vpc, s.table, s.main}, s.subnets...), Tags: []types.Tag{{Key: aws.String("k8s-from-scratch/cluster"), Value: aws.String("demo")}},
	}))
	return s
}

// delete deletes the VPC. It fails the test if the cluster left anything in it.
func (s *site) delete(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	for _, id := range s.subnets {
		harness.Must[*ec2.DeleteSubnetOutput](t)(s.api.DeleteSubnet(ctx, &ec2.DeleteSubnetInput{SubnetId: &id}))
	}
	harness.Must[*ec2.DeleteRouteTableOutput](t)(s.api.DeleteRouteTable(ctx, &ec2.DeleteRouteTableInput{RouteTableId: &s.table}))
	harness.Must[*ec2.DetachInternetGatewayOutput](t)(s.api.DetachInternetGateway(ctx, &ec2.DetachInternetGatewayInput{InternetGatewayId: &s.gateway, VpcId: &s.vpc}))
	harness.Must[*ec2.DeleteInternetGatewayOutput](t)(s.api.DeleteInternetGateway(ctx, &ec2.DeleteInternetGatewayInput{InternetGatewayId: &s.gateway}))
	harness.Must[*ec2.DeleteVpcOutput](t)(s.api.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: &s.vpc}))
}

// adopt creates the VPC and configures the example's cluster for it, with every other worker in the
// second subnet.
func (c *cluster) adopt(t *testing.T) {
	t.Helper()
	c.site = newSite(t)
	for before, after := range map[string]string{
		"  admin_cidrs = var.admin_cidrs\n":                      fmt.Sprintf("  admin_cidrs = var.admin_cidrs\n  vpc_id      = %q\n  subnet_ids  = [%q, %q]\n", c.site.vpc, c.site.subnets[0], c.site.subnets[1]),
		"cidrhost(k8s_network.this.node_cidr, 20 + count.index)": `cidrhost(["10.240.0.0/24", "10.240.1.0/24"][count.index % 2], 20 + count.index)`,
	} {
		if strings.Count(c.main, before) != 1 {
			t.Fatalf("the example has no %q any more", before)
		}
		c.main = strings.Replace(c.main, before, after, 1)
	}
	if err := c.WS.WriteFile("main.tf", c.main); err != nil {
		t.Fatal(err)
	}
}

// webPod is a pod of harness.Web.
type webPod struct{ name, node, ip string }

// webPods returns the pod on worker-0, in the first subnet, and the one on worker-1, in the second.
func (c *cluster) webPods(t *testing.T) []webPod {
	t.Helper()
	var out []webPod
	for line := range strings.Lines(c.Kubectl(t, "get", "pods", "-l", "app=web", "-o", `jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName} {.status.podIP}{"\n"}{end}`)) {
		f := strings.Fields(line)
		if len(f) == 3 {
			out = append(out, webPod{f[0], f[1], f[2]})
		}
	}
	slices.SortFunc(out, func(a, b webPod) int { return strings.Compare(a.node, b.node) })
	if len(out) != 2 || out[0].node != "worker-0" || out[1].node != "worker-1" {
		t.Fatalf("pods %v, wanted one on each worker", out)
	}
	return out
}

// testTwoSubnets checks that pods of both subnets reach each other, and that a route that is lost
// in one of the two tables is found and restored.
func (c *cluster) testTwoSubnets(t *testing.T) {
	across := func() {
		t.Helper()
		pods := c.webPods(t)
		for i, from := range pods {
			to := pods[1-i]
			if out := c.Kubectl(t, "exec", from.name, "--", "timeout", "5", "wget", "-q", "-O", "-", "http://"+to.ip+":8080/"); !strings.Contains(out, to.name) {
				t.Errorf("from %s on %s to %s on %s: %q", from.name, from.node, to.name, to.node, out)
			}
		}
	}
	across()
	c.PodEgress(t, "worker-0", "worker-1")
	c.NoChanges(t)
	harness.Must[*ec2.DeleteRouteOutput](t)(c.site.api.DeleteRoute(t.Context(), &ec2.DeleteRouteInput{RouteTableId: &c.site.main, DestinationCidrBlock: aws.String("10.200.0.0/24")}))
	pods := c.webPods(t)
	if out := c.Kubectl(t, "exec", pods[1].name, "--", "sh", "-c", "timeout 3 wget -q -O - http://"+pods[0].ip+":8080/ || echo lost"); !strings.Contains(out, "lost") {
		t.Errorf("without a route %s still reached %s: %q", pods[1].name, pods[0].name, out)
	}
	_, text, err := c.WS.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	harness.Says(t, text, "route 10.200.0.0/24 in "+c.site.main+": missing")
	c.Apply(t)
	across()
	c.NoChanges(t)
}

// testDestroy checks that a destroy leaves the adopted VPC as it was.
func (c *cluster) testDestroy(t *testing.T) {
	if _, err := c.WS.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{c.site.table, c.site.main} {
		out := harness.Must[*ec2.DescribeRouteTablesOutput](t)(c.site.api.DescribeRouteTables(t.Context(), &ec2.DescribeRouteTablesInput{RouteTableIds: []string{table}}))
		if n := len(out.RouteTables[0].Routes); n != 2 {
			t.Errorf("%d routes in %s, wanted the VPC's own and the one to the internet", n, table)
		}
	}
	c.site.delete(t)
	suite.Empty(t)
}
