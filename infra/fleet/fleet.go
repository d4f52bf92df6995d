// Package fleet is about the machines of a cluster, independent of their wanted state: how they are
// reached, waiting for their units, errors with advice, clients of the cluster's API servers and
// etcd members, and holding its API servers while etcd's leadership is transferred.
//
// [Access] keeps the clients of one operation of a role. It uses keys of the key store. [AskAPI]
// makes its own clients, since a load balancer chooses an API server for each new connection.
// Package maintenance makes a client for each call, since it has only a machine's credentials and
// may run while that machine restarts.
//
// What may not enter: the wanted state of a machine and the order in which machines are changed
// (package rollout), how a machine is taken down and brought back (package maintenance), Terraform
// and AWS.
package fleet

import (
	"crypto/rand"
	"fmt"
	"io"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/timing"
)

// Fleet has the dependencies that work on machines needs. It holds no state of its own and is safe
// for concurrent use.
type Fleet struct {
	// Pool holds the SSH connections.
	Pool *remote.Pool
	// Store opens the key store a reference points to. It is called only when a key is needed.
	Store func(pki.Ref) (pki.Store, error)
	// Clock and Rand are the clock and the random source; nil means time.Now and crypto/rand.
	Clock func() time.Time
	Rand  io.Reader
	// Dial returns how the endpoint of the API servers of a cluster is reached; nil dials directly.
	Dial func(cluster string) kube.DialFunc
	// Silence, if set, is shared by all that a plan asks API servers.
	Silence *Silence
	// Progress is called with what is being done to which machine; nil is silent. It is called from
	// several goroutines at once and never with a secret.
	Progress func(machine, message string)
	// Timing, if set, counts the requests to etcd and to API servers.
	Timing *timing.Recorder
}

// Now returns the time of the fleet's clock.
func (f *Fleet) Now() time.Time {
	if f.Clock == nil {
		return time.Now()
	}
	return f.Clock()
}

// Random returns the fleet's random source.
func (f *Fleet) Random() io.Reader {
	if f.Rand == nil {
		return rand.Reader
	}
	return f.Rand
}

// Say reports progress on a machine, or on anything else that has a name.
func (f *Fleet) Say(name, format string, args ...any) {
	if f.Progress != nil {
		f.Progress(name, foreign.Text(fmt.Sprintf(format, args...)))
	}
}
