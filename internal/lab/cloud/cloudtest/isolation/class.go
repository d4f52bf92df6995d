package isolation

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
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

// ClusterTag is the key of the tag that says whose a resource is.
const ClusterTag = "k8s-from-scratch/cluster"

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
	cloudtest.Must[*awsec2.CreateTagsOutput](t)(l.CreateTags(ctx, &awsec2.CreateTagsInput{Resources: ids, Tags: cloudtest.Tags("", ClusterTag, name)[0].Tags}))
	own := []elbtypes.Tag{{Key: aws.String(ClusterTag), Value: &name}}
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
		cloudtest.Must[*awsssm.PutParameterOutput](t)(l.SSM.PutParameter(ctx, PutParameter("/k8s/"+name+parameter, name)))
	}
	return c
}

// Class is an account with two clusters, and the user Ada.
type Class struct {
	*cloudtest.Lab
	Ada, Bob *cluster
	arn      string // Ada's
	foreign  string // ARN of a role that trusts Ada by name
}

// NewClass makes the account, until the test ends.
func NewClass(t *testing.T) *Class {
	t.Helper()
	l := cloudtest.New(t)
	c := &Class{Lab: l, Ada: newCluster(t, l, "ada"), Bob: newCluster(t, l, "bob")}
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

// As returns the lab as Ada sees it, with the policies and the boundary, which is none if it is empty.
func (c *Class) As(t *testing.T, tags map[string]string, boundary string, documents ...string) *cloudtest.Lab {
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

// Tags are Ada's.
func (c *Class) Tags() map[string]string {
	return map[string]string{"k8s-cluster": "ada", "k8s-subnet-1": c.Ada.Subnet}
}

// Policies are read from examples/iam. A statement can be left out.
type Policies map[string]map[string]any

// ReadPolicies reads them from a test whose package is three directories below the root, as the packages are that use it.
func ReadPolicies(t *testing.T) Policies {
	t.Helper()
	out := Policies{}
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

// Statements returns the statements of a policy.
func (p Policies) Statements(name string) []any { return p[name]["Statement"].([]any) }

// Without returns a policy without the statement at an index, which may be -1.
func (p Policies) Without(name string, index int) string {
	document := maps.Clone(p[name])
	if index >= 0 {
		document["Statement"] = slices.Delete(slices.Clone(p.Statements(name)), index, index+1)
	}
	raw, _ := json.Marshal(document) // of what was read from JSON
	return string(raw)
}
