package isolation

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/smithy-go"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

// Request is something that Ada does. With dry, EC2 is asked whether it would be allowed, and other services are asked
// for nothing that would change the tags of what exists.
type Request struct {
	Name     string
	Want     string // code of the refusal
	Untagged bool   // Ada has no tags
	Do       func(t *testing.T, as *cloudtest.Lab, dry bool) error
}

// Codes of refusals.
const (
	byEC2    = "UnauthorizedOperation"
	bySSM    = "AccessDeniedException" // also of tunnels
	byOthers = "AccessDenied"          // STS, ELB
)

// PutParameter is a request for a new parameter with the tag of a cluster.
func PutParameter(name, cluster string) *awsssm.PutParameterInput {
	return &awsssm.PutParameterInput{Name: &name, Value: aws.String("x"), Type: ssmtypes.ParameterTypeString, Tags: []ssmtypes.Tag{{Key: aws.String(ClusterTag), Value: &cluster}}}
}

func tagged(resource types.ResourceType, pairs ...string) []types.TagSpecification {
	return cloudtest.Tags(resource, pairs...)
}

func oneTag(key, value string) []types.Tag { return []types.Tag{{Key: &key, Value: &value}} }

func elbTags(cluster string) []elbtypes.Tag {
	return []elbtypes.Tag{{Key: aws.String(ClusterTag), Value: &cluster}}
}

// launch is the launch of a machine of a cluster, as the provider asks for it.
func launch(in *cluster, dry bool, change ...func(*awsec2.RunInstancesInput)) *awsec2.RunInstancesInput {
	out := in.RunInput()
	out.SubnetId, out.SecurityGroupIds, out.DryRun = nil, nil, &dry
	out.NetworkInterfaces = []types.InstanceNetworkInterfaceSpecification{{DeviceIndex: aws.Int32(0), SubnetId: &in.Subnet, Groups: []string{in.Group}}}
	out.BlockDeviceMappings = []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/xvda"), Ebs: &types.EbsBlockDevice{VolumeSize: aws.Int32(20)}}}
	tagLaunch(out, ClusterTag, in.name)
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
	if _, err := as.Tunnel(t, to.endpoint, "10.240.0.9", "remotePort", port); err != nil {
		return &smithy.GenericAPIError{Code: err.Error()}
	}
	return nil
}

// evaluate asks Ada's policies about what the local account does not serve.
func (c *Class) evaluate(action, resource string, context map[string][]string) error {
	if err := c.Account.Identities().PrincipalOf(c.arn).Authorize([]iam.Demand{{Action: action, Resource: resource, Context: context}}); err != nil {
		return &smithy.GenericAPIError{Code: byOthers, Message: err.Error()}
	}
	return nil
}

// Ceiling are requests of somebody who has all rights below the boundary.
func (c *Class) Ceiling() []Request {
	parameter := func(want, name string) Request {
		return Request{Name: "GetParameter " + name, Want: want, Do: func(t *testing.T, as *cloudtest.Lab, _ bool) error {
			return said(as.SSM.GetParameter(t.Context(), &awsssm.GetParameterInput{Name: &name}))
		}}
	}
	on := func(want, action, resource string) Request {
		return Request{Name: action + " " + resource, Want: want, Do: func(*testing.T, *cloudtest.Lab, bool) error {
			return c.evaluate(action, resource, map[string][]string{"aws:RequestedRegion": {"us-east-1"}, "iam:PassedToService": {iam.EC2("us-east-1")}})
		}}
	}
	const account = "arn:aws:iam::123456789012:"
	return []Request{
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
