package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
)

// mark ends each line of a lab in the file hosts, followed by the lab's state directory.
const mark = " # k8s-lab "

// Names makes names resolve to addresses on the host, and removes the names that the lab had
// before. The lab's state directory must exist.
func (h Host) Names(ctx context.Context, lab string, names map[string][]netip.Addr) error {
	return h.locked(ctx, func(*Changes) error { return h.putNames(lab, names) })
}

// putNames writes the lines of a lab. Lines of labs whose state directory is gone are removed.
func (h Host) putNames(lab string, names map[string][]netip.Addr) error {
	before, err := os.ReadFile(h.hosts)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading names: %w", err)
	}
	var lines []string
	for line := range strings.Lines(string(before)) {
		if _, of, ok := strings.Cut(strings.TrimSuffix(line, "\n"), mark); ok {
			if _, err := os.Stat(of); of == lab || errors.Is(err, fs.ErrNotExist) {
				continue
			}
		}
		lines = append(lines, line)
	}
	if n := len(lines); n > 0 && len(names) > 0 && !strings.HasSuffix(lines[n-1], "\n") {
		lines[n-1] += "\n"
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		for _, a := range names[name] {
			lines = append(lines, a.String()+" "+name+mark+lab+"\n")
		}
	}
	after := strings.Join(lines, "")
	if after == string(before) {
		return nil
	}
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(h.hosts); err == nil {
		mode = info.Mode().Perm()
	}
	err = file.Replace(h.hosts, []byte(after), mode)
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EXDEV) { // it is mounted, as in a container
		err = os.WriteFile(h.hosts, []byte(after), mode)
	}
	if err != nil {
		return fmt.Errorf("writing names that lead into the lab: %w", err)
	}
	return nil
}
