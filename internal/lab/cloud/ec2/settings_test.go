package ec2_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// TestBlockPublicAccess: no call is refused, and the internet gateway forwards nothing, or nothing but what NAT gateways send.
func TestBlockPublicAccess(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	in := s.RunInput()
	in.SubnetId, in.SecurityGroupIds = nil, nil
	in.NetworkInterfaces = []types.InstanceNetworkInterfaceSpecification{{DeviceIndex: aws.Int32(0), SubnetId: &s.Subnet, AssociatePublicIpAddress: aws.Bool(true)}}
	l.Run(t, in)
	for mode, want := range map[types.InternetGatewayBlockMode]struct{ gateway, public bool }{
		types.InternetGatewayBlockModeBlockBidirectional: {false, true},
		types.InternetGatewayBlockModeBlockIngress:       {true, false},
		types.InternetGatewayBlockModeOff:                {true, true},
	} {
		cloudtest.Must[*awsec2.ModifyVpcBlockPublicAccessOptionsOutput](t)(l.ModifyVpcBlockPublicAccessOptions(t.Context(),
			&awsec2.ModifyVpcBlockPublicAccessOptionsInput{InternetGatewayBlockMode: mode}))
		v := l.Network.VPC(t, s.VPC)
		if v.InternetGateway != want.gateway || v.Interfaces[0].PublicIP.IsValid() != want.public {
			t.Errorf("%s: gateway %v, public address %v", mode, v.InternetGateway, v.Interfaces[0].PublicIP)
		}
	}
	_, err := l.ModifyVpcBlockPublicAccessOptions(t.Context(), &awsec2.ModifyVpcBlockPublicAccessOptionsInput{InternetGatewayBlockMode: "some"})
	cloudtest.Refused(t, err, "InvalidParameterValue")
}

// TestMetadataTags: an instance whose tags are in the metadata has no key with a slash, and with such a key they are not put there.
func TestMetadataTags(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	id := *l.Run(t, s.RunInput()).InstanceId
	show := func(state types.InstanceMetadataTagsState) error {
		_, err := l.ModifyInstanceMetadataOptions(ctx, &awsec2.ModifyInstanceMetadataOptionsInput{InstanceId: &id, InstanceMetadataTags: state})
		return err
	}
	tag := func(key string) error {
		_, err := l.CreateTags(ctx, &awsec2.CreateTagsInput{Resources: []string{id}, Tags: []types.Tag{{Key: &key, Value: aws.String("x")}}})
		return err
	}
	cloudtest.Refused(t, show(types.InstanceMetadataTagsStateEnabled), "")
	cloudtest.Refused(t, tag("a/b"), "InvalidParameterValue")
	cloudtest.Refused(t, tag("a"), "")
	cloudtest.Refused(t, show(types.InstanceMetadataTagsStateDisabled), "")
	cloudtest.Refused(t, tag("a/b"), "")
	cloudtest.Refused(t, show(types.InstanceMetadataTagsStateEnabled), "InvalidParameterValue")
}
