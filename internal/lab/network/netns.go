package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/nsenter"
)

// netnsDir is where ip-netns(8) and nspawn look for named network namespaces.
const netnsDir = "/run/netns"

// ownMountMark is a file in claimsDir that says that shareNetnsDir made the mount at netnsDir,
// which must be undone.
const ownMountMark = "netns-mount"

func netnsPath(name string) string { return filepath.Join(netnsDir, name) }

// sysctl is one setting below /proc/sys/net and its value.
type sysctl struct{ key, value string }

// within is [nsenter.Run] in a pinned namespace.
func within(name string, fn func() error) error { return nsenter.Run(netnsPath(name), fn) }

// ensureNamespace creates a pinned namespace unless it exists, with its loopback up and IPv6 off,
// and says whether it did. The settings are applied only to a new one, since a machine may have
// changed those of an existing one.
func ensureNamespace(name string, settings ...sysctl) (created bool, err error) {
	if pinned(name) {
		return false, nil
	}
	settings = append([]sysctl{
		{"ipv6/conf/all/disable_ipv6", "1"},
		{"ipv6/conf/default/disable_ipv6", "1"},
	}, settings...)
	if err := createNamespace(name, settings); err != nil {
		return false, fmt.Errorf("create network namespace %s: %w", name, err)
	}
	return true, nil
}

// pinned says whether a namespace is mounted under the name. A crash may leave a mere file.
func pinned(name string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(netnsPath(name), &stat) == nil && stat.Type == unix.NSFS_MAGIC
}

// createNamespace sets up a namespace before it pins it, so that a pinned one is always complete.
func createNamespace(name string, settings []sysctl) error {
	path := netnsPath(name)
	return withLock(claimsDir, func() error {
		if err := shareNetnsDir(); err != nil {
			return err
		}
		if err := os.WriteFile(path, nil, 0o444); err != nil {
			return err
		}
		err := nsenter.OnThread(func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("unshare: %w", err)
			}
			if err := setSysctls(settings); err != nil {
				return err
			}
			if err := bringUp("lo"); err != nil {
				return err
			}
			if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("pin: %w", err)
			}
			return nil
		})
		if err != nil {
			return errors.Join(err, os.Remove(path))
		}
		return nil
	})
}

// shareNetnsDir makes the directory a shared mount, as ip-netns(8) does on its first use. Otherwise
// ip-netns(8) would mount over our namespaces, and unpinning one would leave a second pin below.
func shareNetnsDir() error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return err
	}
	share := func() error { return unix.Mount("", netnsDir, "", unix.MS_SHARED|unix.MS_REC, "") }
	err := share()
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	if err := os.WriteFile(filepath.Join(claimsDir, ownMountMark), nil, 0o644); err != nil {
		return err
	}
	if err := unix.Mount(netnsDir, netnsDir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s: %w", netnsDir, err)
	}
	return share()
}

// restoreNetnsDir undoes shareNetnsDir if no namespace is left.
func restoreNetnsDir() error {
	return withLock(claimsDir, func() error {
		mark := filepath.Join(claimsDir, ownMountMark)
		if _, err := os.Stat(mark); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		entries, err := os.ReadDir(netnsDir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) || len(entries) > 0 {
			return err
		}
		if err := unix.Unmount(netnsDir, 0); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", netnsDir, err)
		}
		_ = os.Remove(netnsDir) // other programs may have put something below the mount
		return os.Remove(mark)
	})
}

// deleteNamespace unpins a namespace. The kernel removes it and its links when its last process and
// socket are gone.
func deleteNamespace(name string) error {
	path := netnsPath(name)
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unpin network namespace %s: %w", name, err)
	}
	if err := removeIfExists(path); err != nil {
		return fmt.Errorf("delete network namespace %s: %w", name, err)
	}
	return nil
}

// namespaces lists the slice's pinned namespaces.
func (s Slice) namespaces() ([]string, error) {
	entries, err := os.ReadDir(netnsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list network namespaces: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), s.namespace("")) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// setSysctls sets the sysctls of the calling thread's namespace.
func setSysctls(settings []sysctl) error {
	for _, s := range settings {
		file := filepath.Join("/proc/sys/net", s.key)
		err := os.WriteFile(file, []byte(s.value), 0)
		if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(s.key, "ipv6/") {
			continue // a kernel without IPv6
		}
		if err != nil {
			return fmt.Errorf("set sysctl %s: %w", s.key, err)
		}
	}
	return nil
}

// bringUp sets a link of the calling thread's namespace up.
func bringUp(name string) error {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer handle.Close()
	return setUp(handle, name)
}

// open returns a netlink handle in a pinned namespace, and the namespace. The caller closes both
// with the returned function.
func open(name string) (*netlink.Handle, netns.NsHandle, func(), error) {
	ns, err := netns.GetFromPath(netnsPath(name))
	if err != nil {
		return nil, netns.None(), nil, fmt.Errorf("open network namespace %s: %w", name, err)
	}
	handle, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
	if err != nil {
		_ = ns.Close()
		return nil, netns.None(), nil, fmt.Errorf("open netlink in network namespace %s: %w", name, err)
	}
	return handle, ns, func() { handle.Close(); _ = ns.Close() }, nil
}
