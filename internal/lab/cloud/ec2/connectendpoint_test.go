package ec2_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
)

func TestConnectEndpointLife(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	group := *cloudtest.Must[*awsec2.CreateSecurityGroupOutput](t)(l.CreateSecurityGroup(ctx, &awsec2.CreateSecurityGroupInput{GroupName: aws.String("connect"), Description: aws.String("x"), VpcId: &s.VPC})).GroupId
	in := &awsec2.CreateInstanceConnectEndpointInput{
		SubnetId: &s.Subnet, SecurityGroupIds: []string{group}, ClientToken: aws.String("once"), TagSpecifications: cloudtest.Tags(types.ResourceTypeInstanceConnectEndpoint, "Name", "way"),
	}
	made := *cloudtest.Must[*awsec2.CreateInstanceConnectEndpointOutput](t)(l.CreateInstanceConnectEndpoint(ctx, in)).InstanceConnectEndpoint
	id := *made.InstanceConnectEndpointId
	if made.State != types.Ec2InstanceConnectEndpointStateCreateInProgress || *made.VpcId != s.VPC || *made.PreserveClientIp || made.DnsName != nil {
		t.Errorf("made: %+v", made)
	}
	if again := cloudtest.Must[*awsec2.CreateInstanceConnectEndpointOutput](t)(l.CreateInstanceConnectEndpoint(ctx, in)); *again.InstanceConnectEndpoint.InstanceConnectEndpointId != id {
		t.Error("the same token made another endpoint")
	}
	in.ClientToken = nil
	_, err := l.CreateInstanceConnectEndpoint(ctx, in)
	cloudtest.Refused(t, err, "ResourceLimitExceeded")
	l.Account.Close()
	l.Open(t) // a restart goes on
	e := l.EndpointSettles(t, id, types.Ec2InstanceConnectEndpointStateCreateComplete)
	if *e.DnsName == "" || e.SecurityGroupIds[0] != group || *e.Tags[0].Value != "way" {
		t.Errorf("ready: %+v", e)
	}
	for name, value := range map[string]string{"instance-connect-endpoint-id": id, "vpc-id": s.VPC, "subnet-id": s.Subnet, "state": "create-complete", "tag:Name": "way"} {
		for want, value := range map[int]string{1: value, 0: "other"} {
			found := cloudtest.Must[*awsec2.DescribeInstanceConnectEndpointsOutput](t)(l.DescribeInstanceConnectEndpoints(ctx, &awsec2.DescribeInstanceConnectEndpointsInput{Filters: []types.Filter{cloudtest.Filter(name, value)}})).InstanceConnectEndpoints
			if len(found) != want {
				t.Errorf("filter %s=%s finds %d", name, value, len(found))
			}
		}
	}
	eni := cloudtest.Must[*awsec2.DescribeNetworkInterfacesOutput](t)(l.DescribeNetworkInterfaces(ctx, &awsec2.DescribeNetworkInterfacesInput{NetworkInterfaceIds: e.NetworkInterfaceIds})).NetworkInterfaces[0]
	if !*eni.RequesterManaged || eni.InterfaceType != "ec2_instance_connect_endpoint" || *eni.Groups[0].GroupId != group || *eni.SubnetId != s.Subnet {
		t.Errorf("its interface: %+v", eni)
	}

	// It holds what it uses.
	_, err = l.DeleteSubnet(ctx, &awsec2.DeleteSubnetInput{SubnetId: &s.Subnet})
	cloudtest.Refused(t, err, "DependencyViolation")
	_, err = l.DeleteSecurityGroup(ctx, &awsec2.DeleteSecurityGroupInput{GroupId: &group})
	cloudtest.Refused(t, err, "DependencyViolation")
	_, err = l.DeleteNetworkInterface(ctx, &awsec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: eni.NetworkInterfaceId})
	if err == nil {
		t.Error("its interface can be deleted")
	}

	for range 2 {
		if err := l.DeleteConnectEndpoint(t, id); err != nil {
			t.Fatal(err)
		}
	}
	_, err = l.DeleteSubnet(ctx, &awsec2.DeleteSubnetInput{SubnetId: &s.Subnet})
	cloudtest.Refused(t, err, "DependencyViolation")
	l.EndpointSettles(t, id, types.Ec2InstanceConnectEndpointStateDeleteComplete)
	cloudtest.Refused(t, l.DeleteConnectEndpoint(t, id), "InvalidInstanceConnectEndpointId.NotFound")
	if _, err := l.DeleteSecurityGroup(ctx, &awsec2.DeleteSecurityGroupInput{GroupId: &group}); err != nil {
		t.Error(err)
	}
	if _, err := l.DeleteSubnet(ctx, &awsec2.DeleteSubnetInput{SubnetId: &s.Subnet}); err != nil {
		t.Error(err)
	}
	l.Clock.Advance(2 * time.Minute)
	_, err = l.DescribeInstanceConnectEndpoints(ctx, &awsec2.DescribeInstanceConnectEndpointsInput{InstanceConnectEndpointIds: []string{id}})
	cloudtest.Refused(t, err, "InvalidInstanceConnectEndpointId.NotFound")
}

