package isolation

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awselb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// Own are requests about Ada's own cluster, which are allowed.
func (c *Class) Own() []Request {
	ada := c.Ada
	ec2 := func(name string, do func(t *testing.T, as *cloudtest.Lab, dry *bool) error) Request {
		return Request{Name: name, Do: func(t *testing.T, as *cloudtest.Lab, dry bool) error { return do(t, as, &dry) }}
	}
	other := func(name string, do func(t *testing.T, as *cloudtest.Lab) error) Request {
		return Request{Name: name, Do: func(t *testing.T, as *cloudtest.Lab, _ bool) error { return do(t, as) }}
	}
	return []Request{
		ec2("DescribeInstances", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.DescribeInstances(t.Context(), &awsec2.DescribeInstancesInput{DryRun: dry}))
		}),
		ec2("CreateVpc", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.CreateVpc(t.Context(), &awsec2.CreateVpcInput{DryRun: dry, CidrBlock: aws.String("10.8.0.0/16"), TagSpecifications: tagged(types.ResourceTypeVpc, ClusterTag, "ada", "kubernetes.io/cluster/ada", "owned")}))
		}),
		ec2("CreateSubnet", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.CreateSubnet(t.Context(), &awsec2.CreateSubnetInput{DryRun: dry, VpcId: &ada.VPC, CidrBlock: aws.String("10.240.9.0/24"), TagSpecifications: tagged(types.ResourceTypeSubnet, ClusterTag, "ada", "kubernetes.io/role/elb", "1")}))
		}),
		ec2("CreateSecurityGroup", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.CreateSecurityGroup(t.Context(), &awsec2.CreateSecurityGroupInput{
				DryRun: dry, VpcId: &ada.VPC, GroupName: aws.String("more"), Description: aws.String("more"), TagSpecifications: tagged(types.ResourceTypeSecurityGroup, ClusterTag, "ada"),
			}))
		}),
		ec2("CreateNatGateway", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.CreateNatGateway(t.Context(), &awsec2.CreateNatGatewayInput{DryRun: dry, SubnetId: &ada.Subnet, AllocationId: &ada.spareAddress, TagSpecifications: tagged(types.ResourceTypeNatgateway, ClusterTag, "ada")}))
		}),
		ec2("CreateInstanceConnectEndpoint", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.CreateInstanceConnectEndpoint(t.Context(), &awsec2.CreateInstanceConnectEndpointInput{
				DryRun: dry, SubnetId: &ada.Subnet, SecurityGroupIds: []string{ada.Group}, TagSpecifications: tagged(types.ResourceTypeInstanceConnectEndpoint, ClusterTag, "ada"),
			}))
		}),
		ec2("RunInstances", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.RunInstances(t.Context(), launch(ada, *dry)))
		}),
		ec2("RunInstances with her own profile and default tags", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.RunInstances(t.Context(), launch(ada, *dry, func(in *awsec2.RunInstancesInput) {
				in.IamInstanceProfile = cloudtest.ProfileNamed("k8s-ada")
				tagLaunch(in, ClusterTag, "ada", "Name", "ada-worker-0", "team", "a", "k8s-from-scratch/host-key", "x")
			})))
		}),
		ec2("CreateTags", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.CreateTags(t.Context(), &awsec2.CreateTagsInput{DryRun: dry, Resources: []string{ada.instance, ada.volume}, Tags: oneTag("k8s-from-scratch/settled", "1")}))
		}),
		ec2("CreateTags with the same cluster", func(t *testing.T, as *cloudtest.Lab, dry *bool) error {
			return said(as.CreateTags(t.Context(), &awsec2.CreateTagsInput{DryRun: dry, Resources: []string{ada.instance}, Tags: oneTag(ClusterTag, "ada")}))
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
			return said(as.SSM.PutParameter(t.Context(), PutParameter("/k8s/ada/pki/new", "ada")))
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
