package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// DefaultDrainTimeout bounds the draining of one node unless the role sets another. It is several
// times the usual termination grace period of 30 s, and short enough that a person notices a
// PodDisruptionBudget that can never be met.
const DefaultDrainTimeout = 5 * time.Minute

// RememberFor is how long status and plan remember that a machine could not be reached: longer than
// one refresh takes for all questions about it.
const RememberFor = time.Minute

// Time limits of waits. Every wait ends earlier when its condition holds, when the condition can no
// longer come to hold, or when the caller's context ends. [patience.With] lengthens them.
const (
	// ObserveBudget bounds what a plan may spend on one machine: connecting (10 s by default), one
	// round trip, and the time package host gives to units that are just starting (10 s).
	ObserveBudget = 30 * time.Second
	// ProbeBudget bounds a plan's questions to an etcd cluster or to API servers. They answer in
	// milliseconds, refuse, or have no quorum for the few seconds of an election.
	ProbeBudget = 15 * time.Second
	// AnswerShare is how long a plan waits for one server before it asks another as well.
	AnswerShare = 2 * time.Second
	// GateBudget is how long the other members may take to be healthy before one is taken down. A
	// member that was healthy recovers from a lost election within seconds; a longer outage needs a
	// person.
	GateBudget = 30 * time.Second
	// EtcdBudget is how long a member may take from its start to healthy, including a large
	// snapshot from the leader.
	EtcdBudget = 2 * time.Minute
	// EtcdAnswerBudget is how long a cluster whose units run may give no answer (an election, a
	// start) before it counts as one without quorum.
	EtcdAnswerBudget = 10 * time.Second
	// ReachBudget is how long an address may take to answer a machine, if only with a refusal: TCP
	// sends again after one and after three seconds.
	ReachBudget = 5 * time.Second
	// startBudget is how long systemd may take to start a unit, at boot or after the unit has
	// exited.
	startBudget = 2 * time.Minute
	// APIBudget is how long an API server may take from its start to ready; about five seconds on a
	// small machine.
	APIBudget = 2 * time.Minute
	// NodeBudget is how long a kubelet may take from its start to a Ready node; about ten seconds
	// when the images come from nearby.
	NodeBudget = 3 * time.Minute
	// EvictBudget is how long PodDisruptionBudgets may protect the pods of a dead node. No other
	// eviction is limited by it.
	EvictBudget = 10 * time.Second
	// LeaveBudget bounds each optional step of a machine's departure.
	LeaveBudget = 30 * time.Second
	// RemoveBudget bounds the removal of a role from a machine: the end of what runs, since systemd
	// gives each unit 90 seconds before it kills it, and the deletion of an image store, which on a
	// slow disk are millions of files.
	RemoveBudget = 20 * time.Minute
	// SnapshotBudget bounds one snapshot of etcd: a database of the largest size is saved, read,
	// restored for a trial and sent.
	SnapshotBudget = 30 * time.Minute
	// CompactBudget bounds a compaction, which goes through the history of all objects.
	CompactBudget = 10 * time.Minute
	// DefragmentBudget bounds a defragmentation of the largest database on a slow disk.
	DefragmentBudget = 15 * time.Minute
	// RestoreBudget is how long the provider tries to restore a machine that was not stopped after
	// all: the time in which a connection comes back, or an API server is up again.
	RestoreBudget = 3 * time.Minute
)

// How API servers are held while etcd's leadership is transferred.
const (
	// holdLimit is when a held API server continues by itself. HAProxy gives a check's TLS
	// handshake 1 s (inter, by default), checks again 250 ms after a failure (fastinter), and marks a server
	// down after three failures in a row: at 3.5 s, and later with a longer check_interval. Busy machines need
	// the time in between to answer the first check.
	holdLimit = 1800 * time.Millisecond
	// holdGrace is how long a request of an API server takes to become a proposal in etcd.
	holdGrace = 50 * time.Millisecond
	// moveBudget is what must be left of holdLimit when the transfer starts: a majority has to
	// write one vote to disk.
	moveBudget = 600 * time.Millisecond
	// holdAttempts is how often the transfer is tried. holdPause is the time in between, in which
	// API servers answer queued requests and one HAProxy check.
	holdAttempts = 8
	holdPause    = 1500 * time.Millisecond
)

const (
	// Poll is the interval at which conditions are checked.
	Poll = 150 * time.Millisecond
	// UnitPoll is the interval at which a unit is checked during a wait for its service.
	UnitPoll = time.Second
	// crashLoop is how many restarts of a unit during one wait mean that it will not come up.
	crashLoop = 3
	// adminValidity is how long an operation's client certificates are valid. They never leave this
	// process, which holds the authority's key, so a short life would gain nothing. The validity of
	// a leaf tolerates a local clock that is behind.
	adminValidity = pki.DefaultValidity
	// ClockTolerance is how far a machine's clock may be off before a warning. Certificates
	// tolerate more.
	ClockTolerance = time.Minute
	// journalLines is how many lines of a journal an error quotes.
	journalLines = 10
	// ParallelMachines bounds how many machines are worked on at the same time.
	ParallelMachines = 32
)

// Observing limits ctx by [ObserveBudget].
func Observing(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := patience.Of(ctx, ObserveBudget)
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
}

// Probing limits ctx by [ProbeBudget].
func Probing(ctx context.Context) (context.Context, context.CancelFunc) {
	return patience.Within(ctx, ProbeBudget)
}
