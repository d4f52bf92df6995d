package networks_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// controllers does what controllers in a cluster do with AWS.
type controllers struct {
	c       providertest.Cloud
	t       *testing.T
	network *providertest.Instance
}

func (k controllers) group(name string, tags map[string]string) string {
	k.t.Helper()
	out := providertest.Answer[*ec2.CreateSecurityGroupOutput](k.t)(k.c.Client.EC2.CreateSecurityGroup(k.t.Context(), &ec2.CreateSecurityGroupInput{
		GroupName: &name, Description: &name, VpcId: sdk.String(k.network.Get("vpc_id").(string)),
		TagSpecifications: []types.TagSpecification{infraaws.TagSpecification(types.ResourceTypeSecurityGroup, tags)},
	}))
	return *out.GroupId
}

func (k controllers) volume(tags map[string]string) string {
	k.t.Helper()
	return k.volumeIn(k.network.Get("availability_zones").([]any)[0].(string), tags)
}

func (k controllers) volumeIn(zone string, tags map[string]string) string {
	k.t.Helper()
	out := providertest.Answer[*ec2.CreateVolumeOutput](k.t)(k.c.Client.EC2.CreateVolume(k.t.Context(), &ec2.CreateVolumeInput{
		AvailabilityZone: &zone, Size: sdk.Int32(1), TagSpecifications: []types.TagSpecification{infraaws.TagSpecification(types.ResourceTypeVolume, tags)},
	}))
	return *out.VolumeId
}

// balancer makes a load balancer with a target group, in a security group.
func (k controllers) balancer(group string, tags map[string]string) (arns []string) {
	k.t.Helper()
	api, ctx := k.c.Client.ELB, k.t.Context()
	b := providertest.Answer[*elb.CreateLoadBalancerOutput](k.t)(api.CreateLoadBalancer(ctx, &elb.CreateLoadBalancerInput{
		Name: sdk.String("k8s-default-web"), Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal,
		Subnets: []string{k.network.Get("subnet_id").(string)}, SecurityGroups: []string{group}, Tags: infraaws.ELBTags(tags),
	})).LoadBalancers[0].LoadBalancerArn
	g := providertest.Answer[*elb.CreateTargetGroupOutput](k.t)(api.CreateTargetGroup(ctx, &elb.CreateTargetGroupInput{
		Name: sdk.String("k8s-default-web"), Protocol: elbtypes.ProtocolEnumTcp, Port: sdk.Int32(80), TargetType: elbtypes.TargetTypeEnumInstance,
		VpcId: sdk.String(k.network.Get("vpc_id").(string)), Tags: infraaws.ELBTags(tags),
	})).TargetGroups[0].TargetGroupArn
	providertest.Answer[*elb.CreateListenerOutput](k.t)(api.CreateListener(ctx, &elb.CreateListenerInput{
		LoadBalancerArn: b, Port: sdk.Int32(80), Protocol: elbtypes.ProtocolEnumTcp, Tags: infraaws.ELBTags(tags),
		DefaultActions: []elbtypes.Action{{Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: g}},
	}))
	return []string{*b, *g}
}

// lets in one security group from another.
func (k controllers) lets(into, from string) {
	k.t.Helper()
	providertest.Answer[*ec2.AuthorizeSecurityGroupIngressOutput](k.t)(k.c.Client.EC2.AuthorizeSecurityGroupIngress(k.t.Context(), &ec2.AuthorizeSecurityGroupIngressInput{
		GroupId: &into, IpPermissions: []types.IpPermission{{IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(8080), ToPort: sdk.Int32(8080), UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: &from}}}},
	}))
}

// instance launches an instance of somebody else in the network, in a security group.
func (k controllers) instance(group string) string {
	k.t.Helper()
	api, ctx := k.c.Client.EC2, k.t.Context()
	images := providertest.Answer[*ec2.DescribeImagesOutput](k.t)(api.DescribeImages(ctx, &ec2.DescribeImagesInput{}))
	return *providertest.Answer[*ec2.RunInstancesOutput](k.t)(api.RunInstances(ctx, &ec2.RunInstancesInput{
		ImageId: images.Images[0].ImageId, InstanceType: types.InstanceTypeT3Medium, MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1),
		SubnetId: sdk.String(k.network.Get("subnet_id").(string)), SecurityGroupIds: []string{group},
	})).Instances[0].InstanceId
}

