// Package awstest tests infra/aws against the local EC2's API, served in this
// process over networks and machines that only remember what they were told:
// real calls of the unchanged SDK, but no packets and no kernels.
package awstest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/ec2/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/network"
)

const (
	accessKey = "AKIALOCAL"
	secretKey = "local-secret"
	imageID   = "ami-0123456789abcdef0"
)

// account is one AWS account in this process.
type account struct {
	t     *testing.T
	cloud *ec2.Cloud
	url   string
}

func newAccount(t *testing.T) *account {
	t.Helper()
	var addresses []netip.Addr
	for a := netip.MustParseAddr("203.0.113.10"); len(addresses) < 40; a = a.Next() {
		addresses = append(addresses, a)
	}
	cloud, err := ec2.Open(ec2.Config{
		Credentials: sdk.Credentials{AccessKeyID: accessKey, SecretAccessKey: secretKey},
		Image:       ec2.Image{ID: imageID, Name: "debian-12"},
		PublicIPs:   addresses,
		Network:     quietNetwork{},
		Machines:    &quietMachines{running: map[string]bool{}, exits: make(chan string)},
		Seed:        1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := cloud.Start(); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(cloud)
	t.Cleanup(func() {
		server.Close()
		cloud.Close()
	})
	return &account{t: t, cloud: cloud, url: server.URL}
}

// client returns a client of the account, all of whose requests go through wire.
func (a *account) client(wire *wire) *infraaws.Client {
	a.t.Helper()
	// Nothing of the environment may matter.
	for _, name := range []string{"AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_MAX_ATTEMPTS"} {
		a.t.Setenv(name, "")
	}
	c, err := infraaws.New(a.t.Context(), infraaws.Config{
		Region: "us-east-1", AccessKey: accessKey, SecretKey: secretKey,
		Endpoints:   infraaws.Endpoints{EC2: a.url, SSM: a.url, STS: a.url},
		DefaultTags: map[string]string{"team": "lab"},
		HTTPClient:  wire,
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

// fault puts up a fault until the test ends.
func (a *account) fault(f fault.Fault) {
	a.t.Helper()
	body, err := json.Marshal(f)
	if err != nil {
		a.t.Fatal(err)
	}
	resp, err := http.Post(a.url+"/_lab/faults", "application/json", bytes.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		a.t.Fatalf("fault %+v: %s", f, resp.Status)
	}
}

// calm takes all faults away.
func (a *account) calm() {
	a.t.Helper()
	r, err := http.NewRequest(http.MethodDelete, a.url+"/_lab/faults", nil)
	if err != nil {
		a.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	resp.Body.Close()
}

// empty fails the test unless the account holds nothing at all.
func (a *account) empty() {
	a.t.Helper()
	if o := a.cloud.Overview(); o.Total != 0 {
		a.t.Errorf("left behind: %+v", o)
	}
}

// errKilled is what every call gets once the process counts as dead.
var errKilled = errors.New("killed")

// wire carries requests and can cut them off: before the call it is told to
// die at (the call never arrives), or after it (the answer is lost).
type wire struct {
	mu      sync.Mutex
	calls   []string // actions, in order
	dieAt   int      // 1 is the first call; 0 never
	arrives bool     // whether the call died at still takes effect
	cancel  context.CancelFunc
}

func (w *wire) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	dying, dead := w.note(action(r, body))
	if dead && !(dying && w.arrives) {
		return nil, errKilled
	}
	resp, err := http.DefaultTransport.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
	if dead {
		if err == nil {
			resp.Body.Close()
		}
		w.cancel()
		return nil, errKilled
	}
	return resp, err
}

func (w *wire) note(action string) (dying, dead bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, action)
	dying, dead = w.dieAt == len(w.calls), w.dieAt > 0 && len(w.calls) >= w.dieAt
	if dead && !w.arrives {
		w.cancel()
	}
	return dying, dead
}

// changes returns the calls that change something.
func (w *wire) changes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, c := range w.calls {
		if !strings.HasPrefix(c, "Describe") && !strings.HasPrefix(c, "Get") {
			out = append(out, c)
		}
	}
	return out
}

func action(r *http.Request, body []byte) string {
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		_, name, _ := strings.Cut(target, ".")
		return name
	}
	form, _ := url.ParseQuery(string(body))
	return form.Get("Action")
}

// quietNetwork remembers nothing: packets are tested elsewhere.
type quietNetwork struct{}

func (quietNetwork) Apply(context.Context, network.Config) error  { return nil }
func (quietNetwork) ResetInterface(context.Context, string) error { return nil }
func (quietNetwork) InterfaceNetns(id string) string              { return "/run/netns/" + id }

// quietMachines start and stop at once.
type quietMachines struct {
	mu      sync.Mutex
	running map[string]bool
	exits   chan string
}

func (m *quietMachines) set(id string, running bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running[id] = running
	return nil
}

func (m *quietMachines) Start(_ context.Context, s machine.Spec) error { return m.set(s.ID, true) }
func (m *quietMachines) Stop(_ context.Context, id string) error       { return m.set(id, false) }
func (m *quietMachines) Kill(_ context.Context, id string) error       { return m.set(id, false) }
func (m *quietMachines) Terminate(_ context.Context, id string) error  { return m.set(id, false) }
func (m *quietMachines) Exits() <-chan string                          { return m.exits }
func (m *quietMachines) Console(string) string                         { return "" }
func (m *quietMachines) Running(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running[id]
}

// deadline bounds one test's calls.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

var (
	admins = []netip.Prefix{netip.MustParsePrefix("198.51.100.7/32")}
	random = rand.Reader
)

func networkSpec() infraaws.NetworkSpec {
	return infraaws.NetworkSpec{
		Cluster: "demo", VPCCIDR: netip.MustParsePrefix("10.240.0.0/16"), NodeCIDR: netip.MustParsePrefix("10.240.0.0/24"),
		AdminCIDRs: admins, Tags: map[string]string{"owner": "teacher"},
	}
}

// machineSpecs describes the demo cluster: three controllers, two workers, a
// load balancer.
func machineSpecs(n infraaws.Network) []infraaws.MachineSpec {
	var out []infraaws.MachineSpec
	add := func(role infraaws.Role, name string, ip string, pods string) {
		s := infraaws.MachineSpec{
			Cluster: "demo", Name: name, Role: role,
			SubnetID: n.Subnets[0].ID, RouteTableID: n.Subnets[0].RouteTableID, SecurityGroupID: n.SecurityGroups[role],
			PrivateIP: netip.MustParseAddr(ip), PublicIP: true, InstanceType: "t3.small", RootVolumeGiB: 20,
			User: "admin", AuthorizedKeys: []string{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8Rf1n6h2Yq3n8G8kqk1Zk7bq1Jt0i3v6s7x8y9z0AB op"},
		}
		if pods != "" {
			s.PodCIDR = netip.MustParsePrefix(pods)
		}
		out = append(out, s)
	}
	for i := range 3 {
		add(infraaws.RoleController, fmt.Sprintf("controller-%d", i), fmt.Sprintf("10.240.0.%d", 10+i), "")
	}
	for i := range 2 {
		add(infraaws.RoleWorker, fmt.Sprintf("worker-%d", i), fmt.Sprintf("10.240.0.%d", 20+i), fmt.Sprintf("10.200.%d.0/24", i))
	}
	add(infraaws.RoleLoadBalancer, "lb-0", "10.240.0.5", "")
	return out
}
