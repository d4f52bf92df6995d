package cloud_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awselb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"
	ststypes "github.com/aws/aws-sdk-go-v2/service/sts/types"
	"github.com/aws/smithy-go"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

// request is something that Ada does. With dry, EC2 is asked whether it would be allowed, and other services are asked
// for nothing that would change the tags of what exists.
type request struct {
	name     string
	want     string // code of the refusal
	untagged bool   // Ada has no tags
	do       func(t *testing.T, as *cloudtest.Lab, dry bool) error
}

// Codes of refusals.
const (
	byEC2    = "UnauthorizedOperation"
	bySSM    = "AccessDeniedException" // also of tunnels
	byOthers = "AccessDenied"          // STS, ELB
)

func putParameter(name, cluster string) *awsssm.PutParameterInput {
	return &awsssm.PutParameterInput{Name: &name, Value: aws.String("x"), Type: ssmtypes.ParameterTypeString, Tags: []ssmtypes.Tag{{Key: aws.String(clusterTag), Value: &cluster}}}
}

func tagged(resource types.ResourceType, pairs ...string) []types.TagSpecification {
	return cloudtest.Tags(resource, pairs...)
}

func oneTag(key, value string) []types.Tag { return []types.Tag{{Key: &key, Value: &value}} }

func elbTags(cluster string) []elbtypes.Tag {
	return []elbtypes.Tag{{Key: aws.String(clusterTag), Value: &cluster}}
}

// launch is the launch of a machine of a cluster, as the provider asks for it.
func launch(in *cluster, dry bool, change ...func(*awsec2.RunInstancesInput)) *awsec2.RunInstancesInput {
	out := in.RunInput()
	out.SubnetId, out.SecurityGroupIds, out.DryRun = nil, nil, &dry
	out.NetworkInterfaces = []types.InstanceNetworkInterfaceSpecification{{DeviceIndex: aws.Int32(0), SubnetId: &in.Subnet, Groups: []string{in.Group}}}
	out.BlockDeviceMappings = []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/xvda"), Ebs: &types.EbsBlockDevice{VolumeSize: aws.Int32(20)}}}
	tagLaunch(out, clusterTag, in.name)
	for _, f := range change {
		f(out)
	}
	return out
}

func tagLaunch(in *awsec2.RunInstancesInput, pairs ...string) {
	in.TagSpecifications = nil
	for _, r := range []types.ResourceType{types.ResourceTypeInstance, types.ResourceTypeVolume, types.ResourceTypeNetworkInterface} {
		in.TagSpecifications = append(in.TagSpecifications, tagged(r, pairs...)...)
	}
}

func anyPermission() []types.IpPermission {
	return []types.IpPermission{{IpProtocol: aws.String("tcp"), FromPort: aws.Int32(22), ToPort: aws.Int32(22), IpRanges: []types.IpRange{{CidrIp: aws.String("192.0.2.0/24")}}}}
}

func said(_ any, err error) error { return err }

// openTunnel returns the refusal of a tunnel.
func openTunnel(t *testing.T, as *cloudtest.Lab, to *cluster, port string) error {
	if _, err := tunnel(t, as, to.endpoint, "10.240.0.9", "remotePort", port); err != nil {
		return &smithy.GenericAPIError{Code: err.Error()}
	}
	return nil
}

