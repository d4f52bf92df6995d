// Package fleet is what is known and can be done of the machines of a cluster,
// whatever is wanted of them: how they are reached, what can be done to one of
// them, how its units are waited for, what an error about it advises, who one
// is to the cluster's API servers and etcd members, and how its API servers are
// held while etcd's leadership moves.
//
// What may not enter: what is wanted of a machine and in which order machines
// come to it (package rollout), how a machine is taken down and brought back
// (package maintenance), Terraform and AWS.
package fleet

import (
	"crypto/rand"
	"fmt"
	"io"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// Fleet carries what work on machines needs from its surroundings. It holds no
// state of its own and is safe for concurrent use.
type Fleet struct {
	// Pool holds the SSH connections.
	Pool *remote.Pool
	// Store opens the key store a reference points to. It is asked only when
	// a key is really needed.
	Store func(pki.Ref) (pki.Store, error)
	// Clock and Rand are the clock and the random source; nil means time.Now
	// and crypto/rand.
	Clock func() time.Time
	Rand  io.Reader
	// Dial reaches the public endpoint of the API server; nil dials directly.
	Dial kube.DialFunc
	// Progress is told what is being done to which machine; nil is silent. It
	// is called from several goroutines at once and never with a secret.
	Progress func(machine, message string)
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

// Say tells what is being done to a machine, or to what else has a name.
func (f *Fleet) Say(name, format string, args ...any) {
	if f.Progress != nil {
		f.Progress(name, fmt.Sprintf(format, args...))
	}
}
