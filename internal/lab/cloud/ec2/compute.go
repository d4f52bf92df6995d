package ec2

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/bucket"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/network"
)

// Network is the network of real packets.
type Network interface {
	// Apply brings the network to the state of cfg, and changes only what differs.
	Apply(ctx context.Context, cfg network.Config) error
	// ResetInterface clears what the machine behind an interface has configured in it.
	ResetInterface(ctx context.Context, id string) error
	// InterfaceNetns returns the path of an interface's network namespace.
	InterfaceNetns(id string) string
}

// Machines runs the instances' machines. Its methods block until done.
type Machines interface {
	Start(ctx context.Context, spec machine.Spec) error
	Stop(ctx context.Context, id string) error      // gracefully; the disk is kept
	Kill(ctx context.Context, id string) error      // power cut; the disk is kept
	Terminate(ctx context.Context, id string) error // removes the disk
	Running(id string) bool
	// AttachVolume gives a running machine a volume, or gives a volume that it has its size.
	AttachVolume(ctx context.Context, id string, v machine.Volume) error
	// DetachVolume takes a volume from a running machine. Unless by force, machine.ErrVolumeInUse
	// says that it is mounted.
	DetachVolume(ctx context.Context, id, volume string, force bool) error
	// GrowRoot gives the root volume of a machine a bigger size.
	GrowRoot(ctx context.Context, id string, root machine.Volume) error
	// Snapshot takes a snapshot of a machine's disk, whether it runs or not. It is no error if there is one.
	Snapshot(ctx context.Context, id, snapshot string) error
	RemoveSnapshot(snapshot string) error // machines that were made from it keep what they have of it
	Snapshots() ([]string, error)
	// SnapshotVolume takes a snapshot of a volume that a machine has, or none if the id is empty. It is no error if
	// there is one.
	SnapshotVolume(ctx context.Context, id string, v machine.Volume, snapshot string) error
	// FillVolume gives a volume that no machine has had yet the content of a volume's snapshot.
	FillVolume(ctx context.Context, v machine.Volume, snapshot string) error
	RemoveVolume(volume string) error // removes the content
	Volumes() ([]string, error)       // those that have content
	// Exits delivers the machines that went down by themselves.
	Exits() <-chan machine.Exit
	// Console returns the path of a machine's console log.
	Console(id string) string
}

// Clock is the source of time.
type Clock interface {
	Now() time.Time
	After(time.Duration) <-chan time.Time
}

// Nodes has what forwards behind the interfaces of load balancers.
type Nodes = map[string]network.Balancer

// Config is a Compute's configuration. All fields are required unless they say otherwise.
type Config struct {
	Region    string
	AccountID string
	Images    []Image      // what instances are made from
	ARM       bool         // whether zones offer types with arm64 processors
	PublicIPs []netip.Addr // public addresses that may be assigned
	Quotas    Quotas
	// Profile returns the instance profile with a name or an ARN, if EC2 knows it.
	Profile func(nameOrARN string) (Profile, bool)
	// Nodes returns what forwards behind the interfaces of load balancers. A node that is not in it takes no
	// packets. It is called without locks, and may ask the Compute.
	Nodes func() Nodes
	// EndTunnels ends the tunnels through an EC2 Instance Connect Endpoint.
	EndTunnels func(endpoint string)

	StateFile string // where the state is kept; empty keeps it in memory
	BootID    string // identifies the host's boot: machines recorded under another are started again

	Network  Network
	Machines Machines
	Clock    Clock
	Rand     io.Reader // for ids and keys
	Faults   *fault.Injector
	Log      *slog.Logger
}

// Compute is EC2 in one region of one account: its state, and the transitions of its instances.
type Compute struct {
	cfg    Config
	log    *slog.Logger
	faults *fault.Injector

	mu     sync.Mutex
	st     *state
	former map[string]any // by id, resources before a change that a fault hides

	netMu   sync.Mutex
	applied *network.Config // the last configuration applied; nil after a failure
	netErr  error           // of the last attempt

	buckets bucket.Set

	locks    keyedMutex
	launches launches
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

// Open makes a Compute from the saved state. It starts nothing before Start.
func Open(cfg Config) (*Compute, error) {
	cfg.Quotas = cfg.Quotas.withDefaults()
	raw, err := readStateFile(cfg.StateFile)
	if err != nil {
		return nil, err
	}
	st, err := decodeState(raw)
	if err != nil {
		return nil, fmt.Errorf("state file %s: %w", cfg.StateFile, err)
	}
	c := &Compute{cfg: cfg, log: cfg.Log, faults: cfg.Faults, st: st, former: map[string]any{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Start builds the network of the saved state. It adopts running machines, continues unfinished
// transitions and, after a reboot of the host, starts the running instances again.
func (c *Compute) Start(ctx context.Context) error {
	if err := c.tryNetwork(ctx); err != nil {
		return err
	}
	c.wg.Go(c.watchExits)
	return c.resume()
}

// Close waits for running transitions and starts no more. Machines and network keep running, for
// the next Open.
func (c *Compute) Close() {
	c.cancel()
	c.wg.Wait()
}

// random returns a number for an id. Errors of the source are ignored: crypto/rand never fails.
func (c *Compute) random() uint64 {
	var b [8]byte
	_, _ = io.ReadFull(c.cfg.Rand, b[:])
	return binary.BigEndian.Uint64(b[:])
}