// attacks are what Ada tries, with the codes that she gets, numbered as in the guide on IAM.
func (c *class) attacks() []request {
	ada, bob := c.ada, c.bob
	ec2 := func(name string, do func(t *testing.T, as *cloudtest.Lab, dry bool) error) request {
		return request{name: name, want: byEC2, do: do}
	}
	run := func(name string, in *cluster, change func(*awsec2.RunInstancesInput)) request {
		return ec2(name, func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.RunInstances(t.Context(), launch(in, dry, change)))
		})
	}
	tag := func(name, resource, key, value string) request {
		return ec2(name, func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.CreateTags(t.Context(), &awsec2.CreateTagsInput{DryRun: &dry, Resources: []string{resource}, Tags: oneTag(key, value)}))
		})
	}
	untag := func(name, resource string, tags []types.Tag) request {
		return ec2(name, func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.DeleteTags(t.Context(), &awsec2.DeleteTagsInput{DryRun: &dry, Resources: []string{resource}, Tags: tags}))
		})
	}
	ssm := func(name string, do func(t *testing.T, as *cloudtest.Lab) error) request {
		return request{name: name, want: bySSM, do: func(t *testing.T, as *cloudtest.Lab, _ bool) error { return do(t, as) }}
	}
	other := func(name, want string, do func(t *testing.T, as *cloudtest.Lab) error) request {
		return request{name: name, want: want, do: func(t *testing.T, as *cloudtest.Lab, _ bool) error { return do(t, as) }}
	}
	// Names of condition keys ignore case, and EC2's tag keys do not. With both spellings of one key AWS may compare either value.
	var spelled []request
	for _, key := range []string{"K8S-from-scratch/cluster", "k8s-from-scratch/CLUSTER", "k8s-from-scratch/cLuster"} {
		for _, pairs := range [][]string{{clusterTag, "bob", key, "ada"}, {clusterTag, "ada", key, "bob"}, {clusterTag, "ada", key, "ada"}} {
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
	pair := []string{clusterTag, "bob", "k8s-from-scratch/CLUSTER", "ada"}
	spelled = append(spelled,
		ec2("38 CreateVolume with both spellings", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.CreateVolume(t.Context(), &awsec2.CreateVolumeInput{DryRun: &dry, AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(1), TagSpecifications: tagged(types.ResourceTypeVolume, pair...)}))
		}),
		ec2("38 AllocateAddress with both spellings", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.AllocateAddress(t.Context(), &awsec2.AllocateAddressInput{DryRun: &dry, TagSpecifications: tagged(types.ResourceTypeElasticIp, pair...)}))
		}),
	)
	return append(spelled, []request{
		ssm("1 GetParameter of Bob's CA key", func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.SSM.GetParameter(t.Context(), &awsssm.GetParameterInput{Name: aws.String("/k8s/bob/pki/kubernetes-ca.key"), WithDecryption: aws.Bool(true)}))
		}),
		ssm("2 GetParametersByPath of everybody", func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.SSM.GetParametersByPath(t.Context(), &awsssm.GetParametersByPathInput{Path: aws.String("/k8s"), Recursive: aws.Bool(true)}))
		}),
		ssm("3 PutParameter of Bob's owner", func(t *testing.T, as *cloudtest.Lab) error {
			in := putParameter("/k8s/bob/pki/owner", "bob")
			in.Tags, in.Overwrite = nil, aws.Bool(true)
			return said(as.SSM.PutParameter(t.Context(), in))
		}),
		{name: "4 DeleteParameters", want: bySSM, do: func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			if dry {
				return said(as.SSM.GetParameter(t.Context(), &awsssm.GetParameterInput{Name: aws.String("/k8s/bob/pki/owner")}))
			}
			return said(as.SSM.DeleteParameters(t.Context(), &awsssm.DeleteParametersInput{Names: []string{"/k8s/bob/pki/owner"}}))
		}},
		run("5 RunInstances with Bob's profile", ada, func(in *awsec2.RunInstancesInput) { in.IamInstanceProfile = cloudtest.ProfileNamed("k8s-bob") }),
		run("6 RunInstances tagged Bob in her own subnet", ada, func(in *awsec2.RunInstancesInput) { tagLaunch(in, clusterTag, "bob") }),
		run("8 in Bob's subnet", ada, func(in *awsec2.RunInstancesInput) {
			in.NetworkInterfaces[0].SubnetId, in.NetworkInterfaces[0].Groups = &bob.Subnet, nil
		}),
		run("9 with Bob's group", ada, func(in *awsec2.RunInstancesInput) { in.NetworkInterfaces[0].Groups = []string{bob.Group} }),
		tag("10 CreateTags own to Bob", ada.instance, clusterTag, "bob"),
		tag("11 CreateTags Bob's to Ada", bob.instance, clusterTag, "ada"),
		tag("12 CreateTags host key on Bob's", bob.instance, "k8s-from-scratch/host-key", "ssh-ed25519 AAAA"),
		tag("12 CreateTags claim on Bob's", bob.volume, "k8s-from-scratch/claim", "ada"),
		untag("13 DeleteTags Bob's cluster tag", bob.instance, []types.Tag{{Key: aws.String(clusterTag)}}),
		untag("14 DeleteTags own without keys", ada.instance, nil),
		untag("14 DeleteTags her own cluster tag", ada.instance, []types.Tag{{Key: aws.String(clusterTag)}}),
		untag("14 DeleteTags her own cluster tag with its value", ada.instance, oneTag(clusterTag, "ada")),
		ec2("15 CreateTags on an untagged default group", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			groups := cloudtest.Must[*awsec2.DescribeSecurityGroupsOutput](t)(c.DescribeSecurityGroups(t.Context(), &awsec2.DescribeSecurityGroupsInput{
				Filters: []types.Filter{cloudtest.Filter("vpc-id", bob.VPC), cloudtest.Filter("group-name", "default")},
			})).SecurityGroups
			return said(as.CreateTags(t.Context(), &awsec2.CreateTagsInput{DryRun: &dry, Resources: []string{*groups[0].GroupId}, Tags: oneTag(clusterTag, "ada")}))
		}),
		tag("16 CreateTags kubernetes.io/cluster/bob", ada.instance, "kubernetes.io/cluster/bob", "owned"),
		ec2("17 CreateSubnet in Bob's VPC", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.CreateSubnet(t.Context(), &awsec2.CreateSubnetInput{DryRun: &dry, VpcId: &bob.VPC, CidrBlock: aws.String("10.240.9.0/24"), TagSpecifications: tagged(types.ResourceTypeSubnet, clusterTag, "ada")}))
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
			return said(as.CreateInstanceConnectEndpoint(t.Context(), &awsec2.CreateInstanceConnectEndpointInput{DryRun: &dry, SubnetId: &bob.Subnet, TagSpecifications: tagged(types.ResourceTypeInstanceConnectEndpoint, clusterTag, "ada")}))
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
		{name: "28 DeleteListener", want: byOthers, do: func(t *testing.T, as *cloudtest.Lab, dry bool) error {
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
				DryRun: &dry, AvailabilityZone: aws.String("us-east-1a"), SnapshotId: aws.String("snap-0123456789abcdef0"), TagSpecifications: tagged(types.ResourceTypeVolume, clusterTag, "ada"),
			}))
		}),
		run("34 RunInstances m5.24xlarge", ada, func(in *awsec2.RunInstancesInput) { in.InstanceType = types.InstanceTypeM524xlarge }),
		run("34 RunInstances with a volume of 2 TiB", ada, func(in *awsec2.RunInstancesInput) { in.BlockDeviceMappings[0].Ebs.VolumeSize = aws.Int32(2048) }),
		{name: "35 no principal tag at all", want: byEC2, untagged: true, do: func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.DescribeVpcs(t.Context(), &awsec2.DescribeVpcsInput{DryRun: &dry}))
		}},
		// Tokens have no condition key. The provider does not take the instance for its own: TestGuessedToken.
		{name: "36 RunInstances with Bob's client token", do: func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			in := launch(ada, dry)
			in.ClientToken = aws.String("bob/machine/worker-0")
			return said(as.RunInstances(t.Context(), in))
		}},
		// Counts cannot be limited.
		{name: "37 using up the quota of addresses", do: func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.AllocateAddress(t.Context(), &awsec2.AllocateAddressInput{DryRun: &dry, TagSpecifications: tagged(types.ResourceTypeElasticIp, clusterTag, "ada")}))
		}},
		ssm("38 planting a key before Bob's first apply", func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.SSM.PutParameter(t.Context(), putParameter("/k8s/bob/pki/etcd-ca.key", "ada")))
		}),
		ec2("38 planting a VPC before Bob's first apply", func(t *testing.T, as *cloudtest.Lab, dry bool) error {
			return said(as.CreateVpc(t.Context(), &awsec2.CreateVpcInput{DryRun: &dry, CidrBlock: aws.String("10.9.0.0/16"), TagSpecifications: tagged(types.ResourceTypeVpc, clusterTag, "bob")}))
		}),
		other("CreateVpc in another region", byOthers, func(*testing.T, *cloudtest.Lab) error {
			return c.evaluate("ec2:CreateVpc", "arn:aws:ec2:ap-south-1:123456789012:vpc/*", map[string][]string{
				"aws:RequestedRegion": {"ap-south-1"}, "aws:RequestTag/" + clusterTag: {"ada"}, "aws:TagKeys": {clusterTag},
			})
		}),
	}...)
}

