package provider_test

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

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/hashicorp/terraform-plugin-framework-nettypes/iptypes"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	awsnetwork "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote/remotetest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	labcloud "github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// TestTunnelledHosts checks that machines are reached at their private addresses and by their instances,
// also those with a public address.
func TestTunnelledHosts(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	var mu sync.Mutex
	reached := map[string]remote.Host{}
	c.Reached = func(h remote.Host) { mu.Lock(); reached[h.Name] = h; mu.Unlock() }
	c.SSH = providertest.Values{"private_key": c.Key, "instance_connect": providertest.Values{}}
	c = c.Process(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	config := providertest.WorkerConfig(network)
	worker.Must(config)
	if h := reached["worker-0"]; h.Bastion != nil || h.Address != "10.240.0.20" || h.Instance != worker.Get("id") {
		t.Errorf("the worker is reached at %+v", h)
	}
	worker.Converged(config)
	var model reference.Host
	model.Name, model.Address = basetypes.NewStringValue("own"), basetypes.NewStringValue("192.0.2.7")
	model.PrivateIP = iptypes.NewIPv4AddressValue("10.0.0.7")
	if h := model.Remote(c.Provider.Sessions[0]); h.Address != "10.0.0.7" || h.Instance != "" {
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
	c := providertest.NewCloud(t, func(cfg *labcloud.Config) { packets.Network, cfg.Network = cfg.Network, packets })
	network, controller := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	controller.Must(providertest.Values{"name": "controller-0", "role": "controller", "network": network.Get("ref"), "private_ip": "10.240.0.10"})
	ctx := t.Context()
	c.TagHostKey(t, controller, machine.Host.HostKeys[0])
	subnets, _ := network.Get("ref").(providertest.Values)["subnets"].([]any)
	subnet, _ := subnets[0].(providertest.Values)["id"].(string)

	p := provider.New("test")
	p.Environment.Getenv = func(string) string { return "" }
	p.Environment.ReadFile = os.ReadFile
	providertest.NewCore(t, p, providertest.Values{
		"region": "us-east-1", "access_key": account.AccessKey, "secret_key": account.SecretKey,
		"endpoints": providertest.Values{"ec2": c.Account.URL, "ec2_instance_connect": c.Account.URL, "ssm": c.Account.URL, "sts": c.Account.URL},
		"ssh":       providertest.Values{"private_key": c.Key, "instance_connect": providertest.Values{}},
	})
	dial := func(cluster string) error {
		_, err := p.Sessions[0].Fleet(ctx).Dial(cluster)(ctx, "tcp", "10.240.0.30:6443")
		return err
	}
	providertest.Mention(t, fmt.Sprint(dial("demo")), "controller-0", "has no EC2 Instance Connect Endpoint")
	made := providertest.Answer[*ec2.CreateInstanceConnectEndpointOutput](t)(c.Client.EC2.CreateInstanceConnectEndpoint(ctx, &ec2.CreateInstanceConnectEndpointInput{SubnetId: &subnet})).InstanceConnectEndpoint
	for made.State != types.Ec2InstanceConnectEndpointStateCreateComplete {
		time.Sleep(100 * time.Millisecond)
		made = &providertest.Answer[*ec2.DescribeInstanceConnectEndpointsOutput](t)(c.Client.EC2.DescribeInstanceConnectEndpoints(ctx, &ec2.DescribeInstanceConnectEndpointsInput{})).InstanceConnectEndpoints[0]
	}
	providertest.Mention(t, fmt.Sprint(dial("demo")), "controller-0", "connect to 10.240.0.30:6443", "Connection refused")
	if got := <-asked; got != "10.240.0.30:6443" {
		t.Errorf("asked for %s", got)
	}
	providertest.Mention(t, fmt.Sprint(dial("other")), "no controller or load balancer of it runs")
}

// TestNetworkEndpoint makes the endpoint with the network, imports it, and takes it away in place.
func TestNetworkEndpoint(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network := c.Instance("k8s_network")
	config := providertest.With(providertest.NetworkConfig(), providertest.Values{"instance_connect_endpoint": true})
	network.Must(config)
	network.Converged(config)
	id, _ := network.Get("instance_connect_endpoint_id").(string)
	if groups, _ := network.Get("security_group_ids").(providertest.Values); id == "" || len(groups) != len(awsnetwork.Groups()) {
		t.Errorf("endpoint %q, groups %v", id, groups)
	}
	imported := c.Instance("k8s_network")
	imported.Imports("demo")
	if imported.Get("instance_connect_endpoint") != true || imported.Get("instance_connect_endpoint_id") != id {
		t.Errorf("imported: %v", imported.State)
	}
	imported.Converged(config)

	providertest.Answer[*ec2.DeleteInstanceConnectEndpointOutput](t)(c.Client.EC2.DeleteInstanceConnectEndpoint(t.Context(), &ec2.DeleteInstanceConnectEndpointInput{InstanceConnectEndpointId: &id}))
	network.Look()
	if drift := fmt.Sprint(network.Get("drift")); drift == "map[]" {
		t.Error("its deletion is no drift")
	}
	network.Must(config)
	network.Converged(config)
	if now := network.Get("instance_connect_endpoint_id"); now == id || now == nil {
		t.Errorf("repaired: %v", now)
	}
	network.Must(providertest.NetworkConfig())
	network.Converged(providertest.NetworkConfig())
	if now := network.Get("instance_connect_endpoint_id"); now != nil {
		t.Errorf("not wanted any more: %v", now)
	}
	c.Fatal(network.Apply(network.Plan(nil)))
	c.Account.Empty()
}
