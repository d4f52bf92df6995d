package cloud_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
)

func (l *lab) connectEndpoint(t *testing.T, id string) types.Ec2InstanceConnectEndpoint {
	t.Helper()
	return must[*awsec2.DescribeInstanceConnectEndpointsOutput](t)(l.DescribeInstanceConnectEndpoints(t.Context(), &awsec2.DescribeInstanceConnectEndpointsInput{InstanceConnectEndpointIds: []string{id}})).InstanceConnectEndpoints[0]
}

// endpointSettles waits until an endpoint of EC2 Instance Connect has a state, some seconds later.
func (l *lab) endpointSettles(t *testing.T, id string, want types.Ec2InstanceConnectEndpointState) types.Ec2InstanceConnectEndpoint {
	t.Helper()
	l.clock.advance(2 * time.Second)
	eventually(t, id+" is "+string(want), func() bool { return l.connectEndpoint(t, id).State == want })
	return l.connectEndpoint(t, id)
}

// newConnectEndpoint makes an endpoint of EC2 Instance Connect and waits until it is ready.
func (l *lab) newConnectEndpoint(t *testing.T, subnet string, groups ...string) types.Ec2InstanceConnectEndpoint {
	t.Helper()
	out := must[*awsec2.CreateInstanceConnectEndpointOutput](t)(l.CreateInstanceConnectEndpoint(t.Context(), &awsec2.CreateInstanceConnectEndpointInput{SubnetId: &subnet, SecurityGroupIds: groups}))
	return l.endpointSettles(t, *out.InstanceConnectEndpoint.InstanceConnectEndpointId, types.Ec2InstanceConnectEndpointStateCreateComplete)
}

// deleteConnectEndpoint asks for the end of an endpoint, which settles later.
func (l *lab) deleteConnectEndpoint(t *testing.T, id string) error {
	t.Helper()
	_, err := l.DeleteInstanceConnectEndpoint(t.Context(), &awsec2.DeleteInstanceConnectEndpointInput{InstanceConnectEndpointId: &id})
	return err
}

func TestConnectEndpointLife(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	ctx := t.Context()
	group := *must[*awsec2.CreateSecurityGroupOutput](t)(l.CreateSecurityGroup(ctx, &awsec2.CreateSecurityGroupInput{GroupName: aws.String("connect"), Description: aws.String("x"), VpcId: &s.vpc})).GroupId
	in := &awsec2.CreateInstanceConnectEndpointInput{
		SubnetId: &s.subnet, SecurityGroupIds: []string{group}, ClientToken: aws.String("once"), TagSpecifications: tags(types.ResourceTypeInstanceConnectEndpoint, "Name", "way"),
	}
	made := *must[*awsec2.CreateInstanceConnectEndpointOutput](t)(l.CreateInstanceConnectEndpoint(ctx, in)).InstanceConnectEndpoint
	id := *made.InstanceConnectEndpointId
	if made.State != types.Ec2InstanceConnectEndpointStateCreateInProgress || *made.VpcId != s.vpc || *made.PreserveClientIp || made.DnsName != nil {
		t.Errorf("made: %+v", made)
	}
	if again := must[*awsec2.CreateInstanceConnectEndpointOutput](t)(l.CreateInstanceConnectEndpoint(ctx, in)); *again.InstanceConnectEndpoint.InstanceConnectEndpointId != id {
		t.Error("the same token made another endpoint")
	}
	in.ClientToken = nil
	_, err := l.CreateInstanceConnectEndpoint(ctx, in)
	refused(t, err, "ResourceLimitExceeded")
	l.cloud.Close()
	l.open(t) // a restart goes on
	e := l.endpointSettles(t, id, types.Ec2InstanceConnectEndpointStateCreateComplete)
	if *e.DnsName == "" || e.SecurityGroupIds[0] != group || *e.Tags[0].Value != "way" {
		t.Errorf("ready: %+v", e)
	}
	for name, value := range map[string]string{"instance-connect-endpoint-id": id, "vpc-id": s.vpc, "subnet-id": s.subnet, "state": "create-complete", "tag:Name": "way"} {
		for want, value := range map[int]string{1: value, 0: "other"} {
			found := must[*awsec2.DescribeInstanceConnectEndpointsOutput](t)(l.DescribeInstanceConnectEndpoints(ctx, &awsec2.DescribeInstanceConnectEndpointsInput{Filters: []types.Filter{filter(name, value)}})).InstanceConnectEndpoints
			if len(found) != want {
				t.Errorf("filter %s=%s finds %d", name, value, len(found))
			}
		}
	}
	eni := must[*awsec2.DescribeNetworkInterfacesOutput](t)(l.DescribeNetworkInterfaces(ctx, &awsec2.DescribeNetworkInterfacesInput{NetworkInterfaceIds: e.NetworkInterfaceIds})).NetworkInterfaces[0]
	if !*eni.RequesterManaged || eni.InterfaceType != "ec2_instance_connect_endpoint" || *eni.Groups[0].GroupId != group || *eni.SubnetId != s.subnet {
		t.Errorf("its interface: %+v", eni)
	}

	// It holds what it uses.
	_, err = l.DeleteSubnet(ctx, &awsec2.DeleteSubnetInput{SubnetId: &s.subnet})
	refused(t, err, "DependencyViolation")
	_, err = l.DeleteSecurityGroup(ctx, &awsec2.DeleteSecurityGroupInput{GroupId: &group})
	refused(t, err, "DependencyViolation")
	_, err = l.DeleteNetworkInterface(ctx, &awsec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: eni.NetworkInterfaceId})
	if err == nil {
		t.Error("its interface can be deleted")
	}

	for range 2 {
		if err := l.deleteConnectEndpoint(t, id); err != nil {
			t.Fatal(err)
		}
	}
	_, err = l.DeleteSubnet(ctx, &awsec2.DeleteSubnetInput{SubnetId: &s.subnet})
	refused(t, err, "DependencyViolation")
	l.endpointSettles(t, id, types.Ec2InstanceConnectEndpointStateDeleteComplete)
	refused(t, l.deleteConnectEndpoint(t, id), "InvalidInstanceConnectEndpointId.NotFound")
	if _, err := l.DeleteSecurityGroup(ctx, &awsec2.DeleteSecurityGroupInput{GroupId: &group}); err != nil {
		t.Error(err)
	}
	if _, err := l.DeleteSubnet(ctx, &awsec2.DeleteSubnetInput{SubnetId: &s.subnet}); err != nil {
		t.Error(err)
	}
	l.clock.advance(2 * time.Minute)
	_, err = l.DescribeInstanceConnectEndpoints(ctx, &awsec2.DescribeInstanceConnectEndpointsInput{InstanceConnectEndpointIds: []string{id}})
	refused(t, err, "InvalidInstanceConnectEndpointId.NotFound")
}

