package machine

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// A variant is how an image of somebody else differs from Debian's. Machines of its image get files on their disks
// beside Debian's, and a script, which runs at each boot before cloud-init and before anybody can log in.
type variant struct {
	files   map[string]string // by path relative to the root
	script  string
	sizeGiB int // of the root volume; zero for that of Debian's image
}

// sshdSettings is a file that sshd reads before its own: the first value of a setting counts.
const sshdSettings = "etc/ssh/sshd_config.d/10-variant.conf"

var variants = map[string]variant{
	// Ubuntu's sudo knows a group admin, and images have it.
	"admin-group": {script: "getent group admin || groupadd --system admin\n"},
	"large":       {sizeGiB: 30},
	// Benchmarks for secure settings, such as CIS's, forbid what an SSH server forwards.
	"hardened-sshd": {files: map[string]string{sshdSettings: "AllowTcpForwarding no\nAllowAgentForwarding no\nX11Forwarding no\n"}},
	// They also want that nothing in /tmp is executed. nspawn has mounted it already.
	"noexec-tmp": {script: "mountpoint -q /tmp || mount -t tmpfs -o mode=1777 tmpfs /tmp\nmount -o remount,noexec,nosuid,nodev /tmp\n"},
	// FIPS 140 has no Curve25519: https://csrc.nist.gov/pubs/fips/186-5/final allows ed25519, and the modules of
	// distributions do not have it.
	"fips": {files: map[string]string{sshdSettings: "HostKeyAlgorithms " + fipsKeys + "\nPubkeyAcceptedAlgorithms " + fipsKeys + "\n" +
		"KexAlgorithms ecdh-sha2-nistp256,ecdh-sha2-nistp384,diffie-hellman-group14-sha256,diffie-hellman-group16-sha512\n" +
		"Ciphers aes256-gcm@openssh.com,aes128-gcm@openssh.com,aes256-ctr,aes128-ctr\nMACs hmac-sha2-256,hmac-sha2-512\n"}},
	// What a company's image does at its first boot.
	"upgrades-and-reboots": {files: map[string]string{"etc/cloud/cloud.cfg.d/95-variant.cfg": "runcmd:\n- [sleep, '20']\npower_state:\n  mode: reboot\n  delay: now\n"}},
}

const fipsKeys = "ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,rsa-sha2-256,rsa-sha2-512"

// Variants returns the names of the variants of Debian's images.
func Variants() []string { return slices.Sorted(maps.Keys(variants)) }

// As returns a variant of a container's image, by its name. The result differs from other variants by its name only:
// Republished gives it an id of its own.
func (i Image) As(name string) (Image, error) {
	v, ok := variants[name]
	if !ok {
		return Image{}, fmt.Errorf("there is no variant %q of an image: %s", name, strings.Join(Variants(), ", "))
	}
	i.Variant, i.Name, i.Release, i.SizeGiB = name, i.Name+"-"+name, "", v.sizeGiB
	return i, nil
}

// variantFiles returns the files in which a machine's disk differs from Debian's image, by path.
func (i Image) variantFiles() map[string]string {
	v := variants[i.Variant]
	files := maps.Clone(v.files)
	if v.script == "" {
		return files
	}
	const script, unit = "usr/lib/k8s-lab/variant", "k8s-lab-variant.service"
	if files == nil {
		files = map[string]string{}
	}
	files[script] = "set -eu\n" + v.script
	files[path.Join("etc/systemd/system/sysinit.target.d", "k8s-lab-variant.conf")] = "[Unit]\nWants=" + unit + "\n"
	files[path.Join("etc/systemd/system", unit)] = `[Unit]
Description=What differs in the image ` + i.Variant + `
DefaultDependencies=no
After=local-fs.target
Before=cloud-init-local.service cloud-init-main.service ssh.service ssh.socket
Conflicts=shutdown.target
Before=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh /` + script + "\n"
	return files
}