// nic leaves the network interface of an instance that has ended.
func (k controllers) nic(tags map[string]string) string {
	k.t.Helper()
	api, ctx := k.c.Client.EC2, k.t.Context()
	images := providertest.Answer[*ec2.DescribeImagesOutput](k.t)(api.DescribeImages(ctx, &ec2.DescribeImagesInput{}))
	run := providertest.Answer[*ec2.RunInstancesOutput](k.t)(api.RunInstances(ctx, &ec2.RunInstancesInput{
		ImageId: images.Images[0].ImageId, InstanceType: types.InstanceTypeT3Medium, MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1),
		NetworkInterfaces: []types.InstanceNetworkInterfaceSpecification{{
			DeviceIndex: sdk.Int32(0), SubnetId: sdk.String(k.network.Get("subnet_id").(string)), DeleteOnTermination: sdk.Bool(false)}},
	})).Instances[0]
	id := run.NetworkInterfaces[0].NetworkInterfaceId
	providertest.Answer[*ec2.CreateTagsOutput](k.t)(api.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{*id}, Tags: infraaws.EC2Tags(tags)}))
	providertest.Answer[*ec2.TerminateInstancesOutput](k.t)(api.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{*run.InstanceId}}))
	err := infraaws.Poll(ctx, "wait until the instance has ended", func(ctx context.Context) (bool, string, error) {
		out, err := api.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{NetworkInterfaceIds: []string{*id}})
		return err == nil && out.NetworkInterfaces[0].Status == types.NetworkInterfaceStatusAvailable, "", err
	})
	if err != nil {
		k.t.Fatal(err)
	}
	return *id
}

// TestLeftovers: a destroy names what controllers in the cluster have left before it deletes anything, and deletes it if it
// is told to. It leaves alone what is shared, in use, or belongs to another cluster.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	config := providertest.NetworkConfig()
	k := controllers{c, t, network}
	owned, balanced := map[string]string{"kubernetes.io/cluster/demo": "owned"}, map[string]string{"elbv2.k8s.aws/cluster": "demo"}
	var older []string // another tool's cluster of the same name has them
	for _, zone := range providertest.Answer[*ec2.DescribeAvailabilityZonesOutput](t)(c.Client.EC2.DescribeAvailabilityZones(t.Context(), &ec2.DescribeAvailabilityZonesInput{})).AvailabilityZones {
		older = append(older, k.volumeIn(*zone.ZoneName, owned))
	}
	time.Sleep(time.Second) // a claim has full seconds
	network.Must(config)
	workers := network.Get("security_group_ids").(providertest.Values)["worker"].(string)
	group := k.group("k8s-traffic-demo", balanced)
	k.lets(workers, group)
	k.lets(group, workers)
	data := k.volume(map[string]string{"kubernetes.io/cluster/demo": "owned", "ebs.csi.aws.com/cluster": "true"})
	left := append(k.balancer(group, owned), group, data, k.nic(owned))
	shared := k.group("shared", map[string]string{"kubernetes.io/cluster/demo": "shared", "elbv2.k8s.aws/cluster": "demo"})
	others := append([]string{
		shared,
		k.volume(map[string]string{"kubernetes.io/cluster/demo": "shared", "ebs.csi.aws.com/cluster": "true"}),
		k.volume(map[string]string{"kubernetes.io/cluster/demo": "owned", "kubernetes.io/cluster/other": "shared"}),
		k.volume(map[string]string{"kubernetes.io/cluster/demo": "owned", infraaws.TagCluster: "other", infraaws.TagKind: infraaws.KindVolume}),
		k.volume(map[string]string{"elbv2.k8s.aws/cluster": "other", "ebs.csi.aws.com/cluster": "true"}),
	}, older...)

	// refused destroys the network, which must fail before it changes anything, and returns the error.
	refused := func() string {
		t.Helper()
		before := len(c.Calls())
		got := network.Dismiss().Failure()
		for _, call := range c.Calls()[before:] {
			if !strings.Contains(call, "Describe") && !strings.Contains(call, "GetCallerIdentity") {
				t.Errorf("called %s", call)
			}
		}
		for _, id := range others {
			if strings.Contains(got, id) {
				t.Errorf("the error names %s: %s", id, got)
			}
		}
		return got
	}
	providertest.Mention(t, refused(), append(left, "Cannot delete network demo", "load balancer arn:", "target group arn:", "security group sg-", "volume vol-", "network interface eni-",
		"delete_leftovers = true", "kubernetes.io/cluster/demo")...)

	worker.Must(providertest.WorkerConfig(network))
	providertest.Answer[*ec2.AttachVolumeOutput](t)(c.Client.EC2.AttachVolume(t.Context(), &ec2.AttachVolumeInput{
		VolumeId: &data, InstanceId: sdk.String(worker.Get("id").(string)), Device: sdk.String("/dev/sdf")}))
	config["delete_leftovers"] = true
	network.Must(config)
	network.Converged(config)
	got := refused()
	providertest.Mention(t, got, data, "attached to "+worker.Get("id").(string), "Nothing was deleted")
	if slices.ContainsFunc(left, func(id string) bool { return id != data && strings.Contains(got, id) }) {
		t.Errorf("the error names what can be deleted: %s", got)
	}

	worker.Dismiss()
	foreign := k.instance(group)
	providertest.Mention(t, refused(), group, "used by network interface", "of instance "+foreign, "Nothing was deleted")
	providertest.Answer[*ec2.TerminateInstancesOutput](t)(c.Client.EC2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{foreign}}))
	others = others[1:]
	k.lets(shared, group)
	providertest.Mention(t, refused(), group, "a rule of security group "+shared+" refers to it")

	providertest.Answer[*ec2.DeleteSecurityGroupOutput](t)(c.Client.EC2.DeleteSecurityGroup(t.Context(), &ec2.DeleteSecurityGroupInput{GroupId: &shared}))
	if got := network.Dismiss().Failure(); got != "" {
		t.Error(got)
	}
	calls := c.Calls()
	last := func(action string) int {
		for n := len(calls) - 1; n >= 0; n-- {
			if strings.Contains(calls[n], action) {
				return n
			}
		}
		return -1
	}
	if group, volume := last("DeleteSecurityGroup"), last("DeleteVolume"); group < 0 || volume < group {
		t.Errorf("a volume was deleted before the groups: the calls %d and %d", volume, group)
	}
	for _, id := range others {
		providertest.Answer[*ec2.DeleteVolumeOutput](t)(c.Client.EC2.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: &id}))
	}
	c.Account.Empty()
}