func TestConnectEndpointRefusals(t *testing.T) {
	l := cloudtest.New(t, func(l *cloudtest.Lab) { l.Quotas = ec2.Quotas{ConnectEndpoints: 1} })
	s, other := l.NewSite(t), l.NewSite(t)
	ctx := t.Context()
	foreign := cloudtest.Must[*awsec2.DescribeSecurityGroupsOutput](t)(l.DescribeSecurityGroups(ctx, &awsec2.DescribeSecurityGroupsInput{Filters: []types.Filter{cloudtest.Filter("vpc-id", other.VPC), cloudtest.Filter("group-name", "default")}})).SecurityGroups[0].GroupId
	for want, in := range map[string]*awsec2.CreateInstanceConnectEndpointInput{
		"InvalidSubnetID.NotFound": {SubnetId: aws.String("subnet-00000000000000000")},
		"InvalidGroup.NotFound":    {SubnetId: &s.Subnet, SecurityGroupIds: []string{"sg-00000000000000000"}},
		"InvalidParameter":         {SubnetId: &s.Subnet, SecurityGroupIds: []string{*foreign}},
		"UnsupportedOperation":     {SubnetId: &s.Subnet, PreserveClientIp: aws.Bool(true)},
		"DryRunOperation":          {SubnetId: &s.Subnet, DryRun: aws.Bool(true)},
	} {
		_, err := l.CreateInstanceConnectEndpoint(ctx, in)
		cloudtest.Refused(t, err, want)
	}
	e := l.NewConnectEndpoint(t, s.Subnet)
	if len(e.SecurityGroupIds) != 1 { // the default one
		t.Errorf("groups %v", e.SecurityGroupIds)
	}
	_, err := l.CreateInstanceConnectEndpoint(ctx, &awsec2.CreateInstanceConnectEndpointInput{SubnetId: &other.Subnet})
	cloudtest.Refused(t, err, "ResourceLimitExceeded")
	cloudtest.Refused(t, l.DeleteConnectEndpoint(t, "eice-x"), "InvalidInstanceConnectEndpointId.Malformed")
	cloudtest.Refused(t, l.DeleteConnectEndpoint(t, "eice-00000000000000000"), "InvalidInstanceConnectEndpointId.NotFound")

	l.Control(t, http.MethodPost, "/_lab/faults", map[string]any{"kind": "eventual", "action": "CreateInstanceConnectEndpoint", "calls": 1}, nil)
	if err := l.DeleteConnectEndpoint(t, *e.InstanceConnectEndpointId); err != nil {
		t.Fatal(err)
	}
	l.EndpointSettles(t, *e.InstanceConnectEndpointId, types.Ec2InstanceConnectEndpointStateDeleteComplete)
	next := *cloudtest.Must[*awsec2.CreateInstanceConnectEndpointOutput](t)(l.CreateInstanceConnectEndpoint(ctx, &awsec2.CreateInstanceConnectEndpointInput{SubnetId: &s.Subnet})).InstanceConnectEndpoint.InstanceConnectEndpointId
	_, err = l.DescribeInstanceConnectEndpoints(ctx, &awsec2.DescribeInstanceConnectEndpointsInput{InstanceConnectEndpointIds: []string{next}})
	cloudtest.Refused(t, err, "InvalidInstanceConnectEndpointId.NotFound")
}
