package ec2

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"reflect"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/ec2/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/ec2/ssm"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/network"
)

// Network enforces what the cloud's state says about packets.
type Network interface {
	// Apply makes the network what cfg says, changing only what differs.
	Apply(ctx context.Context, cfg network.Config) error
	// ResetInterface wipes what the machine behind an interface had set up in it.
	ResetInterface(ctx context.Context, id string) error
	// InterfaceNetns is the path of the network namespace of an interface.
	InterfaceNetns(id string) string
}

// Machines runs instances. Stopping and starting block until done.
type Machines interface {
	Start(ctx context.Context, spec machine.Spec) error
	Stop(ctx context.Context, id string) error      // in good order; the disk is kept
	Kill(ctx context.Context, id string) error      // power cut; the disk is kept
	Terminate(ctx context.Context, id string) error // for good
	Running(id string) bool
	// Exits delivers ids of machines that went down without being asked to.
	Exits() <-chan string
	// Console is the path of a machine's console log.
	Console(id string) string
}

// Clock is the time the cloud lives in.
type Clock interface {
	Now() time.Time
	After(time.Duration) <-chan time.Time
}

// SystemClock is the host's clock.
type SystemClock struct{}

// Now implements Clock.
func (SystemClock) Now() time.Time { return time.Now().UTC() }

