// Package desired has the types of the wanted state of one machine: packages, kernel modules,
// sysctls, directories, files, binaries and systemd units.
//
// It is data only. What may not enter: I/O, Kubernetes and Terraform. Package component writes it,
// package host compares a machine with it.
package desired

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// AuthoritiesPath is the file of a machine's [State.Authorities].
const AuthoritiesPath = "/etc/k8s-from-scratch/authorities.crt"

// State is everything that one owner wants of one machine. Several owners (an etcd cluster and a
// control plane, say) may each have a State for the same machine if they do not name the same path
// or unit.
type State struct {
	// Authorities are certificates, PEM, ended by a newline, of authorities that the machine's programs trust beside
	// those of its distribution. All owners of a machine must want the same ones. Empty means none.
	Authorities string
	// AuthorityReaders are units, of any owner, that read authorities only when they start. Who changes the authorities
	// leaves their owner a restart that is due. A state without readers says nothing of authorities, if it wants none.
	AuthorityReaders []string
	Packages         []string // distribution package names that must be installed
	Modules          []string // kernel modules that must be loaded or built in
	Sysctls          map[string]string
	Directories      []Directory
	Files            []File
	Binaries         []Binary
	Units            []Unit // in start order
	Retired          []Retired
}

// Directory is a directory that must exist. Its content belongs to others, unless it is exclusive.
type Directory struct {
	Path         string
	Mode         uint32 // permission bits, e.g. 0o700
	Owner, Group string // empty means root
	// Exclusive says that everything in the directory, at any depth, that the state does not name must be gone, with
	// the directories that are empty then. What Apply has moved aside stays.
	Exclusive bool
}

// File is a regular file.
type File struct {
	Path         string
	Mode         uint32 // permission bits, e.g. 0o644
	Owner, Group string // empty means root
	// Content is the wanted content. If it is nil and SHA256 is set, the file must have that digest
	// already: host.Apply cannot write it, and the file's owner must set Content before a repair.
	Content []byte
	SHA256  string // hex; derived from Content when that is set
	// Text is what people may be shown of the content: all of it, or with some values hidden. It is nil for a
	// secret, a program, and whatever nobody would read.
	Text []byte
	// Secret keeps the content out of every diff, error and log.
	Secret bool
	// Once means that the file only has to exist: it is written if missing, and later changes are
	// neither drift nor repaired.
	Once bool
}

// ExtraFile is a file that the user places on every machine of a role.
type ExtraFile struct {
	Path         string
	Mode         uint32 // permission bits; 0 means 0644, of a secret 0600
	Owner, Group string // empty means root
	// Content is the content. Of a secret it is known only while it is applied, and Version stands for it: the
	// file is written again when the version changes, or when it is not the file that was written.
	Content []byte
	Secret  bool
	Version int64
	// Restarts are the units that restart when the file changes or goes. One whose unit file is an extra file
	// too is enabled and kept running.
	Restarts []string
}

// Digest returns the hex SHA-256 of the wanted content, empty if unknown.
func (f File) Digest() string {
	if f.Content != nil {
		return Sum(f.Content)
	}
	return f.SHA256
}

// Readable returns the file with all of its content as its text.
func (f File) Readable() File {
	f.Text = f.Content
	return f
}

// Hides reports whether the text hides a part of the content.
func (f File) Hides() bool { return f.Text != nil && !bytes.Equal(f.Text, f.Content) }

// Binary is one download and the programs it puts on the machine.
type Binary struct {
	Name    string // for people: "kube-apiserver"
	Version string
	URL     string
	SHA256  string // hex digest of the download, checked before anything is installed
	// Installs lists what to install. An empty Member installs the download itself; otherwise the
	// download is a .tar.gz and Member is a path in it.
	Installs []Install
}

// Install is one program installed from a Binary, mode 0755, owned by root.
type Install struct {
	Member string
	Path   string
}

