package cloud_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// TestPassRole: who gives an instance a profile must be allowed to pass its role to EC2.
func TestPassRole(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	l.Profile(t, "node", cloudtest.LookOnly)
	const ec2All = `{"Effect":"Allow","Action":"ec2:*","Resource":"*"}`
	pass := func(role, service string) string {
		return `{"Effect":"Allow","Action":"iam:PassRole","Resource":"arn:aws:iam::123456789012:role/` + role + `","Condition":{"StringEquals":{"iam:PassedToService":"` + service + `"}}}`
	}
	in := s.RunInput()
	in.IamInstanceProfile = cloudtest.ProfileNamed("node")
	for _, tc := range []struct {
		name, statement string
		want            string
	}{
		{"nothing", ec2All, "UnauthorizedOperation"},
		{"another role", pass("admin", "ec2.amazonaws.com"), "UnauthorizedOperation"},
		{"another service", pass("node", "lambda.amazonaws.com"), "UnauthorizedOperation"},
		{"the role", pass("node", "ec2.amazonaws.com"), ""},
	} {
		dev := l.User(t, ec2All, tc.statement)
		out, err := dev.RunInstances(t.Context(), in)
		cloudtest.Refused(t, err, tc.want)
		if tc.want != "" && !strings.Contains(err.Error(), "is not authorized to perform: iam:PassRole on resource: arn:aws:iam::123456789012:role/node because") {
			t.Errorf("%s: %v", tc.name, err)
		}
		if err == nil {
			id := *out.Instances[0].InstanceId
			l.Await(t, id, types.InstanceStateNameRunning)
			l.Clock.Advance(time.Second)
			ids, _ := l.Associated(t, id)
			plain := l.User(t, ec2All)
			_, err = plain.ReplaceIamInstanceProfileAssociation(t.Context(), &awsec2.ReplaceIamInstanceProfileAssociationInput{AssociationId: &ids[0], IamInstanceProfile: cloudtest.ProfileNamed("node")})
			cloudtest.Refused(t, err, "UnauthorizedOperation")
			bound := l.User(t, `{"Effect":"Allow","Action":"ec2:Disassociate*","Resource":"arn:aws:ec2:*:*:instance/`+id+`"}`)
			_, err = bound.DisassociateIamInstanceProfile(t.Context(), &awsec2.DisassociateIamInstanceProfileInput{AssociationId: &ids[0]})
			cloudtest.Refused(t, err, "")
		}
	}
}

// TestSpotRole: the account's first Spot instance needs EC2's service-linked role, which not every caller may make.
func TestSpotRole(t *testing.T) {
	l := cloudtest.New(t)
	s, ctx := l.NewSite(t), t.Context()
	const run = `{"Effect":"Allow","Action":"ec2:*","Resource":"*"}`
	spot := func() *awsec2.RunInstancesInput {
		in := s.RunInput()
		in.InstanceMarketOptions = &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeSpot}
		return in
	}
	dev := l.User(t, run)
	_, err := dev.RunInstances(ctx, spot())
	cloudtest.Refused(t, err, "AuthFailure.ServiceLinkedRoleCreationNotPermitted")
	cloudtest.Must[*awsec2.RunInstancesOutput](t)(dev.RunInstances(ctx, s.RunInput()))
	dev = l.User(t, run, `{"Effect":"Allow","Action":"iam:CreateServiceLinkedRole","Resource":"arn:aws:iam::*:role/aws-service-role/spot.amazonaws.com/*","Condition":{"StringEquals":{"iam:AWSServiceName":"spot.amazonaws.com"}}}`)
	cloudtest.Must[*awsec2.RunInstancesOutput](t)(dev.RunInstances(ctx, spot()))
	dev = l.User(t, run) // the role exists now
	cloudtest.Must[*awsec2.RunInstancesOutput](t)(dev.RunInstances(ctx, spot()))
}

