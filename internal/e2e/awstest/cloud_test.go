// Package awstest tests infra/aws against the local EC2's API.
package awstest

import (
	"bytes"
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
)

// TestMain removes everything about AWS from the environment, and runs many tests at once, since
// they spend most of their time in the SDK's pauses before retries.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "24"); err != nil {
		panic(err)
	}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

// lab is an account with the helpers of these tests.
type lab struct {
	*account.Account
	t *testing.T
}

func newAccount(t *testing.T) lab {
	t.Helper()
	return lab{account.New(t), t}
}

// client returns a client of the account. All its requests go through wire.
func (a lab) client(wire *wire) *infraaws.Client {
	a.t.Helper()
	c, err := infraaws.New(a.t.Context(), infraaws.Config{
		Region: "us-east-1", AccessKey: account.AccessKey, SecretKey: account.SecretKey,
		Endpoints:   infraaws.Endpoints{EC2: a.URL, ELB: a.URL, SSM: a.URL, STS: a.URL},
		DefaultTags: map[string]string{"team": "lab"},
		HTTPClient:  wire,
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

// errLost is the error of a call whose answer is lost. The SDK retries it.
var errLost = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}

// errKilled is the error of every call after the process was killed. The SDK does not retry it.
var errKilled error = killed{}

type killed struct{}

func (killed) Error() string { return "killed" }

// CanceledError is how the SDK learns that a retry is of no use.
func (killed) CanceledError() bool { return true }

// wire carries requests and simulates the death of the process at one call: before the call (it
// never arrives) or after it (the answer is lost).
type wire struct {
	mu      sync.Mutex
	calls   []string // actions, in order
	dieAt   int      // 1 is the first call; 0 never
	arrives bool     // whether the call at which the process dies still takes effect
	cancel  context.CancelFunc
	loseAt  int // the answer to this call is lost; the process survives
}

func (w *wire) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	number, dead := w.note(action(r, body))
	dying, lost := number == w.dieAt, number == w.loseAt
	if dead && (!dying || !w.arrives) {
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
	if lost && err == nil {
		resp.Body.Close()
		return nil, errLost
	}
	return resp, err
}

// note records a call. It returns the call's number, and whether the process is dead.
func (w *wire) note(action string) (number int, dead bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, action)
	number = len(w.calls)
	dead = w.dieAt > 0 && number >= w.dieAt
	if dead && !w.arrives {
		w.cancel()
	}
	return number, dead
}

func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.calls)
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

// deadline limits the calls of one test.
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

func networkSpec() network.Spec {
	return network.Spec{
		Cluster: "demo", VPCCIDR: netip.MustParsePrefix("10.240.0.0/16"), NodeCIDR: netip.MustParsePrefix("10.240.0.0/24"),
		AdminCIDRs: admins, Tags: map[string]string{"owner": "teacher"},
	}
}

// machineSpecs describes the demo cluster: three controllers, two workers, a load balancer.
func machineSpecs(n network.Network) []machine.Spec {
	var out []machine.Spec
	add := func(role infraaws.MachineRole, name string, ip string, pods string) {
		s := machine.Spec{
			Cluster: "demo", Name: name, Role: role,
			SubnetID: n.Subnets[0].ID, VPCID: n.VPCID, NetworkSubnets: []string{n.Subnets[0].ID}, SecurityGroupIDs: n.MachineGroups(role),
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
