package host

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	answerStart = "observation 1"
	answerEnd   = "observation end"
)

// S_IFMT and its values, stat(2); stat -c %f prints them in hexadecimal.
const (
	typeMask     = 0xf000
	typeRegular  = 0x8000
	typeDir      = 0x4000
	typeSymlink  = 0xa000
	permissions  = 0o7777
	digestLength = 64
)

// parseObservation reads the output of the observe script. It is pure. It accepts nothing unknown
// between start and end, and skips what a login shell prints before.
func parseObservation(data []byte, units []string, rec Record) (Observation, error) {
	_, data, ok := bytes.Cut(data, []byte(answerStart+"\x00"))
	if !ok {
		return Observation{}, errors.New("the machine gave no answer")
	}
	p := parser{units: units, rec: rec, o: Observation{
		Files: map[string]File{}, Directories: map[string]File{}, Units: map[string]Unit{},
		Sysctls: map[string]string{}, Modules: map[string]bool{}, Packages: map[string]bool{},
		receipts: map[string]map[string]string{},
	}}
	for {
		frame, rest, ok := bytes.Cut(data, []byte{0})
		if !ok {
			return Observation{}, errors.New("the machine's answer is cut off")
		}
		data = rest
		if string(frame) == answerEnd {
			return p.o, nil
		}
		if err := p.frame(string(frame)); err != nil {
			return Observation{}, fmt.Errorf("the machine's answer is malformed: %.80q: %w", frame, err)
		}
	}
}

type parser struct {
	units []string
	rec   Record
	o     Observation
}

var errFields = errors.New("unexpected fields")

func (p *parser) frame(frame string) error {
	kind, rest, ok := strings.Cut(frame, " ")
	if !ok {
		return errFields
	}
	if isDigest(kind) && rest != "" {
		return p.update(rest[1:], func(f *File) error { f.SHA256 = kind; return nil })
	}
	switch kind {
	case "directory", "file":
		path, f, err := parseStat(rest)
		if err != nil {
			return err
		}
		if kind == "directory" {
			p.o.Directories[path] = f
		} else {
			p.o.Files[path] = f
		}
	case "inside":
		p.o.contents = append(p.o.contents, path.Clean(rest))
	case "same":
		return p.update(rest, func(f *File) error { f.SHA256 = p.rec.Files[rest].SHA256; return nil })
	case "content":
		encoded, path, _ := strings.Cut(rest, " ")
		return p.update(path, func(f *File) (err error) {
			f.content, err = base64.StdEncoding.DecodeString(encoded)
			f.fetched = err == nil
			return err
		})
	case "receipt":
		fields := strings.SplitN(rest, " ", 3)
		if len(fields) != 3 || !isDigest(fields[0]) || !isDigest(fields[1]) {
			return errFields
		}
		if p.o.receipts[fields[0]] == nil {
			p.o.receipts[fields[0]] = map[string]string{}
		}
		p.o.receipts[fields[0]][fields[2]] = fields[1]
	case "units":
		return p.parseUnits(rest)
	case "enablement":
		p.parseEnablement(rest)
	case "dropin":
		unit, path, _ := strings.Cut(rest, " ")
		return p.updateUnit(unit, func(u *Unit) {
			if !slices.Contains(u.DropIns, path) {
				u.DropIns = append(u.DropIns, path)
			}
		})
	case "pending":
		action, unit, _ := strings.Cut(rest, " ")
		return p.updateUnit(unit, func(u *Unit) {
			u.RestartPending = u.RestartPending || action == "restart"
			u.ReloadPending = u.ReloadPending || action == "reload"
		})
	case "check":
		unit, said, _ := strings.Cut(rest, " ")
		return p.updateUnit(unit, func(u *Unit) { u.CheckFailed = strings.Join(strings.Fields(said), " ") })
	case "distrusted":
		return p.update(rest, func(f *File) error { f.distrusted = true; return nil })
	case "sysctl":
		path, value, _ := strings.Cut(rest, " ")
		p.o.Sysctls[path] = strings.Join(strings.Fields(value), " ")
	case "module":
		p.o.Modules[rest] = true
	case "package":
		p.o.Packages[rest] = true
	case "boot":
		p.o.BootID = rest
	case "time":
		seconds, err := strconv.ParseInt(rest, 10, 64)
		if err != nil {
			return errFields
		}
		p.o.Time = time.Unix(seconds, 0)
	case "uptime":
		seconds, err := strconv.ParseFloat(rest, 64)
		if err != nil || seconds < 0 {
			return errFields
		}
		p.o.uptime = uint64(seconds * 1e6)
	default:
		return errors.New("unknown kind")
	}
	return nil
}

