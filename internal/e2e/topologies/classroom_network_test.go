package topologies_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// school is a VPC that exists before the class, with a subnet and a route table for each student.
type school struct {
	api             *ec2.Client
	vpc, gateway    string
	subnets, tables []string
}

func newSchool(t *testing.T, api *ec2.Client, cidrs ...string) *school {
	t.Helper()
	ctx := t.Context()
	s := &school{api: api}
	s.vpc = *harness.Must[*ec2.CreateVpcOutput](t)(api.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: aws.String("10.77.0.0/16")})).Vpc.VpcId
	s.gateway = *harness.Must[*ec2.CreateInternetGatewayOutput](t)(api.CreateInternetGateway(ctx, &ec2.CreateInternetGatewayInput{})).InternetGateway.InternetGatewayId
	harness.Must[*ec2.AttachInternetGatewayOutput](t)(api.AttachInternetGateway(ctx, &ec2.AttachInternetGatewayInput{InternetGatewayId: &s.gateway, VpcId: &s.vpc}))
	for _, cidr := range cidrs {
		subnet := *harness.Must[*ec2.CreateSubnetOutput](t)(api.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: &s.vpc, CidrBlock: &cidr, AvailabilityZone: aws.String("us-east-1a")})).Subnet.SubnetId
		table := *harness.Must[*ec2.CreateRouteTableOutput](t)(api.CreateRouteTable(ctx, &ec2.CreateRouteTableInput{VpcId: &s.vpc})).RouteTable.RouteTableId
		harness.Must[*ec2.AssociateRouteTableOutput](t)(api.AssociateRouteTable(ctx, &ec2.AssociateRouteTableInput{RouteTableId: &table, SubnetId: &subnet}))
		harness.Must[*ec2.CreateRouteOutput](t)(api.CreateRoute(ctx, &ec2.CreateRouteInput{RouteTableId: &table, DestinationCidrBlock: aws.String("0.0.0.0/0"), GatewayId: &s.gateway}))
		s.subnets, s.tables = append(s.subnets, subnet), append(s.tables, table)
	}
	return s
}

// left fails the test if there is anything in the VPC that was not there before the class, and deletes the VPC.
func (s *school) left(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	mine := []types.Filter{{Name: aws.String("vpc-id"), Values: []string{s.vpc}}}
	for _, table := range harness.Must[*ec2.DescribeRouteTablesOutput](t)(s.api.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{RouteTableIds: s.tables})).RouteTables {
		if len(table.Routes) != 2 || len(table.Tags) > 0 {
			t.Errorf("%s has %d routes and %d tags, wanted the VPC's own route and the one to the internet", *table.RouteTableId, len(table.Routes), len(table.Tags))
		}
	}
	if groups := harness.Must[*ec2.DescribeSecurityGroupsOutput](t)(s.api.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{Filters: mine})).SecurityGroups; len(groups) != 1 {
		t.Errorf("%d security groups, wanted the VPC's own", len(groups))
	}
	if vpcs := harness.Must[*ec2.DescribeVpcsOutput](t)(s.api.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{VpcIds: []string{s.vpc}})).Vpcs; len(vpcs[0].Tags) > 0 {
		t.Errorf("the VPC has tags %v", vpcs[0].Tags)
	}
	for i := range s.subnets {
		harness.Must[*ec2.DeleteSubnetOutput](t)(s.api.DeleteSubnet(ctx, &ec2.DeleteSubnetInput{SubnetId: &s.subnets[i]}))
		harness.Must[*ec2.DeleteRouteTableOutput](t)(s.api.DeleteRouteTable(ctx, &ec2.DeleteRouteTableInput{RouteTableId: &s.tables[i]}))
	}
	harness.Must[*ec2.DetachInternetGatewayOutput](t)(s.api.DetachInternetGateway(ctx, &ec2.DetachInternetGatewayInput{InternetGatewayId: &s.gateway, VpcId: &s.vpc}))
	harness.Must[*ec2.DeleteInternetGatewayOutput](t)(s.api.DeleteInternetGateway(ctx, &ec2.DeleteInternetGatewayInput{InternetGatewayId: &s.gateway}))
	harness.Must[*ec2.DeleteVpcOutput](t)(s.api.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: &s.vpc}))
}

