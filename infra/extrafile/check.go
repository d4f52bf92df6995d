// Package extrafile knows which files a user may place on the machines of a role: it compares their paths and units with
// everything that the roles have there. It does no I/O, and does not know how files get onto machines.
package extrafile

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

const (
	// MaxSize is how large a file of the user may be, and MaxFiles how many a role may have: the state
	// has all of them, and every refresh hashes them on every machine.
	MaxSize  = 64 << 10
	MaxFiles = 100
)

var (
	// account is a name as useradd(8) takes it, or a number.
	account  = regexp.MustCompile(`^([a-z_][a-z0-9_-]{0,30}\$?|[0-9]{1,9})$`)
	unitName = regexp.MustCompile(`^[A-Za-z0-9:_.@\\-]+\.(service|socket|timer|path|target|mount|automount|swap|slice)$`)
	// fleeting are directories whose files do not survive a boot, or are none.
	fleeting = []string{"/dev", "/proc", "/run", "/sys", "/tmp", "/var/run", "/var/lock"}
)

// Check reports files that cannot be placed on the machines of a role: what is no path of a file, what a
// role of this provider writes or owns there, whatever its settings, and what changes a unit of another role.
func Check(role string, files []desired.ExtraFile) (errs invalid.Fields) {
	if len(files) == 0 {
		return nil
	}
	own, err := ownThings()
	if err != nil {
		errs.Add("extra_files", "Cannot check", err)
		return errs
	}
	if len(files) > MaxFiles {
		errs.Say("extra_files", "Too many files", "%d files, and a resource may place %d.", len(files), MaxFiles)
	}
	for _, f := range files {
		at := fmt.Sprintf("extra_files[%q]", f.Path)
		if problem := badPath(f.Path); problem != "" {
			errs.Say(at, "Unusable path", "%s %s.", f.Path, problem)
			continue
		}
		if whose := own.holds(f.Path); whose != "" {
			errs.Say(at, "A path of the provider", "%s. Choose another path; to change a unit of the provider, place a drop-in, such as /etc/systemd/system/kubelet.service.d/50-extra.conf.", whose)
		}
		if unit, others := own.unitOfOther(role, f.Path); unit != "" {
			errs.Say(at, "A unit of another resource", "This drop-in changes %s, which belongs to the %s: put it into extra_files there, so that the unit restarts in its order.", unit, others)
		}
		if len(f.Content) > MaxSize {
			errs.Say(at, "File too large", "%d bytes, and a file may have %d. Put it into the image, or let a unit download it.", len(f.Content), MaxSize)
		}
		if f.Mode&^0o777 != 0 || f.Mode&0o002 != 0 {
			errs.Say(at, "Unusable mode", "mode %04o: a file has neither setuid, setgid nor the sticky bit, and others may not write it.", f.Mode)
		}
		for _, name := range []string{f.Owner, f.Group} {
			if name != "" && !account.MatchString(name) {
				errs.Say(at, "Unusable owner", "%q is not the name or the number of a user or group.", name)
			}
		}
		for _, unit := range f.Restarts {
			if !unitName.MatchString(unit) {
				errs.Say(at, "Unusable unit", "restarts: %q is not the full name of a systemd unit, such as chrony.service.", unit)
			} else if owner := own.units[unit]; owner != "" && owner != role {
				errs.Say(at, "A unit of another resource", "restarts: %s belongs to the %s: put the file into extra_files there, so that the unit restarts in its order.", unit, owner)
			}
		}
	}
	return errs
}

// badPath says why a path cannot be that of a file; empty if it can.
func badPath(p string) string {
	switch {
	case !path.IsAbs(p):
		return "is not absolute"
	case path.Clean(p) != p || p == "/":
		return "is not a clean path of a file: it has no trailing slash, no double one, no . and no .."
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "contains a control character"
	case len(p) > 1024:
		return "is longer than 1024 bytes"
	}
	if i := slices.IndexFunc(fleeting, func(dir string) bool { return p == dir || host.Within(p, dir) }); i >= 0 {
		return "does not survive a boot: what is in " + fleeting[i] + " is made anew"
	}
	return ""
}

// ownership is what the provider's roles have on machines.
type ownership struct {
	files map[string]string // role by path
	dirs  map[string]string // role by directory, everything in which is the provider's
	units map[string]string // role by name
}

func ownThings() (ownership, error) {
	samples, err := samples()
	own := ownership{files: map[string]string{}, dirs: map[string]string{}, units: map[string]string{}}
	for _, role := range slices.Sorted(maps.Keys(samples)) {
		m := samples[role]
		files := m.State.Paths()
		for _, c := range m.Certificates {
			files = append(files, c.CertPath, c.KeyPath)
		}
		for _, s := range m.Secrets {
			files = append(files, s.Path)
		}
		for _, module := range m.State.Modules {
			files = append(files, host.ModulePath(module))
		}
		for key := range m.State.Sysctls {
			files = append(files, host.SysctlPath(key))
		}
		for _, r := range m.State.Retired {
			files = append(files, r.Paths...)
		}
		for _, f := range files {
			own.files[f] = role
			if name := path.Base(f); unitName.MatchString(name) {
				own.units[name] = role
			}
		}
		for _, u := range m.State.Units {
			own.units[u.Name] = role
		}
		for _, d := range m.State.Directories {
			own.dirs[d.Path] = role
		}
	}
	for _, dir := range component.WorkerDirs {
		own.dirs[dir] = "worker"
	}
	for _, dir := range host.Dirs() {
		own.dirs[dir] = "provider"
	}
	return own, err
}

// holds says whose a path is; empty if it is free.
func (o ownership) holds(p string) string {
	if role, ok := o.files[p]; ok {
		return fmt.Sprintf("%s is a file of the %s", p, role)
	}
	for _, dir := range slices.Sorted(maps.Keys(o.dirs)) {
		role := o.dirs[dir]
		if p == dir || host.Within(p, dir) {
			return fmt.Sprintf("%s is a directory of the %s", dir, role)
		}
		if host.Within(dir, p) {
			return fmt.Sprintf("%s is a directory, in which the %s has %s", p, role, dir)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(o.files)) {
		role := o.files[file]
		if host.Within(file, p) {
			return fmt.Sprintf("%s is a directory, in which the %s has %s", p, role, file)
		}
	}
	if role := o.units[path.Base(p)]; role != "" && strings.Contains(p, "/systemd/") {
		return fmt.Sprintf("%s takes the place of a unit of the %s", p, role)
	}
	return ""
}

// unitOfOther returns the unit of another role that a path changes as its drop-in, and the role.
func (o ownership) unitOfOther(role, p string) (unit, other string) {
	for _, name := range slices.Sorted(maps.Keys(o.units)) {
		if whose := o.units[name]; whose != role && host.IsDropIn(p, name) {
			return name, whose
		}
	}
	return "", ""
}
