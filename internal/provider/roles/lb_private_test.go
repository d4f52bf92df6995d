package roles_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote/remotetest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// TestPrivateEndpoint makes the endpoint private and public again. The Elastic IP comes and goes with it,
// although nothing answers on the machine.
func TestPrivateEndpoint(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, keys, machine := c.Instance("k8s_network"), c.Instance("k8s_pki"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	keys.Must(providertest.Values{"cluster": "demo"})
	machine.Must(providertest.Values{"name": "lb-0", "role": "lb", "network": network.Get("ref"), "private_ip": "10.240.0.30"})
	controller := providertest.Values{"name": "controller-0", "address": "203.0.113.8", "private_ip": "10.240.0.10", "host_key": providertest.PublicKey(t)}
	public := providertest.Values{"host": machine.Get("host"), "controllers": []any{controller}, "pki": keys.Get("ref"),
		"timeouts": providertest.Values{"create": "5s", "update": "5s"}} // nothing answers at the machine
	private := providertest.With(public, providertest.Values{"public": false})

	c = c.Ends(t)
	lb := c.Instance("k8s_lb")
	planned := providertest.Plain(lb.Plan(private).Planned).(providertest.Values)
	for name, want := range map[string]any{"public_ip": nil, "allocation_id": "", "endpoint": "https://10.240.0.30:6443", "private_endpoint": "https://10.240.0.30:6443"} {
		if planned[name] != want {
			t.Errorf("%s is planned as %v, wanted %v", name, planned[name], want)
		}
	}
	if _ = lb.Attempt(private); c.Addresses(t) != 0 {
		t.Error("a private endpoint has an Elastic IP")
	}

	if _ = lb.Attempt(public); c.Addresses(t) != 1 { // HAProxy is not installed
		t.Error("a public endpoint has no Elastic IP")
	}
	ip, _ := lb.Get("public_ip").(string)
	said := lb.Plan(private)
	if len(said.Warnings) != 1 || !strings.Contains(said.Warnings[0].Summary, "The Elastic IP "+ip+" is released") {
		t.Errorf("warnings %v", said.Warnings)
	}
	// Without an Elastic IP nothing is done at a public address, which may be the released one.
	if providertest.Mention(t, lb.Attempt(private), "10.240.0.30"); c.Addresses(t) != 0 {
		t.Error("a private endpoint keeps its Elastic IP")
	}

	bare := providertest.Values{}
	for k, v := range machine.Get("host").(providertest.Values) {
		bare[k] = v
	}
	bare["public_ip"] = nil
	if said := c.Instance("k8s_lb").Plan(providertest.With(public, providertest.Values{"host": bare})); len(said.Warnings) != 1 || !strings.Contains(said.Warnings[0].Summary, "may reach nothing") {
		t.Errorf("warnings %v", said.Warnings)
	}
}

// TestPrivateEndpointThroughBastion checks that the API server is dialled through the bastion if its
// address is private, and directly otherwise.
func TestPrivateEndpointThroughBastion(t *testing.T) {
	t.Parallel()
	bastion := remotetest.New(t, "bastion", func(string) (string, int) { return "", 0 })
	asked := make(chan string, 2)
	bastion.Dial = func(address string) (net.Conn, error) {
		asked <- address
		return nil, errors.New("Connection refused")
	}
	p := provider.New("test")
	providertest.NewCore(t, p, providertest.Values{"ssh": providertest.Values{"private_key": providertest.SSHKey(t), "bastion": providertest.Values{
		"address": bastion.Host.Address, "port": bastion.Host.Port, "user": "admin", "host_keys": []any{bastion.Host.HostKeys[0]}}}})
	dial := p.Sessions[0].Fleet(t.Context()).Dial("demo")
	_, err := dial(t.Context(), "tcp", "10.240.0.4:6443")
	if providertest.Mention(t, fmt.Sprint(err), "bastion", "connect to 10.240.0.4:6443", "Connection refused"); <-asked != "10.240.0.4:6443" {
		t.Error("it was not dialled through the bastion")
	}
	direct, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close() //nolint:errcheck // nothing is written
	conn, err := dial(t.Context(), "tcp", direct.Addr().String())
	if err != nil || len(asked) > 0 {
		t.Fatalf("a public address: %v", err)
	}
	_ = conn.Close()
}

// TestPrivateEndpointUnreached checks what is said about a private address that cannot be dialled.
func TestPrivateEndpointUnreached(t *testing.T) {
	t.Parallel()
	failed := func(ip string) error {
		return fmt.Errorf("asking: %w", &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 6443}, Err: os.ErrDeadlineExceeded})
	}
	providertest.Mention(t, session.Advice(failed("10.240.0.4")), "10.240.0.4:6443 is a private address", "ssh.bastion")
	providertest.Mention(t, session.Advice(failed("100.64.7.4")), "100.64.7.4:6443 is a private address")
	if said := session.Advice(failed("203.0.113.4")); strings.Contains(said, "bastion") {
		t.Error(said)
	}
}
