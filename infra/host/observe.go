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
	// maxHashed bounds the size of a configuration file that is hashed: a larger one differs from
	// everything wanted.
	maxHashed = 16 << 20
	// maxContent bounds the size of a file whose content is fetched, such as a certificate.
	maxContent = 64 << 10
)

// Observation is what was found on a machine about the things asked for.
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
	// contents are the paths of what is in exclusive directories: all but directories that are not empty.
	contents []string
	// receipts holds what Apply has taken out of downloads: digest of the download -> member ->
	// digest of the member.
	receipts map[string]map[string]string
}

// File is something found at a path.
type File struct {
	Type         FileType
	Mode         uint32 // permission bits
	UID, GID     uint32
	Owner, Group string // names, "UNKNOWN" if the machine has none
	Size         int64
	MTime        int64 // nanoseconds since 1970
	Inode        uint64
	SHA256       string // hex; empty for anything but a regular file of at most 16 MiB
	content      []byte
	fetched      bool
	distrusted   bool // authorities, which the machine's programs do not trust
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
	// DropIns are the files that change the unit, loaded or not.
	DropIns          []string
	NeedDaemonReload bool
	Result           string // why it last exited: "success", "exit-code", ...
	Restarts         int    // automatic restarts since the last start that was not automatic
	Again            int    // automatic restarts during Observe
	MainPID          int
	// Said is the last error of a unit that fails, in one line, redacted.
	Said string
	// Undecided is set when Observe ended before it was clear whether the unit keeps running.
	Undecided bool
	// ActiveEnter is when the unit last became active, in microseconds since boot.
	ActiveEnter uint64
	// RestartPending and ReloadPending are set by an Apply that changed what the unit uses and was
	// interrupted before it restarted or reloaded the unit.
	RestartPending, ReloadPending bool
	// CheckFailed is the failure that the unit's check reports; empty if it succeeded, if there is
	// no check, or if the unit is not active.
	CheckFailed string
}

// Content returns the content of a fetched file: one that is wanted, not secret, has nil as its
// wanted content, and is at most 64 KiB large.
func (o Observation) Content(path string) ([]byte, bool) {
	f := o.Files[path]
	return f.content, f.fetched
}

// Observe observes everything that want names, in one round trip, and changes nothing. It does not
// hash programs again whose size, time and inode are those of rec. It observes units that are just
// starting or restarting for up to ten more seconds, until it is clear whether they keep running, and
// reads the journal of those that fail.
// If that fails or ctx ends, it returns the last observation, with such units marked as Unsettled.
// The errors are those of [remote.Machine.Run].
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
	obs, err := parseObservation(out.Stdout, observedUnits(want), rec)
	if err != nil {
		return Observation{}, fmt.Errorf("machine %s: observe: %w", r.Name(), err)
	}
	return l.await(ctx, r, want, obs).withErrors(ctx, r, want), nil
}

// preamble sets the variables that the functions of every script use.
func (l layout) preamble() string {
	var b strings.Builder
	b.WriteString("set -u\numask 077\nLC_ALL=C\nexport LC_ALL\n")
	b.WriteString("PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n")
	b.WriteString("newline='\n'\nknown=\nfilesystems=\nbuiltin=\n")
	fmt.Fprintf(&b, "lib=%s\ncache=%s\nrun=%s\nunit_dirs=%s\nroot=%s\nauthorities=%s\n",
		quote(l.lib), quote(l.cache), quote(l.run), quote(strings.Join(l.foreign, " ")), quote(l.root), quote(l.authorities()))
	fmt.Fprintf(&b, "max_file=%d\nmax_content=%d\n", maxHashed, maxContent)
	b.WriteString(observeFunctions)
	return b.String()
}

// observeScript calls the functions of observe.sh for what is wanted.
func (l layout) observeScript(want desired.State, rec Record) string {
	var digest, content, programs, receipts, directories, exclusive, sysctls, modules, checks, trust []string
	for _, d := range want.Directories {
		directories = append(directories, d.Path)
		if d.Exclusive {
			exclusive = append(exclusive, d.Path)
		}
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
	for _, r := range want.Retired {
		digest = append(digest, r.Paths...)
	}
	var b strings.Builder
	if want.Authorities != "" {
		trust = []string{l.authorities()}
		b.WriteString(trustFunctions)
	}
	fmt.Fprintf(&b, "frame %s\n", quote(answerStart))
	for _, call := range []struct {
		function string
		items    []string
	}{
		{"observe_packages", want.Packages},
		{"observe_modules", modules},
		{"observe_sysctls", sysctls},
		{"observe_directories", directories},
		{"observe_contents", exclusive},
		{"observe_files", digest},
		{"observe_files content", content},
		{"observe_programs", programs},
		{"observe_receipts", receipts},
		{"observe_units", observedUnits(want)},
		{"observe_checks", checks},
		{"observe_trust", trust},
	} {
		if len(call.items) > 0 {
			// No item starts with a space, so none can be the delimiter.
			fmt.Fprintf(&b, "%s <<'%s'\n%s\n%s\n", call.function, " end", strings.Join(call.items, "\n"), " end")
		}
	}
	fmt.Fprintf(&b, "observe_system\nframe %s\n", quote(answerEnd))
	return b.String()
}

// recorded returns a line of observe_programs.
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
