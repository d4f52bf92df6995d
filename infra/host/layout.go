package host

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// layout is where package host keeps its own files on the machine. Production has one layout; tests
// use others in temporary directories.
type layout struct {
	lib   string // receipts: which program came out of which download
	cache string // downloads, kept until Apply installs them, for a day at most
	run   string // locks, staging, pending restarts; must not survive a reboot
	// tmpfiles is the directory of systemd-tmpfiles' settings for this boot.
	tmpfiles string
	// root is before the paths of the distribution's authorities; empty but in tests.
	root    string
	sysctl  string
	modules string
	units   string   // directory of the administrator's unit files
	foreign []string // directories of drop-ins that change a unit
}

func standardLayout() layout {
	return layout{
		lib:   "/var/lib/k8s-from-scratch",
		cache: "/var/cache/k8s-from-scratch",
		run:   "/run/k8s-from-scratch",

		tmpfiles: "/run/tmpfiles.d",

		sysctl:  "/etc/sysctl.d",
		modules: "/etc/modules-load.d",
		units:   "/etc/systemd/system",
		foreign: []string{ // systemd.unit(5), "Unit File Load Path"
			"/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/transient",
			"/etc/systemd/system", "/run/systemd/system",
			"/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
		},
	}
}

func (l layout) modulePath(module string) string { return path.Join(l.modules, "k8s-"+module+".conf") }

func (l layout) sysctlPath(key string) string {
	return path.Join(l.sysctl, "90-k8s-"+strings.ReplaceAll(key, "/", "-")+".conf")
}

// Dirs returns the directories in which this package keeps what it has to know of a machine.
func Dirs() []string {
	return []string{standardLayout().lib, standardLayout().cache, path.Dir(desired.AuthoritiesPath)}
}

// IsDropIn reports whether a path is that of a drop-in that changes the unit.
func IsDropIn(p, unit string) bool {
	dir := path.Dir(p)
	return standardLayout().isUnitDir(path.Dir(dir)) && appliesTo(path.Base(dir), unit)
}

// ModulePath returns the file that loads a kernel module at every boot. Apply writes it for every
// module of a state.
func ModulePath(module string) string { return standardLayout().modulePath(module) }

// SysctlPath returns the file that sets a sysctl at every boot.
func SysctlPath(key string) string { return standardLayout().sysctlPath(key) }

// configuresUnits reports whether a path is that of a unit file or a drop-in.
func (l layout) configuresUnits(p string) bool {
	return l.isUnitDir(path.Dir(p)) || l.isUnitDir(path.Dir(path.Dir(p)))
}

// expand adds the file of authorities, or retires it, and the files that make sysctls and modules permanent. There is one file per setting, so
// that several owners of one machine that want the same setting want the same file and otherwise do
// not conflict.
func (l layout) expand(s desired.State) desired.State {
	files := slices.Clone(s.Files)
	for _, m := range slices.Compact(slices.Sorted(slices.Values(s.Modules))) {
		files = append(files, desired.File{
			Path: l.modulePath(m), Mode: 0o644, Content: []byte(m + "\n"),
		})
	}
	for _, k := range slices.Sorted(maps.Keys(s.Sysctls)) {
		files = append(files, desired.File{
			Path: l.sysctlPath(k), Mode: 0o644,
			Content: []byte(k + " = " + s.Sysctls[k] + "\n"),
		})
	}
	if s.Authorities != "" {
		files = append(files, desired.File{Path: l.authorities(), Mode: 0o644, Content: []byte(s.Authorities)})
	} else if len(s.AuthorityReaders) > 0 {
		s.Retired = append(slices.Clone(s.Retired), desired.Retired{Paths: []string{l.authorities()}})
	}
	s.Files = files
	return s
}

// validate refuses values that the line-based input of the scripts cannot hold.
func validate(s desired.State) error {
	if err := s.Validate(); err != nil {
		return err
	}
	for _, d := range s.Directories {
		if !path.IsAbs(d.Path) || path.Clean(d.Path) != d.Path || strings.ContainsAny(d.Path, "\n\x00") {
			return fmt.Errorf("directory %q is not absolute and clean", d.Path)
		}
	}
	for _, list := range [][]string{s.Packages, s.Modules, slices.Sorted(maps.Keys(s.Sysctls)), observedUnits(s)} {
		for _, name := range list {
			if !plainName(name) {
				return fmt.Errorf("%q is not the name of a package, kernel module, sysctl or unit", name)
			}
		}
	}
	for _, r := range s.Retired {
		if strings.ContainsAny(r.Cleanup, "\n\x00") {
			return fmt.Errorf("cleanup of unit %s spans lines", r.Unit)
		}
	}
	for _, u := range s.Units {
		if strings.ContainsAny(u.Check, "\n\x00") {
			return fmt.Errorf("check of unit %s spans lines", u.Name)
		}
		if strings.Contains(u.Name, "/") || !strings.Contains(u.Name, ".") {
			return fmt.Errorf("%q is not the full name of a unit", u.Name)
		}
	}
	for k, v := range s.Sysctls {
		if strings.ContainsAny(v, "\n\x00") {
			return fmt.Errorf("sysctl %s: value %q spans lines", k, v)
		}
	}
	return nil
}

func plainName(s string) bool {
	if s == "" || s[0] == '-' || strings.Contains(s, "..") {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(`-_.@:+/\`, r)
	})
}

func unitNames(s desired.State) []string {
	names := make([]string, len(s.Units))
	for i, u := range s.Units {
		names[i] = u.Name
	}
	return names
}

// procPath returns the path of a sysctl below /proc/sys. As in sysctl(8), dots separate the
// components unless the first separator is a slash; then dots are part of a component.
func procPath(key string) string {
	if i := strings.IndexAny(key, "./"); i >= 0 && key[i] == '/' {
		return key
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, key)
}

// moduleName returns a module's name as the kernel spells it.
func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }
