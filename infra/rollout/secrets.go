package rollout

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// The content of certificates and secrets cannot be computed beforehand. An observation wants them
// as last written according to the record (withKeyFiles) and checks every pair (judge). Only an
// apply makes or fetches those that must be written (fill), and afterwards records what they are
// now (settle).

// certMode is the mode of certificates: they are public.
const certMode = 0o644

// withKeyFiles adds certificates, keys and secrets to the wanted state, with the digests of the
// record, and the end of files that the user does not want any more. Without a record any content is accepted.
func withKeyFiles(want component.Machine, rec MachineRecord) desired.State {
	want = want.WithoutPlaced(rec.Placed)
	state := want.State
	state.Files = slices.Clone(state.Files)
	for _, s := range want.Certificates {
		pair := rec.Certificates[s.Name]
		state.Files = append(state.Files,
			desired.File{Path: s.CertPath, Mode: certMode, Owner: s.Owner, Group: s.Group, SHA256: pair.Certificate},
			desired.File{Path: s.KeyPath, Mode: s.KeyMode, Owner: s.Owner, Group: s.Group, SHA256: pair.Key, Secret: true})
	}
	for _, s := range want.Secrets {
		state.Files = append(state.Files, desired.File{Path: s.Path, Mode: s.Mode, Owner: s.Owner, Group: s.Group,
			SHA256: rec.Secrets[s.Path].SHA256, Secret: true})
	}
	return state
}

// pairVerdict is what to do about a certificate and its key.
type pairVerdict struct {
	// reissue is why a new pair must be made; empty keeps the pair.
	reissue []finding.Finding
	// foreign holds further problems of a certificate that replaced the recorded one; it may be
	// empty.
	foreign []finding.Finding
	// adopt is set for a valid certificate without a record. It is kept if its key is beside it.
	adopt bool
}

func (o *Operation) judge(m *Machine) map[string]pairVerdict {
	out := map[string]pairVerdict{}
	for _, s := range m.Want.Certificates {
		out[s.Name] = o.judgePair(m, s)
	}
	return out
}

func (o *Operation) judgePair(m *Machine, s pki.Slot) pairVerdict {
	cert, ok := m.Seen.Content(s.CertPath)
	key := m.Seen.Files[s.KeyPath].SHA256
	rec, known := m.Record.Certificates[s.Name]
	if !ok || key == "" {
		return pairVerdict{reissue: pairIs(finding.Missing)}
	}
	reasons := pki.Check(cert, []byte(o.role.PKI.Bundle(s.CA)), s.Request, o.Fleet.Now(), s.EarlyRenewal)
	if known && (desired.Sum(cert) != rec.Certificate || key != rec.Key) {
		return pairVerdict{reissue: pairIs(finding.NotWritten), foreign: reasons}
	}
	return pairVerdict{reissue: reasons, adopt: !known && len(reasons) == 0}
}

// pairIs is a finding with one problem.
func pairIs(problem finding.Problem) []finding.Finding {
	return []finding.Finding{{Kind: finding.Certificate, Problem: problem}}
}

// renewals returns the reasons for which certificates are made again, and what is wrong with
// foreign ones. Diff reports missing and changed files.
func (m *Machine) renewals() []finding.Finding {
	var out []finding.Finding
	for _, s := range m.Want.Certificates {
		verdict := m.pairs[s.Name]
		why := verdict.reissue
		differs := slices.ContainsFunc(m.Changes, func(c host.Change) bool {
			return c.Kind == finding.File && (c.Target == s.CertPath || c.Target == s.KeyPath)
		})
		if differs {
			why = verdict.foreign
		}
		for _, f := range why {
			f.Target = s.CertPath
			out = append(out, f)
		}
	}
	return out
}

