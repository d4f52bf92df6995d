package rollout

import (
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// TestGivenSecrets: of what the user gives there is no digest in the record, and another file is noticed all the same.
func TestGivenSecrets(t *testing.T) {
	t.Parallel()
	const path = "/etc/secret"
	good, bad := desired.Sum([]byte("good")), desired.Sum([]byte("bad"))
	o := &Operation{Access: &fleet.Access{Keys: (&fleet.Fleet{}).Keys(pki.Ref{})}}
	extra := desired.ExtraFile{Path: path, Secret: true, Version: 1, Content: []byte("good")}
	want := component.Machine{Secrets: []component.Secret{{Path: path, Mode: 0o600, Given: true, Rendering: "content_wo, version 1"}}, Extra: []desired.ExtraFile{extra}}
	given := func(content []byte) {
		want.Secrets[0].Render = func([][]byte) ([]byte, error) { return content, nil }
	}
	given(extra.Content)
	see := func(rec MachineRecord, digest string) *Machine {
		m := &Machine{Machine: &fleet.Machine{}, Want: want, Record: rec.clone(), Seen: host.Observation{Files: map[string]host.File{}}}
		if digest != "" {
			m.Seen.Files[path] = host.File{Type: host.Regular, Mode: 0o600, Owner: "root", Group: "root", SHA256: digest}
		}
		m.State = withKeyFiles(m.Want, m.Record)
		o.judgeGiven(m)
		m.Changes = host.Diff(m.State, m.Seen, m.Record.Host)
		return m
	}
	m := see(MachineRecord{}, "")
	if err := o.fill(t.Context(), m); err != nil || host.Words(m.Changes) != "file /etc/secret: missing" || string(m.State.Files[0].Content) != "good" {
		t.Fatalf("%v, %s", err, host.Words(m.Changes))
	}
	m.notePlacing()
	o.recordWritten(m, m.Changes)
	rec := m.Record
	if got := rec.Secrets[path]; got.SHA256 != "" || got.Source != "content_wo, version 1" || len(got.Sealed) != 60 {
		t.Errorf("recorded: %+v", got)
	}
	if host.Adopt(m.State, host.Observation{Files: map[string]host.File{path: {SHA256: good}}}, host.Record{}).Files[path].SHA256 != "" {
		t.Error("the digest of a secret is in the record of the machine")
	}
	given(nil) // a refresh does not have it
	for digest, words := range map[string]string{good: "", bad: "file /etc/secret: differs", "": "file /etc/secret: missing"} {
		if got := host.Words(see(rec, digest).Changes); got != words {
			t.Errorf("drift with %q: %q, wanted %q", digest, got, words)
		}
	}
	// An apply with other content but the same version writes nothing, until the file has to be repaired.
	given([]byte("other"))
	for digest, words := range map[string]string{good: "", bad: "file /etc/secret: differs"} {
		m := see(rec, digest)
		if err := o.fill(t.Context(), m); err != nil || host.Words(m.Changes) != words {
			t.Errorf("%v, %s", err, host.Words(m.Changes))
		}
	}
	want.Secrets[0].Rendering = "content_wo, version 2"
	m = see(rec, good)
	if err := o.fill(t.Context(), m); err != nil || host.Words(m.Changes) != "file /etc/secret: differs" {
		t.Errorf("another version: %v, %s", err, host.Words(m.Changes))
	}
}

// TestPlacedFiles: a file that is not wanted any more goes, with what it restarts, by the record.
func TestPlacedFiles(t *testing.T) {
	t.Parallel()
	const conf, unit = "/etc/chrony/conf.d/a.conf", "/etc/systemd/system/exporter.service"
	rec := MachineRecord{Placed: map[string][]string{conf: {"chrony.service"}, unit: {"exporter.service"}, "/etc/stays": nil}}
	want := component.Machine{Extra: []desired.ExtraFile{{Path: "/etc/stays"}}, State: desired.State{Files: []desired.File{{Path: "/etc/stays", Mode: 0o644, Content: []byte("a")}}}}
	state := withKeyFiles(want, rec)
	if err := state.Validate(); err != nil {
		t.Fatal(err)
	}
	found := host.File{Type: host.Regular, Mode: 0o644, Owner: "root", Group: "root", SHA256: desired.Sum([]byte("a"))}
	seen := host.Observation{Files: map[string]host.File{conf: found, unit: found, "/etc/stays": found},
		Units: map[string]host.Unit{"chrony.service": {LoadState: "loaded", ActiveState: "active"}, "exporter.service": {LoadState: "loaded", ActiveState: "active"}}}
	m := &Machine{Machine: &fleet.Machine{}, Want: want, Record: rec.clone(), State: state, Changes: host.Diff(state, seen, host.Record{})}
	if got := host.Words(m.Changes); got != "file /etc/chrony/conf.d/a.conf: exists, not wanted; unit exporter.service: running, wanted none" {
		t.Errorf("drift: %s", got)
	}
	if got := m.Changes[0].Restarts; !slices.Equal(got, []string{"chrony.service"}) || !m.RestartsForeign(m.Changes) {
		t.Errorf("it restarts %v", got)
	}
	if m.notePlaced(); len(m.Record.Placed) != 3 {
		t.Errorf("before the removal the record has %v", m.Record.Placed)
	}
	m.Changes = nil
	if m.notePlaced(); len(m.Record.Placed) != 1 {
		t.Errorf("after the removal the record has %v", m.Record.Placed)
	}
	missing := component.Machine{State: desired.State{Units: []desired.Unit{{Name: "nowhere.service", Active: true, Foreign: true, RestartOn: []string{conf}}}}}
	m = &Machine{Machine: &fleet.Machine{}, Want: missing, Record: MachineRecord{}.clone(), State: missing.State}
	if err := (&Operation{}).fill(t.Context(), m); err == nil || !strings.Contains(err.Error(), "nowhere.service") || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("a unit that does not exist: %v", err)
	}
}
