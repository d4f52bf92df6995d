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
// record. Without a record any content is accepted.
func withKeyFiles(want component.Machine, rec MachineRecord) desired.State {
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
	// adopt is set for a valid certificate without a record. It is kept if its key lies beside it.
	adopt bool
}

func (o *operation) judge(m *convergence) map[string]pairVerdict {
	out := map[string]pairVerdict{}
	for _, s := range m.want.Certificates {
		out[s.Name] = o.judgePair(m, s)
	}
	return out
}

func (o *operation) judgePair(m *convergence, s pki.Slot) pairVerdict {
	cert, ok := m.seen.Content(s.CertPath)
	key := m.seen.Files[s.KeyPath].SHA256
	rec, known := m.record.Certificates[s.Name]
	if !ok || key == "" {
		return pairVerdict{reissue: pairIs(finding.Missing)}
	}
	reasons := pki.Check(cert, []byte(o.role.ref.Bundle(s.CA)), s.Request, o.fleet.Now(), s.EarlyRenewal)
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
func (m *convergence) renewals() []finding.Finding {
	var out []finding.Finding
	for _, s := range m.want.Certificates {
		verdict := m.pairs[s.Name]
		why := verdict.reissue
		differs := slices.ContainsFunc(m.changes, func(c host.Change) bool {
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
func (o *operation) fill(ctx context.Context, m *convergence) error {
	if err := m.adopt(ctx); err != nil {
		return err
	}
	for _, s := range m.want.Certificates {
		if len(m.pairs[s.Name].reissue) == 0 {
			continue
		}
		pair, err := o.access.Keys.Issue(ctx, s.CA, s.Request)
		if err != nil {
			return fmt.Errorf("machine %s: certificate %s: %w", m.Name(), s.Name, err)
		}
		m.setContent(s.CertPath, pair.CertPEM)
		m.setContent(s.KeyPath, pair.KeyPEM)
	}
	for _, s := range m.want.Secrets {
		rec := m.record.Secrets[s.Path]
		if rec.Source == s.Origin() && rec.SHA256 != "" && m.seen.Files[s.Path].SHA256 == rec.SHA256 {
			continue
		}
		content, err := o.access.Keys.Render(ctx, s)
		if err != nil {
			return fmt.Errorf("machine %s: secret %s: %w", m.Name(), s.Path, err)
		}
		m.setContent(s.Path, content)
	}
	m.changes = host.Diff(m.state, m.seen, m.record.Host)
	return nil
}

func (m *convergence) setContent(path string, content []byte) {
	for i := range m.state.Files {
		if m.state.Files[i].Path == path {
			m.state.Files[i].Content, m.state.Files[i].SHA256 = content, desired.Sum(content)
		}
	}
}

// adopt keeps valid certificates without a record (after an import, or after a create that was
// killed) if the keys beside them match. The keys are read into memory only for that comparison.
func (m *convergence) adopt(ctx context.Context) error {
	var slots []pki.Slot
	for _, s := range m.want.Certificates {
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
		cert, _ := m.seen.Content(s.CertPath)
		if _, err := tls.X509KeyPair(cert, keys[s.KeyPath]); err != nil {
			m.pairs[s.Name] = pairVerdict{reissue: pairIs(finding.WrongKey)}
			continue
		}
		m.record.Certificates[s.Name] = PairRecord{Certificate: desired.Sum(cert), Key: desired.Sum(keys[s.KeyPath])}
	}
	return nil
}

// settle records the certificates and secrets that are now on the machine: those just written and
// those found as wanted.
func (m *convergence) settle(changes []host.Change) {
	digest := func(path string) string {
		for _, f := range m.state.Files {
			if f.Path == path && f.Content != nil && (touches(changes, path) || !touches(m.changes, path)) {
				return f.Digest()
			}
		}
		return ""
	}
	for _, s := range m.want.Certificates {
		if cert, key := digest(s.CertPath), digest(s.KeyPath); cert != "" && key != "" {
			m.record.Certificates[s.Name] = PairRecord{Certificate: cert, Key: key}
			m.pairs[s.Name] = pairVerdict{}
		}
	}
	for _, s := range m.want.Secrets {
		if d := digest(s.Path); d != "" {
			m.record.Secrets[s.Path] = SecretRecord{Source: s.Origin(), SHA256: d}
		}
	}
}

func touches(changes []host.Change, path string) bool {
	return slices.ContainsFunc(changes, func(c host.Change) bool { return c.Kind == finding.File && c.Target == path })
}

// certificates lists the machine's certificates as they were observed.
func (m *convergence) certificates() []fleet.Certificate {
	var out []fleet.Certificate
	for _, s := range m.want.Certificates {
		if content, ok := m.seen.Content(s.CertPath); ok {
			out = append(out, fleet.Certificates(m.Name(), s.CertPath, content)...)
		}
	}
	return out
}