func TestConnectEndpointRefusals(t *testing.T) {
	l := newLab(t, func(l *lab) { l.quotas = ec2.Quotas{ConnectEndpoints: 1} })
	s, other := l.site(t), l.site(t)
	ctx := t.Context()
	foreign := must[*awsec2.DescribeSecurityGroupsOutput](t)(l.DescribeSecurityGroups(ctx, &awsec2.DescribeSecurityGroupsInput{Filters: []types.Filter{filter("vpc-id", other.vpc), filter("group-name", "default")}})).SecurityGroups[0].GroupId
	for want, in := range map[string]*awsec2.CreateInstanceConnectEndpointInput{
		"InvalidSubnetID.NotFound": {SubnetId: aws.String("subnet-00000000000000000")},
		"InvalidGroup.NotFound":    {SubnetId: &s.subnet, SecurityGroupIds: []string{"sg-00000000000000000"}},
		"InvalidParameterValue":    {SubnetId: &s.subnet, SecurityGroupIds: []string{*foreign}},
		"UnsupportedOperation":     {SubnetId: &s.subnet, PreserveClientIp: aws.Bool(true)},
		"DryRunOperation":          {SubnetId: &s.subnet, DryRun: aws.Bool(true)},
	} {
		_, err := l.CreateInstanceConnectEndpoint(ctx, in)
		refused(t, err, want)
	}
	e := l.newConnectEndpoint(t, s.subnet)
	if len(e.SecurityGroupIds) != 1 { // the default one
		t.Errorf("groups %v", e.SecurityGroupIds)
	}
	_, err := l.CreateInstanceConnectEndpoint(ctx, &awsec2.CreateInstanceConnectEndpointInput{SubnetId: &other.subnet})
	refused(t, err, "ResourceLimitExceeded")
	refused(t, l.deleteConnectEndpoint(t, "eice-x"), "InvalidInstanceConnectEndpointId.Malformed")
	refused(t, l.deleteConnectEndpoint(t, "eice-00000000000000000"), "InvalidInstanceConnectEndpointId.NotFound")

	l.control(t, http.MethodPost, "/_lab/faults", map[string]any{"kind": "eventual", "action": "CreateInstanceConnectEndpoint", "calls": 1}, nil)
	if err := l.deleteConnectEndpoint(t, *e.InstanceConnectEndpointId); err != nil {
		t.Fatal(err)
	}
	l.endpointSettles(t, *e.InstanceConnectEndpointId, types.Ec2InstanceConnectEndpointStateDeleteComplete)
	next := *must[*awsec2.CreateInstanceConnectEndpointOutput](t)(l.CreateInstanceConnectEndpoint(ctx, &awsec2.CreateInstanceConnectEndpointInput{SubnetId: &s.subnet})).InstanceConnectEndpoint.InstanceConnectEndpointId
	_, err = l.DescribeInstanceConnectEndpoints(ctx, &awsec2.DescribeInstanceConnectEndpointsInput{InstanceConnectEndpointIds: []string{next}})
	refused(t, err, "InvalidInstanceConnectEndpointId.NotFound")
}
