package host

import (
	"archive/tar"
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// plan is what an Apply does: exactly what the changes need.
type plan struct {
	packages    []string
	modules     []string
	sysctls     []string
	directories []desired.Directory
	binaries    []desired.Binary // with only the installs that are needed
	files       []desired.File
	attributes  []attributes
	drops       []string
	emptied     []string // directories of drop-ins that go, if nothing is left in them
	strangers   []stranger
	units       []unitPlan
	owed        []string // units to restart that want does not name: for a later Apply
	reload      bool     // daemon-reload
	retired     []desired.Retired
}

// stranger is something that is not wanted in an exclusive directory.
type stranger struct{ path, dir string }

type attributes struct {
	path, owner string
	mode        uint32
}

type unitPlan struct {
	desired.Unit
	ensure bool   // enablement and activity are not as wanted
	action string // what changed files and programs need: "restart", "reload" or ""
}

// newPlan computes the plan of changes. It is pure.
func (l layout) newPlan(want desired.State, changes []Change) (plan, error) {
	var p plan
	byTarget := map[finding.Kind]map[string][]Change{}
	for _, c := range changes {
		if byTarget[c.Kind] == nil {
			byTarget[c.Kind] = map[string][]Change{}
		}
		byTarget[c.Kind][c.Target] = append(byTarget[c.Kind][c.Target], c)
		exclusive := slices.IndexFunc(want.Directories, func(d desired.Directory) bool { return d.Exclusive && Within(c.Target, d.Path) })
		switch {
		case c.stranger() && exclusive >= 0:
			p.strangers = append(p.strangers, stranger{c.Target, want.Directories[exclusive].Path})
		case c.stranger() || c.Kind == finding.DropIn:
			p.drops = append(p.drops, c.Target)
			p.reload = p.reload || l.configuresUnits(c.Target)
			if dir := path.Dir(c.Target); l.isUnitDir(path.Dir(dir)) {
				p.emptied = append(p.emptied, dir)
			}
		}
	}
	differs := func(k finding.Kind) func(string) bool {
		return func(target string) bool { return len(byTarget[k][target]) > 0 }
	}
	replaced := func(k finding.Kind, target string) bool {
		return slices.ContainsFunc(byTarget[k][target], func(c Change) bool { return !c.AttributesOnly() })
	}
	p.packages = filter(want.Packages, differs(finding.Package))
	p.modules = filter(want.Modules, differs(finding.Module))
	p.sysctls = filter(slices.Sorted(maps.Keys(want.Sysctls)), differs(finding.Sysctl))
	for _, d := range want.Directories {
		if differs(finding.Directory)(d.Path) {
			p.directories = append(p.directories, d)
		}
	}
	for _, f := range want.Files {
		switch {
		case replaced(finding.File, f.Path) && f.Path != l.authorities():
			if f.Content == nil {
				return plan{}, fmt.Errorf("file %s has to be written, but its content is not at hand", f.Path)
			}
			p.files = append(p.files, f)
			p.reload = p.reload || l.configuresUnits(f.Path)
		case differs(finding.File)(f.Path):
			p.attributes = append(p.attributes, attributes{f.Path, owner(f.Owner, f.Group), f.Mode})
		}
	}
	for _, b := range want.Binaries {
		needed := b
		needed.Installs = nil
		for _, i := range b.Installs {
			switch {
			case replaced(finding.Binary, i.Path):
				needed.Installs = append(needed.Installs, i)
			case differs(finding.Binary)(i.Path):
				p.attributes = append(p.attributes, attributes{i.Path, "root:root", 0o755})
			}
		}
		if len(needed.Installs) > 0 {
			p.binaries = append(p.binaries, needed)
		}
	}
	for _, u := range want.Units {
		up := unitPlan{Unit: u, ensure: differs(finding.Unit)(u.Name)}
		p.reload = p.reload || up.ensure
		for _, c := range changes {
			if u.Active && slices.Contains(c.Restarts, u.Name) {
				up.action = stronger(up.action, actionFor(u, c))
			}
		}
		if up.ensure || up.action != "" {
			p.units = append(p.units, up)
		}
	}
	for _, r := range want.Retired {
		if r.Unit != "" && differs(finding.Unit)(r.Unit) {
			p.retired, p.reload = append(p.retired, r), true
		}
	}
	for _, c := range changes {
		for _, name := range c.Restarts {
			if !slices.Contains(unitNames(want), name) && !slices.Contains(p.owed, name) {
				p.owed = append(p.owed, name)
			}
		}
	}
	return p, nil
}

// actionFor returns the action that a change needs from a unit.
func actionFor(u desired.Unit, c Change) string {
	switch {
	case c.Kind == finding.Unit && c.Problem == finding.ReloadPending:
		return "reload"
	case (c.Kind == finding.File || c.Kind == finding.Binary) &&
		slices.Contains(u.ReloadOn, c.Target) && !slices.Contains(u.RestartOn, c.Target):
		return "reload"
	default:
		return "restart"
	}
}

func stronger(a, b string) string {
	if a == "restart" || b == "" {
		return a
	}
	return b
}

// script returns the plan as a shell script that waits at most limit seconds.
func (l layout) script(p plan, want desired.State, opts Options, limit int) string {
	var s script
	fmt.Fprintf(&s, "limit=%d\n", limit)
	s.call("begin")
	if len(p.files) > 0 {
		s.call("receive")
	}
	s.call("lock")
	s.trust(want)
	s.fetch(p.binaries)
	if len(p.packages) > 0 {
		s.call("install_packages", p.packages...)
	}
	for _, m := range p.modules {
		s.call("load_module", moduleName(m))
	}
	for _, k := range p.sysctls {
		s.call("set_sysctl", procPath(k), want.Sysctls[k])
	}
	// Nothing is installed before every download is complete and verified.
	s.fetched(p.binaries)
	for _, u := range p.units {
		if u.action != "" {
			s.call("pending", u.action, u.Name)
		}
	}
	for _, name := range p.owed {
		s.call("pending", "restart", name)
	}
	for _, d := range p.directories {
		s.call("directory", mode(d.Mode), owner(d.Owner, d.Group), d.Path)
	}
	for _, b := range p.binaries {
		s.install(b)
	}
	for i, f := range p.files {
		s.call("put", strconv.Itoa(i), owner(f.Owner, f.Group), f.Path)
	}
	if len(p.files) > 0 {
		s.call("settle")
	}
	for _, a := range p.attributes {
		s.call("attributes", mode(a.mode), a.owner, a.path)
	}
	for _, d := range p.drops {
		if d == l.authorities() {
			s.call("distrust", want.AuthorityReaders...)
			continue
		}
		s.call("drop", d)
	}
	s.callAll("tidy", p.emptied)
	for _, x := range p.strangers {
		s.call("expel", x.path, x.dir)
	}
	p.retire(&s)
	s.callAll("durable", p.dirs())
	p.unitCalls(&s, opts)
	return s.String()
}

// dirs returns the directories in which the plan makes, renames and removes files.
func (p plan) dirs() []string {
	var out []string
	for _, d := range p.directories {
		out = append(out, path.Dir(d.Path))
	}
	for _, b := range p.binaries {
		for _, i := range b.Installs {
			out = append(out, path.Dir(i.Path))
		}
	}
	for _, f := range p.files {
		out = append(out, path.Dir(f.Path))
	}
	for _, drop := range p.drops {
		out = append(out, path.Dir(drop), path.Dir(path.Dir(drop)))
	}
	for _, x := range p.strangers {
		out = append(out, path.Dir(x.path), x.dir)
	}
	for _, r := range p.retired {
		for _, file := range r.Paths {
			out = append(out, path.Dir(file))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// unitCalls brings the units into their states, in order, once all files are in place.
func (p plan) unitCalls(s *script, opts Options) {
	var enable, disable, unmask []string
	for _, u := range p.units {
		if !u.ensure || u.Foreign {
			continue
		}
		if u.Enabled || u.Active {
			unmask = append(unmask, u.Name)
		}
		if u.Enabled {
			enable = append(enable, u.Name)
		} else {
			disable = append(disable, u.Name)
		}
	}
	s.callAll("unmask", unmask)
	s.callAll("enablement enable", enable)
	s.callAll("enablement disable", disable)
	if p.reload {
		s.call("daemon_reload")
	}
	if opts.SkipRestart {
		return
	}
	s.callAll("afresh", p.starting())
	for _, u := range p.units {
		switch {
		case !u.Active:
			s.call("unit", "stop", u.Name)
		// Debian starts a service while it installs its package, with the package's configuration,
		// so that a start would do nothing.
		case u.action == "restart", u.ensure && len(p.packages) > 0:
			s.call("unit", "restart", u.Name)
		case u.ensure:
			s.call("unit", "start", u.Name)
			if u.action == "reload" {
				s.call("unit", "reload", u.Name)
			}
		default:
			s.call("unit", "reload", u.Name)
		}
	}
	s.callAll("settled", p.starting())
}

// starting returns the units that are started or restarted.
func (p plan) starting() (names []string) {
	for _, u := range p.units {
		if u.Active && (u.ensure || u.action == "restart") {
			names = append(names, u.Name)
		}
	}
	return names
}

// script builds a shell script.
type script struct{ strings.Builder }

// call adds a function call; the name is trusted, the arguments are quoted.
func (s *script) call(function string, args ...string) {
	s.WriteString(function)
	for _, a := range args {
		s.WriteString(" " + quote(a))
	}
	s.WriteString("\n")
}

func (s *script) callAll(function string, args []string) {
	if len(args) > 0 {
		s.call(function, args...)
	}
}

// fetch starts each download once.
func (s *script) fetch(binaries []desired.Binary) {
	for _, b := range unique(binaries) {
		s.call("fetch", b.SHA256, b.URL, title(b))
	}
}

// fetched waits for the downloads and ends the script unless all are verified.
func (s *script) fetched(binaries []desired.Binary) {
	if len(binaries) == 0 {
		return
	}
	s.call("fetched")
	for _, b := range unique(binaries) {
		s.call("downloaded", b.SHA256)
	}
}

func (s *script) install(b desired.Binary) {
	if inside := members(b); len(inside) > 0 {
		s.call("unpack", append([]string{b.SHA256, title(b)}, inside...)...)
	}
	for _, i := range b.Installs {
		if i.Member == "" {
			s.call("install_download", b.SHA256, i.Path)
		} else {
			s.call("install_member", b.SHA256, member(i), i.Path)
		}
	}
	s.call("consumed", b.SHA256)
}

// members returns what is installed of an archive; nothing if the download is the program.
func members(b desired.Binary) (out []string) {
	for _, i := range b.Installs {
		if i.Member != "" {
			out = append(out, member(i))
		}
	}
	return out
}

// member returns the path within the archive, without a leading "./".
func member(i desired.Install) string { return path.Clean(i.Member) }

func title(b desired.Binary) string {
	return strings.TrimSpace(cmp.Or(b.Name, path.Base(b.URL)) + " " + b.Version)
}

func unique(binaries []desired.Binary) []desired.Binary {
	var out []desired.Binary
	for _, b := range binaries {
		if !slices.ContainsFunc(out, func(o desired.Binary) bool { return o.SHA256 == b.SHA256 }) {
			out = append(out, b)
		}
	}
	return out
}

func mode(m uint32) string { return fmt.Sprintf("%04o", m) }

func owner(user, group string) string { return orRoot(user) + ":" + orRoot(group) }

func filter(in []string, keep func(string) bool) []string {
	var out []string
	for _, s := range in {
		if keep(s) && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// archive packs the contents of files with their final modes. Each is named by its index, so that
// tar sees no paths of the machine. root owns them until put.
func archive(files []desired.File) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(name string, mode uint32, content []byte) error {
		err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: name, Mode: int64(mode), Size: int64(len(content)), Format: tar.FormatUSTAR,
		})
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	}
	for i, f := range files {
		if err := add(strconv.Itoa(i), f.Mode, f.Content); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.Path, err)
		}
	}
	if err := add("end", 0o600, nil); err != nil {
		return nil, err
	}
	return buf.Bytes(), w.Close()
}