// TestClassOneNetwork is a class of two students in one VPC, one of whom leaves and comes back.
func TestClassOneNetwork(t *testing.T) {
	inSoak(t)
	copyModule(t, suite.Dir, "modules/cluster")
	l := class{Cluster: suite.Cluster(suite.Workspace(t, "classroom-network", suite.CLI, filepath.Join(suite.Root, "examples", "classroom"))),
		api: ec2.NewFromConfig(suite.AWS()), dir: t.TempDir(), settings: map[string]any{"ssh_roles": []string{"controller"}}}
	s := newSchool(t, l.api, "10.77.0.0/24", "10.77.1.0/24")
	destroyIfFailed(t, l.WS)
	for _, key := range []string{"ada", "bob", "bob-later"} {
		l.key(t, key)
	}
	student := func(subnet, key string) map[string]any {
		return map[string]any{"size": "one", "subnet": subnet, "ssh_keys": []string{l.read(t, key+".pub")}}
	}
	ada := student(s.subnets[0], "ada")
	step := harness.Steps(t)
	step("apply", func(t *testing.T) {
		l.set(t, "vpc_id", s.vpc)
		began := time.Now()
		l.apply(t, "students", map[string]any{"ada": ada, "bob": student(s.subnets[1], "bob")})
		t.Logf("two clusters in %s", time.Since(began).Round(time.Second))
		l.NoChanges(t)
		l.give(t)
		for name := range l.endpoints {
			l.may(t, name, "create", "deployment", "web", "--image=k8s-lab/toolbox:1", "--", "sleep", "3600")
			l.may(t, name, "rollout", "status", "deployment/web", "--timeout=120s")
		}
	})
	step("neither cluster reaches the other one", func(t *testing.T) {
		l.apart(t, "ada", "10.77.0.10", "bob", "10.77.1.10")
		l.apart(t, "bob", "10.77.1.10", "ada", "10.77.0.10")
	})
	step("a student leaves and comes back, and what he had is refused", func(t *testing.T) {
		l.testBack(t, map[string]any{"ada": ada}, map[string]any{"ada": ada, "bob": student(s.subnets[1], "bob-later")})
	})
	step("destroy leaves the VPC and nothing else", func(t *testing.T) {
		if _, err := l.WS.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.left(t)
		suite.Empty(t)
	})
}

// apart fails the test unless machine and pods of one student reach no port of another one's machine, which answers itself.
func (l *class) apart(t *testing.T, from, own, to, other string) {
	t.Helper()
	const try = `for p in 22 2379 2380 6443 10250; do timeout 2 bash -c "</dev/tcp/%s/$p" 2>/dev/null && echo "$p open"; done; :`
	if open := l.root(t, from, "controller-0", fmt.Sprintf(try, own)); strings.Count(open, "open") != 5 {
		t.Errorf("%s's own machine has open ports\n%s", from, open)
	}
	if open := l.root(t, from, "controller-0", fmt.Sprintf(try, other)); open != "" {
		t.Errorf("%s's machine reaches ports of %s's\n%s", from, to, open)
	}
	// An API server answers a request without TLS with 400.
	pod := func(address string) string {
		return l.may(t, from, "exec", "deployment/web", "--", "sh", "-c", `printf 'GET / HTTP/1.0\r\n\r\n' | timeout 5 nc `+address+` 6443 2>&1 || :`)
	}
	if out := pod(own); !strings.Contains(out, "400") {
		t.Errorf("a pod of %s does not reach its own API: %s", from, out)
	}
	if out := pod(other); strings.Contains(out, "400") {
		t.Errorf("a pod of %s reaches the API of %s: %s", from, to, out)
	}
}

// testBack takes Bob out of the class, and puts him back with another SSH key. What he had before is refused.
func (l *class) testBack(t *testing.T, without, with map[string]any) {
	token := strings.TrimSpace(l.may(t, "bob", "create", "token", "default", "--duration=24h"))
	if out, err := l.ssh(t, "bob", "controller-0", "sudo whoami"); err != nil || strings.TrimSpace(out) != "root" {
		t.Fatalf("%v\n%s", err, out)
	}
	had := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(had, harness.Must[[]byte](t)(os.ReadFile(l.kubeconfig("bob"))), 0o600); err != nil {
		t.Fatal(err)
	}
	asToken := func() error {
		_, err := suite.Kubectl(t.Context(), "/dev/null", nil, "--server="+l.endpoints["bob"], "--insecure-skip-tls-verify", "--token="+token, "auth", "whoami")
		return err
	}
	if err := asToken(); err != nil {
		t.Fatal(err)
	}
	ada := l.working(t, "ada")
	l.set(t, "students", without)
	l.only(t, "bob")
	l.apply(t, "students", without)
	if left := l.instances(t, "bob", "running"); len(left) > 0 || len(l.endpoints) != 1 {
		t.Errorf("instances %v, endpoints %v", left, l.endpoints)
	}
	l.NoChanges(t)
	l.apply(t, "students", with)
	l.NoChanges(t)
	if n := ada.Failures(t); n > 0 {
		t.Errorf("Ada noticed it: %d requests failed", n)
	}
	_, err := suite.Kubectl(t.Context(), l.stolen(t, had, "bob"), nil, "get", "pods")
	harness.Refused(t, err, "You must be logged in to the server") // 401
	harness.Refused(t, asToken(), "You must be logged in to the server")
	l.give(t)
	if out, err := l.sshWith(t, "bob", "bob", "controller-0", "true"); err == nil || !strings.Contains(out, "Permission denied") {
		t.Errorf("the former SSH key: %v\n%s", err, out)
	}
	if out, err := l.sshWith(t, "bob-later", "bob", "controller-0", "true"); err != nil {
		t.Errorf("the new SSH key: %v\n%s", err, out)
	}
	if out := l.may(t, "bob", "get", "deployments", "--output=name"); strings.TrimSpace(out) != "" {
		t.Errorf("there still are\n%s", out)
	}
}
