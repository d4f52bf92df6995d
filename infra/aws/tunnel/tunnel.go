// Package tunnel opens tunnels to machines through EC2 Instance Connect Endpoints. What is said through a tunnel may not
// enter, and neither may the making of endpoints: package network makes that of its network.
package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// Quotas of an EC2 Instance Connect Endpoint.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/eice-quotas.html
const (
	Max         = 20
	MaxDuration = time.Hour
)

// EndpointName is what tunnels are called in errors.
const EndpointName = "EC2 Instance Connect Endpoint"

// Config says how machines are reached through EC2 Instance Connect Endpoints.
type Config struct {
	// EndpointID is the endpoint; empty means that of the VPC of each machine.
	EndpointID string
	// Duration is how long one tunnel lasts; zero means MaxDuration.
	Duration time.Duration
	// Client returns the client to ask with. It is called at the first tunnel.
	Client func() (*aws.Client, error)
}

// New returns tunnels through EC2 Instance Connect Endpoints, for connection pools. They lead to port 22
// and to private addresses only.
func New(cfg Config) *remote.Tunnels {
	cfg.Duration = cmp.Or(cfg.Duration, MaxDuration)
	t := &tunneller{cfg: cfg, found: map[string]types.Ec2InstanceConnectEndpoint{}, vpcs: map[string]string{}}
	return &remote.Tunnels{Name: EndpointName, Open: t.open, Max: Max, Lifetime: cfg.Duration}
}

// tunneller opens tunnels, and remembers which endpoint leads where.
type tunneller struct {
	cfg Config

	mu    sync.Mutex
	found map[string]types.Ec2InstanceConnectEndpoint // usable ones, by VPC, or by id if it is given
	vpcs  map[string]string                           // of instances, by their id
}

// NoEndpointError says that there is no EC2 Instance Connect Endpoint through which a machine is reached.
type NoEndpointError struct {
	VPCID      string // in which there is none; empty if an endpoint with an id is missing
	EndpointID string // that does not exist, or cannot be used
	State      string // of that endpoint, and why
}

func (e *NoEndpointError) Error() string {
	switch {
	case e.State != "":
		return fmt.Sprintf("the %s %s is %s", EndpointName, e.EndpointID, e.State)
	case e.EndpointID != "":
		return fmt.Sprintf("the %s %s does not exist", EndpointName, e.EndpointID)
	}
	return fmt.Sprintf("the VPC %s has no %s", e.VPCID, EndpointName)
}

// errNoInstance is about a host whose VPC is not known.
var errNoInstance = errors.New("it has no instance_id by which the VPC and its " + EndpointName + " are found: set endpoint_id of ssh.instance_connect")

// Usable reports whether an endpoint in a state opens tunnels.
func Usable(s types.Ec2InstanceConnectEndpointState) bool {
	switch s {
	case types.Ec2InstanceConnectEndpointStateCreateComplete, types.Ec2InstanceConnectEndpointStateUpdateInProgress,
		types.Ec2InstanceConnectEndpointStateUpdateComplete, types.Ec2InstanceConnectEndpointStateUpdateFailed:
		return true
	}
	return false
}

// open implements remote.Tunnels.
func (t *tunneller) open(ctx context.Context, h remote.Host) (net.Conn, error) {
	client, err := t.cfg.Client()
	if err != nil {
		return nil, &remote.WayError{Machine: h.Name, Err: err}
	}
	key, e, err := t.endpoint(ctx, client, h)
	if err == nil {
		var conn net.Conn
		if conn, err = open(ctx, client, e, h, t.cfg.Duration); err == nil {
			return conn, nil
		}
		t.mu.Lock()
		delete(t.found, key) // it may have been replaced
		t.mu.Unlock()
	}
	if waits(err) || ctx.Err() != nil {
		return nil, err
	}
	return nil, &remote.WayError{Machine: h.Name, Err: err}
}

// waits reports whether a tunnel may open later, after an error.
func waits(err error) bool {
	var network net.Error
	var busy *busyError
	var none *NoEndpointError
	return errors.As(err, &network) || errors.As(err, &busy) ||
		errors.As(err, &none) && none.State == string(types.Ec2InstanceConnectEndpointStateCreateInProgress)
}