// After implements Clock.
func (SystemClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Quotas are the account's limits. A zero field takes the default.
type Quotas struct {
	Instances          int // default 256
	Addresses          int // Elastic IPs, default 32
	VPCs               int // default 64
	RulesPerGroup      int // per direction, default 60 as on AWS
	GroupsPerInterface int // default 5 as on AWS
	RoutesPerTable     int // beside the local one, default 500 as on AWS
}

func (q Quotas) withDefaults() Quotas {
	return Quotas{
		cmp.Or(q.Instances, 256), cmp.Or(q.Addresses, 32), cmp.Or(q.VPCs, 64),
		cmp.Or(q.RulesPerGroup, 60), cmp.Or(q.GroupsPerInterface, 5), cmp.Or(q.RoutesPerTable, 500),
	}
}

// Config is what a Cloud is made of.
type Config struct {
	Region      string          // default us-east-1
	AccountID   string          // default 123456789012
	Credentials aws.Credentials // the access key every request must be signed with, or one AssumeRole gave out
	Images      []Image         // what instances are made from
	PublicIPs   []netip.Addr    // what EC2 may hand out
	Quotas      Quotas

	StateFile      string // where the state is kept; empty keeps it in memory
	ParametersFile string // likewise for SSM parameters
	BootID         string // identifies the host's boot: machines recorded under another are started again

	Network  Network
	Machines Machines
	Clock    Clock     // default SystemClock
	Rand     io.Reader // of ids and keys; default crypto/rand
	Seed     uint64    // of random faults
	Log      *slog.Logger
}

// Cloud is the account: its state, and what moves it.
type Cloud struct {
	cfg    Config
	log    *slog.Logger
	faults *fault.Injector
	params *ssm.Store
	calls  counter

	controls http.Handler

	mu  sync.Mutex
	raw []byte // st as it was saved; the source of every transaction's copy
	st  *state

	netMu   sync.Mutex
	applied *network.Config // what the network has been told last; nil after a failure
	netErr  error           // of the last attempt

	locks    keyedMutex
	launches launches
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

// Open makes a Cloud from the state kept earlier. Nothing moves before Start.
func Open(cfg Config) (*Cloud, error) {
	cfg.Region = cmp.Or(cfg.Region, "us-east-1")
	cfg.AccountID = cmp.Or(cfg.AccountID, "123456789012")
	cfg.Quotas = cfg.Quotas.withDefaults()
	if cfg.Clock == nil {
		cfg.Clock = SystemClock{}
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	raw, err := readStateFile(cfg.StateFile)
	if err != nil {
		return nil, err
	}
	st, err := decodeState(raw)
	if err != nil {
		return nil, fmt.Errorf("state file %s: %w", cfg.StateFile, err)
	}
	c := &Cloud{cfg: cfg, log: cfg.Log, faults: fault.New(cfg.Seed), raw: raw, st: st}
	c.params, err = ssm.Open(ssm.Config{
		File: cfg.ParametersFile, Region: cfg.Region, AccountID: cfg.AccountID, Now: cfg.Clock.Now, Public: c.publicParameter,
	})
	if err != nil {
		return nil, err
	}
	c.controls = c.newControl()
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Start builds the network the state describes and takes the machines up where
// the last run left them: running ones are adopted, transitions under way go
// on, and after a reboot of the host running instances are started again.
func (c *Cloud) Start(ctx context.Context) error {
	if err := c.tryNetwork(ctx); err != nil {
		return err
	}
	c.wg.Go(c.watchExits)
	return c.resume()
}

// Close stops moving things and waits for what is under way to end. Machines
// and network stay as they are, for the next Open.
func (c *Cloud) Close() {
	c.cancel()
	c.wg.Wait()
}

func (c *Cloud) publicParameter(name string) (string, bool) {
	for _, i := range c.cfg.Images {
		if name == PublicImageParameter(i.Release) {
			return i.ID, true
		}
	}
	return "", false
}

// random returns a number for an id. The source failing is not survivable and
// does not happen: crypto/rand never fails.
func (c *Cloud) random() uint64 {
	var b [8]byte
	_, _ = io.ReadFull(c.cfg.Rand, b[:])
	return binary.BigEndian.Uint64(b[:])
}

// networkTimeout bounds one attempt to change the network.
const networkTimeout = 60 * time.Second

// syncNetwork brings the network in line with the state before it returns. ctx
// should live as long as the Cloud, not as the call that changed the state. When that fails it tries again in the background: EC2, too, has accepted the
// call by then.
func (c *Cloud) syncNetwork(ctx context.Context) {
	if err := c.tryNetwork(ctx); err != nil && c.ctx.Err() == nil {
		c.log.Error("the network could not be changed; trying again", "error", err)
		c.wg.Go(func() {
			select {
			case <-c.ctx.Done():
			case <-c.cfg.Clock.After(time.Second):
				c.syncNetwork(c.ctx)
			}
		})
	}
}

func (c *Cloud) tryNetwork(ctx context.Context) error {
	c.netMu.Lock()
	defer c.netMu.Unlock()
	c.mu.Lock()
	want := render(c.st)
	c.mu.Unlock()
	if c.applied != nil && reflect.DeepEqual(*c.applied, want) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	c.applied = nil
	if c.netErr = c.cfg.Network.Apply(ctx, want); c.netErr != nil {
		return fmt.Errorf("applying the network configuration: %w", c.netErr)
	}
	c.applied = &want
	return nil
}

// counter counts calls by action.
type counter struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counter) add(action string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[action]++
}

func (c *counter) snapshot() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]int{}
	maps.Copy(out, c.n)
	return out
}

func (c *counter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n = nil
}

// keyedMutex serializes what is done to one machine.
type keyedMutex struct {
	mu sync.Mutex
	m  map[string]*sync.Mutex
}

// lock waits for the key and returns what frees it.
func (k *keyedMutex) lock(key string) (unlock func()) {
	k.mu.Lock()
	if k.m == nil {
		k.m = map[string]*sync.Mutex{}
	}
	l := k.m[key]
	if l == nil {
		l = &sync.Mutex{}
		k.m[key] = l
	}
	k.mu.Unlock()
	l.Lock()
	return l.Unlock
}

// errLaunchCancelled ends a launch whose instance is being terminated.
var errLaunchCancelled = errors.New("the instance was terminated while it was being launched")

// launches holds how to call off the launches under way.
type launches struct {
	mu sync.Mutex
	m  map[string]context.CancelCauseFunc
}

func (l *launches) begin(ctx context.Context, id string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil {
		l.m = map[string]context.CancelCauseFunc{}
	}
	l.m[id] = cancel
	return ctx, func() {
		cancel(nil)
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.m, id)
	}
}

func (l *launches) cancel(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cancel := l.m[id]; cancel != nil {
		cancel(errLaunchCancelled)
	}
}
