// Package isolation has what the isolation of clusters that share an account is tried with: an account with the clusters of two
// members, the policies of examples/iam, and requests of one member. Tests of the local account make them with the SDK, and an
// end-to-end test with the AWS CLI. What may not enter: a request that only one of them needs.
package isolation

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awselb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"
	ststypes "github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// Attacks are what Ada tries, with the codes that she gets, numbered as in the guide on IAM.
func (c *Class) Attacks() []Request {
	ada, bob := c.Ada, c.Bob
	ec2 := func(name string, do func(t *testing.T, as *cloudtest.Lab, dry bool) error) Request {
		return Request{Name: name, Want: byEC2, Do: do}
	}
	run := func(name string, in *cluster, change func(*awsec2.RunInstancesInput)) Request {
		return ec2(name, func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.RunInstances(t.Context(), launch(in, dry, change)))
		})
	}
	tag := func(name, resource, key, value string) Request {
		return ec2(name, func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.CreateTags(t.Context(), &awsec2.CreateTagsInput{DryRun: &dry, Resources: []string{resource}, Tags: oneTag(key, value)}))
		})
	}
	untag := func(name, resource string, tags []types.Tag) Request {
		return ec2(name, func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.DeleteTags(t.Context(), &awsec2.DeleteTagsInput{DryRun: &dry, Resources: []string{resource}, Tags: tags}))
		})
	}
	ssm := func(name string, do func(t *testing.T, as *cloudtest.Lab) error) Request {
		return Request{Name: name, Want: bySSM, Do: func(t *testing.T, as *cloudtest.Lab, _ bool) error { return do(t, as) }}
	}
	other := func(name, want string, do func(t *testing.T, as *cloudtest.Lab) error) Request {
		return Request{Name: name, Want: want, Do: func(t *testing.T, as *cloudtest.Lab, _ bool) error { return do(t, as) }}
	}
	// Names of condition keys ignore case, and EC2's tag keys do not. With both spellings of one key AWS may compare either value.
	var spelled []Request
	for _, key := range []string{"K8S-from-scratch/cluster", "k8s-from-scratch/CLUSTER", "k8s-from-scratch/cLuster"} {
		for _, pairs := range [][]string{{ClusterTag, "bob", key, "ada"}, {ClusterTag, "ada", key, "bob"}, {ClusterTag, "ada", key, "ada"}} {
			of := " with " + strings.Join(pairs, " ")
			spelled = append(spelled,
				run("7 RunInstances"+of, ada, func(in *awsec2.RunInstancesInput) { tagLaunch(in, pairs...) }),
				ec2("10 CreateTags"+of, func(t *testing.T, as *cloudtest.Lab, dry bool) error {
					return said(as.CreateTags(t.Context(), &awsec2.CreateTagsInput{DryRun: &dry, Resources: []string{ada.instance}, Tags: tagged("", pairs...)[0].Tags}))
				}),
				ec2("38 CreateVpc"+of, func(t *testing.T, as *cloudtest.Lab, dry bool) error {
					return said(as.CreateVpc(t.Context(), &awsec2.CreateVpcInput{DryRun: &dry, CidrBlock: aws.String("10.9.0.0/16"), TagSpecifications: tagged(types.ResourceTypeVpc, pairs...)}))
				}),
			)
		}
		spelled = append(spelled, run("6 RunInstances in her own subnet with "+key+" bob", ada, func(in *awsec2.RunInstancesInput) { tagLaunch(in, key, "bob") }),
			tag("10 CreateTags with "+key, ada.instance, key, "ada"), untag("14 DeleteTags with "+key, ada.instance, []types.Tag{{Key: &key}}))
	}
	pair := []string{ClusterTag, "bob", "k8s-from-scratch/CLUSTER", "ada"}
	spelled = append(spelled,
		ec2("38 CreateVolume with both spellings", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.CreateVolume(t.Context(), &awsec2.CreateVolumeInput{DryRun: &dry, AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(1), TagSpecifications: tagged(types.ResourceTypeVolume, pair...)}))
		}),
		ec2("38 AllocateAddress with both spellings", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.AllocateAddress(t.Context(), &awsec2.AllocateAddressInput{DryRun: &dry, TagSpecifications: tagged(types.ResourceTypeElasticIp, pair...)}))
		}),
	)
	return append(spelled, []Request{
		ssm("1 GetParameter of Bob's CA key", func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.SSM.GetParameter(t.Context(), &awsssm.GetParameterInput{Name: aws.String("/k8s/bob/pki/kubernetes-ca.key"), WithDecryption: aws.Bool(true)}))
		}),
		ssm("2 GetParametersByPath of everybody", func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.SSM.GetParametersByPath(t.Context(), &awsssm.GetParametersByPathInput{Path: aws.String("/k8s"), Recursive: aws.Bool(true)}))
		}),
		ssm("3 PutParameter of Bob's owner", func(t *testing.T, as *cloudtest.Lab) error {
			in := PutParameter("/k8s/bob/pki/owner", "bob")
			in.Tags, in.Overwrite = nil, aws.Bool(true)
			return said(as.SSM.PutParameter(t.Context(), in))
		}),
		{Name: "4 DeleteParameters", Want: bySSM, Do: func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			if dry {
				return said(as.SSM.GetParameter(t.Context(), &awsssm.GetParameterInput{Name: aws.String("/k8s/bob/pki/owner")}))
			}
			return said(as.SSM.DeleteParameters(t.Context(), &awsssm.DeleteParametersInput{Names: []string{"/k8s/bob/pki/owner"}}))
		}},
		run("5 RunInstances with Bob's profile", ada, func(in *awsec2.RunInstancesInput) { in.IamInstanceProfile = cloudtest.ProfileNamed("k8s-bob") }),
		run("6 RunInstances tagged Bob in her own subnet", ada, func(in *awsec2.RunInstancesInput) { tagLaunch(in, ClusterTag, "bob") }),
		run("8 in Bob's subnet", ada, func(in *awsec2.RunInstancesInput) {
			in.NetworkInterfaces[0].SubnetId, in.NetworkInterfaces[0].Groups = &bob.Subnet, nil
		}),
		run("9 with Bob's group", ada, func(in *awsec2.RunInstancesInput) { in.NetworkInterfaces[0].Groups = []string{bob.Group} }),
		tag("10 CreateTags own to Bob", ada.instance, ClusterTag, "bob"),
		tag("11 CreateTags Bob's to Ada", bob.instance, ClusterTag, "ada"),
		tag("12 CreateTags host key on Bob's", bob.instance, "k8s-from-scratch/host-key", "ssh-ed25519 AAAA"),
		tag("12 CreateTags claim on Bob's", bob.volume, "k8s-from-scratch/claim", "ada"),
		untag("13 DeleteTags Bob's cluster tag", bob.instance, []types.Tag{{Key: aws.String(ClusterTag)}}),
		untag("14 DeleteTags own without keys", ada.instance, nil),
		untag("14 DeleteTags her own cluster tag", ada.instance, []types.Tag{{Key: aws.String(ClusterTag)}}),
		untag("14 DeleteTags her own cluster tag with its value", ada.instance, oneTag(ClusterTag, "ada")),
		ec2("15 CreateTags on an untagged default group", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			groups := cloudtest.Must[*awsec2.DescribeSecurityGroupsOutput](t)(c.DescribeSecurityGroups(t.Context(), &awsec2.DescribeSecurityGroupsInput{
				Filters: []types.Filter{cloudtest.Filter("vpc-id", bob.VPC), cloudtest.Filter("group-name", "default")},
			})).SecurityGroups
			return said(as.CreateTags(t.Context(), &awsec2.CreateTagsInput{DryRun: &dry, Resources: []string{*groups[0].GroupId}, Tags: oneTag(ClusterTag, "ada")}))
		}),
		tag("16 CreateTags kubernetes.io/cluster/bob", ada.instance, "kubernetes.io/cluster/bob", "owned"),
		ec2("17 CreateSubnet in Bob's VPC", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.CreateSubnet(t.Context(), &awsec2.CreateSubnetInput{DryRun: &dry, VpcId: &bob.VPC, CidrBlock: aws.String("10.240.9.0/24"), TagSpecifications: tagged(types.ResourceTypeSubnet, ClusterTag, "ada")}))
		}),
		ec2("18 CreateRoute in Bob's table", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.CreateRoute(t.Context(), &awsec2.CreateRouteInput{DryRun: &dry, RouteTableId: &bob.Table, DestinationCidrBlock: aws.String("192.0.2.0/24"), NetworkInterfaceId: &ada.nic}))
		}),
		ec2("19 DescribeInstanceAttribute userData", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.DescribeInstanceAttribute(t.Context(), &awsec2.DescribeInstanceAttributeInput{DryRun: &dry, InstanceId: &bob.instance, Attribute: types.InstanceAttributeNameUserData}))
		}),
		ec2("20 DisassociateAddress Bob's", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.DisassociateAddress(t.Context(), &awsec2.DisassociateAddressInput{DryRun: &dry, AssociationId: &bob.addressOf}))
		}),
		ec2("20 ReplaceRouteTableAssociation Bob's", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.ReplaceRouteTableAssociation(t.Context(), &awsec2.ReplaceRouteTableAssociationInput{DryRun: &dry, AssociationId: &bob.tableOf, RouteTableId: &ada.Table}))
		}),
		ec2("21 AssociateAddress own address with Bob's instance", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.AssociateAddress(t.Context(), &awsec2.AssociateAddressInput{DryRun: &dry, AllocationId: &ada.spareAddress, InstanceId: &bob.instance}))
		}),
		ec2("22 endpoint in Bob's subnet", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.CreateInstanceConnectEndpoint(t.Context(), &awsec2.CreateInstanceConnectEndpointInput{DryRun: &dry, SubnetId: &bob.Subnet, TagSpecifications: tagged(types.ResourceTypeInstanceConnectEndpoint, ClusterTag, "ada")}))
		}),
		other("23 OpenTunnel through Bob's", bySSM, func(t *testing.T, as *cloudtest.Lab) error { return openTunnel(t, as, bob, "22") }),
		ec2("24 TerminateInstances", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.TerminateInstances(t.Context(), &awsec2.TerminateInstancesInput{DryRun: &dry, InstanceIds: []string{bob.instance}}))
		}),
		ec2("24 ModifyInstanceAttribute", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.ModifyInstanceAttribute(t.Context(), &awsec2.ModifyInstanceAttributeInput{DryRun: &dry, InstanceId: &bob.instance, DisableApiTermination: &types.AttributeBooleanValue{Value: aws.Bool(false)}}))
		}),
		ec2("25 AttachVolume Bob's to own", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.AttachVolume(t.Context(), &awsec2.AttachVolumeInput{DryRun: &dry, VolumeId: &bob.spareVolume, InstanceId: &ada.instance, Device: aws.String("/dev/sdf")}))
		}),
		ec2("26 AuthorizeSecurityGroupIngress", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.AuthorizeSecurityGroupIngress(t.Context(), &awsec2.AuthorizeSecurityGroupIngressInput{DryRun: &dry, GroupId: &bob.Group, IpPermissions: anyPermission()}))
		}),
		other("27 CreateLoadBalancer in Bob's subnet", byOthers, func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.ELB.CreateLoadBalancer(t.Context(), &awselb.CreateLoadBalancerInput{
				Name: aws.String("kfs-ada-bait"), Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal, Subnets: []string{bob.Subnet}, Tags: elbTags("ada"),
			}))
		}),
		other("27 CreateLoadBalancer with a mapping in Bob's subnet", byOthers, func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.ELB.CreateLoadBalancer(t.Context(), &awselb.CreateLoadBalancerInput{
				Name: aws.String("kfs-ada-bait"), Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal, Tags: elbTags("ada"),
				SubnetMappings: []elbtypes.SubnetMapping{{SubnetId: &bob.Subnet}},
			}))
		}),
		other("27 SetSubnets in Bob's subnet", byOthers, func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.ELB.SetSubnets(t.Context(), &awselb.SetSubnetsInput{LoadBalancerArn: &ada.balancer, Subnets: []string{ada.Subnet, bob.Subnet}}))
		}),
		other("27 CreateLoadBalancer without a subnet", byOthers, func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.ELB.CreateLoadBalancer(t.Context(), &awselb.CreateLoadBalancerInput{
				Name: aws.String("kfs-ada-bait"), Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal, Tags: elbTags("ada"),
			}))
		}),
		{Name: "28 DeleteListener", Want: byOthers, Do: func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			if dry {
				return said(as.ELB.ModifyListener(t.Context(), &awselb.ModifyListenerInput{ListenerArn: &bob.listener, Port: aws.Int32(6443)}))
			}
			return said(as.ELB.DeleteListener(t.Context(), &awselb.DeleteListenerInput{ListenerArn: &bob.listener}))
		}},
		other("28 RegisterTargets", byOthers, func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.ELB.RegisterTargets(t.Context(), &awselb.RegisterTargetsInput{TargetGroupArn: &bob.targetGroup, Targets: []elbtypes.TargetDescription{{Id: &ada.instance}}}))
		}),
		// It harms nobody without a load balancer in the VPC, and no condition key names the VPC.
		other("29 CreateTargetGroup in Bob's VPC", "", func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.ELB.CreateTargetGroup(t.Context(), &awselb.CreateTargetGroupInput{
				Name: aws.String("kfs-ada-odd"), Protocol: elbtypes.ProtocolEnumTcp, Port: aws.Int32(80), VpcId: &bob.VPC, TargetType: elbtypes.TargetTypeEnumInstance, Tags: elbTags("ada"),
			}))
		}),
		other("30 GetFederationToken with tag Bob", byOthers, func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.STS.GetFederationToken(t.Context(), &awssts.GetFederationTokenInput{
				Name: aws.String("bob"), Policy: aws.String(cloudtest.Everything), Tags: []ststypes.Tag{{Key: aws.String("k8s-cluster"), Value: aws.String("bob")}},
			}))
		}),
		other("31 AssumeRole with session tag Bob", byOthers, func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.STS.AssumeRole(t.Context(), &awssts.AssumeRoleInput{
				RoleArn: &c.foreign, RoleSessionName: aws.String("ada"), Tags: []ststypes.Tag{{Key: aws.String("k8s-cluster"), Value: aws.String("bob")}},
			}))
		}),
		other("31 AssumeRole of a role that trusts her by name", byOthers, func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.STS.AssumeRole(t.Context(), &awssts.AssumeRoleInput{RoleArn: &c.foreign, RoleSessionName: aws.String("ada")}))
		}),
		other("32 TagUser herself", byOthers, func(*testing.T, *cloudtest.Lab) error {
			return c.evaluate("iam:TagUser", c.arn, map[string][]string{"aws:RequestTag/k8s-cluster": {"bob"}, "aws:TagKeys": {"k8s-cluster"}, "aws:RequestedRegion": {"us-east-1"}})
		}),
		ec2("33 CreateVpc untagged", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.CreateVpc(t.Context(), &awsec2.CreateVpcInput{DryRun: &dry, CidrBlock: aws.String("10.9.0.0/16")}))
		}),
		ec2("33 CreateVolume from a snapshot", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.CreateVolume(t.Context(), &awsec2.CreateVolumeInput{
				DryRun: &dry, AvailabilityZone: aws.String("us-east-1a"), SnapshotId: aws.String("snap-0123456789abcdef0"), TagSpecifications: tagged(types.ResourceTypeVolume, ClusterTag, "ada"),
			}))
		}),
		run("34 RunInstances m5.24xlarge", ada, func(in *awsec2.RunInstancesInput) { in.InstanceType = types.InstanceTypeM524xlarge }),
		run("34 RunInstances with a volume of 2 TiB", ada, func(in *awsec2.RunInstancesInput) { in.BlockDeviceMappings[0].Ebs.VolumeSize = aws.Int32(2048) }),
		{Name: "35 no principal tag at all", Want: byEC2, Untagged: true, Do: func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.DescribeVpcs(t.Context(), &awsec2.DescribeVpcsInput{DryRun: &dry}))
		}},
		// Tokens have no condition key. The provider does not take the instance for its own: TestGuessedToken.
		{Name: "36 RunInstances with Bob's client token", Do: func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			in := launch(ada, dry)
			in.ClientToken = aws.String("bob/machine/worker-0")
			return said(as.RunInstances(t.Context(), in))
		}},
		// Counts cannot be limited.
		{Name: "37 using up the quota of addresses", Do: func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.AllocateAddress(t.Context(), &awsec2.AllocateAddressInput{DryRun: &dry, TagSpecifications: tagged(types.ResourceTypeElasticIp, ClusterTag, "ada")}))
		}},
		ssm("38 planting a key before Bob's first apply", func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.SSM.PutParameter(t.Context(), PutParameter("/k8s/bob/pki/etcd-ca.key", "ada")))
		}),
		ec2("38 planting a VPC before Bob's first apply", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.CreateVpc(t.Context(), &awsec2.CreateVpcInput{DryRun: &dry, CidrBlock: aws.String("10.9.0.0/16"), TagSpecifications: tagged(types.ResourceTypeVpc, ClusterTag, "bob")}))
		}),
		ec2("39 CreateImage of Bob's machine", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.CreateImage(t.Context(), &awsec2.CreateImageInput{DryRun: &dry, InstanceId: &bob.instance, Name: aws.String("stolen"), NoReboot: aws.Bool(true)}))
		}),
		ec2("40 CreateSnapshot of Bob's disk", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.CreateSnapshot(t.Context(), &awsec2.CreateSnapshotInput{DryRun: &dry, VolumeId: &bob.volume}))
		}),
		other("CreateVpc in another region", byOthers, func(*testing.T, *cloudtest.Lab) error {
			return c.evaluate("ec2:CreateVpc", "arn:aws:ec2:ap-south-1:123456789012:vpc/*", map[string][]string{
				"aws:RequestedRegion": {"ap-south-1"}, "aws:RequestTag/" + ClusterTag: {"ada"}, "aws:TagKeys": {ClusterTag},
			})
		}),
	}...)
}
