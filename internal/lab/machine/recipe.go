package machine

import "slices"

// packageClasses are the packages of Debian's EC2 images on top of the base system, by the classes
// of the cloud team's recipe (https://salsa.debian.org/cloud-team/debian-cloud-images,
// config_space).
var packageClasses = []struct {
	name     string
	packages []string
	release  string // for this release only, by version; empty means every release
}{
	{name: "CLOUD", packages: []string{"openssh-server", "ssh-import-id", "cloud-initramfs-growroot"}},
	{name: "EC2", packages: []string{"awscli", "cloud-init", "cloud-guest-utils", "amazon-ec2-utils"}},
	// On EC2 the kernel's package brings kmod and udev; containers have no kernel.
	{name: "LINUX_VARIANT_CLOUD", packages: []string{"linux-image-cloud-amd64", "kmod", "udev"}},
	{name: "SYSTEM_BOOT", packages: []string{
		"grub-cloud-amd64", "sudo", "libpam-systemd", "systemd-resolved", "libnss-myhostname", "netplan.io", "polkitd",
		"unattended-upgrades", "apparmor", "zstd", "apt-utils", "init", "iptables", "iputils-ping", "less", "nano",
		"netbase", "vim-tiny", "whiptail", "dbus",
	}},
	{name: "SYSTEM_BOOT", packages: []string{"libnss-resolve", "linux-sysctl-defaults"}, release: "13"},
	{name: "TIME_SYSTEMD", packages: []string{"systemd-timesyncd"}},
	{name: "EXTRAS", packages: []string{
		"apt-listchanges", "bash-completion", "bind9-host", "man-db", "manpages", "socat", "pciutils", "reportbug",
		"traceroute", "vim", "psmisc", "tcpdump", "ca-certificates", "curl", "ethtool", "uuid-runtime", "screen", "xz-utils",
	}},
}

// A difference is something in which a machine differs from an instance of Debian's image on EC2,
// and why. The files below image give their own reasons.
type difference struct{ what, reason string }

// omitted are the packages of the recipe that are not installed, by kind of machine.
var omitted = map[Kind][]difference{
	Container: {
		{"linux-image-cloud-amd64", "a container runs on its host's kernel"},
		{"grub-cloud-amd64", "a container has no boot loader"},
		{"cloud-initramfs-growroot", "a container has no initramfs"},
		{"awscli", "a hundred megabytes that nothing here uses"},
	},
	VirtualMachine: {
		{"grub-cloud-amd64", "QEMU loads the kernel"},
		{"awscli", "a hundred megabytes that nothing here uses"},
	},
}

// masked are the units of the images that must not start in a container.
var masked = []difference{
	{"console-getty.service", "the console is the lab's log, nobody can log in there"},
	{"user@.service", "each login would start a service manager of its own, which nothing uses, and whose memory a laptop with ten machines needs"},
	{"systemd-timesyncd.service", "the clock is the host's to set"},
	{"systemd-binfmt.service", "binary formats are registered for the whole host"},
	{"proc-sys-fs-binfmt_misc.automount", "binary formats are registered for the whole host"},
	{"fstrim.timer", "the disk is the host's to trim"},
	{"e2scrub_all.timer", "the disk is the host's to check"},
	{"e2scrub_reap.service", "the disk is the host's to check"},
}

// packages returns the packages of the recipe for a release and a kind of machines, without the
// omitted ones.
func (r Release) packages(kind Kind) []string {
	var list []string
	for _, c := range packageClasses {
		if c.release == "" || c.release == r.Version {
			list = append(list, c.packages...)
		}
	}
	return slices.DeleteFunc(list, func(name string) bool {
		return slices.ContainsFunc(omitted[kind], func(d difference) bool { return d.what == name })
	})
}

// maskedUnits returns the units that must not start. A virtual machine has none.
func maskedUnits(kind Kind) []string {
	var units []string
	if kind == VirtualMachine {
		return nil
	}
	for _, d := range masked {
		units = append(units, d.what)
	}
	return units
}
