package machine

import (
	"context"
	"fmt"
	"os/exec"

	"golang.org/x/sys/unix"
	"k8s.io/utils/cpuset"
)

// A Kind is what machines are: containers of systemd-nspawn, or virtual machines of QEMU.
type Kind string

// The kinds of machines.
const (
	Container      Kind = "container"
	VirtualMachine Kind = "vm"
)

// ParseKind returns the kind with a name. An empty one chooses none.
func ParseKind(name string) (Kind, error) {
	switch k := Kind(name); k {
	case "", Container, VirtualMachine:
		return k, nil
	}
	return "", fmt.Errorf("there are no machines of the kind %q: it is %s or %s", name, Container, VirtualMachine)
}

// noun is what one machine of the kind is.
func (k Kind) noun() string {
	if k == VirtualMachine {
		return "virtual machine"
	}
	return "container"
}

func (k Kind) platform() platform {
	if k == VirtualMachine {
		return &virtual{}
	}
	return containers{}
}

// A platform is what a kind of machines needs for each step of a machine's life.
type platform interface {
	// prepare makes the machine's disk ready for a boot, from an image or a snapshot if there is none yet.
	prepare(ctx context.Context, in *instance, s Spec, from source) error
	// snapshot copies the machine's disk into a directory. The machine is down or stands still.
	snapshot(ctx context.Context, in *instance, to string) error
	// still calls f while the running machine stands still.
	still(ctx context.Context, in *instance, f func() error) error
	// limits are what the machine's control groups limit.
	limits(s Spec, cpus cpuset.CPUSet) []limit
	// showSize prepares what the machine sees of its size.
	showSize(in *instance, s Spec, cpus cpuset.CPUSet) error
	// spawn starts the boot's leader, detached from this process.
	spawn(ctx context.Context, in *instance, s Spec) (*exec.Cmd, error)
	// up returns an error until the machine is up.
	up(ctx context.Context, in *instance, b *boot) error
	// shutDown and reboot ask the machine to do so, and do not wait for it. heard says that it need not
	// be asked again.
	shutDown(ctx context.Context, in *instance, b *boot) (heard bool)
	reboot(ctx context.Context, in *instance, b *boot) error
	// place makes the devices of a running machine agree with the volumes that it has. It may be called
	// again at any time.
	place(ctx context.Context, in *instance, b *boot) error
	// detach takes a volume away from a running machine and records which volumes are left.
	// ErrVolumeInUse says that the machine keeps the volume. With force, a container never keeps
	// it.
	detach(ctx context.Context, in *instance, b *boot, volume string, rest []attachedVolume, force bool) error
	// grow gives the root volume of a running machine a bigger size.
	grow(ctx context.Context, in *instance, root Volume) error
	// clear removes what a boot leaves on the host beside its control groups and its disk.
	clear(in *instance) error
}

// containers are machines that systemd boots inside systemd-nspawn.
type containers struct{}

const sigrtmin = 34 // of glibc, which systemd counts from

func (containers) limits(s Spec, cpus cpuset.CPUSet) []limit { return s.limits(cpus) }

func (containers) up(_ context.Context, _ *instance, b *boot) error {
	_, err := b.leader.init()
	return err
}

// shutDown sends nspawn a signal. nspawn then sends the signal of --kill-signal, power off, to the
// machine. On a second signal nspawn would cut the power.
func (containers) shutDown(_ context.Context, _ *instance, b *boot) bool {
	_ = b.leader.signal(unix.SIGTERM) // it fails if the machine has just ended
	return true
}

// reboot sends the signal on which systemd reboots gracefully (systemd(1), Signals).
func (containers) reboot(_ context.Context, _ *instance, b *boot) error {
	init, err := b.leader.init()
	if err != nil {
		return err
	}
	return init.signal(sigrtmin + 5)
}

// snapshot copies the machine's layer, and what it has in dataDirs.
func (containers) snapshot(ctx context.Context, in *instance, to string) error {
	return cp(ctx, in.disk.path("upper"), in.disk.path("data"), to)
}

// still stops the machine's processes for a while.
func (containers) still(ctx context.Context, in *instance, f func() error) error {
	return in.limited().still(ctx, f)
}

// grow does nothing: a container's disk has no size of its own.
func (containers) grow(context.Context, *instance, Volume) error { return nil }

func (containers) clear(in *instance) error { return removePropagateDir(in.id) }
