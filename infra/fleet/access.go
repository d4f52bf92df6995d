package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/timing"
)

// Access is how one operation reaches a cluster as its administrator. It fetches keys when they are
// first needed and keeps one client for each API server and each etcd member. It is safe for
// concurrent use and must be closed.
type Access struct {
	Keys *Keys
	dial kube.DialFunc // to the endpoint

	timing  *timing.Recorder
	silence *Silence

	mu      sync.Mutex
	closed  bool
	servers map[string]*kube.Client // by endpoint or machine
	members map[string]*etcd.Client // by machine and endpoint
}

// Access returns access to the cluster whose keys ref refers to. It does no I/O.
func (f *Fleet) Access(ref pki.Ref) *Access {
	var dial kube.DialFunc
	if f.Dial != nil {
		dial = f.Dial(ref.Cluster)
	}
	return &Access{Keys: f.Keys(ref), dial: dial, timing: f.Timing, silence: f.Silence, servers: map[string]*kube.Client{}, members: map[string]*etcd.Client{}}
}

// onMachine is the endpoint of the API server on a machine, as seen from there.
var onMachine = fmt.Sprintf("https://127.0.0.1:%d", component.APIServerPort)

// errAccessClosed is the error of a request for a client after Close.
var errAccessClosed = errors.New("the access to the cluster is closed")

// Close closes every client. Afterwards a request for a client fails: a question that nobody waits
// for any more may still make one.
func (a *Access) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for _, c := range a.servers {
		c.Close()
	}
	for _, c := range a.members {
		c.Close()
	}
}

// API returns the client of the API server's public endpoint. It may fetch a key from the store; it
// does not wait for an answer of the API server.
func (a *Access) API(ctx context.Context, endpoint string) (*kube.Client, error) {
	return a.server(ctx, endpoint, endpoint, a.dial)
}

// APIServer returns the client of the API server on a machine, reached through SSH.
func (a *Access) APIServer(ctx context.Context, m *Machine) (*kube.Client, error) {
	return a.server(ctx, m.Name(), onMachine, kube.DialFunc(m.Remote.Dialer(ctx)))
}

func (a *Access) server(ctx context.Context, key, endpoint string, dial kube.DialFunc) (*kube.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, errAccessClosed
	}
	if c := a.servers[key]; c != nil {
		return c, nil
	}
	c, err := a.connect(ctx, endpoint, dial)
	if err == nil {
		a.servers[key] = c
	}
	return c, err
}

// connect makes a client that the caller closes.
func (a *Access) connect(ctx context.Context, endpoint string, dial kube.DialFunc) (*kube.Client, error) {
	to, err := a.asAdmin(ctx, endpoint, dial)
	if err != nil {
		return nil, err
	}
	return kube.New(to)
}

func (a *Access) asAdmin(ctx context.Context, endpoint string, dial kube.DialFunc) (kube.Access, error) {
	pair, err := a.Keys.Admin(ctx, pki.KubernetesCA)
	return kube.Access{Endpoint: endpoint, CA: []byte(a.Keys.Ref.KubernetesCA), Cert: pair.CertPEM, Key: pair.KeyPEM, Dial: dial, Timing: a.timing}, err
}

// CheckHealth asks the API server on a machine whether it is ready, as load balancers do: without
// credentials. The caller closes the answer.
func (a *Access) CheckHealth(ctx context.Context, m *Machine) (kube.Answer, error) {
	return kube.NewConnection(ctx, kube.Access{Endpoint: onMachine, CA: []byte(a.Keys.Ref.KubernetesCA), Dial: kube.DialFunc(m.Remote.Dialer(ctx)), Timing: a.timing}, component.HealthCheckName)
}

// AskBehind asks whichever API server a load balancer chooses for one more client. The caller closes the
// answer.
func (a *Access) AskBehind(ctx context.Context, endpoint string) (kube.Answer, error) {
	to, err := a.asAdmin(ctx, endpoint, a.dial)
	if err != nil {
		return kube.Answer{}, err
	}
	return kube.NewConnection(ctx, to, "")
}

// Member returns the client of the etcd member on a machine, reached through SSH.
func (a *Access) Member(ctx context.Context, m *Machine) (*etcd.Client, error) {
	return a.MemberFrom(ctx, m, component.EtcdEndpoints([]component.Node{m.Node})[0])
}

// MemberFrom returns the client of the etcd member at an endpoint, reached through the machine m.
func (a *Access) MemberFrom(ctx context.Context, m *Machine, endpoint string) (*etcd.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, errAccessClosed
	}
	key := m.Name() + " " + endpoint
	if c := a.members[key]; c != nil {
		return c, nil
	}
	pair, err := a.Keys.Admin(ctx, pki.EtcdCA)
	if err != nil {
		return nil, err
	}
	c, err := etcd.New(etcd.Access{Endpoint: endpoint, CA: []byte(a.Keys.Ref.EtcdCA),
		Cert: pair.CertPEM, Key: pair.KeyPEM, Dial: m.Remote.Dialer(ctx), Timing: a.timing})
	if err == nil {
		a.members[key] = c
	}
	return c, err
}
