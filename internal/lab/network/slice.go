package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Slice is a lab's share of addresses that nobody routes, see ranges. The first usable address is the operator's, the second the internet's, and the last ones
// belong to servers in the internet. The lab can assign the others.
type Slice struct {
	// Index is the slice's number, 0 to 11.
	Index int
	// Prefix is the slice, a /26.
	Prefix netip.Prefix
	// Operator is the host's address in the slice, with which it reaches public addresses.
	Operator netip.Addr
}

// ranges are where slices are, in the order in which they are taken: documentation (RFC 5737), and
// benchmarks of network devices (RFC 2544).
var ranges = []netip.Prefix{
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("198.18.0.0/24"),
}

// sliceCount is how many slices there are.
var sliceCount = len(ranges) * slicesOfRange

const (
	slicesOfRange = 4
	sliceBits     = 26
	// serverCount is how many of a slice's addresses are kept for servers in the internet.
	serverCount = 4
	// claimsDir records which lab has which slice. A reboot removes it, as it does a lab's network.
	claimsDir = "/run/k8s-lab"
	// sliceFile is the file in a state directory that has the index of its slice.
	sliceFile = "slice"
)

// sliceAt returns the slice with an index.
func sliceAt(index int) (Slice, error) {
	if index < 0 || index >= sliceCount {
		return Slice{}, fmt.Errorf("no slice %d", index)
	}
	base := ranges[index/slicesOfRange].Addr().As4()
	base[3] = byte(index % slicesOfRange << (32 - sliceBits))
	prefix := netip.PrefixFrom(netip.AddrFrom4(base), sliceBits)
	return Slice{Index: index, Prefix: prefix, Operator: offset(prefix.Addr(), 1)}, nil
}

// PublicIPs returns the addresses that may be assigned to interfaces, in ascending order.
func (s Slice) PublicIPs() []netip.Addr {
	usable := s.usable()
	return usable[:len(usable)-serverCount]
}

// Servers returns the addresses kept for servers in the internet, on which [Manager.ListenInternet]
// listens.
func (s Slice) Servers() []netip.Addr {
	usable := s.usable()
	return usable[len(usable)-serverCount:]
}

// usable returns the addresses after the operator's and the internet's, up to the broadcast
// address.
func (s Slice) usable() (addrs []netip.Addr) {
	for addr := s.internet().Next(); s.Prefix.Contains(addr.Next()); addr = addr.Next() {
		addrs = append(addrs, addr)
	}
	return addrs
}

// internet returns the address of the internet namespace's end of the host's link.
func (s Slice) internet() netip.Addr { return s.Operator.Next() }

// hostLink returns the name of the link in the host's namespace.
func (s Slice) hostLink() string { return "kl" + strconv.Itoa(s.Index) }

// internetRoutes returns the routes of the internet namespace that do not depend on the
// configuration.
func (s Slice) internetRoutes() []route {
	return []route{
		{Table: unix.RT_TABLE_MAIN, Kind: unix.RTN_BLACKHOLE, Destination: everywhere},
		{Table: unix.RT_TABLE_MAIN, Kind: unix.RTN_UNICAST, Destination: netip.PrefixFrom(s.Operator, 32), Link: operatorName, Source: s.internet()},
	}
}

// namespace returns the name of the slice's namespace with an identifier.
func (s Slice) namespace(id string) string { return s.hostLink() + "-" + id }

// Claim returns the slice of the lab in a state directory: the one it had before, else a free one,
// which the lab keeps until [Release]. It fails if all slices are taken, or if another lab has got
// the earlier one by now (after a reboot of the host). A slice that contains one of the addresses
// to avoid is not free: some hosts reach real services at addresses of these ranges.
func Claim(stateDir string, avoid ...netip.Addr) (Slice, error) {
	return claims{claimsDir, avoiding(avoid, Slice.free)}.claim(stateDir)
}

func avoiding(avoid []netip.Addr, free func(Slice) (bool, error)) func(Slice) (bool, error) {
	return func(s Slice) (bool, error) {
		if slices.ContainsFunc(avoid, s.Prefix.Contains) {
			return false, nil
		}
		return free(s)
	}
}

// Release frees the slice of a state directory, if it has one. It fails while something of the
// slice is left.
func Release(stateDir string) error {
	return claims{claimsDir, Slice.free}.release(stateDir)
}

