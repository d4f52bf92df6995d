package host

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// Diff returns the differences between an observed machine and what is wanted, in a stable order.
// It is pure. rec must be the one that Observe was given.
func Diff(want desired.State, got Observation, rec Record) []Change {
	return standardLayout().diff(want, got, rec)
}

// Adopt returns rec updated with an observation. Files that are as wanted are recorded as they are
// now, so that the next Observe need not hash them. Files that are no longer wanted are dropped, and of
// secrets nothing is recorded. It is pure.
func Adopt(want desired.State, got Observation, rec Record) Record {
	return standardLayout().adopt(want, got, rec)
}

func (l layout) diff(want desired.State, got Observation, rec Record) []Change {
	want = l.expand(want)
	d := differ{layout: l, want: want, got: got, rec: rec, touched: map[string]bool{}}
	for _, p := range slices.Sorted(slices.Values(want.Packages)) {
		if !got.Packages[p] {
			d.add(finding.Finding{Kind: finding.Package, Target: p, Problem: finding.Missing})
		}
	}
	for _, m := range want.Modules {
		if !got.Modules[moduleName(m)] {
			d.add(finding.Finding{Kind: finding.Module, Target: m, Problem: finding.Missing})
		}
	}
	for _, k := range slices.Sorted(maps.Keys(want.Sysctls)) {
		d.sysctl(k, want.Sysctls[k])
	}
	for _, dir := range want.Directories {
		d.directory(dir)
	}
	for _, f := range want.Files {
		d.file(f)
	}
	for _, b := range want.Binaries {
		for _, i := range b.Installs {
			d.program(b, i)
		}
	}
	for _, u := range want.Units {
		d.unit(u)
	}
	for _, r := range want.Retired {
		d.retired(r)
	}
	return d.changes
}

type differ struct {
	layout
	want    desired.State
	got     Observation
	rec     Record
	changes []Change
	touched map[string]bool // units whose unit file or drop-ins differ
}

// add adds a difference and the units to restart because of it.
func (d *differ) add(f finding.Finding, restarts ...string) {
	d.changes = append(d.changes, Change{Finding: f, Restarts: restarts})
}

func (d *differ) sysctl(key, want string) {
	found, ok := d.got.Sysctls[procPath(key)]
	switch {
	case !ok:
		d.add(finding.Finding{Kind: finding.Sysctl, Target: key, Problem: finding.Missing, Wanted: want})
	case found != strings.Join(strings.Fields(want), " "):
		d.add(finding.Finding{Kind: finding.Sysctl, Target: key, Problem: finding.Value, Found: found, Wanted: want})
	}
}

func (d *differ) directory(want desired.Directory) {
	got, ok := d.got.Directories[want.Path]
	switch {
	case !ok:
		d.add(finding.Finding{Kind: finding.Directory, Target: want.Path, Problem: finding.Missing})
	case got.Type != Directory:
		d.add(finding.Finding{Kind: finding.Directory, Target: want.Path, Problem: finding.Type, Found: string(got.Type)})
	default:
		d.attributes(finding.Directory, want.Path, got, want.Mode, want.Owner, want.Group)
	}
	if want.Exclusive {
		d.strangers(want.Path)
	}
}

// strangers adds a finding for everything in an exclusive directory that is not wanted.
func (d *differ) strangers(dir string) {
	owned := d.want.Paths()
	for _, p := range slices.Sorted(slices.Values(d.got.contents)) {
		// What is in the place of a wanted file's directory, or in a directory in the place of a wanted file, goes when the file is written.
		if Within(p, dir) && !slices.ContainsFunc(owned, func(o string) bool { return o == p || Within(o, p) || Within(p, o) }) {
			d.add(finding.Finding{Kind: finding.File, Target: p, Problem: finding.NotWanted})
		}
	}
}

// Within reports whether a path is below another one.
func Within(p, dir string) bool { return strings.HasPrefix(p, dir+"/") }

func (d *differ) file(want desired.File) {
	f := finding.Finding{Kind: finding.File, Target: want.Path}
	got, ok := d.got.Files[want.Path]
	switch {
	case !ok:
		f.Problem = finding.Missing
	case want.Once:
		return
	case got.Type != Regular:
		f.Problem, f.Found = finding.Type, string(got.Type)
	case got.SHA256 == want.Digest() && got.distrusted:
		f.Problem = finding.Detached
	case want.Digest() == "" || got.SHA256 == want.Digest():
		d.attributes(finding.File, want.Path, got, want.Mode, want.Owner, want.Group)
		return
	case want.Secret:
		f.Problem = finding.SecretContent
	default:
		f.Problem, f.Found, f.Wanted = content(got), got.SHA256, want.Digest()
	}
	d.touch(want.Path)
	d.add(f, d.restarts(want.Path)...)
	if got.Type == Regular {
		d.attributes(finding.File, want.Path, got, want.Mode, want.Owner, want.Group)
	}
}

// content returns the problem of a file whose content is not as wanted.
func content(got File) finding.Problem {
	if got.SHA256 == "" {
		return finding.Unhashed
	}
	return finding.Content
}