// TestLeftoversUnseen: who may not look for load balancers can destroy a network all the same. If that fails, the error says what
// was not looked for.
func TestLeftoversUnseen(t *testing.T) {
	t.Parallel()
	for seconds := 3; ; seconds *= 2 { // a slow computer does not get as far as EC2's answer in a short time
		c := providertest.NewCloud(t)
		user, err := c.Account.Cloud.Identities().PutUser("terraform", iam.Entity{Policies: []string{
			`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["ec2:*","sts:*"],"Resource":"*"}]}`}})
		if err != nil {
			t.Fatal(err)
		}
		c.More = providertest.Values{"access_key": user.AccessKeyID, "secret_key": user.SecretAccessKey}
		c = c.Process(t)
		network := c.Instance("k8s_network")
		network.Must(providertest.With(providertest.NetworkConfig(), providertest.Values{"timeouts": providertest.Values{"delete": fmt.Sprint(seconds, "s")}}))
		k := controllers{c, t, network}
		arns := k.balancer(network.Get("security_group_ids").(providertest.Values)["worker"].(string), map[string]string{"kubernetes.io/cluster/demo": "owned"})
		got := network.Dismiss().Failure()
		if !strings.Contains(got, "DependencyViolation") && seconds < 100 {
			continue
		}
		providertest.Mention(t, got, "DependencyViolation", "could not be looked for", "not authorized to perform elasticloadbalancing:DescribeLoadBalancers", "ELB net/k8s-default-web/")
		providertest.Answer[*elb.DeleteLoadBalancerOutput](t)(c.Client.ELB.DeleteLoadBalancer(t.Context(), &elb.DeleteLoadBalancerInput{LoadBalancerArn: &arns[0]}))
		providertest.Answer[*elb.DeleteTargetGroupOutput](t)(c.Client.ELB.DeleteTargetGroup(t.Context(), &elb.DeleteTargetGroupInput{TargetGroupArn: &arns[1]}))
		return
	}
}