// evaluate asks Ada's policies about what the local account does not serve.
func (c *class) evaluate(action, resource string, context map[string][]string) error {
	if err := c.Account.Identities().PrincipalOf(c.arn).Authorize([]iam.Demand{{Action: action, Resource: resource, Context: context}}); err != nil {
		return &smithy.GenericAPIError{Code: byOthers, Message: err.Error()}
	}
	return nil
}

// ceiling are requests of somebody who has all rights below the boundary.
func (c *class) ceiling() []request {
	parameter := func(want, name string) request {
		return request{name: "GetParameter " + name, want: want, do: func(t *testing.T, as *cloudtest.Lab, _ bool) error {
			return said(as.SSM.GetParameter(t.Context(), &awsssm.GetParameterInput{Name: &name}))
		}}
	}
	on := func(want, action, resource string) request {
		return request{name: action + " " + resource, want: want, do: func(*testing.T, *cloudtest.Lab, bool) error {
			return c.evaluate(action, resource, map[string][]string{"aws:RequestedRegion": {"us-east-1"}, "iam:PassedToService": {iam.EC2("us-east-1")}})
		}}
	}
	const account = "arn:aws:iam::123456789012:"
	return []request{
		parameter(bySSM, "/k8s/bob/pki/kubernetes-ca.key"), parameter(bySSM, "/passwords/billing"),
		parameter("", "/k8s/ada/pki/kubernetes-ca.key"), parameter("", "/aws/service/debian/release/13/latest/amd64"),
		on(byOthers, "ssm:AddTagsToResource", "arn:aws:ssm:us-east-1:123456789012:parameter/k8s/bob/pki/owner"),
		on(byOthers, "iam:PassRole", account+"role/admin"), on(byOthers, "iam:PassRole", account+"role/k8s/bob/k8s-bob"), on("", "iam:PassRole", account+"role/k8s/ada/k8s-ada"),
		on(byOthers, "s3:GetObject", "arn:aws:s3:::billing/report"), on(byOthers, "s3:GetObject", "arn:aws:s3:::example-copies/k8s/bob/kubernetes-ca.key"),
		on(byOthers, "s3:PutObject", "arn:aws:s3:::example-snapshots/k8s/bob/etcd/one"),
		on("", "s3:GetObject", "arn:aws:s3:::example-copies/k8s/ada/kubernetes-ca.key"), on("", "s3:PutObject", "arn:aws:s3:::example-snapshots/k8s/ada/etcd/one"),
		on("", "s3:ListBucket", "arn:aws:s3:::example-copies"),
		on(byOthers, "iam:CreateUser", account+"user/k8s/eve"), on(byOthers, "lambda:CreateFunction", "*"),
		on("", "kms:Decrypt", "arn:aws:kms:us-east-1:123456789012:key/1"), // keys have no names that could say whose they are
	}
}

