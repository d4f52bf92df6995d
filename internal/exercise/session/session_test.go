package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

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

// TestEnd ends shells in the middle of a script, and after one that has left a program in the background.
func TestEnd(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		hangs  bool
	}{
		"a script that hangs":         {"sh -c 'echo $$ >pid; exec sleep 1000'\n", true},
		"a program in the background": {"sleep 1000 &\necho $! >pid\n", false},
	} {
		dir := t.TempDir()
		s, err := Start(t.Context(), dir, []string{"PATH=" + os.Getenv("PATH")})
		if err != nil {
			t.Fatal(err)
		}
		s.patience = 100 * time.Millisecond
		pid := filepath.Join(dir, "pid")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		if c.hangs {
			go func() {
				for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
					if written, _ := os.ReadFile(pid); len(written) > 0 {
						cancel()
					}
				}
			}()
		}
		_, err = s.Run(ctx, exercise.Block{File: "page.md", Line: 3, Script: c.script})
		cancel()
		if c.hangs != errors.Is(err, context.Canceled) || !c.hangs && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		began := time.Now()
		s.End()
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%s: the end took %s", name, took)
		}
		if err := gone(pid); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// gone says whether the process of a file with its id still runs. One that has ended and that nobody waits for is gone.
func gone(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return err
	}
	for range 3000 {
		stat, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if len(stat) == 0 || strings.Contains(string(stat), ") Z ") {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("the program still runs")
}
