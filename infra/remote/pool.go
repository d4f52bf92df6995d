// Package remote runs commands on machines over SSH, with pinned host keys, one pooled connection
// per machine, optional bastions, and sudo on the machine.
//
// It runs shell scripts and opens TCP connections, whatever they are for. It needs no ssh program,
// no known_hosts file and no home directory. What may not enter: files, units, Kubernetes,
// Terraform, and any way to accept a host key that is not pinned.
package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/timing"
)

// Host is everything needed to reach a machine.
type Host struct {
	Name    string // for people, e.g. "controller-0"
	Address string // IP address or DNS name
	Port    int    // 22 when zero
	User    string // login user; anyone but root needs passwordless sudo
	// HostKeys are the pinned public keys in authorized_keys form ("ssh-ed25519 AAAA..."). The
	// machine must show one of them.
	HostKeys []string
	// Bastion, if set, is the machine through which this one is reached.
	Bastion *Host
	// Instance is the id of the EC2 instance, if it is one, for [Config.Tunnels].
	Instance string
	// Off says that the machine is switched off on purpose. No connection is tried: it is
	// unreachable at once.
	Off bool
}

func (h Host) addr() string { return net.JoinHostPort(h.Address, strconv.Itoa(h.port())) }

func (h Host) port() int { return cmp.Or(h.Port, 22) }

// DialFunc opens a network connection, as [net.Dialer.DialContext] does.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// Config is shared by all machines of a pool.
type Config struct {
	Signers []ssh.Signer // offered in this order
	Agent   Agent        // its key is offered after Signers
	// ConnectTimeout bounds one attempt to connect, handshake included. Default 10 s.
	ConnectTimeout time.Duration
	// Dial opens the TCP connection. Default: [net.Dialer.DialContext].
	Dial DialFunc
	// Tunnels, if set, is the way to all machines that are behind no bastion, instead of Dial.
	Tunnels *Tunnels
	// Environment are variables of every script, each as NAME=value, such as those of a proxy.
	Environment []string
	// Timing, if set, counts handshakes, commands, forwarded connections, and bytes.
	Timing *timing.Recorder
	// Watch, if set, is told of every command with a name, before it starts and after it has ended.
	// It is for tests of interruptions.
	Watch func(machine, command string, ended bool)
}

// Pool keeps one connection per machine and reopens it after a loss. It is safe for concurrent use.
type Pool struct {
	cfg Config
	// closed is closed by Close and ends every attempt to connect.
	closed chan struct{}
	once   sync.Once
	// The interval of keepalive requests, and how long an answer may take.
	keepaliveEvery, keepaliveGrace time.Duration

	slots *slots // of tunnels; nil without

	// preparing has a token for each connection that Prepare opens.
	preparing chan struct{}

	mu       sync.Mutex
	machines map[string]*Machine
}

// maxPreparing is how many connections are opened ahead at the same time.
const maxPreparing = 16

// DefaultConnectTimeout is how long a connection may take to open.
const DefaultConnectTimeout = 10 * time.Second

// errOff is why a machine that is [Host.Off] is unreachable.
var errOff = errors.New("it is stopped on purpose")

// errClosed is the error of every use of a closed pool.
var errClosed = errors.New("the connection pool is closed")

// NewPool returns an empty pool. It does no I/O.
func NewPool(cfg Config) *Pool {
	if cfg.ConnectTimeout <= 0 {
		cfg.ConnectTimeout = DefaultConnectTimeout
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{}).DialContext
	}
	cfg.Signers = slices.Clone(cfg.Signers)
	p := &Pool{cfg: cfg, closed: make(chan struct{}), preparing: make(chan struct{}, maxPreparing), machines: map[string]*Machine{},
		keepaliveEvery: keepaliveEvery, keepaliveGrace: keepaliveGrace}
	if cfg.Tunnels != nil {
		p.slots = newSlots(cfg.Tunnels.Max)
	}
	return p
}

// Machine returns the machine at h, the same one for equal hosts. It does no I/O: connections are
// opened when needed.
func (p *Pool) Machine(h Host) *Machine {
	h.Port = h.port() // a host without a port is the same
	// Only a cycle of bastions cannot be marshalled; connecting reports that.
	key, err := json.Marshal(h)
	if err != nil {
		return newMachine(p, h)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.machines[string(key)]
	if m == nil {
		h.HostKeys = slices.Clone(h.HostKeys)
		m = newMachine(p, h)
		p.machines[string(key)] = m
	}
	return m
}

// Close closes every connection. Commands that run end with an [*UnreachableError]; later use of
// the pool's machines fails.
func (p *Pool) Close() error {
	p.once.Do(func() { close(p.closed) })
	p.mu.Lock()
	machines := p.machines
	p.machines = map[string]*Machine{}
	p.mu.Unlock()
	for _, m := range machines {
		m.disconnect()
	}
	if p.slots != nil {
		p.slots.closeAll()
	}
	return nil
}

func (p *Pool) isClosed() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}
