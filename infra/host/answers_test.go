package host

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// said is a machine that answers each command with a text, in pieces.
type said struct{ text string }

func (said) Name() string { return "worker-0" }

func (s said) Run(_ context.Context, c remote.Command) (remote.Output, error) {
	if c.Tee != nil {
		for piece := range slices.Chunk([]byte(s.text), 32<<10) {
			if _, err := c.Tee.Write(piece); err != nil {
				return remote.Output{}, err
			}
		}
	}
	return remote.Output{Stdout: []byte(s.text)}, nil
}

// TestEndlessReport: a script that writes a report without an end is ended.
func TestEndlessReport(t *testing.T) {
	t.Parallel()
	_, _, err := runApply(t.Context(), said{"begin\x00progress " + strings.Repeat("x", 8<<20)}, remote.Command{}, desired.State{}, Record{}, Options{})
	var much *foreign.TooMuchError
	if !errors.As(err, &much) || !strings.Contains(err.Error(), "machine worker-0") || !strings.Contains(err.Error(), "1 MiB") {
		t.Error(err)
	}
}

// TestReportOfOthers: a machine cannot fill the record with programs that were not to be installed.
func TestReportOfOthers(t *testing.T) {
	t.Parallel()
	want := desired.State{Binaries: []desired.Binary{{SHA256: "b", Installs: []desired.Install{{Path: "/usr/local/bin/app"}}}}}
	report := "installed a b 1:2.000000000:3:/usr/local/bin/app\x00installed a b 1:2.000000000:3:/usr/local/bin/other\x00"
	a, _, err := runApply(t.Context(), said{report}, remote.Command{}, want, Record{}, Options{})
	if _, ok := a.rec.Files["/usr/local/bin/app"]; err != nil || !ok || len(a.rec.Files) != 1 {
		t.Errorf("%v, %v", a.rec, err)
	}
}

// TestJournalShowsNoControl: what a program writes to the journal cannot control the terminal of the
// operator, and is bounded.
func TestJournalShowsNoControl(t *testing.T) {
	t.Parallel()
	const head = "2026-11-20T20:21:41+0000 app[1]: "
	got := Journal(t.Context(), said{head + "\x1b[31mfatal\x1b[0m: \u202ecba\n" + head + strings.Repeat("y", 1<<20) + "\n"}, "app.service", 10)
	if want := "20:21:41 app: fatal: \\u202ecba\n20:21:41 app: yyy"; !strings.HasPrefix(got, want) || len(got) > 2*lineLimit {
		t.Errorf("%d bytes: %.200q", len(got), got)
	}
	key := head + "-----BEGIN PRIVATE KEY-----\n" + head + "s3cret\n" + head + "-----END PRIVATE KEY-----"
	if got := Journal(t.Context(), said{key}, "app.service", 10); strings.Contains(got, "s3cret") {
		t.Error(got)
	}
}

// FuzzAnswers checks that no report makes its reader panic or grow.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte("begin\x00progress x\x00installed a b 1:2.000000000:3:/usr/local/bin/app\x00mismatch b c\x00failed install\n/x\nu.service\n1 2 - /dev/x /\nwhy\x00observation\x00"))
	f.Add([]byte("failed\x00installed a\x00mismatch\x00"))
	want := desired.State{Binaries: []desired.Binary{{SHA256: "b", Installs: []desired.Install{{Path: "/usr/local/bin/app"}}}}}
	f.Fuzz(func(t *testing.T, data []byte) {
		a := &answers{machine: "worker-0", want: want}
		for piece := range slices.Chunk(data, 7) {
			if _, err := a.Write(piece); err != nil && len(data) <= maxFrame {
				t.Error(err)
			}
		}
		if len(a.rec.Files) > 1 || len(a.pending) > maxFrame {
			t.Errorf("%d files, %d bytes", len(a.rec.Files), len(a.pending))
		}
		if a.err != nil {
			_ = a.err.Error()
		}
	})
}