// Unit is a systemd unit. The unit file itself is one of the Files.
type Unit struct {
	Name    string // "etcd.service"
	Enabled bool
	Active  bool
	// RestartOn lists the paths (files and installed binaries) whose change makes a restart
	// necessary; ReloadOn those for which a reload is enough.
	RestartOn []string
	ReloadOn  []string
	// Check is a shell command, on one line, that fails if what the unit has set up beside its
	// process (a link, a firewall table) is missing. It changes nothing and ends within seconds. If
	// it fails, its output is drift, and a restart of the unit repairs it. Empty: no check.
	Check string
	// Foreign says that the unit is not the state's: with a RestartOn it has to exist, and it restarts when one of
	// these paths changes, which starts it if it does not run. Nothing enables, stops or removes it.
	Foreign bool
	// Undoes says that a stop of the unit takes back what it has set up beside its process. So a removal
	// stops the unit where it would kill others, and kills it only if it does not stop.
	Undoes bool
}

// Retired is a unit that earlier settings wanted and that must be gone, with what belonged to it. A
// machine that never had it is as wanted. Without a unit it is only files.
type Retired struct {
	Unit string // "kube-proxy.service"; empty for files alone
	// Paths are the unit's file, and other files and programs that only the unit has used. All of
	// them are deleted.
	Paths []string
	// Cleanup is a shell command, on one line, that removes what the unit has left in the kernel. It
	// runs after the unit has stopped and before its programs are deleted, and may run again. Empty:
	// nothing is left.
	Cleanup string
	// Restarts are units of the state that restart once it is gone.
	Restarts []string
}

// Sum returns the hex SHA-256 of b.
func Sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// Merge joins several states of one machine, in the order given.
func Merge(states ...State) State {
	var out State
	for _, s := range states {
		out.Authorities = cmp.Or(s.Authorities, out.Authorities)
		out.AuthorityReaders = append(out.AuthorityReaders, s.AuthorityReaders...)
		out.Packages = append(out.Packages, s.Packages...)
		out.Modules = append(out.Modules, s.Modules...)
		for k, v := range s.Sysctls {
			if out.Sysctls == nil {
				out.Sysctls = map[string]string{}
			}
			out.Sysctls[k] = v
		}
		out.Directories = append(out.Directories, s.Directories...)
		out.Files = append(out.Files, s.Files...)
		out.Binaries = append(out.Binaries, s.Binaries...)
		out.Units = append(out.Units, s.Units...)
		out.Retired = append(out.Retired, s.Retired...)
	}
	slices.Sort(out.Packages)
	out.Packages = slices.Compact(out.Packages)
	slices.Sort(out.Modules)
	out.Modules = slices.Compact(out.Modules)
	return out
}

// Paths returns every path the state owns: files and installed programs.
func (s State) Paths() []string {
	var out []string
	for _, f := range s.Files {
		out = append(out, f.Path)
	}
	for _, b := range s.Binaries {
		for _, i := range b.Installs {
			out = append(out, i.Path)
		}
	}
	return out
}

// Validate returns an error for everything wrong with the state itself: relative or unclean paths,
// a path or unit named twice, a binary without a digest, a unit that is both wanted and retired.
func (s State) Validate() error {
	var errs []error
	seen := map[string]bool{}
	paths := s.Paths()
	for _, r := range s.Retired {
		paths = append(paths, r.Paths...)
	}
	for _, p := range paths {
		if !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsAny(p, "\n\x00") {
			errs = append(errs, fmt.Errorf("path %q is not absolute and clean", p))
		}
		if seen[p] {
			errs = append(errs, fmt.Errorf("path %s is named twice", p))
		}
		seen[p] = true
	}
	for _, b := range s.Binaries {
		if len(b.SHA256) != 64 {
			errs = append(errs, fmt.Errorf("binary %s has no SHA-256", b.Name))
		}
		if b.URL == "" {
			errs = append(errs, fmt.Errorf("binary %s has no URL", b.Name))
		}
	}
	units := map[string]bool{}
	for _, u := range s.Units {
		if units[u.Name] {
			errs = append(errs, fmt.Errorf("unit %s is wanted twice", u.Name))
		}
		units[u.Name] = true
	}
	for _, r := range s.Retired {
		if r.Unit != "" && units[r.Unit] {
			errs = append(errs, fmt.Errorf("unit %s is wanted and retired", r.Unit))
		}
	}
	return errors.Join(errs...)
}
