package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/qemu"
)

// A tool is a program on the host, with its Debian and Ubuntu package.
type tool struct{ name, pkg string }

// tools are what machines need, by kind.
var tools = map[Kind][]tool{
	Container: {
		{"systemd-nspawn", "systemd-container"},
		{"mount", "mount"},
		{"ip", "iproute2"},
		{"nft", "nftables"},
		{"lxcfs", "lxcfs"},
	},
	VirtualMachine: {
		{qemu.Program, "qemu-system-x86"},
		{"qemu-img", "qemu-utils"},
		{"nsenter", "util-linux"},
		{"ip", "iproute2"},
		{"nft", "nftables"},
	},
}

// buildTools are needed only if cacheDir lacks an image.
var buildTools = map[Kind][]tool{
	Container:      {{"debootstrap", "debootstrap"}, {"chroot", "coreutils"}},
	VirtualMachine: {{"debootstrap", "debootstrap"}, {"chroot", "coreutils"}, {"sfdisk", "fdisk"}, {"mkfs.ext4", "e2fsprogs"}},
}

// debianKeyring is what debootstrap checks the mirror's signature with.
const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// Preflight checks that the host can run machines of a kind, and can build their images if cacheDir
// lacks one. It loads missing kernel modules and returns their names. The error names everything that is
// missing, and what to do about it.
func Preflight(ctx context.Context, cacheDir string, kind Kind) (loaded []string, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("machines need root: run this as root, or with sudo")
	}
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }

	wanted := tools[kind]
	present := true
	for _, r := range Releases {
		_, there, err := LocateImage(cacheDir, r, kind)
		if err != nil {
			problem("base image: %w", err)
		}
		present = present && there
	}
	if !present {
		wanted = append(wanted[:len(wanted):len(wanted)], buildTools[kind]...)
		if !exists(debianKeyring) {
			problem("%s is missing: apt-get install debian-archive-keyring", debianKeyring)
		}
	}
	have := map[string]bool{}
	for _, t := range wanted {
		_, err := exec.LookPath(t.name)
		have[t.name] = err == nil
		if err != nil {
			problem("%s is missing: apt-get install %s", t.name, t.pkg)
		}
	}

	release, err := kernelRelease()
	if err != nil {
		return nil, fmt.Errorf("kernel release: %w", err)
	}
	if missing := missingModules(release, kind); len(missing) > 0 {
		_ = exec.CommandContext(ctx, "modprobe", append([]string{"-a", "-q"}, missing...)...).Run()
		still := missingModules(release, kind)
		loaded = slices.DeleteFunc(missing, func(name string) bool { return slices.Contains(still, name) })
	}
	switch kind {
	case Container:
		problems = append(problems, missingForContainers()...)
	case VirtualMachine:
		if !exists("/dev/net/tun") {
			problem("/dev/net/tun is missing, through which virtual machines reach their networks (CONFIG_TUN): modprobe tun, or use another kernel")
		}
		if runtime.GOARCH != "amd64" {
			problem("virtual machines need a host with an amd64 processor, and this one has %s", runtime.GOARCH)
		}
	}
	// Each runs in a network namespace that ends with the command, so that nothing is left.
	for _, probe := range []struct {
		what string
		args []string
	}{
		{"virtual network interfaces (CONFIG_VETH; modprobe veth)", []string{"ip", "link", "add", "type", "veth"}},
		{"nf_tables (CONFIG_NF_TABLES; modprobe nf_tables)", []string{"nft", "add", "table", "inet", "probe"}},
		{"connection tracking (CONFIG_NF_CONNTRACK; modprobe nf_conntrack)", []string{"nft", "add table inet probe; add chain inet probe c; add rule inet probe c ct state new"}},
	} {
		if !have[probe.args[0]] {
			continue
		}
		cmd := exec.CommandContext(ctx, probe.args[0], probe.args[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if out, err := cmd.CombinedOutput(); err != nil {
			problem("network namespaces with %s do not work here; use another kernel, or a host that is not a container: %w: %s",
				probe.what, err, bytes.TrimSpace(out))
		}
	}
	if in, err := hierarchies(); err != nil {
		problem("%w: mount -t cgroup2 cgroup2 /sys/fs/cgroup", err)
	} else if missing := missingControllers(in); len(missing) > 0 {
		problem("control groups cannot limit a machine's size, the controllers %s are missing: enable them (cgroup_enable= on the kernel's command line), or use another kernel",
			strings.Join(missing, ", "))
	}
	if err := errors.Join(problems...); err != nil {
		return loaded, fmt.Errorf("this host cannot run machines:\n%w", err)
	}
	return loaded, nil
}

// missingForContainers returns what the host lacks for containers.
func missingForContainers() (problems []error) {
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if !exists("/sys/module/overlay") {
		if types, _ := os.ReadFile("/proc/filesystems"); !strings.Contains(string(types), "\toverlay\n") {
			problem("the kernel has no overlay file system (CONFIG_OVERLAY_FS): modprobe overlay, or use another kernel")
		}
	}
	if !exists("/proc/sys/net/bridge") {
		problem("the kernel has no bridge filtering (CONFIG_BRIDGE_NETFILTER): modprobe br_netfilter, or use another kernel")
	}
	for _, ns := range []string{"cgroup", "ipc", "mnt", "net", "pid", "uts"} {
		if !exists("/proc/self/ns/" + ns) {
			problem("the kernel has no %s namespaces: use another kernel", ns)
		}
	}
	if !exists("/dev/fuse") {
		problem("/dev/fuse is missing, through which lxcfs shows machines their size (CONFIG_FUSE_FS): modprobe fuse, or use another kernel")
	}
	if !exists("/dev/loop-control") {
		problem("/dev/loop-control is missing, through which machines get their volumes (CONFIG_BLK_DEV_LOOP): modprobe loop, or use another kernel")
	}
	if !exists("/dev/kmsg") {
		problem("/dev/kmsg is missing, which kubelets read: mknod /dev/kmsg c 1 11")
	}
	return problems
}
