package fleet

import (
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// DefaultDrainTimeout bounds the draining of one node when nothing else is
// said: longer than the usual termination grace period of 30 s several times
// over, short enough that a PodDisruptionBudget that can never be met is
// noticed while a person still looks on.
const DefaultDrainTimeout = 5 * time.Minute

// How long to wait for what. Every wait ends earlier when its condition holds,
// when it can no longer come to hold, or when the caller's context ends.
const (
	// ObserveBudget bounds what a plan may spend on one machine: connecting
	// (10 s by default), one round trip, and the time package host gives to
	// units that are just starting (10 s).
	ObserveBudget = 30 * time.Second
	// ProbeBudget bounds a plan's questions to an etcd cluster or to the API
	// servers: they answer in milliseconds, refuse, or have no quorum for the
	// few seconds of an election.
	ProbeBudget = 15 * time.Second
	// AnswerShare is how long one server may keep a plan's question to itself
	// before another is asked as well.
	AnswerShare = 2 * time.Second
	// GateBudget is how long the other members may take to be healthy before
	// one is taken down. What was healthy a moment ago recovers from a lost
	// election within seconds; what needs longer needs a person.
	GateBudget = 30 * time.Second
	// EtcdBudget is how long a member may take to be healthy after its start,
	// a large snapshot sent by the leader included.
	EtcdBudget = 2 * time.Minute
	// startBudget is how long systemd may take to start a unit at boot, or
	// again when it has ended by itself.
	startBudget = 2 * time.Minute
	// APIBudget is how long an API server may take from its start to ready;
	// about five seconds on a small machine.
	APIBudget = 2 * time.Minute
	// NodeBudget is how long a kubelet may take from its start to a Ready
	// node; ten seconds when the images are near.
	NodeBudget = 3 * time.Minute
	// EvictBudget is how long the pods of a node that has died may be protected
	// by their PodDisruptionBudgets; no eviction is waited for otherwise.
	EvictBudget = 10 * time.Second
	// LeaveBudget bounds each farewell (of a machine that leaves a cluster)
	// that the cluster can do without.
	LeaveBudget = 30 * time.Second
)

// How API servers are held while etcd's leadership moves.
const (
	// holdLimit is when a held API server goes on by itself. HAProxy gives a
	// check's TLS handshake 1 s (inter), checks again 250 ms after a failure
	// (fastinter), and marks a server down after two in a row: at 2.25 s.
	holdLimit = 1800 * time.Millisecond
	// holdGrace is how long a request that an API server has sent takes to
	// become a proposal.
	holdGrace = 50 * time.Millisecond
	// moveBudget is what must be left of holdLimit when the leadership moves:
	// one vote written to disk by a majority.
	moveBudget = 600 * time.Millisecond
	// holdAttempts is how often it is tried, holdPause the time in between, in
	// which API servers answer what has queued up, and one of HAProxy's checks.
	holdAttempts = 8
	holdPause    = 1500 * time.Millisecond
)

const (
	// Poll is how often a condition is looked at.
	Poll = 150 * time.Millisecond
	// UnitPoll is how often a unit is looked at during a wait for what it serves.
	UnitPoll = time.Second
	// crashLoop is how many restarts of a unit during one wait mean that it
	// will not come up.
	crashLoop = 3
	// adminValidity is how long the client certificates made for one
	// operation are good for. They never leave this process, which holds the
	// authority's own key, so nothing is gained by a short life; and as long as
	// a leaf's, a clock here that is behind locks nobody out.
	adminValidity = pki.DefaultValidity
	// ClockTolerance is how far a machine's clock may be off before it is
	// worth a warning; certificates are made for more.
	ClockTolerance = time.Minute
	// journalLines is how much of a journal an error quotes.
	journalLines = 10
	// ParallelMachines bounds how many machines are worked on at a time.
	ParallelMachines = 32
)
