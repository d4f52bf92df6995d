package host

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

//go:embed read.sh
var readFunctions string

// Read returns the content of files by path; files are absolute paths or shell patterns without
// spaces. For programs it returns the output of --version by path. It leaves out what does not
// exist; a file that cannot be read to its end is an error. It changes nothing. Its errors are
// those of [remote.Machine.Run].
func Read(ctx context.Context, r Runner, files, programs []string) (map[string][]byte, error) {
	var s script
	s.call("read_files", files...)
	s.call("read_versions", programs...)
	return read(ctx, r, s.String())
}

// ReadHead returns the first bytes of the first file that matches a shell pattern without spaces, at
// most n. It returns nothing if no file does. Its errors are those of [remote.Machine.Run].
func ReadHead(ctx context.Context, r Runner, pattern string, n int) ([]byte, error) {
	var s script
	s.call("read_head", strconv.Itoa(n), pattern)
	found, err := read(ctx, r, s.String())
	if err != nil {
		return nil, err
	}
	for _, text := range found {
		return base64.StdEncoding.DecodeString(string(text))
	}
	return nil, nil
}

// read calls functions of read.sh.
func read(ctx context.Context, r Runner, calls string) (map[string][]byte, error) {
	out, err := r.Run(ctx, remote.Command{Script: readFunctions + calls, Sudo: true})
	if err != nil {
		return nil, err
	}
	found := map[string][]byte{}
	fields := bytes.Split(out.Stdout, []byte{0})
	for ; len(fields) >= 2; fields = fields[2:] {
		found[string(fields[0])] = fields[1]
	}
	return found, nil
}

// UnitFiles are the files that [ReadActive] reads if a unit is active.
type UnitFiles struct {
	Unit        string   // "kubelet.service"
	Files       []string // absolute paths
	Kubeconfigs []string // absolute paths; the certificates and keys they name are read too
}

// ReadActive returns the units that are active, in their order, and the content of their files by
// path, in one round trip. It leaves out files that do not exist. It is an error if systemd does
// not answer; the other errors are those of [remote.Machine.Run].
func ReadActive(ctx context.Context, r Runner, units ...UnitFiles) (active []string, files map[string][]byte, err error) {
	active, _, files, err = ReadNoted(ctx, r, "/dev/null", units...)
	return active, files, err
}

// ReadNoted is ReadActive for units that may be stopped for a while. It also returns the enabled
// units that the file note lists, one a line, whether they are active or not, and the content of
// their files.
func ReadNoted(ctx context.Context, r Runner, note string, units ...UnitFiles) (active, noted []string, files map[string][]byte, err error) {
	const activeMark, notedMark = "active ", "noted "
	var s script
	for _, u := range units {
		fmt.Fprintf(&s, "found=\nif active %[1]s; then found=1; printf '%%s\\0\\0' %[2]s; fi\n", quote(u.Unit), quote(activeMark+u.Unit))
		fmt.Fprintf(&s, "if noted %[1]s %[3]s; then found=1; printf '%%s\\0\\0' %[2]s; fi\nif [ -n \"$found\" ]; then :\n", quote(u.Unit), quote(notedMark+u.Unit), quote(note))
		s.callAll("read_files", slices.Concat(u.Files, u.Kubeconfigs))
		s.callAll("read_named", u.Kubeconfigs)
		s.WriteString("fi\n")
	}
	found, err := read(ctx, r, s.String())
	if err != nil {
		return nil, nil, nil, err
	}
	for _, u := range units {
		if _, ok := found[activeMark+u.Unit]; ok {
			active = append(active, u.Unit)
		}
		if _, ok := found[notedMark+u.Unit]; ok {
			noted = append(noted, u.Unit)
		}
		delete(found, activeMark+u.Unit)
		delete(found, notedMark+u.Unit)
	}
	return active, noted, found, nil
}

// Life is the state of a unit for someone who waits for it.
type Life struct {
	ActiveState string // "active", "inactive", "failed", "activating", ...
	Result      string // why it last exited: "success", "exit-code", ...
	Restarts    int    // automatic restarts since the last start that was not automatic
}

// UnitLife returns the state of one unit. Its errors are those of [remote.Machine.Run].
func UnitLife(ctx context.Context, r Runner, unit string) (Life, error) {
	out, err := r.Run(ctx, remote.Command{Script: "systemctl show --property=ActiveState,Result,NRestarts " + quote(unit)})
	if err != nil {
		return Life{}, err
	}
	var l Life
	for line := range strings.Lines(string(out.Stdout)) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key {
		case "ActiveState":
			l.ActiveState = value
		case "Result":
			l.Result = value
		case "NRestarts":
			l.Restarts, _ = strconv.Atoi(value)
		}
	}
	return l, nil
}

// Starts returns IDs of the machine's boot and of the last start of each unit that has started
// since. Every boot and every start has a different ID. The units' are systemd's invocation IDs
// (https://www.freedesktop.org/software/systemd/man/systemd.exec.html#%24INVOCATION_ID).
func Starts(ctx context.Context, r Runner, units ...string) (boot string, starts []string, err error) {
	var s script
	s.WriteString("cat /proc/sys/kernel/random/boot_id\n")
	s.callAll("systemctl show --property=InvocationID --value", units)
	out, err := r.Run(ctx, remote.Command{Script: s.String()})
	if err != nil {
		return "", nil, fmt.Errorf("machine %s: boot id: %w", r.Name(), err)
	}
	boot, rest, _ := strings.Cut(strings.TrimSpace(string(out.Stdout)), "\n")
	return boot, strings.Fields(rest), nil
}

// AddressNetwork returns an address of the machine with the length of its network, as its interface has it; the
// zero Prefix if no interface has the address. It is not known on a machine without the program ip.
func AddressNetwork(ctx context.Context, r Runner, address netip.Addr) (found netip.Prefix, known bool, err error) {
	out, err := r.Run(ctx, remote.Command{Script: "ip -4 -o address show to " + address.String()})
	var failed *remote.ExitError
	if errors.As(err, &failed) {
		return found, false, nil
	}
	if err != nil {
		return found, false, err
	}
	return addressNetwork(string(out.Stdout)), true, nil
}

// addressNetwork reads a line such as "2: ens5    inet 10.240.0.40/24 brd 10.240.0.255 scope global ens5".
func addressNetwork(line string) netip.Prefix {
	fields := strings.Fields(line)
	if i := slices.Index(fields, "inet"); i >= 0 && i+1 < len(fields) {
		if p, err := netip.ParsePrefix(fields[i+1]); err == nil {
			return p
		}
	}
	return netip.Prefix{}
}