// endpoint returns the endpoint through which a host is reached, and under which key it is remembered.
func (t *tunneller) endpoint(ctx context.Context, c *aws.Client, h remote.Host) (key string, e types.Ec2InstanceConnectEndpoint, err error) {
	key = t.cfg.EndpointID
	if key == "" {
		if key, err = t.vpcOf(ctx, c, h.Instance); err != nil {
			return key, e, err
		}
	}
	t.mu.Lock()
	e, ok := t.found[key]
	t.mu.Unlock()
	if ok {
		return key, e, nil
	}
	if t.cfg.EndpointID != "" {
		e, err = endpointByID(ctx, c, key)
	} else {
		e, err = endpointIn(ctx, c, key)
	}
	if err != nil {
		return key, e, err
	}
	t.mu.Lock()
	t.found[key] = e
	t.mu.Unlock()
	return key, e, nil
}

func (t *tunneller) vpcOf(ctx context.Context, c *aws.Client, instance string) (string, error) {
	if instance == "" {
		return "", errNoInstance
	}
	t.mu.Lock()
	vpc := t.vpcs[instance]
	t.mu.Unlock()
	if vpc != "" {
		return vpc, nil
	}
	found, ok, err := c.AskInstance(ctx, instance)
	if err != nil {
		return "", fmt.Errorf("look for the VPC of instance %s: %w", instance, err)
	}
	if vpc = sdk.ToString(found.VpcId); !ok || vpc == "" {
		return "", fmt.Errorf("instance %s %w", instance, aws.ErrNotFound)
	}
	t.mu.Lock()
	t.vpcs[instance] = vpc
	t.mu.Unlock()
	return vpc, nil
}

// endpointByID returns an endpoint that can be used.
func endpointByID(ctx context.Context, c *aws.Client, id string) (types.Ec2InstanceConnectEndpoint, error) {
	out, err := c.EC2.DescribeInstanceConnectEndpoints(ctx, &ec2.DescribeInstanceConnectEndpointsInput{InstanceConnectEndpointIds: []string{id}}, c.RetryInDoubt())
	switch {
	case aws.IsCode(err, "InvalidInstanceConnectEndpointId.NotFound"), err == nil && len(out.InstanceConnectEndpoints) == 0:
		return types.Ec2InstanceConnectEndpoint{}, &NoEndpointError{EndpointID: id}
	case err != nil:
		return types.Ec2InstanceConnectEndpoint{}, fmt.Errorf("look at the %s %s: %w", EndpointName, id, err)
	}
	return checkEndpoint(out.InstanceConnectEndpoints[0])
}

// endpointIn returns the endpoint of a VPC that can be used.
func endpointIn(ctx context.Context, c *aws.Client, vpc string) (types.Ec2InstanceConnectEndpoint, error) {
	var none types.Ec2InstanceConnectEndpoint
	found, err := aws.All(ctx, ec2.NewDescribeInstanceConnectEndpointsPaginator(c.EC2, &ec2.DescribeInstanceConnectEndpointsInput{Filters: []types.Filter{aws.Filter("vpc-id", vpc)}}),
		func(p *ec2.DescribeInstanceConnectEndpointsOutput) []types.Ec2InstanceConnectEndpoint {
			return p.InstanceConnectEndpoints
		})
	if err != nil {
		return none, fmt.Errorf("look for the %s of VPC %s: %w", EndpointName, vpc, err)
	}
	found = slices.DeleteFunc(found, func(e types.Ec2InstanceConnectEndpoint) bool {
		return e.State == types.Ec2InstanceConnectEndpointStateDeleteComplete
	})
	if len(found) == 0 {
		return none, &NoEndpointError{VPCID: vpc}
	}
	slices.SortFunc(found, func(a, b types.Ec2InstanceConnectEndpoint) int {
		return aws.CompareIDs(a.InstanceConnectEndpointId, b.InstanceConnectEndpointId)
	})
	if i := slices.IndexFunc(found, func(e types.Ec2InstanceConnectEndpoint) bool { return Usable(e.State) }); i >= 0 {
		return checkEndpoint(found[i])
	}
	return checkEndpoint(found[0])
}

func checkEndpoint(e types.Ec2InstanceConnectEndpoint) (types.Ec2InstanceConnectEndpoint, error) {
	if Usable(e.State) && sdk.ToString(e.DnsName) != "" {
		return e, nil
	}
	state := string(e.State)
	if why := sdk.ToString(e.StateMessage); why != "" {
		state += ": " + why
	}
	return e, &NoEndpointError{VPCID: sdk.ToString(e.VpcId), EndpointID: sdk.ToString(e.InstanceConnectEndpointId), State: state}
}