// own are requests about Ada's own cluster, which are allowed.
func (c *class) own() []request {
	ada := c.ada
	ec2 := func(name string, do func(t *testing.T, as *cloudtest.Lab, dry *bool) error) request {
		return request{name: name, do: func(t *testing.T, as *cloudtest.Lab, dry bool) error { return do(t, as, &dry) }}
	}
	other := func(name string, do func(t *testing.T, as *cloudtest.Lab) error) request {
		return request{name: name, do: func(t *testing.T, as *cloudtest.Lab, _ bool) error { return do(t, as) }}
	}
	return []request{
		ec2("DescribeInstances", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.DescribeInstances(t.Context(), &awsec2.DescribeInstancesInput{DryRun: dry}))
		}),
		ec2("CreateVpc", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.CreateVpc(t.Context(), &awsec2.CreateVpcInput{DryRun: dry, CidrBlock: aws.String("10.8.0.0/16"), TagSpecifications: tagged(types.ResourceTypeVpc, clusterTag, "ada", "kubernetes.io/cluster/ada", "owned")}))
		}),
		ec2("CreateSubnet", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.CreateSubnet(t.Context(), &awsec2.CreateSubnetInput{DryRun: dry, VpcId: &ada.VPC, CidrBlock: aws.String("10.240.9.0/24"), TagSpecifications: tagged(types.ResourceTypeSubnet, clusterTag, "ada", "kubernetes.io/role/elb", "1")}))
		}),
		ec2("CreateSecurityGroup", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.CreateSecurityGroup(t.Context(), &awsec2.CreateSecurityGroupInput{
				DryRun: dry, VpcId: &ada.VPC, GroupName: aws.String("more"), Description: aws.String("more"), TagSpecifications: tagged(types.ResourceTypeSecurityGroup, clusterTag, "ada"),
			}))
		}),
		ec2("CreateNatGateway", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.CreateNatGateway(t.Context(), &awsec2.CreateNatGatewayInput{DryRun: dry, SubnetId: &ada.Subnet, AllocationId: &ada.spareAddress, TagSpecifications: tagged(types.ResourceTypeNatgateway, clusterTag, "ada")}))
		}),
		ec2("CreateInstanceConnectEndpoint", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.CreateInstanceConnectEndpoint(t.Context(), &awsec2.CreateInstanceConnectEndpointInput{
				DryRun: dry, SubnetId: &ada.Subnet, SecurityGroupIds: []string{ada.Group}, TagSpecifications: tagged(types.ResourceTypeInstanceConnectEndpoint, clusterTag, "ada"),
			}))
		}),
		ec2("RunInstances", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.RunInstances(t.Context(), launch(ada, *dry)))
		}),
		ec2("RunInstances with her own profile and default tags", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.RunInstances(t.Context(), launch(ada, *dry, func(in *awsec2.RunInstancesInput) {
				in.IamInstanceProfile = cloudtest.ProfileNamed("k8s-ada")
				tagLaunch(in, clusterTag, "ada", "Name", "ada-worker-0", "team", "a", "k8s-from-scratch/host-key", "x")
			})))
		}),
		ec2("CreateTags", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.CreateTags(t.Context(), &awsec2.CreateTagsInput{DryRun: dry, Resources: []string{ada.instance, ada.volume}, Tags: oneTag("k8s-from-scratch/settled", "1")}))
		}),
		ec2("CreateTags with the same cluster", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.CreateTags(t.Context(), &awsec2.CreateTagsInput{DryRun: dry, Resources: []string{ada.instance}, Tags: oneTag(clusterTag, "ada")}))
		}),
		ec2("DeleteTags", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.DeleteTags(t.Context(), &awsec2.DeleteTagsInput{DryRun: dry, Resources: []string{ada.instance}, Tags: []types.Tag{{Key: aws.String("room")}}}))
		}),
		ec2("CreateRoute", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.CreateRoute(t.Context(), &awsec2.CreateRouteInput{DryRun: dry, RouteTableId: &ada.Table, DestinationCidrBlock: aws.String("192.0.2.0/24"), NetworkInterfaceId: &ada.nic}))
		}),
		ec2("DescribeInstanceAttribute", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.DescribeInstanceAttribute(t.Context(), &awsec2.DescribeInstanceAttributeInput{DryRun: dry, InstanceId: &ada.instance, Attribute: types.InstanceAttributeNameUserData}))
		}),
		ec2("AssociateAddress", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.AssociateAddress(t.Context(), &awsec2.AssociateAddressInput{DryRun: dry, AllocationId: &ada.spareAddress, InstanceId: &ada.instance}))
		}),
		ec2("DisassociateAddress", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.DisassociateAddress(t.Context(), &awsec2.DisassociateAddressInput{DryRun: dry, AssociationId: &ada.addressOf}))
		}),
		ec2("ReplaceRouteTableAssociation", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.ReplaceRouteTableAssociation(t.Context(), &awsec2.ReplaceRouteTableAssociationInput{DryRun: dry, AssociationId: &ada.tableOf, RouteTableId: &ada.Table}))
		}),
		ec2("AssociateIamInstanceProfile", func(t *testing.T, as *cloudtest.Lab, _ *bool) error { // which knows no dry run
			return said(as.AssociateIamInstanceProfile(t.Context(), &awsec2.AssociateIamInstanceProfileInput{InstanceId: &ada.instance, IamInstanceProfile: cloudtest.ProfileNamed("k8s-ada")}))
		}),
		ec2("TerminateInstances", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.TerminateInstances(t.Context(), &awsec2.TerminateInstancesInput{DryRun: dry, InstanceIds: []string{ada.instance}}))
		}),
		ec2("AttachVolume", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.AttachVolume(t.Context(), &awsec2.AttachVolumeInput{DryRun: dry, VolumeId: &ada.spareVolume, InstanceId: &ada.instance, Device: aws.String("/dev/sdf")}))
		}),
		ec2("DeleteVpc", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.DeleteVpc(t.Context(), &awsec2.DeleteVpcInput{DryRun: dry, VpcId: &ada.VPC}))
		}),
		other("OpenTunnel", func(t *testing.T, as *cloudtest.Lab) error { return openTunnel(t, as, ada, "22") }),
		other("PutParameter", func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.SSM.PutParameter(t.Context(), putParameter("/k8s/ada/pki/new", "ada")))
		}),
		other("GetParametersByPath", func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.SSM.GetParametersByPath(t.Context(), &awsssm.GetParametersByPathInput{Path: aws.String("/k8s/ada/pki")}))
		}),
		other("GetParameter of Debian", func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.SSM.GetParameter(t.Context(), &awsssm.GetParameterInput{Name: aws.String("/aws/service/debian/release/13/latest/amd64")}))
		}),
		other("DescribeLoadBalancers", func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.ELB.DescribeLoadBalancers(t.Context(), &awselb.DescribeLoadBalancersInput{}))
		}),
		other("CreateLoadBalancer", func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.ELB.CreateLoadBalancer(t.Context(), &awselb.CreateLoadBalancerInput{
				Name: aws.String("kfs-ada-2"), Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal, Subnets: []string{ada.Subnet}, Tags: elbTags("ada"),
			}))
		}),
		other("CreateListener", func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.ELB.CreateListener(t.Context(), &awselb.CreateListenerInput{
				LoadBalancerArn: &ada.balancer, Port: aws.Int32(7443), Protocol: elbtypes.ProtocolEnumTcp, Tags: elbTags("ada"),
				DefaultActions: []elbtypes.Action{{Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: &ada.targetGroup}},
			}))
		}),
		other("ModifyListener", func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.ELB.ModifyListener(t.Context(), &awselb.ModifyListenerInput{ListenerArn: &ada.listener, Port: aws.Int32(6443)}))
		}),
		other("AddTags", func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.ELB.AddTags(t.Context(), &awselb.AddTagsInput{ResourceArns: []string{ada.balancer}, Tags: []elbtypes.Tag{{Key: aws.String("team"), Value: aws.String("a")}}}))
		}),
		other("RegisterTargets", func(t *testing.T, as *cloudtest.Lab) error {
			return said(as.ELB.RegisterTargets(t.Context(), &awselb.RegisterTargetsInput{TargetGroupArn: &ada.targetGroup, Targets: []elbtypes.TargetDescription{{Id: &ada.instance}}}))
		}),
	}
}
