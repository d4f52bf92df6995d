package qemu

import (
	"fmt"
	"strings"
)

// Program is the emulator, of Debian's package qemu-system-x86.
const Program = "qemu-system-x86_64"

// Sockets and names of a running virtual machine. They are relative to the directory in which
// Program is started.
const (
	socket  = "qmp.sock"
	tapName = "vm0"
	// slot is the PCI slot of the network interface, which Debian's EC2 images call ens5 there.
	slot = 5
)

// A Disk is a block device of a virtual machine.
type Disk struct {
	ID     string // of the EBS volume
	File   string
	Format string // "raw" or "qcow2"
}

// serial is the disk's serial number, as EBS derives it from a volume's id. It has the 20
// characters that virtio allows.
func (d Disk) serial() string { return strings.ReplaceAll(d.ID, "-", "") }

// node and device are the names of the disk's parts in QEMU.
func (d Disk) node() string   { return "node-" + d.ID }
func (d Disk) device() string { return "disk-" + d.ID }

// Machine describes a virtual machine.
type Machine struct {
	Name        string
	Accelerator string // see [Accelerator]
	VCPUs       int
	Cores       int // on which the VCPUs are; VCPUs is a multiple of it
	MemoryMiB   int
	MAC         string
	MTU         int
	Product     string // what the firmware calls the computer: the instance type
	UUID        string // in lower case; an instance's UUID begins with "ec2"
	// Kernel and Initrd are files, CommandLine is the kernel's.
	Kernel, Initrd, CommandLine string
	Disks                       []Disk // the root volume first
	Console                     string // file that the serial console is appended to
}

// Args returns the arguments of Program.
func (m Machine) Args() []string {
	args := []string{
		"-name", m.Name,
		"-machine", "pc",
		"-accel", accelerators[m.Accelerator],
		"-cpu", cpus[m.Accelerator],
		"-smp", fmt.Sprintf("%d,sockets=1,cores=%d,threads=%d", m.VCPUs, m.Cores, m.VCPUs/m.Cores),
		"-m", fmt.Sprintf("%dM", m.MemoryMiB),
		"-nodefaults", "-no-user-config", "-display", "none", "-rtc", "base=utc",
		"-qmp", "unix:" + socket + ",server=on,wait=off",
		"-chardev", "file,id=console,append=on,path=" + escape(m.Console), "-serial", "chardev:console",
		"-kernel", m.Kernel, "-initrd", m.Initrd, "-append", m.CommandLine,
		"-smbios", fmt.Sprintf("type=1,manufacturer=Amazon EC2,product=%s,serial=%s,uuid=%s", escape(m.Product), m.UUID, m.UUID),
		"-netdev", "tap,id=net,ifname=" + tapName + ",script=no,downscript=no",
		"-device", fmt.Sprintf("virtio-net-pci,netdev=net,mac=%s,host_mtu=%d,addr=%d,romfile=", m.MAC, m.MTU, slot),
		"-device", "virtio-rng-pci",
	}
	for i, d := range m.Disks {
		device := fmt.Sprintf("virtio-blk-pci,id=%s,drive=%s,serial=%s,werror=report,rerror=report", d.device(), d.node(), d.serial())
		if i == 0 {
			device += ",addr=4"
		}
		args = append(args, "-blockdev", d.blockdev(), "-device", device)
	}
	return args
}

// accelerators are the arguments, by accelerator. With a thread for each processor the emulator may run an
// instruction of the kernel that another processor has replaced since (seen with QEMU 7.2 on a busy computer:
// "Oops: int3" in run_timer_softirq, two seconds after the start).
var accelerators = map[string]string{"kvm": "kvm", "tcg": "tcg,thread=single"}

// cpus are the processors that a guest sees, by accelerator.
var cpus = map[string]string{"kvm": "host", "tcg": "max"}

// blockdev is the disk as an argument. If the host has no space left, the guest gets an error, as of
// a broken disk (werror of the device); QEMU would pause it otherwise.
func (d Disk) blockdev() string {
	return fmt.Sprintf("driver=%s,node-name=%s,discard=unmap,file.driver=file,file.filename=%s", d.Format, d.node(), escape(d.File))
}

// escape makes a value of an argument that consists of several: a comma in it is written twice.
func escape(value string) string { return strings.ReplaceAll(value, ",", ",,") }