func (p *parser) update(path string, change func(*File) error) error {
	f, ok := p.o.Files[path]
	if !ok {
		return errors.New("unknown path")
	}
	if err := change(&f); err != nil {
		return err
	}
	p.o.Files[path] = f
	return nil
}

func (p *parser) updateUnit(name string, change func(*Unit)) error {
	u, ok := p.o.Units[name]
	if !ok {
		return errors.New("unknown unit")
	}
	change(&u)
	p.o.Units[name] = u
	return nil
}

// parseStat reads "%f:%u:%g:%U:%G:%s:%.9Y:%i:%n" of stat(1).
func parseStat(line string) (string, File, error) {
	v := strings.SplitN(line, ":", 9)
	if len(v) != 9 || v[8] == "" {
		return "", File{}, errFields
	}
	mode, err1 := strconv.ParseUint(v[0], 16, 32)
	uid, err2 := strconv.ParseUint(v[1], 10, 32)
	gid, err3 := strconv.ParseUint(v[2], 10, 32)
	size, err4 := strconv.ParseInt(v[5], 10, 64)
	mtime, err5 := parseNanoseconds(v[6])
	inode, err6 := strconv.ParseUint(v[7], 10, 64)
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return "", File{}, err
	}
	f := File{
		Type: Special, Mode: uint32(mode & permissions), UID: uint32(uid), GID: uint32(gid),
		Owner: v[3], Group: v[4], Size: size, MTime: mtime, Inode: inode,
	}
	switch mode & typeMask {
	case typeRegular:
		f.Type = Regular
	case typeDir:
		f.Type = Directory
	case typeSymlink:
		f.Type = Symlink
	}
	return v[8], f, nil
}

// parseNanoseconds reads seconds with nine decimals. Times outside the range become its limits,
// since anyone can set a file's time.
func parseNanoseconds(s string) (int64, error) {
	sec, frac, ok := strings.Cut(s, ".")
	if !ok || len(frac) != 9 {
		return 0, fmt.Errorf("time %q", s)
	}
	ns, err := strconv.ParseInt(sec+frac, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		err = nil
	}
	return ns, err
}

// parseUnits reads the blocks of systemctl show, which come in the order of the arguments.
func (p *parser) parseUnits(text string) error {
	var blocks []string
	if text = strings.Trim(text, "\n"); text != "" {
		blocks = strings.Split(text, "\n\n")
	}
	if len(blocks) != len(p.units) {
		return fmt.Errorf("systemd described %d units instead of %d", len(blocks), len(p.units))
	}
	for i, block := range blocks {
		var u Unit
		for line := range strings.SplitSeq(block, "\n") {
			key, value, ok := strings.Cut(line, "=")
			if !ok {
				return errFields
			}
			u.set(key, value)
		}
		p.o.Units[p.units[i]] = u
	}
	return nil
}

func (u *Unit) set(key, value string) {
	switch key {
	case "LoadState":
		u.LoadState = value
	case "ActiveState":
		u.ActiveState = value
	case "SubState":
		u.SubState = value
	case "UnitFileState":
		u.UnitFileState = value
	case "FragmentPath":
		u.FragmentPath = value
	case "DropInPaths":
		for path := range strings.FieldsSeq(value) {
			if strings.HasPrefix(path, "/") {
				u.DropIns = append(u.DropIns, path)
			}
		}
	case "NeedDaemonReload":
		u.NeedDaemonReload = value == "yes"
	case "Result":
		u.Result = value
	case "NRestarts":
		u.Restarts, _ = strconv.Atoi(value) // missing for units that are not services
	case "MainPID":
		u.MainPID, _ = strconv.Atoi(value)
	case "ActiveEnterTimestampMonotonic":
		u.ActiveEnter, _ = strconv.ParseUint(value, 10, 64)
	}
}

// parseEnablement reads the lines of systemctl list-unit-files: name, state and more.
func (p *parser) parseEnablement(text string) {
	for line := range strings.SplitSeq(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if u, ok := p.o.Units[fields[0]]; ok {
			u.UnitFileState = fields[1]
			p.o.Units[fields[0]] = u
		}
	}
}

func isDigest(s string) bool {
	return len(s) == digestLength && strings.Trim(s, "0123456789abcdef") == ""
}