// claims is the host's register of slices: one file per taken slice, with the path of the state
// directory that has it. A claim holds only if the state directory's file agrees, so a deleted
// state directory frees its slice.
type claims struct {
	dir  string
	free func(Slice) (bool, error) // whether the host does not use the slice's addresses
}

func (c claims) claim(stateDir string) (Slice, error) {
	stateDir, err := filepath.Abs(stateDir)
	if err != nil {
		return Slice{}, fmt.Errorf("claim network slice: %w", err)
	}
	var claimed Slice
	err = c.locked(func() error {
		claimed, err = c.find(stateDir)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(stateDir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(c.file(claimed.Index), []byte(stateDir+"\n"), 0o644); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(stateDir, sliceFile), []byte(strconv.Itoa(claimed.Index)+"\n"), 0o644)
	})
	if err != nil {
		return Slice{}, fmt.Errorf("claim network slice for %s: %w", stateDir, err)
	}
	return claimed, nil
}

func (c claims) find(stateDir string) (Slice, error) {
	remembered, ok, err := rememberedSlice(stateDir)
	if err != nil {
		return Slice{}, err
	}
	if ok {
		if owner := c.owner(remembered.Index); owner != "" && owner != stateDir {
			return Slice{}, fmt.Errorf("slice %d (%s) has been taken by the lab in %s: bring that one down first", remembered.Index, remembered.Prefix, owner)
		}
		return remembered, nil
	}
	var taken []string
	for index := range sliceCount {
		s, err := sliceAt(index)
		if err != nil {
			return Slice{}, err
		}
		if owner := c.owner(index); owner != "" {
			taken = append(taken, fmt.Sprintf("%s by the lab in %s", s.Prefix, owner))
			continue
		}
		free, err := c.free(s)
		if err != nil {
			return Slice{}, err
		}
		if free {
			return s, nil
		}
		taken = append(taken, fmt.Sprintf("%s in use on this host", s.Prefix))
	}
	return Slice{}, fmt.Errorf("no slice is free: %s", strings.Join(taken, ", "))
}

func (c claims) release(stateDir string) error {
	stateDir, err := filepath.Abs(stateDir)
	if err != nil {
		return fmt.Errorf("release network slice: %w", err)
	}
	err = c.locked(func() error {
		s, ok, err := rememberedSlice(stateDir)
		if err != nil || !ok {
			return err
		}
		if owner := c.owner(s.Index); owner == "" || owner == stateDir {
			free, err := c.free(s)
			if err != nil {
				return err
			}
			if !free {
				return fmt.Errorf("slice %d (%s) is still in use", s.Index, s.Prefix)
			}
			if err := removeIfExists(c.file(s.Index)); err != nil {
				return err
			}
		}
		return removeIfExists(filepath.Join(stateDir, sliceFile))
	})
	if err != nil {
		return fmt.Errorf("release network slice of %s: %w", stateDir, err)
	}
	return nil
}

// owner returns the state directory that has a slice, empty if none has.
func (c claims) owner(index int) string {
	content, err := os.ReadFile(c.file(index))
	if err != nil {
		return ""
	}
	stateDir := strings.TrimSpace(string(content))
	if s, ok, err := rememberedSlice(stateDir); err != nil || !ok || s.Index != index {
		return ""
	}
	return stateDir
}

func (c claims) file(index int) string {
	return filepath.Join(c.dir, fmt.Sprintf("slice-%d", index))
}

func (c claims) locked(fn func() error) error {
	return withLock(c.dir, fn)
}

func rememberedSlice(stateDir string) (Slice, bool, error) {
	file := filepath.Join(stateDir, sliceFile)
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Slice{}, false, nil
	}
	if err != nil {
		return Slice{}, false, err
	}
	index, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return Slice{}, false, fmt.Errorf("read %s: %w", file, err)
	}
	s, err := sliceAt(index)
	return s, err == nil, err
}

// free says whether the host does not use the slice's addresses: nothing of a lab is left, and no
// route of the host overlaps them.
func (s Slice) free() (bool, error) {
	left, err := Leftovers(s)
	if err != nil || len(left) > 0 {
		return false, err
	}
	routes, err := hostRoutes()
	if err != nil {
		return false, err
	}
	for _, r := range routes {
		if dst, ok := prefixOf(r.Dst); ok && dst.Bits() > 0 && dst.Overlaps(s.Prefix) {
			return false, nil
		}
	}
	return true, nil
}

func hostRoutes() ([]netlink.Route, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer handle.Close()
	return allRoutes(handle)
}

func removeIfExists(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
