package providertest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// Mortal is the way of one process to AWS. The process dies at one of its calls: the call takes
// effect, and nothing after it. 0 is never.
type Mortal struct {
	mu     sync.Mutex
	calls  []string
	Before func(call int) // runs before a call arrives
	dieAt  int
	url    string
	die    context.CancelFunc
}

func (m *Mortal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	m.mu.Lock()
	m.calls = append(m.calls, string(body))
	number := len(m.calls)
	m.mu.Unlock()
	if m.Before != nil {
		m.Before(number)
	}
	dead := m.dieAt > 0 && number >= m.dieAt
	if !dead || number == m.dieAt {
		out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, m.url+r.URL.RequestURI(), bytes.NewReader(body))
		if err != nil {
			panic(err)
		}
		out.Header, out.Host = r.Header.Clone(), r.Host
		resp, err := http.DefaultClient.Do(out)
		if err != nil {
			panic(err)
		}
		defer resp.Body.Close()
		if !dead {
			for k, v := range resp.Header {
				w.Header()[k] = v
			}
			w.WriteHeader(resp.StatusCode)
			_, _ = io.Copy(w, resp.Body)
			return
		}
	}
	m.die()
	w.WriteHeader(http.StatusBadRequest) // the SDK does not repeat it
	_, _ = io.WriteString(w, "<Response><Errors><Error><Code>Killed</Code><Message>killed</Message></Error></Errors></Response>")
}

func (m *Mortal) Count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.calls)
}

// Doomed starts a process that dies at one of its calls.
func (c Cloud) Doomed(t *testing.T, dieAt int) (Cloud, *Mortal) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	m := &Mortal{dieAt: dieAt, url: c.Account.URL, die: cancel}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	next := c.processAt(t, server.URL)
	next.ctx = ctx
	return next, m
}

// Elsewhere deletes a resource in another region than the state's, and returns the errors.
func (c Cloud) Elsewhere(i *Instance) string {
	i.core.T.Helper()
	for _, d := range c.Provider.Sessions {
		client, err := d.LoadAWS()
		if err != nil {
			i.core.T.Fatal(err)
		}
		region := client.Region
		client.Region = "eu-central-1"
		defer func() { client.Region = region }()
	}
	return i.Dismiss().Failure()
}

// Settle is what the provider does when its process ends. Terraform would give it less time.
func (c Cloud) Settle() { c.Provider.Settle(patience.With(c.T.Context(), 40)) }

// Ends is the graceful end of the provider's process, and returns the next one.
func (c Cloud) Ends(t *testing.T) Cloud {
	t.Helper()
	c.Settle()
	return c.Process(t)
}

// Taken returns a resource with its state in this process: another run with the same state, on the
// same computer or on another.
func (c Cloud) Taken(i *Instance) *Instance {
	next := *i
	next.core = c.Core
	return &next
}

// Attempt applies a configuration and returns the errors.
func (i *Instance) Attempt(config Values) string {
	i.core.T.Helper()
	ch := i.Plan(config)
	if len(ch.Errors) > 0 {
		return ch.Failure()
	}
	return Change{Errors: i.Apply(ch)}.Failure()
}

// Refreshed refreshes and returns the errors.
func (i *Instance) Refreshed() string {
	i.core.T.Helper()
	return i.TryLook().Failure()
}

func Mention(t *testing.T, got string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(got, w) {
			t.Errorf("%q is not mentioned in: %s", w, got)
		}
	}
}

// cluster is a state with one of every kind that owns something in AWS, except k8s_lb, which needs
// machines that answer; its address is tested in infra.
type OwnedCluster struct{ Network, Keys, Worker *Instance }

func (o OwnedCluster) All() []*Instance { return []*Instance{o.Network, o.Keys, o.Worker} }

func (c Cloud) NewCluster() OwnedCluster {
	return OwnedCluster{c.Instance("k8s_network"), c.Instance("k8s_pki"), c.Instance("k8s_machine")}
}

// Config returns the configuration of one of the resources.
func (o OwnedCluster) Config(i *Instance, network *Instance) Values {
	switch i {
	case o.Network:
		return NetworkConfig()
	case o.Keys:
		return Values{"cluster": "demo"}
	}
	return WorkerConfig(network)
}

func (o OwnedCluster) Make() {
	for _, i := range o.All() {
		i.Must(o.Config(i, o.Network))
	}
}

func (c Cloud) TakenCluster(o OwnedCluster) OwnedCluster {
	return OwnedCluster{c.Taken(o.Network), c.Taken(o.Keys), c.Taken(o.Worker)}
}
