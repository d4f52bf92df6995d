package host

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// TestExplain edits files of a machine by hand: changes of files that may be shown in full have the
// lines, and changes of other files have only digests.
func TestExplain(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	file := func(name, content string) desired.File {
		return desired.File{Path: m.file(name), Mode: 0o644, Content: []byte(content)}
	}
	text, kubeconfig, hiding, secret, large := file("text", "a\nb\nc\n").Readable(), file("kubeconfig", "x\n"), file("hiding", "--token=hunter2\n"),
		file("secret", "hunter2\n").Readable(), file("large", "a\n").Readable()
	hiding.Text = []byte("--token=(hidden)\n")
	secret.Secret = true
	same := file("same", "same\n").Readable()
	want := desired.State{Files: []desired.File{text, kubeconfig, hiding, secret, large, same}}
	const key = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIBxhZ3VhcmQ\n-----END EC PRIVATE KEY-----\n"
	for name, content := range map[string]string{
		"text": "a\nx\x1b[31m\n" + key + "c\n", "kubeconfig": "y\n", "hiding": "--token=other\n", "secret": "other\n", "large": strings.Repeat("x\n", maxExplained), "same": "same\n",
	} {
		if err := os.WriteFile(m.file(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := m.layout().observe(t.Context(), m, want, Record{})
	if err != nil {
		t.Fatal(err)
	}
	trips := m.trips.Load()
	changes := m.layout().diff(want, got, Record{})
	explained := Explain(t.Context(), m, want, got, changes)
	if m.trips.Load() != trips+1 {
		t.Errorf("%d round trips", m.trips.Load()-trips)
	}
	for i, c := range explained {
		wanted := ""
		if c.Target == text.Path && c.Problem == finding.Content {
			wanted = "found:  (hidden)\nwanted: b\nnot wanted: (hidden) (hidden) (hidden)"
		}
		if c.Detail != wanted {
			t.Errorf("%s: %q", c, c.Detail)
		}
		c.Detail = ""
		if c.Finding != changes[i].Finding {
			t.Errorf("%+v became %+v", changes[i], c)
		}
	}
	if len(explained) < 5 {
		t.Errorf("%s", Words(explained))
	}

	// It has changed again.
	if err := os.WriteFile(text.Path, []byte("z\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range Explain(t.Context(), m, want, got, changes) {
		if c.Detail != "" {
			t.Errorf("%s: %q", c, c.Detail)
		}
	}
	// Nothing to explain costs no round trip, and a machine that does not answer leaves the digests.
	trips = m.trips.Load()
	if Explain(t.Context(), m, want, got, nil); m.trips.Load() != trips {
		t.Error("a round trip for nothing")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if again := Explain(ended, m, want, got, changes); len(again) != len(changes) || again[0].Detail != "" {
		t.Errorf("%v", again)
	}
}
