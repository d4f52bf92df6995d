package host

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

//go:embed observe.sh
var observeFunctions string

const (
	// maxHashed bounds the size of a configuration file that is hashed: what
	// is larger differs from anything wanted without a look at it.
	maxHashed = 16 << 20
	// maxContent bounds a file whose content is fetched, as certificates' is.
	maxContent = 64 << 10
)

// Observation is what one look at a machine found, about the things asked for.
type Observation struct {
	Files       map[string]File   // files and programs that exist, by path
	Directories map[string]File   // directories that exist, symbolic links followed
	Units       map[string]Unit   // by name, also those systemd does not know
	Sysctls     map[string]string // by path below /proc/sys
	Modules     map[string]bool   // by name, with underscores
	Packages    map[string]bool
	BootID      string    // changes with every boot
	Time        time.Time // the machine's clock, to the second
	uptime      uint64    // microseconds since boot, as the times of units
	// receipts holds what Apply once took out of a download: digest of the
	// download -> member -> digest of the member.
	receipts map[string]map[string]string
}

// File is something found at a path.
type File struct {
	Type         FileType
	Mode         uint32 // permission bits
	UID, GID     uint32
	Owner, Group string // names, "UNKNOWN" when the machine has none
	Size         int64
	MTime        int64 // nanoseconds since 1970
	Inode        uint64
	SHA256       string // hex; empty when it is not a regular file, or unreasonably large
	content      []byte
	fetched      bool
}

// FileType says what kind of thing is at a path.
type FileType string

// What may be found at a path.
const (
	Regular   FileType = "file"
	Directory FileType = "directory"
	Symlink   FileType = "symbolic link"
	Special   FileType = "special file" // device, socket or named pipe
)

// Unit is the state of one systemd unit, in systemd's own terms.
type Unit struct {
	LoadState     string // "loaded", "not-found", "masked", "bad-setting", "error"
	ActiveState   string // "active", "inactive", "failed", "activating", ...
	SubState      string // "running", "dead", "auto-restart", ...
	UnitFileState string // "enabled", "disabled", "static", "masked", ...; as it is on disk
	FragmentPath  string // the unit file systemd loaded
	// DropIns are the files that change the unit, whether loaded yet or not.
	DropIns          []string
	NeedDaemonReload bool
	Result           string // why it last ended: "success", "exit-code", ...
	Restarts         int    // automatic restarts since it was last started by hand
	Again            int    // automatic restarts while Observe looked on
	MainPID          int
	// Unsettled is set when Observe could not look on until it was clear whether
	// the unit runs.
	Unsettled bool
	// ActiveEnter is when it last became active, in microseconds since boot.
	ActiveEnter uint64
	// RestartPending and ReloadPending tell of an Apply that changed what the
	// unit runs with and was interrupted before it came to the unit.
	RestartPending, ReloadPending bool
	// CheckFailed is what the unit's check found wrong; empty when it succeeded,
	// when there is none, or when the unit is not active.
	CheckFailed string
}

// Content returns what was found in a file that was fetched: one that is
// wanted, not secret, whose wanted content the caller left nil, of at most 64 KiB.
func (o Observation) Content(path string) ([]byte, bool) {
	f := o.Files[path]
	return f.content, f.fetched
}

// Observe looks at everything want names, in one round trip, and changes
// nothing. Programs that still have the size, time and inode of rec are not
// hashed again. Units that are just starting, at first or again, are looked at
// for up to ten seconds more, until it is clear what becomes of them. When that
// fails or ctx ends meanwhile, what was seen last is returned, with such units
// marked as Unsettled. Its errors are those of [remote.Machine.Run].
func Observe(ctx context.Context, r Runner, want desired.State, rec Record) (Observation, error) {
	return standardLayout().observe(ctx, r, want, rec)
}

func (l layout) observe(ctx context.Context, r Runner, want desired.State, rec Record) (Observation, error) {
	want = l.expand(want)
	if err := validate(want); err != nil {
		return Observation{}, fmt.Errorf("machine %s: %w", r.Name(), err)
	}
	out, err := r.Run(ctx, remote.Command{Script: l.preamble() + "let_finish\n" + l.observeScript(want, rec), Sudo: true})
	if err != nil {
		return Observation{}, fmt.Errorf("observe: %w", err)
	}
	obs, err := parseObservation(out.Stdout, unitNames(want), rec)
	if err != nil {
		return Observation{}, fmt.Errorf("machine %s: observe: %w", r.Name(), err)
	}
	return l.await(ctx, r, want, obs), nil
}

// preamble sets what the functions of every script rely on.
func (l layout) preamble() string {
	var b strings.Builder
	b.WriteString("set -u\numask 077\nLC_ALL=C\nexport LC_ALL\n")
	b.WriteString("PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n")
	b.WriteString("newline='\n'\nknown=\n")
	fmt.Fprintf(&b, "lib=%s\ncache=%s\nrun=%s\nunit_dirs=%s\n",
		quote(l.lib), quote(l.cache), quote(l.run), quote(strings.Join(l.foreign, " ")))
	fmt.Fprintf(&b, "max_file=%d\nmax_content=%d\n", maxHashed, maxContent)
	b.WriteString(observeFunctions)
	return b.String()
}

// observeScript calls the functions of observe.sh for what is wanted.
func (l layout) observeScript(want desired.State, rec Record) string {
	var digest, content, programs, receipts, directories, sysctls, modules, checks []string
	for _, d := range want.Directories {
		directories = append(directories, d.Path)
	}
	for _, f := range want.Files {
		if f.Content == nil && !f.Secret {
			content = append(content, f.Path)
		} else {
			digest = append(digest, f.Path)
		}
	}
	for _, b := range want.Binaries {
		receipts = append(receipts, b.SHA256)
		for _, i := range b.Installs {
			programs = append(programs, recorded(rec, i.Path))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(want.Sysctls)) {
		sysctls = append(sysctls, procPath(k))
	}
	for _, m := range want.Modules {
		modules = append(modules, moduleName(m))
	}
	for _, u := range want.Units {
		if u.Active && u.Check != "" {
			checks = append(checks, u.Name+" "+u.Check)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "frame %s\n", quote(answerStart))
	for _, call := range []struct {
		function string
		items    []string
	}{
		{"observe_packages", want.Packages},
		{"observe_modules", modules},
		{"observe_sysctls", sysctls},
		{"observe_directories", directories},
		{"observe_files", digest},
		{"observe_files content", content},
		{"observe_programs", programs},
		{"observe_receipts", receipts},
		{"observe_units", unitNames(want)},
		{"observe_checks", checks},
	} {
		if len(call.items) > 0 {
			// No item starts with a space, so none can be taken for the delimiter.
			fmt.Fprintf(&b, "%s <<'%s'\n%s\n%s\n", call.function, " end", strings.Join(call.items, "\n"), " end")
		}
	}
	fmt.Fprintf(&b, "observe_system\nframe %s\n", quote(answerEnd))
	return b.String()
}

// recorded is a line of observe_programs.
func recorded(rec Record, path string) string {
	f, ok := rec.Files[path]
	if !ok || f.Inode == 0 {
		return ":::" + path
	}
	return fmt.Sprintf("%d:%d.%09d:%d:%s", f.Size, f.MTime/1e9, f.MTime%1e9, f.Inode, path)
}

// quote quotes s for the shell.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