func (d *differ) program(b desired.Binary, i desired.Install) {
	f := finding.Finding{Kind: finding.Binary, Target: i.Path}
	name := strings.TrimSpace(b.Name + " " + b.Version)
	got, ok := d.got.Files[i.Path]
	digest, size := d.expected(b, i)
	switch {
	case !ok:
		f.Problem, f.Wanted = finding.Missing, name
	case got.Type != Regular:
		f.Problem, f.Found, f.Wanted = finding.Type, string(got.Type), name
	case digest != "" && got.SHA256 == digest:
		d.attributes(finding.Binary, i.Path, got, 0o755, "", "")
		return
	case size > 0 && got.Size < size:
		f.Problem, f.Found, f.Wanted, f.Size = finding.Truncated, strconv.FormatInt(got.Size, 10), name, strconv.FormatInt(size, 10)
	case digest == "" && got.SHA256 == "":
		f.Problem, f.Wanted = finding.Unhashed, name
	case digest == "":
		// The wanted digest of the program in the archive is unknown: it is another version, or
		// Apply did not install it.
		f.Problem, f.Found, f.Wanted = finding.Version, got.SHA256, name
	default:
		f.Problem, f.Found, f.Wanted = content(got), got.SHA256, digest
	}
	d.add(f, d.restarts(i.Path)...)
	if got.Type == Regular {
		d.attributes(finding.Binary, i.Path, got, 0o755, "", "")
	}
}

// expected returns the wanted digest and size of an installed program, as far as known: from the
// download itself, from the record of the last Apply, or, without a record, from the receipt on the
// machine.
func (d *differ) expected(b desired.Binary, i desired.Install) (digest string, size int64) {
	if r, ok := d.rec.Files[i.Path]; ok && r.Source == b.SHA256 {
		digest, size = r.SHA256, r.Size
	}
	switch {
	case i.Member == "":
		return b.SHA256, size
	case digest != "":
		return digest, size
	}
	return d.got.receipts[b.SHA256][member(i)], 0
}

func (d *differ) attributes(kind finding.Kind, path string, got File, mode uint32, owner, group string) {
	if got.Mode != mode {
		problem := finding.Mode
		if kind == finding.Binary && got.Mode&0o111 != 0o111 {
			problem = finding.NotExecutable
		}
		d.add(finding.Finding{Kind: kind, Target: path, Problem: problem, Found: octal(got.Mode), Wanted: octal(mode)})
	}
	if !sameName(owner, got.Owner, got.UID) {
		d.add(finding.Finding{Kind: kind, Target: path, Problem: finding.Owner, Found: nameOf(got.Owner, got.UID), Wanted: orRoot(owner)})
	}
	if !sameName(group, got.Group, got.GID) {
		d.add(finding.Finding{Kind: kind, Target: path, Problem: finding.Group, Found: nameOf(got.Group, got.GID), Wanted: orRoot(group)})
	}
}

// restarts returns the units that use the file.
func (d *differ) restarts(file string) []string {
	var out []string
	for _, u := range d.want.Units {
		if u.Active && (slices.Contains(u.RestartOn, file) || slices.Contains(u.ReloadOn, file) || d.configures(file, u.Name)) {
			out = append(out, u.Name)
		}
	}
	return out
}

// configures reports whether the file is the unit's unit file or one of its drop-ins.
func (d *differ) configures(file, unit string) bool {
	dir := path.Dir(file)
	return d.isUnitDir(dir) && path.Base(file) == unit ||
		d.isUnitDir(path.Dir(dir)) && path.Base(dir) == unit+".d"
}

func (l layout) isUnitDir(dir string) bool { return slices.Contains(l.foreign, dir) }

// touch notes the units that the file configures. Then no separate finding is needed when systemd
// has not loaded the file yet.
func (d *differ) touch(file string) {
	for _, u := range d.want.Units {
		if d.configures(file, u.Name) {
			d.touched[u.Name] = true
		}
	}
}

func octal(mode uint32) string { return fmt.Sprintf("%04o", mode) }

func orRoot(name string) string {
	if name == "" {
		return "root"
	}
	return name
}

// nameOf returns the name found, or the number if the machine has no name for it.
func nameOf(name string, id uint32) string {
	if name == "UNKNOWN" || name == "" {
		return strconv.FormatUint(uint64(id), 10)
	}
	return name
}

// sameName compares a wanted owner, a name or a number, with the one found.
func sameName(want, got string, id uint32) bool {
	if want = orRoot(want); want == "root" {
		return id == 0
	}
	return want == got || want == strconv.FormatUint(uint64(id), 10)
}

func (l layout) adopt(want desired.State, got Observation, rec Record) Record {
	want = l.expand(want)
	d := differ{layout: l, want: want, got: got, rec: rec}
	out := Record{Files: map[string]FileRecord{}}
	keep := func(path, digest, source string) {
		f, ok := got.Files[path]
		switch {
		case ok && digest != "" && f.SHA256 == digest:
			out.Files[path] = FileRecord{SHA256: digest, Size: f.Size, MTime: f.MTime, Inode: f.Inode, Source: source}
		default:
			if old, ok := rec.Files[path]; ok {
				out.Files[path] = old
			}
		}
	}
	for _, f := range want.Files {
		if !f.Once && !f.Secret {
			keep(f.Path, f.Digest(), "")
		}
	}
	for _, b := range want.Binaries {
		for _, i := range b.Installs {
			digest, _ := d.expected(b, i)
			keep(i.Path, digest, b.SHA256)
		}
	}
	return out
}
