package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// killTimeout bounds the wait for killed processes to end. That takes milliseconds; the bound is
// for an overloaded host.
const killTimeout = 15 * time.Second

// Spec describes a machine to start.
type Spec struct {
	ID       string // instance id; also a file name and the nspawn machine name
	Image    string // id of the image that the disk is made from at the first start
	Snapshot string // id of the snapshot that it is made from instead; empty for Image
	Hostname string // used by the first boot; user data may change it afterwards
	Netns    string // path of a network namespace with the machine's interface
	// VCPUs is the number of processors, Cores the number of cores that they are on, and MemoryMiB
	// the memory that the machine's kernel can give to programs. The machine sees these numbers and
	// cannot use more. A container sees no more memory than the host has, and cannot run on more
	// processors than the host has.
	VCPUs, Cores, MemoryMiB int
	// InstalledMiB and Type are for virtual machines: the memory with the kernel's own share, and
	// the instance type.
	InstalledMiB int
	Type         string
	// Root is the volume with the disk of a virtual machine. A container's disk has no size.
	Root Volume
	// Volumes are what the machine has when it boots, in the order of their devices.
	Volumes []Volume
	// Files are written to the disk before the first boot, by path relative to its root, owned by
	// root, with mode 0644.
	Files map[string]string
}

// Manager starts, stops and watches the machines of one lab. It is safe for concurrent use; calls
// for the same machine wait for one another. A state directory must have only one Manager at a
// time.
type Manager struct {
	stateDir string
	platform platform
	images   []Image
	lab      cgroups
	exits    chan Exit

	watching context.Context
	release  context.CancelFunc
	watchers sync.WaitGroup
	removals sync.WaitGroup

	mu       sync.Mutex
	machines map[string]*instance

	sizing sync.Mutex // held while a machine chooses its CPUs
	// sources is held while a disk or a snapshot begins to depend on snapshots, and for writing while unused ones are
	// removed.
	sources sync.RWMutex
}

// A machine has two control groups, below one with its id. limitedGroup has the machine's
// processes, and its limits are the machine's size. helperGroup has lxcfs, which shows the machine
// its size.
const (
	limitedGroup = "machine"
	helperGroup  = "lxcfs"
)

// An instance is a machine that has a disk. Whoever changes its state holds op.
type instance struct {
	id       string
	disk     disk
	platform platform
	cgroups
	op chan struct{}

	volumesDir string
	volumes    sync.Mutex // held while the volumes or their devices change

	mu      sync.Mutex
	current *boot // nil when the machine is down
}

// An Exit says that a machine went down by itself.
type Exit struct {
	ID string
	// Reboot says that the machine is to boot again. It is false for a machine that an earlier
	// Manager started, since nobody knows.
	Reboot bool
}

// rebootStatus is the exit status of an nspawn with --keep-unit whose machine is to boot again.
const rebootStatus = 133

// A boot is one run of a machine, until its last process has ended. Its leader is nspawn or QEMU.
type boot struct {
	leader process
	status <-chan int // of the leader, if it is a child of this process
	ended  chan struct{}
	err    error // what could not be cleaned up; set before ended is closed

	mu          sync.Mutex
	endExpected bool // the end was requested, so Exits does not report it
}

// NewManager opens the lab in stateDir. It adopts the machines that run, and cleans up after those
// that ended while no Manager was open; [Manager.Exits] does not report these. All its machines are
// of one kind. A machine that has a disk keeps the image that the disk was made from; images are
// for other machines.
func NewManager(stateDir string, kind Kind, images []Image) (*Manager, error) {
	stateDir, err := filepath.Abs(stateDir)
	if err != nil {
		return nil, fmt.Errorf("machines: %w", err)
	}
	lab, err := labGroups(stateDir)
	if err != nil {
		return nil, fmt.Errorf("machines: %w", err)
	}
	m := &Manager{stateDir: stateDir, platform: kind.platform(), images: images, lab: lab, exits: make(chan Exit), machines: map[string]*instance{}}
	m.watching, m.release = context.WithCancel(context.Background())
	for _, dir := range []string{m.machinesDir(), m.trashDir(), m.volumesDir(), m.snapshotsDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("machines: %w", err)
		}
	}
	if err := m.adopt(); err != nil {
		m.Close()
		return nil, fmt.Errorf("machines of %s: %w", stateDir, err)
	}
	return m, nil
}

func (m *Manager) machinesDir() string { return filepath.Join(m.stateDir, "machines") }
func (m *Manager) trashDir() string    { return filepath.Join(m.stateDir, "trash") }

func labGroups(stateDir string) (cgroups, error) {
	in, err := hierarchies()
	if err != nil {
		return cgroups{}, err
	}
	sum := sha256.Sum256([]byte(stateDir))
	return cgroups{in: in, path: cgroupParent + "/" + hex.EncodeToString(sum[:6])}, nil
}

func (m *Manager) newInstance(id string) *instance {
	return &instance{
		id:       id,
		disk:     diskOf(m.stateDir, id),
		platform: m.platform,
		cgroups:  cgroups{in: m.lab.in, path: m.lab.path + "/" + id},
		op:       make(chan struct{}, 1),

		volumesDir: m.volumesDir(),
	}
}

func (in *instance) limited() cgroups { return in.below(limitedGroup) }
func (in *instance) helper() cgroups  { return in.below(helperGroup) }

