package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/utils/cpuset"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/qemu"
)

// guestInterface is the name of the interface in a machine's network namespace, and of the
// interface inside a virtual machine, which takes its place.
const guestInterface = "ens5"

// virtual are virtual machines of QEMU.
type virtual struct {
	probe       sync.Once
	accelerator string
}

// prepare makes the root volume on top of the disk of the image or snapshot, or gives it a bigger size.
func (v *virtual) prepare(ctx context.Context, in *instance, s Spec, from source) error {
	if (len(s.Files) > 0 || from.image.Variant != "") && !in.disk.prepared() {
		return errors.New("files cannot be written to the disk of a virtual machine before its first boot")
	}
	disk := in.disk.path("disk.qcow2")
	if in.disk.prepared() {
		return qemuImg(ctx, "resize", "-q", disk, fmt.Sprintf("%dG", s.Root.SizeGiB))
	}
	if err := in.disk.madeFrom(from); err != nil {
		return err
	}
	// It is made beside its destination and renamed, so that an interrupted preparation does not
	// count.
	made := in.disk.path("new.qcow2")
	format, below := "raw", filepath.Join(from.image.Dir, imageDisk)
	if len(from.snapshots) > 0 {
		format, below = "qcow2", filepath.Join(from.snapshots[0], "disk.qcow2")
	}
	if err := qemuImg(ctx, "create", "-q", "-f", "qcow2", "-F", format, "-b", below, made, fmt.Sprintf("%dG", s.Root.SizeGiB)); err != nil {
		return err
	}
	return os.Rename(made, disk)
}

func qemuImg(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "qemu-img", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("qemu-img %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}

// overheadMiB is how much memory QEMU may use in addition to the guest's memory. The emulator alone
// keeps a gibibyte of translated code.
const overheadMiB = 2048

func (v *virtual) limits(s Spec, cpus cpuset.CPUSet) []limit {
	s.MemoryMiB = s.InstalledMiB + overheadMiB
	return s.limits(cpus)
}

func (v *virtual) showSize(*instance, Spec, cpuset.CPUSet) error { return nil }

// enter executes QEMU in the machine's control groups and network namespace.
const enter = `
netns=$1
shift
while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs"; shift; done
shift
exec nsenter --net="$netns" -- "$@"
`

func (v *virtual) spawn(ctx context.Context, in *instance, s Spec) (*exec.Cmd, error) {
	from, err := in.disk.source()
	if err != nil {
		return nil, err
	}
	volumes, err := in.loadVolumes()
	if err != nil {
		return nil, err
	}
	guest, err := qemu.Connect(s.Netns, guestInterface)
	if err != nil {
		return nil, err
	}
	v.probe.Do(func() { v.accelerator = qemu.Accelerator(context.WithoutCancel(ctx)) }) // the next machine has the answer, too
	m := qemu.Machine{
		Name: s.ID, Accelerator: v.accelerator, VCPUs: s.VCPUs, Cores: s.Cores, MemoryMiB: s.InstalledMiB,
		MAC: guest.MAC, MTU: guest.MTU, Product: s.Type, UUID: instanceUUID(s.ID),
		Kernel: filepath.Join(from.image.Dir, imageKernel), Initrd: filepath.Join(from.image.Dir, imageInitrd),
		// What Debian's EC2 images pass, beside the place of their root file system.
		CommandLine: "root=PARTUUID=" + rootPartition + " ro console=tty0 console=ttyS0,115200",
		Console:     "console.log",
		Disks:       append([]qemu.Disk{{ID: s.Root.ID, File: "disk.qcow2", Format: "qcow2"}}, in.disks(volumes)...),
	}
	args := append([]string{"-euc", enter, "enter", s.Netns}, in.limited().dirs()...)
	args = append(append(args, "--", qemu.Program), m.Args()...)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "sh", args...)
	cmd.Dir = string(in.disk)
	cmd.Env = programs()
	return cmd, in.disk.detach(cmd)
}

// instanceUUID returns the UUID of an instance. Programs recognise EC2 by its first characters.
func instanceUUID(id string) string {
	sum := sha256.Sum256([]byte("uuid " + id))
	h := hex.EncodeToString(sum[:])
	return fmt.Sprintf("ec2%s-%s-4%s-8%s-%s", h[:5], h[5:9], h[9:12], h[12:15], h[15:27])
}

// disks are volumes as devices of a virtual machine, in the order of their numbers.
func (in *instance) disks(volumes []attachedVolume) []qemu.Disk {
	slices.SortFunc(volumes, func(a, b attachedVolume) int { return a.Number - b.Number })
	var disks []qemu.Disk
	for _, a := range volumes {
		disks = append(disks, qemu.Disk{ID: a.ID, File: in.volumeFile(a.ID), Format: "raw"})
	}
	return disks
}

func (v *virtual) up(ctx context.Context, in *instance, _ *boot) error {
	return qemu.Runs(ctx, string(in.disk))
}

// shutDown presses the power button. A machine that boots may not listen yet.
func (v *virtual) shutDown(ctx context.Context, in *instance, _ *boot) bool {
	_ = qemu.PowerButton(ctx, string(in.disk)) // it is pressed again
	return false
}

// reboot shuts the machine down; its Manager boots it again.
func (v *virtual) reboot(ctx context.Context, in *instance, _ *boot) error {
	return qemu.PowerButton(ctx, string(in.disk))
}

func (v *virtual) place(ctx context.Context, in *instance, _ *boot) error {
	s, err := in.loadSpec()
	if err != nil {
		return err
	}
	volumes, err := in.loadVolumes()
	if err != nil {
		return err
	}
	return qemu.SetDisks(ctx, string(in.disk), s.Root.ID, in.disks(volumes), func(d qemu.Disk) (int64, error) {
		info, err := os.Stat(d.File)
		if err != nil {
			return 0, err
		}
		return info.Size(), nil
	})
}

// detach takes a volume away. Unlike on EC2, a guest gives up even a mounted disk. A guest that
// does not answer keeps the disk until it is stopped, even if the volume is detached by force.
func (v *virtual) detach(ctx context.Context, in *instance, b *boot, _ string, rest []attachedVolume, _ bool) error {
	had, err := in.loadVolumes()
	if err != nil {
		return err
	}
	if err := in.saveVolumes(rest); err != nil {
		return err
	}
	err = v.place(ctx, in, b)
	if errors.Is(err, qemu.ErrKept) {
		return errors.Join(fmt.Errorf("%w: %w", ErrVolumeInUse, err), in.saveVolumes(had))
	}
	return err
}

// snapshot copies what the root volume has beside the image.
func (v *virtual) snapshot(ctx context.Context, in *instance, to string) error {
	return cp(ctx, in.disk.path("disk.qcow2"), to)
}

func (v *virtual) still(ctx context.Context, in *instance, f func() error) error {
	return qemu.Still(ctx, string(in.disk), f)
}

func (v *virtual) grow(ctx context.Context, in *instance, root Volume) error {
	return qemu.Resize(ctx, string(in.disk), root.ID, int64(root.SizeGiB)<<30)
}

func (v *virtual) clear(in *instance) error {
	s, err := in.loadSpec()
	if err != nil {
		return nil //nolint:nilerr // it has never been started
	}
	return errors.Join(qemu.Disconnect(s.Netns, guestInterface), os.RemoveAll(in.disk.path("qmp.sock")))
}
