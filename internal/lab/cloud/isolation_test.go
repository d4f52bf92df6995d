package cloud_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awselb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

const clusterTag = "k8s-from-scratch/cluster"

// cluster is what somebody's cluster has in the account. The fields are ids, but for the ARNs of its load balancer.
type cluster struct {
	cloudtest.Site
	name                            string
	instance, volume, address, nic  string
	addressOf, tableOf              string // associations
	endpoint                        types.Ec2InstanceConnectEndpoint
	balancer, listener, targetGroup string
	spareAddress, spareVolume       string
}

// newCluster makes a cluster, as the owner of the account.
func newCluster(t *testing.T, l *cloudtest.Lab, name string) *cluster {
	t.Helper()
	ctx, c := t.Context(), &cluster{Site: l.NewSite(t), name: name}
	if _, err := l.Account.Identities().PutRole("k8s-"+name, iam.Entity{Path: "/k8s/" + name + "/"}, ""); err != nil {
		t.Fatal(err)
	}
	cloudtest.Must[iam.Profile](t)(l.Account.PutInstanceProfile("k8s-"+name, "/k8s/"+name+"/", "k8s-"+name))
	in := c.RunInput()
	in.IamInstanceProfile = cloudtest.ProfileNamed("k8s-" + name)
	i := l.Run(t, in)
	c.instance, c.nic, c.volume = *i.InstanceId, *i.NetworkInterfaces[0].NetworkInterfaceId, *i.BlockDeviceMappings[0].Ebs.VolumeId
	allocate := func() string {
		return *cloudtest.Must[*awsec2.AllocateAddressOutput](t)(l.AllocateAddress(ctx, &awsec2.AllocateAddressInput{})).AllocationId
	}
	c.address, c.spareAddress = allocate(), allocate()
	c.addressOf = *cloudtest.Must[*awsec2.AssociateAddressOutput](t)(l.AssociateAddress(ctx, &awsec2.AssociateAddressInput{AllocationId: &c.address, InstanceId: &c.instance})).AssociationId
	c.spareVolume = *cloudtest.Must[*awsec2.CreateVolumeOutput](t)(l.CreateVolume(ctx, &awsec2.CreateVolumeInput{AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(1)})).VolumeId
	tables := cloudtest.Must[*awsec2.DescribeRouteTablesOutput](t)(l.DescribeRouteTables(ctx, &awsec2.DescribeRouteTablesInput{RouteTableIds: []string{c.Table}}))
	c.tableOf = *tables.RouteTables[0].Associations[0].RouteTableAssociationId
	c.endpoint = l.NewConnectEndpoint(t, c.Subnet)
	ids := []string{c.VPC, c.Subnet, c.Gateway, c.Table, c.Group, c.instance, c.nic, c.volume, c.address, c.spareAddress, c.spareVolume, *c.endpoint.InstanceConnectEndpointId}
	cloudtest.Must[*awsec2.CreateTagsOutput](t)(l.CreateTags(ctx, &awsec2.CreateTagsInput{Resources: ids, Tags: cloudtest.Tags("", clusterTag, name)[0].Tags}))
	own := []elbtypes.Tag{{Key: aws.String(clusterTag), Value: &name}}
	balancer := cloudtest.Must[*awselb.CreateLoadBalancerOutput](t)(l.ELB.CreateLoadBalancer(ctx, &awselb.CreateLoadBalancerInput{
		Name: aws.String("kfs-" + name + "-1"), Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal, Subnets: []string{c.Subnet}, Tags: own,
	}))
	c.balancer = *balancer.LoadBalancers[0].LoadBalancerArn
	group := cloudtest.Must[*awselb.CreateTargetGroupOutput](t)(l.ELB.CreateTargetGroup(ctx, &awselb.CreateTargetGroupInput{
		Name: aws.String("kfs-" + name + "-1"), Protocol: elbtypes.ProtocolEnumTcp, Port: aws.Int32(6443), VpcId: &c.VPC, TargetType: elbtypes.TargetTypeEnumInstance, Tags: own,
	}))
	c.targetGroup = *group.TargetGroups[0].TargetGroupArn
	listener := cloudtest.Must[*awselb.CreateListenerOutput](t)(l.ELB.CreateListener(ctx, &awselb.CreateListenerInput{
		LoadBalancerArn: &c.balancer, Port: aws.Int32(6443), Protocol: elbtypes.ProtocolEnumTcp, Tags: own,
		DefaultActions: []elbtypes.Action{{Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: &c.targetGroup}},
	}))
	c.listener = *listener.Listeners[0].ListenerArn
	for _, parameter := range []string{"/pki/kubernetes-ca.key", "/pki/owner"} {
		cloudtest.Must[*awsssm.PutParameterOutput](t)(l.SSM.PutParameter(ctx, putParameter("/k8s/"+name+parameter, name)))
	}
	return c
}

