package release

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// ciliumFormat is raised when the same definition yields other images.
const ciliumFormat = 1

// ciliumPackages are the packages of Debian 12 in the agent's image, with their libraries: the compiler with
// which the agent makes its BPF programs, the programs that it calls, and a userland for the scripts of the
// chart. Nothing is configured: no package's scripts run.
var ciliumPackages = strings.Fields(`
	clang-19 libclang-cpp19 libllvm19 libstdc++6 libgcc-s1 libc6 libzstd1 zlib1g libxml2 libicu72 liblzma5 libedit2 libbsd0 libmd0 libtinfo6 libffi8 libz3-4 libgmp10
	iptables libxtables12 libnftnl11 libmnl0 libnfnetlink0 libnetfilter-conntrack3 libip4tc2 libip6tc2 ipset libipset13
	kmod libkmod2 libssl3 iproute2 libelf1 libbpf1 libcap2 libdb5.3 libselinux1 libpcre2-8-0
	mount util-linux libmount1 libblkid1 libsmartcols1 libuuid1 dash bash coreutils libacl1 libattr1 grep sed mawk findutils procps libproc2-0 hostname ca-certificates bpftool`)

// ciliumFiles are the files of the module in the agent's image, by their places there.
var ciliumFiles = map[string]string{
	"var/lib/cilium/bpf": "bpf", "init-container.sh": "images/cilium/init-container.sh",
	"install-plugin.sh": "plugins/cilium-cni/install-plugin.sh", "cni-uninstall.sh": "plugins/cilium-cni/cni-uninstall.sh",
}

// ciliumPrograms are the places of the agent's programs in its image.
var ciliumPrograms = map[string]string{
	"cilium-agent": "usr/bin/cilium-agent", "cilium-dbg": "usr/bin/cilium-dbg", "cilium-health": "usr/bin/cilium-health",
	"cilium-health-responder": "usr/bin/cilium-health-responder",
	"cilium-mount":            "usr/bin/cilium-mount", "cilium-sysctlfix": "usr/bin/cilium-sysctlfix", "cilium-cni": "opt/cni/bin/cilium-cni",
}

// ciliumLinks are symbolic links of the agent's image, some of which packages' scripts would make
// if they ran.
var ciliumLinks = map[string]string{
	"usr/bin/cilium": "cilium-dbg", "usr/bin/clang": "clang-19", "usr/bin/sh": "dash", "usr/bin/awk": "mawk",
	"usr/sbin/iptables": "xtables-nft-multi", "usr/sbin/iptables-save": "xtables-nft-multi", "usr/sbin/iptables-restore": "xtables-nft-multi",
	"usr/sbin/ip6tables": "xtables-nft-multi", "usr/sbin/ip6tables-save": "xtables-nft-multi", "usr/sbin/ip6tables-restore": "xtables-nft-multi",
}

// ciliumRoot makes the directory tree of the agent's image.
func (b *builder) ciliumRoot(ctx context.Context, root, programs, source string) error {
	if err := b.debianRoot(ctx, root, ciliumPackages); err != nil {
		return err
	}
	for to, from := range ciliumFiles {
		if err := b.copyTree(ctx, filepath.Join(source, from), filepath.Join(root, to)); err != nil {
			return err
		}
	}
	for name, to := range ciliumPrograms {
		to = filepath.Join(root, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := copyFile(to, filepath.Join(programs, name), 0o755); err != nil {
			return err
		}
	}
	for at, to := range ciliumLinks {
		at = filepath.Join(root, at)
		if err := os.Remove(at); err != nil && !os.IsNotExist(err) {
			return err
		}
		if err := os.Symlink(to, at); err != nil {
			return err
		}
	}
	return nil
}

// copyTree copies a file or directory of a module, which is read-only there.
func (b *builder) copyTree(ctx context.Context, from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := run(b.command(ctx, b.work, "cp", "--recursive", "--no-preserve=mode", from, to), nil); err != nil {
		return err
	}
	if strings.HasSuffix(to, ".sh") {
		return os.Chmod(to, 0o755) //nolint:gosec // a script of an image
	}
	return nil
}

// debianRoot unpacks packages to a directory tree in which /bin, /sbin and /lib are links into /usr.
func (b *builder) debianRoot(ctx context.Context, root string, packages []string) error {
	for _, dir := range []string{"usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "proc", "sys", "dev", "run", "tmp", "etc", "root", "var/lib"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink(path.Join("usr", dir), filepath.Join(root, dir)); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"passwd": passwd, "group": group} {
		if err := os.WriteFile(filepath.Join(root, "etc", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp(b.work, "packages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	stop := b.progress.Quiet(fmt.Sprintf("downloading %d Debian packages", len(packages)))
	err = run(b.command(ctx, dir, "apt-get", append([]string{"download", "-q", "-o", "APT::Sandbox::User=root"}, packages...)...), nil)
	stop()
	if err != nil {
		return fmt.Errorf("downloading Debian packages (is `apt-get update` due, and is this Debian 12?): %w", err)
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	const unpack = `set -e; for deb; do dpkg-deb --fsys-tarfile "$deb" | tar --extract --keep-directory-symlink --directory "$0" ` +
		`--exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale --exclude=./usr/share/info; done`
	return run(b.command(ctx, dir, "sh", append([]string{"-c", unpack, root}, debs...)...), nil)
}