// fill makes and fetches what must be written to the machine, and computes its changes again.
func (o *Operation) fill(ctx context.Context, m *Machine) error {
	if err := m.adopt(ctx); err != nil {
		return err
	}
	for _, s := range m.Want.Certificates {
		if len(m.pairs[s.Name].reissue) == 0 {
			continue
		}
		pair, err := o.Access.Keys.Issue(ctx, s.CA, s.Request)
		if err != nil {
			return fmt.Errorf("machine %s: certificate %s: %w", m.Name(), s.Name, err)
		}
		m.setContent(s.CertPath, pair.CertPEM)
		m.setContent(s.KeyPath, pair.KeyPEM)
	}
	for _, s := range m.Want.Secrets {
		rec := m.Record.Secrets[s.Path]
		if rec.Source == s.Origin() && o.wrote(rec, m.Seen.Files[s.Path].SHA256) {
			continue
		}
		content, err := o.Access.Keys.Render(ctx, s)
		if err != nil {
			return fmt.Errorf("machine %s: secret %s: %w", m.Name(), s.Path, err)
		}
		m.setContent(s.Path, content)
	}
	m.Changes = host.Diff(m.State, m.Seen, m.Record.Host)
	return m.checkUnits()
}

func (m *Machine) setContent(path string, content []byte) {
	for i := range m.State.Files {
		if m.State.Files[i].Path == path {
			m.State.Files[i].Content, m.State.Files[i].SHA256 = content, desired.Sum(content)
		}
	}
}

// adopt keeps valid certificates without a record (after an import, or after a create that was
// killed) if the keys beside them match. The keys are read into memory only for that comparison.
func (m *Machine) adopt(ctx context.Context) error {
	var slots []pki.Slot
	for _, s := range m.Want.Certificates {
		if m.pairs[s.Name].adopt {
			slots = append(slots, s)
		}
	}
	if len(slots) == 0 {
		return nil
	}
	var paths []string
	for _, s := range slots {
		paths = append(paths, s.KeyPath)
	}
	keys, err := host.Read(ctx, m.Remote, paths, nil)
	if err != nil {
		return fmt.Errorf("machine %s: comparing keys with their certificates: %w", m.Name(), err)
	}
	for _, s := range slots {
		if _, ok := keys[s.KeyPath]; !ok {
			return fmt.Errorf("machine %s: comparing keys with their certificates: %s has just gone", m.Name(), s.KeyPath)
		}
		cert, _ := m.Seen.Content(s.CertPath)
		if _, err := tls.X509KeyPair(cert, keys[s.KeyPath]); err != nil {
			m.pairs[s.Name] = pairVerdict{reissue: pairIs(finding.WrongKey)}
			continue
		}
		m.Record.Certificates[s.Name] = PairRecord{Certificate: desired.Sum(cert), Key: desired.Sum(keys[s.KeyPath])}
	}
	return nil
}

// recordWritten records the certificates and secrets that are now on the machine: those just written and
// those found as wanted.
func (o *Operation) recordWritten(m *Machine, changes []host.Change) {
	digest := func(path string) string {
		for _, f := range m.State.Files {
			if f.Path == path && f.Content != nil && (Touches(changes, path) || !Touches(m.Changes, path)) {
				return f.Digest()
			}
		}
		return ""
	}
	for _, s := range m.Want.Certificates {
		if cert, key := digest(s.CertPath), digest(s.KeyPath); cert != "" && key != "" {
			m.Record.Certificates[s.Name] = PairRecord{Certificate: cert, Key: key}
			m.pairs[s.Name] = pairVerdict{}
		}
	}
	for _, s := range m.Want.Secrets {
		if d := digest(s.Path); d != "" {
			m.Record.Secrets[s.Path] = o.seal(s, d)
		}
	}
}

// Touches reports whether one of the changes is about a path.
func Touches(changes []host.Change, path string) bool {
	return slices.ContainsFunc(changes, func(c host.Change) bool { return c.Kind == finding.File && c.Target == path })
}

// certificates lists the machine's certificates as they were observed.
func (m *Machine) certificates() []fleet.Certificate {
	var out []fleet.Certificate
	for _, s := range m.Want.Certificates {
		if content, ok := m.Seen.Content(s.CertPath); ok {
			out = append(out, fleet.Certificates(m.Name(), s.CertPath, content)...)
		}
	}
	return out
}
