package cloudtest

import (
	"testing"
	"time"

	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

func (l *Lab) connectEndpoint(t *testing.T, id string) types.Ec2InstanceConnectEndpoint {
	t.Helper()
	return Must[*awsec2.DescribeInstanceConnectEndpointsOutput](t)(l.DescribeInstanceConnectEndpoints(t.Context(), &awsec2.DescribeInstanceConnectEndpointsInput{InstanceConnectEndpointIds: []string{id}})).InstanceConnectEndpoints[0]
}

// EndpointSettles waits until an endpoint of EC2 Instance Connect has a state, some seconds later.
func (l *Lab) EndpointSettles(t *testing.T, id string, want types.Ec2InstanceConnectEndpointState) types.Ec2InstanceConnectEndpoint {
	t.Helper()
	l.Clock.Advance(2 * time.Second)
	Eventually(t, id+" is "+string(want), func() bool { return l.connectEndpoint(t, id).State == want })
	return l.connectEndpoint(t, id)
}

// NewConnectEndpoint makes an endpoint of EC2 Instance Connect and waits until it is ready.
func (l *Lab) NewConnectEndpoint(t *testing.T, subnet string, groups ...string) types.Ec2InstanceConnectEndpoint {
	t.Helper()
	out := Must[*awsec2.CreateInstanceConnectEndpointOutput](t)(l.CreateInstanceConnectEndpoint(t.Context(), &awsec2.CreateInstanceConnectEndpointInput{SubnetId: &subnet, SecurityGroupIds: groups}))
	return l.EndpointSettles(t, *out.InstanceConnectEndpoint.InstanceConnectEndpointId, types.Ec2InstanceConnectEndpointStateCreateComplete)
}

// DeleteConnectEndpoint asks for the end of an endpoint, which settles later.
func (l *Lab) DeleteConnectEndpoint(t *testing.T, id string) error {
	t.Helper()
	_, err := l.DeleteInstanceConnectEndpoint(t.Context(), &awsec2.DeleteInstanceConnectEndpointInput{InstanceConnectEndpointId: &id})
	return err
}