// policies are read from examples/iam. A statement can be left out.
type policies map[string]map[string]any

func readPolicies(t *testing.T) policies {
	t.Helper()
	out := policies{}
	for _, name := range []string{"member", "boundary", "load-balancers", "leftovers"} {
		raw, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "iam", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		document := map[string]any{}
		if err := json.Unmarshal(raw, &document); err != nil {
			t.Fatal(err)
		}
		out[name] = document
	}
	return out
}

func (p policies) statements(name string) []any { return p[name]["Statement"].([]any) }

// without returns a policy without the statement at an index, which may be -1.
func (p policies) without(name string, index int) string {
	document := maps.Clone(p[name])
	if index >= 0 {
		document["Statement"] = slices.Delete(slices.Clone(p.statements(name)), index, index+1)
	}
	raw, _ := json.Marshal(document) // of what was read from JSON
	return string(raw)
}

// class is an account with two clusters, and the user Ada.
type class struct {
	*cloudtest.Lab
	ada, bob *cluster
	arn      string // Ada's
	foreign  string // ARN of a role that trusts Ada by name
}

func newClass(t *testing.T) *class {
	t.Helper()
	l := cloudtest.New(t)
	c := &class{Lab: l, ada: newCluster(t, l, "ada"), bob: newCluster(t, l, "bob")}
	l.Clock.Advance(time.Minute) // all of it is known and associated
	u, err := l.Account.Identities().PutUser("ada", iam.Entity{Path: "/k8s/"})
	if err != nil {
		t.Fatal(err)
	}
	c.arn = u.ARN
	trust := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::123456789012:user/k8s/ada"},"Action":["sts:AssumeRole","sts:TagSession"]}]}`
	r, err := l.Account.Identities().PutRole("shared", iam.Entity{}, trust)
	if err != nil {
		t.Fatal(err)
	}
	c.foreign = r.ARN
	return c
}

// as returns the lab as Ada sees it, with the policies and the boundary, which is none if it is empty.
func (c *class) as(t *testing.T, tags map[string]string, boundary string, documents ...string) *cloudtest.Lab {
	t.Helper()
	e := iam.Entity{Policies: documents, Tags: tags}
	if boundary != "" {
		m, err := c.Account.Identities().PutPolicy("k8s-boundary", "", boundary)
		if err != nil {
			t.Fatal(err)
		}
		e.Boundary = m.ARN
	}
	u, err := c.Account.Identities().PutUser("ada", e)
	if err != nil {
		t.Fatal(err)
	}
	return c.With(u.AccessKeyID, u.SecretAccessKey, "")
}

// tags are Ada's.
func (c *class) tags() map[string]string {
	return map[string]string{"k8s-cluster": "ada", "k8s-subnet-1": c.ada.Subnet}
}

// refused reports whether an error is a refusal by the policies.
func refused(err error) bool {
	return slices.Contains([]string{"UnauthorizedOperation", "AccessDeniedException", "AccessDenied"}, cloudtest.Code(err))
}

// TestIsolation: Ada makes and changes her own cluster, and 38 attacks on Bob's end with the codes that AWS has for
// them.
func TestIsolation(t *testing.T) {
	c, p := newClass(t), readPolicies(t)
	ada := c.as(t, c.tags(), p.without("boundary", -1), p.without("member", -1), p.without("load-balancers", -1))
	for _, r := range c.attacks() {
		t.Run(r.name, func(t *testing.T) {
			as := ada
			if r.untagged {
				as = c.as(t, nil, p.without("boundary", -1), p.without("member", -1))
				defer c.as(t, c.tags(), p.without("boundary", -1), p.without("member", -1), p.without("load-balancers", -1))
			}
			cloudtest.Refused(t, r.do(t, as, false), r.want)
		})
	}
	for _, r := range c.own() {
		t.Run(r.name, func(t *testing.T) {
			if err := r.do(t, ada, true); !slices.Contains([]string{"", "DryRunOperation", "ResourceLimitExceeded", "DependencyViolation", "IncorrectState"}, cloudtest.Code(err)) {
				t.Error(err)
			}
		})
	}
}

// TestBoundary: under the boundary, a user with all rights gives machines roles of the own cluster only, and reaches parameters
// and objects of it only.
func TestBoundary(t *testing.T) {
	c, p := newClass(t), readPolicies(t)
	ada := c.as(t, c.tags(), p.without("boundary", -1), cloudtest.Everything)
	for _, r := range c.ceiling() {
		t.Run(r.name, func(t *testing.T) { cloudtest.Refused(t, r.do(t, ada, true), r.want) })
	}
}

