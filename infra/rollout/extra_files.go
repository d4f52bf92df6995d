package rollout

import (
	"errors"
	"slices"

	"golang.org/x/crypto/bcrypt"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
)

// Files of the user: which of them have been placed is in the record, so that a machine that was away when one was
// taken out of the settings loses it later. The digest of a secret one is recorded only as a bcrypt hash, since
// a text that people have chosen could be guessed by its digest.

// notPlaced is a digest that no file has.
const notPlaced = "0000000000000000000000000000000000000000000000000000000000000000"

var errNoUnit = errors.New("systemd of this machine knows no such unit")

// notePlacing records, before files are placed, that they may be on the machine.
func (m *Machine) notePlacing() {
	for path, units := range m.Want.Placed() {
		m.Record.Placed[path] = units
	}
}

// notePlaced records which files are on the machine now: those that are wanted, and those still to be removed.
func (m *Machine) notePlaced() {
	was := m.Record.Placed
	m.Record.Placed = m.Want.Placed()
	for path, units := range was {
		if _, wanted := m.Record.Placed[path]; !wanted && slices.ContainsFunc(m.Changes, func(c host.Change) bool { return concerns(c, path, units) }) {
			m.Record.Placed[path] = units
		}
	}
}

// concerns reports whether a change is about a file to be removed, or about a unit that its removal ends or restarts.
func concerns(c host.Change, path string, units []string) bool {
	return c.Target == path || c.Kind == finding.Unit && slices.Contains(units, c.Target)
}

// judgeGiven sets the wanted digests of secrets that the user gives: that of the file found if it is what was
// written.
func (o *Operation) judgeGiven(m *Machine) {
	for _, s := range m.Want.Secrets {
		rec := m.Record.Secrets[s.Path]
		if !s.Given || rec.Sealed == "" {
			continue
		}
		digest := notPlaced
		if found := m.Seen.Files[s.Path].SHA256; o.wrote(rec, found) {
			digest = found
		}
		for i := range m.State.Files {
			if m.State.Files[i].Path == s.Path {
				m.State.Files[i].SHA256 = digest
			}
		}
	}
}

// wrote reports whether a file with this digest is the one that was recorded.
func (o *Operation) wrote(rec SecretRecord, digest string) bool {
	if rec.Sealed == "" || digest == "" {
		return rec.SHA256 != "" && rec.SHA256 == digest
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	key := rec.Sealed + digest
	known, ok := o.unsealed[key]
	if !ok {
		known = bcrypt.CompareHashAndPassword([]byte(rec.Sealed), []byte(digest)) == nil
		o.remember(key, known)
	}
	return known
}

func (o *Operation) remember(key string, is bool) {
	if o.unsealed == nil {
		o.unsealed = map[string]bool{}
	}
	o.unsealed[key] = is
}

// seal returns the record of a secret that was written. Machines with the same content share one hash.
func (o *Operation) seal(s component.Secret, digest string) SecretRecord {
	if !s.Given {
		return SecretRecord{Source: s.Origin(), SHA256: digest}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	sealed, ok := o.sealed[digest]
	if !ok {
		// It fails only for more than 72 bytes. Without a hash the file is written again.
		hash, _ := bcrypt.GenerateFromPassword([]byte(digest), bcrypt.DefaultCost)
		sealed = string(hash)
		if o.sealed == nil {
			o.sealed = map[string]string{}
		}
		o.sealed[digest] = sealed
		o.remember(sealed+digest, true)
	}
	return SecretRecord{Source: s.Origin(), Sealed: sealed}
}

// checkUnits reports a unit that a file of the user names and that the machine does not have, before anything is
// changed.
func (m *Machine) checkUnits() error {
	for _, c := range m.Changes {
		i := slices.IndexFunc(m.State.Units, func(u desired.Unit) bool { return u.Name == c.Target && u.Foreign })
		if c.Kind == finding.Unit && c.Problem == finding.Unknown && i >= 0 {
			return &fleet.StepError{Machine: m.Name(), Step: "find unit " + c.Target, Err: errNoUnit,
				Next: "correct the name in restarts of extra_files, or place the unit's file there too; nothing was changed"}
		}
	}
	return nil
}
