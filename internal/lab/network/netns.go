package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// netnsDir is where ip-netns(8) and nspawn look for named network namespaces.
const netnsDir = "/run/netns"

// ownMountMark remembers, in claimsDir, that the mount at netnsDir was made here and is to be undone.
const ownMountMark = "netns-mount"

func netnsPath(name string) string { return filepath.Join(netnsDir, name) }

// sysctl is one setting below /proc/sys/net and its value.
type sysctl struct{ key, value string }

// within runs fn on a thread that is in a pinned namespace. Sockets that fn opens and processes that it starts stay
// there; goroutines that it starts do not.
func within(name string, fn func() error) error {
	target, err := netns.GetFromPath(netnsPath(name))
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", name, err)
	}
	defer target.Close()
	return onThread(func() error {
		if err := netns.Set(target); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", name, err)
		}
		return fn()
	})
}

// onThread runs fn on a thread of its own and puts the thread back into the namespace it came from. A thread for which
// that fails ends with its goroutine, so that no other goroutine can find itself in the wrong namespace.
func onThread(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		origin, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("open the current network namespace: %w", err)
			return
		}
		defer origin.Close()
		err = fn()
		if netns.Set(origin) == nil {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}

// ensureNamespace makes sure that a pinned namespace exists, with its loopback up and IPv6 off, and says whether it
// had to make it. The settings are for a new one: what runs in a namespace may have changed them since.
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

// pinned says whether a namespace is mounted under the name, as opposed to a file that a crash left behind.
func pinned(name string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(netnsPath(name), &stat) == nil && stat.Type == unix.NSFS_MAGIC
}

// createNamespace sets a namespace up before it pins it, so that a pinned one is always a finished one.
func createNamespace(name string, settings []sysctl) error {
	path := netnsPath(name)
	return withLock(claimsDir, func() error {
		if err := shareNetnsDir(); err != nil {
			return err
		}
		if err := os.WriteFile(path, nil, 0o444); err != nil {
			return err
		}
		err := onThread(func() error {
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

// shareNetnsDir makes the directory a shared mount, as ip-netns(8) does on its first use: it would otherwise mount over
// our namespaces, and unpinning one would leave another pin beneath.
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

// restoreNetnsDir undoes shareNetnsDir once the last namespace is gone.
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
		_ = os.Remove(netnsDir) // others may have put something beneath
		return os.Remove(mark)
	})
}

// deleteNamespace unpins a namespace. The kernel removes it, and the links in it, when the last process and socket in
// it are gone.
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

// setSysctls sets them in the calling thread's namespace.
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

// open returns a netlink handle in a pinned namespace, together with the namespace. The caller closes both through
// the returned function.
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