func (m *Manager) adopt() error {
	entries, err := os.ReadDir(m.machinesDir())
	if err != nil {
		return err
	}
	for _, e := range entries {
		in := m.newInstance(e.Name())
		m.machines[in.id] = in
		if leader, ok := in.leader(); ok {
			in.limited().thaw() // an earlier Manager may have been killed while it took a snapshot
			b := m.watch(in, leader, nil)
			m.watchers.Go(func() { m.replug(in, b) })
		}
	}
	trash, err := os.ReadDir(m.trashDir())
	if err != nil {
		return err
	}
	for _, e := range trash {
		m.remove(filepath.Join(m.trashDir(), e.Name()))
	}
	ctx, cancel := context.WithTimeout(m.watching, killTimeout)
	defer cancel()
	for _, dir := range m.lab.dirs() {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if e.IsDir() && !m.Running(e.Name()) {
				if err := m.newInstance(e.Name()).clear(ctx); err != nil {
					return err
				}
			}
		}
	}
	return errors.Join(m.unplugUnused(), m.sweepSnapshots())
}

// leader returns the leader of the last boot as recorded on the disk, if it is alive.
func (in *instance) leader() (process, bool) {
	content, err := os.ReadFile(in.disk.path("leader"))
	if err != nil {
		return process{}, false
	}
	p, err := parseProcess(string(content))
	return p, err == nil && p.alive()
}

// clear kills a machine's processes and removes everything but its disk.
func (in *instance) clear(ctx context.Context) error {
	return errors.Join(in.destroy(ctx), in.unplugVolumes(), in.platform.clear(in))
}

// watch waits in the background for the end of the boot with the given leader, and cleans up after
// it. status delivers the leader's exit status; it is nil for a process that is not a child.
func (m *Manager) watch(in *instance, leader process, status <-chan int) *boot {
	b := &boot{leader: leader, status: status, ended: make(chan struct{})}
	in.mu.Lock()
	in.current = b
	in.mu.Unlock()
	m.watchers.Go(func() {
		if leader.wait(m.watching) != nil {
			return
		}
		ctx, cancel := context.WithTimeout(m.watching, killTimeout)
		defer cancel()
		b.err = errors.Join(in.clear(ctx), os.RemoveAll(in.disk.path("leader")))
		in.mu.Lock()
		in.current = nil
		in.mu.Unlock()
		b.mu.Lock()
		unexpected := !b.endExpected
		b.mu.Unlock()
		close(b.ended)
		if unexpected {
			select {
			case m.exits <- Exit{ID: in.id, Reboot: b.reboots()}:
			case <-m.watching.Done():
			}
		}
	})
	return b
}

// reboots reports whether a finished boot ended because the machine is to boot again.
func (b *boot) reboots() bool { return b.status != nil && <-b.status == rebootStatus }

func (in *instance) running() *boot {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.current
}

// expectEnd records that the boot is about to be ended on purpose.
func (b *boot) expectEnd() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endExpected = true
}

// acquire returns the machine with the id. The caller may change its state until it calls done.
func (m *Manager) acquire(ctx context.Context, id string) (in *instance, done func(), err error) {
	if in = m.find(id); in == nil {
		return nil, nil, fmt.Errorf("machine %s: %w", id, fs.ErrNotExist)
	}
	select {
	case in.op <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("machine %s is busy: %w", id, context.Cause(ctx))
	}
	if m.find(id) != in {
		return nil, nil, fmt.Errorf("machine %s: %w: terminated meanwhile", id, fs.ErrNotExist)
	}
	return in, func() { <-in.op }, nil
}

// Publish adds an image.
func (m *Manager) Publish(img Image) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.images = append(slices.Clone(m.images), img)
}

func (m *Manager) image(id string) (Image, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, img := range m.images {
		if img.ID == id {
			return img, nil
		}
	}
	return Image{}, fmt.Errorf("there is no image %q", id)
}

func (m *Manager) find(id string) *instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machines[id]
}

// GrowRoot gives the root volume of a machine a bigger size, which a running machine sees. A
// container's root volume has no size.
func (m *Manager) GrowRoot(ctx context.Context, id string, root Volume) error {
	in, done, err := m.acquire(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	if in.running() == nil {
		return nil
	}
	if err := in.platform.grow(ctx, in, root); err != nil {
		return fmt.Errorf("grow the root volume of machine %s: %w", id, err)
	}
	return nil
}

// Running says whether the machine is up. It may have been started by an earlier Manager.
func (m *Manager) Running(id string) bool {
	in := m.find(id)
	return in != nil && in.running() != nil
}

// Exits delivers the machines that went down without a call of this Manager: powered off or rebooted
// from inside, or killed. The caller must receive from it all the time.
func (m *Manager) Exits() <-chan Exit { return m.exits }

// Console returns the path of the log of the machine's console, which has all its boots.
func (m *Manager) Console(id string) string {
	return ConsoleLog(m.stateDir, id)
}

// ConsoleLog is like Console, for the machines of a manager with this state directory, which need not
// be open.
func ConsoleLog(stateDir, id string) string {
	return diskOf(stateDir, id).path("console.log")
}

// Close stops watching. Machines keep running until a later Manager adopts them.
func (m *Manager) Close() {
	m.release()
	m.watchers.Wait()
	m.removals.Wait()
}

func (in *instance) saveSpec(s Spec) error {
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(in.disk.path("spec.json"), content, 0o600)
}

func (in *instance) loadSpec() (s Spec, err error) {
	content, err := os.ReadFile(in.disk.path("spec.json"))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(content, &s)
}
