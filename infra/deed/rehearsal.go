package deed

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
)

const (
	// rehearsalDir has the directories of rehearsals. Each deletes its own at its end.
	rehearsalDir = "/run/k8s-rehearsal/"
	// rehearsalPrefix begins the names of the transient units of a rehearsal.
	rehearsalPrefix = "k8s-rehearsal-"
)

// Trial is a unit to be rehearsed.
type Trial struct {
	Unit    string // its name
	Program string // the file it runs
	// Archive is the download that holds Program as Member; empty if Program is a file already.
	Archive, Member string
	// Options are those of the unit file: what it runs, and in which environment. The rehearsal adds a
	// sandbox.
	Options []*unit.UnitOption
}

// Rehearsed is the result of the rehearsal of one unit.
type Rehearsed struct {
	Unit   string
	Code   int // its exit status
	Output string
}

// Rehearse starts units under other names beside those that run, in a sandbox where they can neither
// write nor connect, and leaves nothing behind. staged is a tar archive of files that the units see in
// /etc. name is that of the rehearsal: one of a name runs on a machine at a time.
func Rehearse(ctx context.Context, r Runner, name string, trials []Trial, staged io.Reader) ([]Rehearsed, error) {
	script, err := rehearsalScript(rehearsalDir+name, trials)
	if err != nil {
		return nil, err
	}
	report, err := rehearse.run(ctx, r, script, staged)
	return rehearsedIn(report), err
}

func rehearsalScript(dir string, trials []Trial) (string, error) {
	var calls strings.Builder
	calls.WriteString("begin\n")
	for _, t := range trials {
		file, err := io.ReadAll(unit.Serialize(slices.Concat(t.Options, sandboxOptions(dir, t.Unit))))
		if err != nil {
			return "", fmt.Errorf("unit %s: %w", t.Unit, err)
		}
		if t.Archive != "" {
			fmt.Fprintf(&calls, "unpack %s\n", quoted(t.Archive, t.Member, t.Program))
		}
		fmt.Fprintf(&calls, "rehearse %s <<'END OF UNIT'\n%s\nEND OF UNIT\n", quoted(t.Unit, t.Program), bytes.TrimSpace(file))
	}
	calls.WriteString("finish\n")
	return rehearse.script(dir, rehearsalPrefix) + calls.String(), nil
}

// rehearsedIn reads the report of a rehearsal. It holds for each unit its name, its exit status and, on
// the lines below, its output; a NUL byte ends each unit's part.
func rehearsedIn(report string) []Rehearsed {
	var out []Rehearsed
	for entry := range strings.SplitSeq(report, "\x00") {
		head, output, _ := strings.Cut(entry, "\n")
		name, status, _ := strings.Cut(head, " ")
		if code, err := strconv.Atoi(status); err == nil {
			out = append(out, Rehearsed{name, code, output})
		}
	}
	return out
}

// sandboxOptions are the unit options of a rehearsal. The unit sees the new files in /etc and reads
// what root may read. It has no network, no sockets of daemons and nothing permanent to write to.
// If memory runs out, it is killed first. A unit may have several command lines: what each says is appended.
func sandboxOptions(dir, name string) []*unit.UnitOption {
	var out []*unit.UnitOption
	for _, o := range [][2]string{
		{"Type", "oneshot"}, {"TimeoutStartSec", "15"}, {"TimeoutStopSec", "1"},
		{"StandardOutput", "append:" + dir + "/" + name + ".log"}, {"StandardError", "inherit"},
		{"BindReadOnlyPaths", dir + "/etc:/etc"}, {"TemporaryFileSystem", "/var/log"},
		{"ProtectSystem", "strict"}, {"ProtectKernelTunables", "yes"}, {"ProtectControlGroups", "yes"},
		{"PrivateTmp", "yes"}, {"PrivateNetwork", "yes"}, {"RestrictAddressFamilies", "AF_INET AF_INET6 AF_NETLINK"},
		{"CapabilityBoundingSet", "CAP_DAC_READ_SEARCH"}, {"NoNewPrivileges", "yes"}, {"OOMScoreAdjust", "1000"},
	} {
		out = append(out, unit.NewUnitOption("Service", o[0], o[1]))
	}
	return out
}
