package cloud

import (
	"context"
	"net/http"
	"sync"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// tunnels are the open tunnels by their endpoint.
type tunnels struct {
	mu     sync.Mutex
	next   int
	open   map[string]map[int]context.CancelFunc
	closed bool
	wg     sync.WaitGroup
}

// begin counts one tunnel more of an endpoint, unless it has all that it may have. done uncounts it.
func (t *tunnels) begin(endpoint string, end context.CancelFunc) (done func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.open[endpoint]) >= maxTunnels {
		return nil, wire.RefuseWith(http.StatusTooManyRequests, "ServiceQuotaExceededException",
			"The EC2 Instance Connect Endpoint has reached its maximum of %d concurrent connections.", maxTunnels)
	}
	if t.open == nil {
		t.open = map[string]map[int]context.CancelFunc{}
	}
	if t.open[endpoint] == nil {
		t.open[endpoint] = map[int]context.CancelFunc{}
	}
	t.next++
	n := t.next
	t.open[endpoint][n] = end
	t.wg.Add(1)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.open[endpoint], n)
		t.wg.Done()
	}, nil
}

// end ends the tunnels of an endpoint.
func (t *tunnels) end(endpoint string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, end := range t.open[endpoint] {
		end()
	}
}

// close ends all tunnels and opens no more.
func (t *tunnels) close() {
	t.mu.Lock()
	t.closed = true
	for _, of := range t.open {
		for _, end := range of {
			end()
		}
	}
	t.mu.Unlock()
	t.wg.Wait()
}
