package awstest

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/tunnel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote/remotetest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

// sshNetwork leads to one SSH server, whatever the address is; to none while closed.
type sshNetwork struct {
	cloud.Network
	to     string
	closed bool
}

func (n *sshNetwork) DialFrom(ctx context.Context, _ string, _ netip.AddrPort) (net.Conn, error) {
	if n.closed {
		return nil, errors.New("no answer")
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", n.to)
}

// behind is an account with a machine that is reached through tunnels.
type behind struct {
	lab
	network          *sshNetwork
	machine          *remotetest.Machine
	host             remote.Host
	subnet, instance string
	api              *infraaws.Client
	patience         time.Duration // of a connection
}

func newBehind(t *testing.T) *behind {
	t.Helper()
	b := &behind{patience: 3 * time.Second, machine: remotetest.New(t, "worker-0", func(string) (string, int) { return "hello", 0 })}
	at := net.JoinHostPort("127.0.0.1", itoa(sdk.Int32(int32(b.machine.Host.Port)))) //nolint:gosec // a port
	b.network = &sshNetwork{to: at}
	b.lab = lab{account.New(t, func(c *cloud.Config) { b.network.Network, c.Network = c.Network, b.network }), t}
	b.api = b.client(&wire{})
	ctx := deadline(t)
	n := ensured(ctx, t, b.api, networkSpec())
	b.subnet = n.Subnets[0].ID
	run, err := b.api.EC2.RunInstances(ctx, &ec2.RunInstancesInput{ImageId: sdk.String(account.ImageID), MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1), SubnetId: &b.subnet})
	if err != nil {
		t.Fatal(err)
	}
	b.instance = *run.Instances[0].InstanceId
	b.host = remote.Host{Name: "worker-0", Address: *run.Instances[0].PrivateIpAddress, User: "admin", HostKeys: b.machine.Host.HostKeys, Instance: b.instance}
	return b
}