// TestEveryStatementCounts: without any one statement of the policies, some attack or some request of Ada's own ends
// otherwise. Statements of the boundary are tried with a user who has all other rights.
func TestEveryStatementCounts(t *testing.T) {
	c, p := newClass(t), readPolicies(t)
	results := func(t *testing.T, name string, index int) string {
		given := []string{p.without(name, index)}
		boundary := ""
		switch name {
		case "boundary":
			boundary, given = given[0], []string{cloudtest.Everything}
		}
		var out []byte
		ada := c.as(t, c.tags(), boundary, given...)
		for _, r := range slices.Concat(c.attacks(), c.own(), c.ceiling()) {
			if r.untagged {
				ada = c.as(t, nil, boundary, given...)
			}
			result := byte('-')
			if refused(r.do(t, ada, true)) {
				result = 'x'
			}
			out = append(out, result)
			if r.untagged {
				ada = c.as(t, c.tags(), boundary, given...)
			}
		}
		return string(out)
	}
	for _, name := range []string{"member", "boundary", "load-balancers"} {
		whole := results(t, name, -1)
		for n, s := range p.statements(name) {
			id := s.(map[string]any)["Sid"].(string)
			t.Run(name+" "+id, func(t *testing.T) {
				if got := results(t, name, n); got == whole {
					t.Errorf("nothing notices that it is missing: %s", got)
				}
			})
		}
	}
}

// TestLeftoversPolicy: a member deletes what controllers in the own cluster have left, and nothing that is shared or that
// controllers in another cluster have made. Each statement of leftovers.json is needed.
func TestLeftoversPolicy(t *testing.T) {
	c, p := newClass(t), readPolicies(t)
	ctx := t.Context()
	group := func(key, value string) string {
		name := "k8s-" + value + "-" + strings.ReplaceAll(key, "/", "-")
		return *cloudtest.Must[*awsec2.CreateSecurityGroupOutput](t)(c.CreateSecurityGroup(ctx, &awsec2.CreateSecurityGroupInput{
			GroupName: &name, Description: &name, VpcId: &c.ada.VPC, TagSpecifications: tagged(types.ResourceTypeSecurityGroup, key, value),
		})).GroupId
	}
	balancers := map[string]string{}
	for _, name := range []string{"ada", "bob"} {
		balancers[name] = *cloudtest.Must[*awselb.CreateLoadBalancerOutput](t)(c.ELB.CreateLoadBalancer(ctx, &awselb.CreateLoadBalancerInput{
			Name: aws.String("k8s-" + name), Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal, Subnets: []string{c.ada.Subnet},
			Tags: []elbtypes.Tag{{Key: aws.String("kubernetes.io/cluster/" + name), Value: aws.String("owned")}},
		})).LoadBalancers[0].LoadBalancerArn
	}
	groups := []struct {
		id      string
		allowed bool
	}{
		{group("kubernetes.io/cluster/ada", "owned"), true}, {group("elbv2.k8s.aws/cluster", "ada"), true},
		{group("kubernetes.io/cluster/ada", "shared"), false}, {group("kubernetes.io/cluster/bob", "owned"), false}, {group("elbv2.k8s.aws/cluster", "bob"), false},
		{group("team", "a"), false}, {c.bob.Group, false},
	}
	results := func(index int) (out []bool) {
		ada := c.as(t, c.tags(), p.without("boundary", -1), p.without("member", -1), strings.ReplaceAll(p.without("leftovers", index), "CLUSTER", "ada"))
		for _, g := range groups {
			out = append(out, !refused(said(ada.DeleteSecurityGroup(ctx, &awsec2.DeleteSecurityGroupInput{DryRun: aws.Bool(true), GroupId: &g.id}))))
		}
		return out
	}
	whole := results(-1)
	for n, g := range groups {
		if whole[n] != g.allowed {
			t.Errorf("group %d: allowed %t", n, whole[n])
		}
	}
	for n := range p.statements("leftovers") {
		if slices.Equal(results(n), whole) {
			t.Errorf("nothing notices that statement %d is missing", n)
		}
	}
	ada := c.as(t, c.tags(), p.without("boundary", -1), p.without("member", -1), strings.ReplaceAll(p.without("leftovers", -1), "CLUSTER", "ada"))
	for name, want := range map[string]string{"ada": "", "bob": byOthers} {
		arn := balancers[name]
		cloudtest.Refused(t, said(ada.ELB.DeleteLoadBalancer(ctx, &awselb.DeleteLoadBalancerInput{LoadBalancerArn: &arn})), want)
	}
}

// TestPolicySizes: IAM counts no white space.
func TestPolicySizes(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "examples", "iam", "*.json"))
	if err != nil || len(files) < 9 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := iam.Parse(raw); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := iam.CheckSize(iam.MaxManaged, "it", string(raw)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
