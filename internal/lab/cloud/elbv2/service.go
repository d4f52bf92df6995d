// Package elbv2 is the local cloud's Elastic Load Balancing, version 2015-12-01: Network Load Balancers
// with listeners and target groups of TCP, and what their health checks find.
//
// It asks EC2 for interfaces and instances by [Compute], and the network for connections by [Network].
// It says what each node forwards, and does not forward by itself. It knows nothing of HTTP's servers,
// signatures and other services.
package elbv2

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/bucket"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Subnet is what load balancers need to know of a subnet.
type Subnet struct {
	ID, VPC, Zone string
	Free          int  // addresses
	Internet      bool // its VPC has an internet gateway
}

// Instance is what target groups need to know of an instance.
type Instance struct {
	VPC, Zone, State string
	PrivateIP        netip.Addr
}

// NodeRequest asks for the interface of a node.
type NodeRequest struct {
	Subnet     string
	PrivateIP  string // empty for any
	Allocation string // of an Elastic IP
	Public     bool   // a public address of EC2's, if there is no Elastic IP
}

// Addresses are those of a node.
type Addresses struct {
	Private, Public netip.Addr // Public is zero if there is none
}

// Compute is what Elastic Load Balancing asks of EC2.
type Compute interface {
	Subnet(id string) (Subnet, bool)
	Instance(id string) (Instance, bool)
	HasVPC(id string) bool
	HasGroup(vpc, id string) bool
	// ElasticIP reports whether an Elastic IP exists, and whether it is associated.
	ElasticIP(allocation string) (exists, used bool)
	// AddNodes makes interfaces for a load balancer, named as in net/NAME/ID: all or none.
	AddNodes(balancer string, groups []string, nodes []NodeRequest) (interfaces []string, err error)
	SetNodeGroups(interfaces, groups []string) error
	// RemoveNodes removes interfaces; KeepNodes all those of load balancers but the given ones.
	RemoveNodes(interfaces []string) error
	KeepNodes(interfaces []string) error
	NodeAddresses(networkInterface string) Addresses
	// Changed says that what nodes forward has changed. It is called without locks.
	Changed()
}

// Network is what health checks need of the network of real packets.
type Network interface {
	// DialFrom connects from the namespace behind an interface.
	DialFrom(ctx context.Context, interfaceID string, to netip.AddrPort) (net.Conn, error)
	// EndFlows resets the connections that a node forwards to a target.
	EndFlows(ctx context.Context, interfaceID string, target netip.AddrPort) error
}

// Clock is the source of time.
type Clock interface {
	Now() time.Time
	After(time.Duration) <-chan time.Time
}

// Config is a Service's configuration. All fields are required.
type Config struct {
	Region, AccountID string
	File              string // where the state is kept; empty keeps it in memory
	Unthrottled       bool   // lets any number of calls through

	Compute Compute
	Network Network
	Clock   Clock
	Rand    io.Reader // for ids
	Faults  *fault.Injector
	Log     *slog.Logger
}

// Service is Elastic Load Balancing in one region of one account. Its lock is taken before that of EC2.
type Service struct {
	cfg Config

	mu       sync.Mutex
	raw      []byte // st as saved
	st       *state
	checks   map[checkKey]*check
	checking bool // whether the loop of health checks runs

	buckets bucket.Set

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Open makes a Service from the saved state. It starts nothing before Start.
func Open(cfg Config) (*Service, error) {
	s := &Service{cfg: cfg, checks: map[checkKey]*check{}}
	if cfg.File != "" {
		raw, err := os.ReadFile(cfg.File)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading the state of load balancers: %w", err)
		}
		s.raw = raw
	}
	var err error
	if s.st, err = decodeState(s.raw); err != nil {
		return nil, fmt.Errorf("state file %s: %w", cfg.File, err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Start continues as the last run left everything. EC2 must have started.
func (s *Service) Start() error {
	return s.update("", func(t *tx) error {
		known := t.st.leaving()
		for _, b := range t.st.LoadBalancers {
			known = append(known, b.interfaces()...)
			if b.state(t.now) == stateProvisioning {
				t.afterCommit(func() { s.after(b.Created.Add(provisioning).Sub(t.now), s.cfg.Compute.Changed) })
			}
		}
		if len(t.st.Leaving) > 0 {
			t.afterCommit(func() { s.after(leaving, s.removeLeaving) })
		}
		t.afterCommit(s.startChecks)
		return s.cfg.Compute.KeepNodes(known)
	})
}

// Close ends health checks and everything else that runs. Nodes go on forwarding.
func (s *Service) Close() {
	s.cancel()
	s.wg.Wait()
}

// after runs f after a while, unless the service is closed before.
func (s *Service) after(d time.Duration, f func()) {
	waited := s.cfg.Clock.After(d)
	s.wg.Go(func() {
		select {
		case <-s.ctx.Done():
		case <-waited:
			f()
		}
	})
}

// tx is an action that reads or changes the state, with its lock held.
type tx struct {
	s       *Service
	st      *state
	now     time.Time
	created []string
	effects []func() // run after the commit, without the lock
	undo    []func() // run if nothing is committed
}

func (t *tx) afterCommit(f func()) { t.effects = append(t.effects, f) }

// changed tells EC2 after the commit that what nodes forward has changed.
func (t *tx) changed() { t.afterCommit(t.s.cfg.Compute.Changed) }

// newID makes the 16 hexadecimal digits at the end of an ARN.
func (t *tx) newID() string {
	var b [8]byte
	_, _ = io.ReadFull(t.s.cfg.Rand, b[:]) // crypto/rand never fails
	return fmt.Sprintf("%016x", binary.BigEndian.Uint64(b[:]))
}

func (t *tx) arn(resource string) string {
	return "arn:" + wire.Partition(t.s.cfg.Region) + ":elasticloadbalancing:" + t.s.cfg.Region + ":" + t.s.cfg.AccountID + ":" + resource
}

// view runs f on the live state, which it does not change.
func (s *Service) view(f func(*tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f(&tx{s: s, st: s.st, now: s.cfg.Clock.Now()})
}

// update runs f on a copy of the state. If f succeeds, the copy is saved and replaces the state, and
// what f has scheduled is run.
func (s *Service) update(action string, f func(*tx) error) error {
	t := &tx{s: s, now: s.cfg.Clock.Now()}
	if err := s.commit(t, action, f); err != nil {
		for _, undo := range t.undo {
			undo()
		}
		return err
	}
	for _, effect := range t.effects {
		effect()
	}
	return nil
}

func (s *Service) commit(t *tx, action string, f func(*tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if t.st, err = decodeState(s.raw); err != nil {
		return err
	}
	if err := f(t); err != nil {
		return err
	}
	raw, err := json.Marshal(t.st)
	if err != nil {
		return fmt.Errorf("encoding the state of load balancers: %w", err)
	}
	if s.cfg.File != "" {
		if err := file.Replace(s.cfg.File, raw, 0o600); err != nil {
			return fmt.Errorf("saving the state of load balancers: %w", err)
		}
	}
	s.raw, s.st = raw, t.st
	s.cfg.Faults.Created(action, t.created, t.now)
	return nil
}
