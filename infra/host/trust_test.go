package host

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

const bundle = "etc/ssl/certs/ca-certificates.crt"

// madeUp returns certificates that nothing parses.
func madeUp(names ...string) (content string) {
	for _, name := range names {
		content += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(strings.Repeat(name, 40))}))
	}
	return content
}

// TestTrust: a machine trusts authorities before it downloads, it says when it does not, and it forgets them.
func TestTrust(t *testing.T) {
	m := newLocalMachine(t)
	both, at := madeUp("one", "two"), m.file(desired.AuthoritiesPath)
	program := []byte("#!/bin/sh\n")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !strings.Contains(m.read(bundle), both) {
			http.Error(w, "asked before the authorities were trusted", http.StatusForbidden)
			return
		}
		_, _ = w.Write(program)
	}))
	defer web.Close()
	app := desired.Binary{Name: "app", URL: web.URL + "/app", SHA256: desired.Sum(program), Installs: []desired.Install{{Path: m.file("bin/app")}}}
	unit := desired.File{Path: m.file("units/app.service"), Mode: 0o644, Content: []byte("[Service]\nExecStart=/bin/app\n")}
	plain := desired.State{
		Files: []desired.File{unit},
		Units: []desired.Unit{{Name: "app.service", Enabled: true, Active: true, RestartOn: []string{at}}},

		AuthorityReaders: []string{"app.service"},
	}
	want := desired.State{Authorities: both, AuthorityReaders: plain.AuthorityReaders, Files: plain.Files, Binaries: []desired.Binary{app}, Units: plain.Units}

	// The downloads ahead, too, find the authorities trusted.
	if err := m.layout().prefetch(t.Context(), m, want, Record{}); err != nil {
		t.Fatal(err)
	}
	rec := m.converge(want, Record{})
	if n := m.starts("app.service"); n != 1 {
		t.Errorf("app.service was started %d times, wanted 1", n)
	}
	m.write(bundle, "# of the distribution\n"+madeUp("one"))
	file := "file " + at
	if got := Words(m.diff(want, rec)); got != file+": its authorities are not trusted by the programs of the machine" {
		t.Errorf("drift: %s", got)
	}
	m.write("state/badtrust", "no space")
	_, err := m.layout().apply(t.Context(), m, want, m.diff(want, rec), rec, Options{})
	if err == nil || !strings.Contains(err.Error(), "trust the authorities in "+at+": update-ca-certificates --fresh: no space") {
		t.Errorf("a renewal that fails: %v", err)
	}
	if err := os.Remove(m.file("state/badtrust")); err != nil {
		t.Fatal(err)
	}
	rec = m.converge(want, rec)
	if n := m.starts("app.service"); n != 2 {
		t.Errorf("app.service was started %d times, wanted 2", n)
	}
	// Another role of the machine, which has no unit that reads authorities, leaves the restart to the owner of the unit.
	other := desired.State{Authorities: madeUp("two"), AuthorityReaders: []string{"app.service", "never-installed.service"}}
	m.converge(other, Record{})
	if got := Words(m.diff(desired.State{Authorities: other.Authorities, Files: plain.Files, Units: plain.Units}, Record{})); got != "unit app.service: restart still due since an earlier change" {
		t.Errorf("after another role has changed the authorities: %s", got)
	}
	one := want
	one.Authorities = madeUp("one")
	rec = m.converge(one, rec)
	if got := m.read(bundle); got != "# of the distribution\n"+madeUp("one") {
		t.Errorf("with one authority the machine trusts:\n%s", got)
	}
	if got := Words(m.diff(plain, rec)); got != file+": exists, not wanted" {
		t.Errorf("drift: %s", got)
	}
	if left := m.diff(desired.State{Files: plain.Files}, rec); len(left) > 0 {
		t.Errorf("a state that says nothing of authorities: %s", Words(left))
	}
	rec = m.converge(plain, rec)
	m.wantDistrust()
	m.converge(want, rec)
	// The last role that leaves takes them along.
	roles := []string{"etcd", "worker"}
	if err := os.MkdirAll(m.file("lib/claims"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, role := range roles {
		m.write("lib/claims/"+role, "mine")
	}
	for _, role := range roles {
		if err := m.layout().remove(t.Context(), m, Removal{ClaimFile: m.file("lib/claims/" + role), Claim: "mine"}); err != nil {
			t.Fatal(err)
		}
		if trusts := strings.Contains(m.read(bundle), "CERTIFICATE"); trusts != (role == "etcd") {
			t.Errorf("without %s: trusts %t", role, trusts)
		}
	}
	m.wantDistrust()
}

// wantDistrust fails the test if anything of authorities is left.
func (m *localMachine) wantDistrust() {
	m.t.Helper()
	left, _ := filepath.Glob(m.file("usr/local/share/ca-certificates/*"))
	here, _ := filepath.Glob(m.file("etc/k8s-from-scratch/*"))
	if m.read(bundle) != "# of the distribution\n" || len(left)+len(here) > 0 {
		m.t.Errorf("left: %v, the machine trusts:\n%s", append(left, here...), m.read(bundle))
	}
}

// TestStageTrusts: a machine that boots downloads nothing before it trusts the authorities.
func TestStageTrusts(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	url, sum := web.add("/app", []byte("#!/bin/sh\n"))
	out := m.stage(desired.State{Authorities: madeUp("one"), Binaries: []desired.Binary{{Name: "app", Version: "1", URL: url, SHA256: sum}}}, "programs")
	trust, there := strings.Index(out, "trusting the authorities"), strings.Index(out, "app 1 is there")
	if trust < 0 || there < trust || !strings.Contains(m.read(bundle), madeUp("one")) {
		t.Errorf("the staging said:\n%s", out)
	}
}