// endpoint makes an endpoint and waits until it is ready.
func (b *behind) endpoint() string {
	b.t.Helper()
	ctx := deadline(b.t)
	out, err := b.api.EC2.CreateInstanceConnectEndpoint(ctx, &ec2.CreateInstanceConnectEndpointInput{SubnetId: &b.subnet})
	if err != nil {
		b.t.Fatal(err)
	}
	id := *out.InstanceConnectEndpoint.InstanceConnectEndpointId
	for {
		found, err := b.api.EC2.DescribeInstanceConnectEndpoints(ctx, &ec2.DescribeInstanceConnectEndpointsInput{InstanceConnectEndpointIds: []string{id}})
		if err != nil {
			b.t.Fatal(err)
		}
		if found.InstanceConnectEndpoints[0].State == types.Ec2InstanceConnectEndpointStateCreateComplete {
			return id
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// pool returns a connection pool with tunnels of an account's user.
func (b *behind) pool(key, secret string, cfg tunnel.Config) *remote.Pool {
	b.t.Helper()
	cfg.Client = func() (*infraaws.Client, error) {
		return infraaws.New(b.t.Context(), infraaws.Config{Region: "us-east-1", AccessKey: key, SecretKey: secret, Endpoints: infraaws.Endpoints{EC2: b.URL, ELB: b.URL, InstanceConnect: b.URL, STS: b.URL}})
	}
	p := remote.NewPool(remote.Config{ConnectTimeout: b.patience, Tunnels: tunnel.New(cfg)})
	b.t.Cleanup(func() { _ = p.Close() })
	return p
}

func (b *behind) owner(cfg tunnel.Config) *remote.Pool {
	return b.pool(account.AccessKey, account.SecretKey, cfg)
}

// TestTunnel reaches a machine through the endpoint of its VPC, and through one with an id.
func TestTunnel(t *testing.T) {
	t.Parallel()
	b := newBehind(t)
	ctx := deadline(t)
	var none *tunnel.NoEndpointError
	if err := b.owner(tunnel.Config{}).Machine(b.host).WaitReady(ctx, 0); !errors.As(err, &none) || none.VPCID == "" {
		t.Errorf("without an endpoint: %v", err)
	}
	id := b.endpoint()
	p := b.owner(tunnel.Config{})
	for range 2 {
		out, err := p.Machine(b.host).Run(ctx, remote.Command{Script: "x"})
		if err != nil || string(out.Stdout) != "hello" {
			t.Fatalf("%q, %v", out.Stdout, err)
		}
	}
	if n := b.Calls()["OpenTunnel"]; n != 1 {
		t.Errorf("%d tunnels for one machine", n)
	}
	own := b.host
	own.Instance = ""
	if err := b.owner(tunnel.Config{EndpointID: id}).Machine(own).Ping(ctx); err != nil {
		t.Errorf("a host without an instance: %v", err)
	}
	if err := b.owner(tunnel.Config{}).Machine(own).Ping(ctx); err == nil {
		t.Error("a host without an instance and without the endpoint's id")
	}
	if err := b.owner(tunnel.Config{EndpointID: "eice-00000000000000000"}).Machine(b.host).WaitReady(ctx, 0); !errors.As(err, &none) || none.EndpointID == "" {
		t.Errorf("an endpoint that does not exist: %v", err)
	}
	other := b.host
	other.Port = 2222
	var way *remote.WayError
	if err := b.owner(tunnel.Config{}).Machine(other).WaitReady(ctx, 0); !errors.As(err, &way) {
		t.Errorf("another port: %v", err)
	}

	b.network.closed = true
	var unreachable *remote.UnreachableError
	var closed *tunnel.ClosedError
	err := b.owner(tunnel.Config{}).Machine(b.host).Ping(ctx)
	if !errors.As(err, &unreachable) || !errors.As(err, &closed) || closed.EndpointID != id || closed.Reason != "Unable to connect to target" {
		t.Errorf("a closed security group: %v", err)
	}
	b.network.closed = false

	if _, err := b.api.EC2.DeleteInstanceConnectEndpoint(ctx, &ec2.DeleteInstanceConnectEndpointInput{InstanceConnectEndpointId: &id}); err != nil {
		t.Fatal(err)
	}
	if err := b.owner(tunnel.Config{}).Machine(b.host).WaitReady(ctx, 0); !errors.As(err, &none) || none.State != "delete-in-progress" {
		t.Errorf("an endpoint that is deleted: %v", err)
	}
}

func TestTunnelDenied(t *testing.T) {
	t.Parallel()
	b := newBehind(t)
	b.endpoint()
	u, err := b.Cloud.Identities().PutUser("dev", iam.Entity{Policies: []string{`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:*","Resource":"*"}]}`}})
	if err != nil {
		t.Fatal(err)
	}
	err = b.pool(u.AccessKeyID, u.SecretAccessKey, tunnel.Config{}).Machine(b.host).WaitReady(deadline(t), 0)
	var denied *infraaws.DeniedError
	if !errors.As(err, &denied) || denied.Action != "ec2-instance-connect:OpenTunnel" || infraaws.Advice(err) == "" {
		t.Errorf("%v", err)
	}
}

// TestTunnelsOfOthers fills the endpoint with the tunnels of others. It is asked again until one has ended.
func TestTunnelsOfOthers(t *testing.T) {
	t.Parallel()
	b := newBehind(t)
	b.endpoint()
	ctx := deadline(t)
	var others []*remote.Pool
	for range tunnel.Max {
		p := b.owner(tunnel.Config{})
		if err := p.Machine(b.host).Ping(ctx); err != nil {
			t.Fatal(err)
		}
		others = append(others, p)
	}
	err := b.owner(tunnel.Config{}).Machine(b.host).Ping(ctx)
	var unreachable *remote.UnreachableError
	if !errors.As(err, &unreachable) || infraaws.ErrorCode(err) != "ServiceQuotaExceededException" || infraaws.Advice(err) == "" {
		t.Errorf("with 20 tunnels: %v", err)
	}
	b.patience = 30 * time.Second
	time.AfterFunc(500*time.Millisecond, func() { _ = others[0].Close() })
	if err := b.owner(tunnel.Config{}).Machine(b.host).Ping(ctx); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}

// TestTunnelCut checks that a tunnel that the endpoint ends is opened again.
func TestTunnelCut(t *testing.T) {
	t.Parallel()
	b := newBehind(t)
	b.endpoint()
	ctx := deadline(t)
	b.Fault(fault.Fault{Kind: fault.ShortTunnels, Seconds: 3, Count: 1})
	m := b.owner(tunnel.Config{}).Machine(b.host)
	if err := m.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	time.Sleep(4 * time.Second)
	if err := m.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	if n := b.Calls()["OpenTunnel"]; n != 2 {
		t.Errorf("%d tunnels", n)
	}
}
