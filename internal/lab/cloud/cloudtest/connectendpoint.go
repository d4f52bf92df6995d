package cloudtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/gorilla/websocket"
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

// Tunnel opens a tunnel through an endpoint, until the test ends. changes are parameters and their values by turns, and replace
// what is sent otherwise. The text of a refusal is its code.
func (l *Lab) Tunnel(t *testing.T, e types.Ec2InstanceConnectEndpoint, address string, changes ...string) (*websocket.Conn, error) {
	t.Helper()
	q := url.Values{"instanceConnectEndpointId": {*e.InstanceConnectEndpointId}, "remotePort": {"22"}, "privateIpAddress": {address}, "X-Amz-Expires": {"60"}}
	region, service, host := "us-east-1", "ec2-instance-connect", *e.DnsName
	for n := 0; n < len(changes); n += 2 {
		switch changes[n] {
		case "region":
			region = changes[n+1]
		case "service":
			service = changes[n+1]
		case "host":
			host = changes[n+1]
		default:
			q.Set(changes[n], changes[n+1])
		}
	}
	creds := Must[aws.Credentials](t)(l.AWS.Credentials.Retrieve(t.Context()))
	req := Must[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/openTunnel?"+q.Encode(), nil))
	nothing := sha256.Sum256(nil)
	signed, _, err := v4.NewSigner().PresignHTTP(t.Context(), creds, req, hex.EncodeToString(nothing[:]), service, region, l.Clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	dialer := websocket.Dialer{NetDialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, strings.TrimPrefix(l.URL, "http://"))
	}}
	ws, resp, err := dialer.DialContext(t.Context(), strings.Replace(signed, "https://", "ws://", 1), nil)
	if err != nil {
		if resp == nil {
			return nil, err
		}
		defer resp.Body.Close() //nolint:errcheck // read only
		var said struct{ ErrorCode, Message string }
		if err := json.NewDecoder(resp.Body).Decode(&said); err != nil {
			return nil, fmt.Errorf("%s: %w", resp.Status, err)
		}
		return nil, errors.New(said.ErrorCode)
	}
	t.Cleanup(func() { ws.Close() }) //nolint:errcheck // it may have ended
	return ws, nil
}
