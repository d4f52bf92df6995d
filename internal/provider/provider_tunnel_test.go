package provider

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/hashicorp/terraform-plugin-framework-nettypes/iptypes"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote/remotetest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	labcloud "github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// TestTunnelledHosts checks that machines are reached at their private addresses and by their instances,
// also those with a public address.
func TestTunnelledHosts(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	var mu sync.Mutex
	reached := map[string]remote.Host{}
	c.reached = func(h remote.Host) { mu.Lock(); reached[h.Name] = h; mu.Unlock() }
	c.ssh = values{"private_key": c.key, "instance_connect": values{}}
	c = c.process(t)
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	config := workerConfig(network)
	worker.must(config)
	if h := reached["worker-0"]; h.Bastion != nil || h.Address != "10.240.0.20" || h.Instance != worker.get("id") {
		t.Errorf("the worker is reached at %+v", h)
	}
	worker.settled(config)
	var model reference.Host
	model.Name, model.Address = basetypes.NewStringValue("own"), basetypes.NewStringValue("192.0.2.7")
	model.PrivateIP = iptypes.NewIPv4AddressValue("10.0.0.7")
	if h := model.Remote(c.provider.data[0]); h.Address != "10.0.0.7" || h.Instance != "" {
		t.Errorf("a host of the user's own is reached at %+v", h)
	}
}

// sshNetwork leads from endpoints to one SSH server.
type sshNetwork struct {
	labcloud.Network
	to string
}

func (n *sshNetwork) DialFrom(ctx context.Context, _ string, _ netip.AddrPort) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", n.to)
}

// TestAPIThroughMachine checks that the private endpoint of the API servers is dialled through a machine of
// the cluster, behind a tunnel.
func TestAPIThroughMachine(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 2)
	machine := remotetest.New(t, "controller-0", func(string) (string, int) { return "", 0 })
	machine.Dial = func(address string) (net.Conn, error) {
		asked <- address
		return nil, errors.New("Connection refused")
	}
	packets := &sshNetwork{to: net.JoinHostPort("127.0.0.1", fmt.Sprint(machine.Host.Port))}
	c := newCloud(t, func(cfg *labcloud.Config) { packets.Network, cfg.Network = cfg.Network, packets })
	network, controller := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	controller.must(values{"name": "controller-0", "role": "controller", "network": network.get("ref"), "private_ip": "10.240.0.10"})
	ctx := t.Context()
	id, _ := controller.get("id").(string)
	answer[*ec2.CreateTagsOutput](t)(c.client.EC2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: []types.Tag{{Key: sdk.String(infraaws.TagHostKey), Value: &machine.Host.HostKeys[0]}}}))
	subnets, _ := network.get("ref").(values)["subnets"].([]any)
	subnet, _ := subnets[0].(values)["id"].(string)

	p := New("test")
	p.environment.getenv = func(string) string { return "" }
	p.environment.readFile = os.ReadFile
	newCore(t, p, values{
		"region": "us-east-1", "access_key": account.AccessKey, "secret_key": account.SecretKey,
		"endpoints": values{"ec2": c.account.URL, "ec2_instance_connect": c.account.URL, "ssm": c.account.URL, "sts": c.account.URL},
		"ssh":       values{"private_key": c.key, "instance_connect": values{}},
	})
	dial := func(cluster string) error {
		_, err := p.data[0].Fleet(ctx).Dial(cluster)(ctx, "tcp", "10.240.0.30:6443")
		return err
	}
	mention(t, fmt.Sprint(dial("demo")), "controller-0", "has no EC2 Instance Connect Endpoint")
	made := answer[*ec2.CreateInstanceConnectEndpointOutput](t)(c.client.EC2.CreateInstanceConnectEndpoint(ctx, &ec2.CreateInstanceConnectEndpointInput{SubnetId: &subnet})).InstanceConnectEndpoint
	for made.State != types.Ec2InstanceConnectEndpointStateCreateComplete {
		time.Sleep(100 * time.Millisecond)
		made = &answer[*ec2.DescribeInstanceConnectEndpointsOutput](t)(c.client.EC2.DescribeInstanceConnectEndpoints(ctx, &ec2.DescribeInstanceConnectEndpointsInput{})).InstanceConnectEndpoints[0]
	}
	mention(t, fmt.Sprint(dial("demo")), "controller-0", "connect to 10.240.0.30:6443", "Connection refused")
	if got := <-asked; got != "10.240.0.30:6443" {
		t.Errorf("asked for %s", got)
	}
	mention(t, fmt.Sprint(dial("other")), "no controller or load balancer of it runs")
}

// TestNetworkEndpoint makes the endpoint with the network, imports it, and takes it away in place.
func TestNetworkEndpoint(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network := c.instance("k8s_network")
	config := with(networkConfig(), values{"instance_connect_endpoint": true})
	network.must(config)
	network.settled(config)
	id, _ := network.get("instance_connect_endpoint_id").(string)
	if groups, _ := network.get("security_group_ids").(values); id == "" || len(groups) != len(infraaws.Roles()) {
		t.Errorf("endpoint %q, groups %v", id, groups)
	}
	imported := c.instance("k8s_network")
	imported.imports("demo")
	if imported.get("instance_connect_endpoint") != true || imported.get("instance_connect_endpoint_id") != id {
		t.Errorf("imported: %v", imported.state)
	}
	imported.settled(config)

	answer[*ec2.DeleteInstanceConnectEndpointOutput](t)(c.client.EC2.DeleteInstanceConnectEndpoint(t.Context(), &ec2.DeleteInstanceConnectEndpointInput{InstanceConnectEndpointId: &id}))
	network.look()
	if drift := fmt.Sprint(network.get("drift")); drift == "map[]" {
		t.Error("its deletion is no drift")
	}
	network.must(config)
	network.settled(config)
	if now := network.get("instance_connect_endpoint_id"); now == id || now == nil {
		t.Errorf("repaired: %v", now)
	}
	network.must(networkConfig())
	network.settled(networkConfig())
	if now := network.get("instance_connect_endpoint_id"); now != nil {
		t.Errorf("not wanted any more: %v", now)
	}
	c.fatal(network.apply(network.plan(nil)))
	c.account.Empty()
}
