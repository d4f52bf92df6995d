package session

import (
	"os"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/exercise"
)

func TestSession(t *testing.T) {
	s, err := Start(t.Context(), t.TempDir(), []string{"PATH=" + os.Getenv("PATH"), "NAME=world"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.End()
	for _, c := range []struct{ script, want, fails string }{
		{script: "greet() { echo \"hello $1\"; }\nwho=$NAME\n"},
		{script: "greet $who\ncat <<END >&2\non the other stream\nEND\n", want: "hello w…\non the other stream\n"},
		{script: "greet $who\n", want: "hello moon\n", fails: "does not print what the page says"},
		{script: "cat\nfalse || echo refused\n", want: "refused\n"},
		{script: "greet $who\nfalse\n", want: "hello world\n", fails: "a command failed"},
		{script: "true\n", fails: "shell has ended"},
	} {
		_, err := s.Run(t.Context(), exercise.Block{File: "page.md", Line: 3, Script: c.script, Want: c.want})
		switch {
		case c.fails == "" && err != nil:
			t.Error(err)
		case c.fails != "" && (err == nil || !strings.HasPrefix(err.Error(), "page.md:3: ") || !strings.Contains(err.Error(), c.fails)):
			t.Errorf("%q: %v, wanted %q", c.script, err, c.fails)
		}
	}
}
