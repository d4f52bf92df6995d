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
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
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
	// ImageID and ARMImageID are the account's images, of Debian 13.
	ImageID    = "ami-0123456789abcdef0"
	ARMImageID = "ami-0123456789abcdef1"
)

// Account is one AWS account in this process.
type Account struct {
	t     *testing.T
	Cloud *cloud.Account
	S3    *Buckets
	URL   string // of every service

	refusals refusals
	consoles string
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
	c.PublicIPs = Addresses(c.PublicIPs[0], 200)
}

// New opens an account for the duration of the test. Its calls are throttled as in a new account of
// AWS.
func New(t *testing.T, change ...func(*cloud.Config)) *Account {
	t.Helper()
	a := &Account{t: t, consoles: t.TempDir()}
	account, err := Open(t.Context(), append([]func(*cloud.Config){func(c *cloud.Config) {
		// Long enough that a client that does not wait fails, and short enough for tests.
		c.ParameterReuse = 300 * time.Millisecond
		c.Calls = slog.New(&a.refusals)
		c.Machines = &QuietMachines{Consoles: a.consoles}
	}}, change...)...)
	if err != nil {
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

// Addresses returns n addresses from the first one on.
func Addresses(first netip.Addr, n int) []netip.Addr {
	var all []netip.Addr
	for a := first; len(all) < n; a = a.Next() {
		all = append(all, a)
	}
	return all
}

// Open opens an account without a network and without S3. The caller serves its API and closes it.
func Open(ctx context.Context, change ...func(*cloud.Config)) (*cloud.Account, error) {
	config := cloud.Config{
		Credentials: aws.Credentials{AccessKeyID: AccessKey, SecretAccessKey: SecretKey},
		Images:      []ec2.Image{{ID: ImageID, Name: "debian-13-amd64", Release: "13"}, {ID: ARMImageID, Name: "debian-13-arm64", Release: "13", ARM: true}},
		ARM:         true,
		PublicIPs:   Addresses(netip.MustParseAddr("203.0.113.10"), 40),
		Quotas:      ec2.Quotas{VCPUs: 1000, SpotVCPUs: 32, Addresses: 32, VPCs: 64}, // as after a support case
		Network:     quietNetwork{},
		Machines:    &QuietMachines{},
		Seed:        1,
	}
	for _, f := range change {
		f(&config)
	}
	account, err := cloud.Open(config)
	if err != nil {
		return nil, err
	}
	return account, account.Start(ctx)
}

// Fault adds a fault until the test ends.
func (a *Account) Fault(f fault.Fault) {
	a.t.Helper()
	a.disturb(f)
}

// Interrupt gives a Spot instance its notice of an interruption, and ends it after so many seconds.
func (a *Account) Interrupt(id string, seconds float64) {
	a.t.Helper()
	a.disturb(map[string]any{"kind": "interrupt", "instance": id, "seconds": seconds})
}

// Schedule schedules an event for an instance, which happens after so many seconds.
func (a *Account) Schedule(id, code string, seconds float64) {
	a.t.Helper()
	a.disturb(map[string]any{"kind": "schedule", "instance": id, "code": code, "seconds": seconds})
}

func (a *Account) disturb(fault any) {
	a.t.Helper()
	body, err := json.Marshal(fault)
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

func (quietNetwork) ForgetIdle(context.Context, time.Duration) (int, error) { return 0, nil }

func (quietNetwork) EndFlows(context.Context, string, netip.AddrPort) error { return nil }

// well answers every health check of HTTPS, and takes the connections of the others.
var well = sync.OnceValue(func() string {
	return httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).Listener.Addr().String()
})

// DialFrom reaches a target that is well, wherever it is.
func (quietNetwork) DialFrom(ctx context.Context, _ string, _ netip.AddrPort) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", well())
}

// QuietMachines start and stop at once. The zero value has none.
type QuietMachines struct {
	// Consoles is the directory of what consoles print; empty if nothing does.
	Consoles string

	mu      sync.Mutex
	running map[string]bool
}

func (m *QuietMachines) set(id string, running bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running == nil {
		m.running = map[string]bool{}
	}
	m.running[id] = running
	return nil
}

// Start implements ec2.Machines, as the methods below do.
func (m *QuietMachines) Start(_ context.Context, s machine.Spec) error { return m.set(s.ID, true) }

// Stop notes that the machine does not run.
func (m *QuietMachines) Stop(_ context.Context, id string) error { return m.set(id, false) }

// Kill is Stop.
func (m *QuietMachines) Kill(_ context.Context, id string) error { return m.set(id, false) }

// Terminate is Stop.
func (m *QuietMachines) Terminate(_ context.Context, id string) error { return m.set(id, false) }

// Exits never delivers anything.
func (m *QuietMachines) Exits() <-chan machine.Exit { return nil }

// Console returns the path of what a machine's console has printed; none if nothing does.
func (m *QuietMachines) Console(id string) string {
	if m.Consoles == "" {
		return ""
	}
	return filepath.Join(m.Consoles, id)
}

// Snapshot does nothing.
func (m *QuietMachines) Snapshot(context.Context, string, string) error { return nil }

// SnapshotVolume does nothing.
func (m *QuietMachines) SnapshotVolume(context.Context, string, machine.Volume, string) error {
	return nil
}

// FillVolume does nothing.
func (m *QuietMachines) FillVolume(context.Context, machine.Volume, string) error { return nil }

// RemoveSnapshot does nothing.
func (m *QuietMachines) RemoveSnapshot(string) error { return nil }

// Snapshots returns none.
func (m *QuietMachines) Snapshots() ([]string, error) { return nil, nil }

// RemoveVolume does nothing.
func (m *QuietMachines) RemoveVolume(string) error { return nil }

// Volumes returns none.
func (m *QuietMachines) Volumes() ([]string, error) { return nil, nil }

// AttachVolume does nothing.
func (m *QuietMachines) AttachVolume(context.Context, string, machine.Volume) error { return nil }

// GrowRoot does nothing.
func (m *QuietMachines) GrowRoot(context.Context, string, machine.Volume) error { return nil }

// DetachVolume does nothing.
func (m *QuietMachines) DetachVolume(context.Context, string, string, bool) error { return nil }

// Running reports whether the machine was started and not stopped since.
func (m *QuietMachines) Running(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running[id]
}
