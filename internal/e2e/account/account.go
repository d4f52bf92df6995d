// Package account gives tests an AWS account: the local EC2's API, served in this process, over
// fake networks and machines that only record calls, and an S3 in memory, which the local EC2 has
// not. Tests call it with the unchanged SDK. There
// are no packets and no kernels.
package account

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/network"
)

const (
	// AccessKey and SecretKey are the account's only credentials.
	AccessKey = "AKIALOCAL"
	SecretKey = "local-secret"
	// ImageID is the account's only image, of Debian 13.
	ImageID = "ami-0123456789abcdef0"
)

// Account is one AWS account in this process.
type Account struct {
	t     *testing.T
	Cloud *cloud.Account
	S3    *Buckets
	URL   string // of every service

	refusals refusals
}

// ServeHTTP serves every service at one URL.
func (a *Account) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if IsS3(r) {
		a.S3.ServeHTTP(w, r)
		return
	}
	a.Cloud.ServeHTTP(w, r)
}

// Large makes an account with room for 200 machines of two processors.
func Large(c *cloud.Config) {
	c.Quotas.VCPUs = 400
	for a := netip.MustParseAddr("203.0.113.50"); len(c.PublicIPs) < 200; a = a.Next() {
		c.PublicIPs = append(c.PublicIPs, a)
	}
}

// New opens an account for the duration of the test. Its calls are throttled as in a new account of
// AWS.
func New(t *testing.T, change ...func(*cloud.Config)) *Account {
	t.Helper()
	var addresses []netip.Addr
	for a := netip.MustParseAddr("203.0.113.10"); len(addresses) < 40; a = a.Next() {
		addresses = append(addresses, a)
	}
	a := &Account{t: t}
	config := cloud.Config{
		Credentials: aws.Credentials{AccessKeyID: AccessKey, SecretAccessKey: SecretKey},
		Images:      []ec2.Image{{ID: ImageID, Name: "debian-13-amd64", Release: "13"}},
		PublicIPs:   addresses,
		Quotas:      ec2.Quotas{VCPUs: 1000},
		Network:     quietNetwork{},
		Machines:    &quietMachines{running: map[string]bool{}, exits: make(chan machine.Exit)},
		Seed:        1,
		// Long enough that a client that does not wait fails, and short enough for tests.
		ParameterReuse: 300 * time.Millisecond,
		Calls:          slog.New(&a.refusals),
	}
	for _, f := range change {
		f(&config)
	}
	account, err := cloud.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := account.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.Cloud, a.S3 = account, &Buckets{cloud: account, buckets: map[string]*bucket{}}
	server := httptest.NewServer(a)
	t.Cleanup(func() {
		server.Close()
		account.Close()
	})
	a.URL = server.URL
	return a
}

// Fault adds a fault until the test ends.
func (a *Account) Fault(f fault.Fault) {
	a.t.Helper()
	body, err := json.Marshal(f)
	if err != nil {
		a.t.Fatal(err)
	}
	a.control(http.MethodPost, "faults", body)
}

// Calm removes all faults.
func (a *Account) Calm() {
	a.t.Helper()
	a.control(http.MethodDelete, "faults", nil)
}

// Calls returns how often each action was called, by its name: "RunInstances".
func (a *Account) Calls() map[string]int {
	a.t.Helper()
	calls := map[string]int{}
	if err := json.Unmarshal(a.control(http.MethodGet, "calls", nil), &calls); err != nil {
		a.t.Fatal(err)
	}
	return calls
}

// ForgetCalls makes Calls and Refused count from now on.
func (a *Account) ForgetCalls() {
	a.t.Helper()
	a.control(http.MethodPost, "reset-calls", nil)
	a.refusals.forget()
}

// Refused returns how often calls were refused with each error code.
func (a *Account) Refused() map[string]int {
	a.refusals.mu.Lock()
	defer a.refusals.mu.Unlock()
	return maps.Clone(a.refusals.n)
}

func (a *Account) control(method, path string, body []byte) []byte {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), method, a.URL+"/_lab/"+path, bytes.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		a.t.Fatalf("%s %s: %s, %v", method, body, resp.Status, err)
	}
	return answer
}

// Empty fails the test unless the account is empty.
func (a *Account) Empty() {
	a.t.Helper()
	if o := a.Cloud.Overview(); o.Total != 0 {
		a.t.Errorf("left behind: %+v", o)
	}
}

// quietNetwork does nothing: packets are tested elsewhere.
type quietNetwork struct{}

func (quietNetwork) Apply(context.Context, network.Config) error  { return nil }
func (quietNetwork) ResetInterface(context.Context, string) error { return nil }
func (quietNetwork) InterfaceNetns(id string) string              { return "/run/netns/" + id }

// quietMachines start and stop at once.
type quietMachines struct {
	mu      sync.Mutex
	running map[string]bool
	exits   chan machine.Exit
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
func (m *quietMachines) Exits() <-chan machine.Exit                    { return m.exits }
func (m *quietMachines) Console(string) string                         { return "" }
func (m *quietMachines) RemoveVolume(string) error                     { return nil }
func (m *quietMachines) Volumes() ([]string, error)                    { return nil, nil }
func (m *quietMachines) AttachVolume(context.Context, string, machine.Volume) error {
	return nil
}
func (m *quietMachines) DetachVolume(context.Context, string, string, bool) error {
	return nil
}
func (m *quietMachines) Running(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running[id]
}