// TestNATGatewayPermissions checks what the two actions ask for, and on what.
func TestNATGatewayPermissions(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	address := cloudtest.Must[*awsec2.AllocateAddressOutput](t)(l.AllocateAddress(ctx, &awsec2.AllocateAddressInput{}))
	in := &awsec2.CreateNatGatewayInput{SubnetId: &s.Subnet, AllocationId: address.AllocationId, TagSpecifications: cloudtest.Tags(types.ResourceTypeNatgateway, "cluster", "demo")}
	const create, tagging = `{"Effect":"Allow","Action":"ec2:CreateNatGateway","Resource":%s}`, `{"Effect":"Allow","Action":"ec2:CreateTags","Resource":"arn:aws:ec2:*:*:natgateway/*","Condition":{"StringEquals":{"ec2:CreateAction":"CreateNatGateway"}}}`
	allowed := `["arn:aws:ec2:*:*:natgateway/*","arn:aws:ec2:*:*:subnet/` + s.Subnet + `","arn:aws:ec2:*:*:elastic-ip/` + *in.AllocationId + `"]`
	for _, lacking := range [][]string{
		{fmt.Sprintf(create, allowed)}, // the tags
		{fmt.Sprintf(create, `["arn:aws:ec2:*:*:natgateway/*","arn:aws:ec2:*:*:elastic-ip/*"]`), tagging},
		{fmt.Sprintf(create, `["arn:aws:ec2:*:*:natgateway/*","arn:aws:ec2:*:*:subnet/*"]`), tagging},
		{fmt.Sprintf(create, `["arn:aws:ec2:*:*:elastic-ip/*","arn:aws:ec2:*:*:subnet/*"]`), tagging},
	} {
		_, err := l.User(t, lacking...).CreateNatGateway(ctx, in)
		cloudtest.Refused(t, err, "UnauthorizedOperation")
	}
	id := *cloudtest.Must[*awsec2.CreateNatGatewayOutput](t)(l.User(t, fmt.Sprintf(create, allowed), tagging).CreateNatGateway(ctx, in)).NatGateway.NatGatewayId
	const remove = `{"Effect":"Allow","Action":"ec2:DeleteNatGateway","Resource":"*","Condition":{"StringEquals":{"aws:ResourceTag/cluster":"%s"}}}`
	for _, tc := range []struct{ cluster, want string }{{"other", "UnauthorizedOperation"}, {"demo", ""}} {
		_, err := l.User(t, fmt.Sprintf(remove, tc.cluster)).DeleteNatGateway(ctx, &awsec2.DeleteNatGatewayInput{NatGatewayId: &id})
		cloudtest.Refused(t, err, tc.want)
	}
}

// TestConnectEndpointPermissions checks what the two actions ask for, and on what.
func TestConnectEndpointPermissions(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	in := &awsec2.CreateInstanceConnectEndpointInput{SubnetId: &s.Subnet, TagSpecifications: cloudtest.Tags(types.ResourceTypeInstanceConnectEndpoint, "cluster", "demo")}
	const allow = `{"Effect":"Allow","Action":"%s","Resource":"*"}`
	all := []string{"ec2:CreateInstanceConnectEndpoint", "ec2:CreateNetworkInterface", "ec2:CreateTags", "iam:CreateServiceLinkedRole"}
	for lacking := range all {
		var statements []string
		for n, action := range all {
			if n != lacking {
				statements = append(statements, fmt.Sprintf(allow, action))
			}
		}
		_, err := l.User(t, statements...).CreateInstanceConnectEndpoint(t.Context(), in)
		cloudtest.Refused(t, err, "UnauthorizedOperation")
	}
	var statements []string
	for _, action := range all {
		statements = append(statements, fmt.Sprintf(allow, action))
	}
	id := *cloudtest.Must[*awsec2.CreateInstanceConnectEndpointOutput](t)(l.User(t, statements...).CreateInstanceConnectEndpoint(t.Context(), in)).InstanceConnectEndpoint.InstanceConnectEndpointId
	const remove = `{"Effect":"Allow","Action":"ec2:DeleteInstanceConnectEndpoint","Resource":"*","Condition":{"StringEquals":{"aws:ResourceTag/cluster":"%s"}}}`
	cloudtest.Refused(t, l.User(t, fmt.Sprintf(remove, "other")).DeleteConnectEndpoint(t, id), "UnauthorizedOperation")
	if err := l.User(t, fmt.Sprintf(remove, "demo")).DeleteConnectEndpoint(t, id); err != nil {
		t.Error(err)
	}
}
