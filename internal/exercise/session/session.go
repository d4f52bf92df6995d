// Package session runs the scripts of a page in one shell, as a learner does who types them one after the other.
package session

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/exercise"
)

// loop is what the shell does: it reads the name of a script, runs it, and names it again when it has ended. A
// command that fails ends the shell: a page says "|| ..." where one is to fail.
const loop = `set -e
while IFS= read -r script <&3; do
	. "$script" >"$script.out" 2>&1 </dev/null
	echo "$script" >&4
done`

// limit is how long one script may take.
const limit = 20 * time.Minute

// Session is a shell.
type Session struct {
	dir   string // for scripts and their output
	cmd   *exec.Cmd
	names io.WriteCloser
	done  chan string
	count int
}

// Start starts a shell in a directory, with an environment.
func Start(ctx context.Context, dir string, env []string) (*Session, error) {
	scripts, err := os.MkdirTemp("", "exercise-")
	if err != nil {
		return nil, err
	}
	s := &Session{dir: scripts, cmd: exec.CommandContext(ctx, "bash", "-c", loop), done: make(chan string)}
	s.cmd.Dir, s.cmd.Env, s.cmd.WaitDelay = dir, env, 5*time.Second
	namesIn, names, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ended, endedOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.names = names
	s.cmd.ExtraFiles = []*os.File{namesIn, endedOut}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	_, _ = namesIn.Close(), endedOut.Close()
	exited := make(chan struct{})
	go func() { _ = s.cmd.Wait(); close(exited) }()
	lines := make(chan string)
	go func() {
		for scanner := bufio.NewScanner(ended); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	go func() {
		defer close(s.done)
		for {
			select {
			case l := <-lines:
				s.done <- l
			case <-exited:
				_ = ended.Close()
				return
			}
		}
	}()
	return s, nil
}

// Run runs a script of a page and compares what it prints with the page.
func (s *Session) Run(ctx context.Context, b exercise.Block) (printed string, err error) {
	s.count++
	script := filepath.Join(s.dir, fmt.Sprintf("%d.sh", s.count))
	if err := os.WriteFile(script, []byte(b.Script), 0o600); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(s.names, script); err != nil {
		return "", fmt.Errorf("%s:%d: the shell has ended: %w", b.File, b.Line, err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	alive := true
	select {
	case _, alive = <-s.done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	out, _ := os.ReadFile(script + ".out") // without it the script has printed nothing
	switch {
	case err != nil:
		return string(out), fmt.Errorf("%s:%d: it did not end: %w\n%s\nprinted:\n%s", b.File, b.Line, err, b.Script, out)
	case !alive:
		return string(out), fmt.Errorf("%s:%d: a command failed:\n%s\nprinted:\n%s", b.File, b.Line, b.Script, out)
	}
	return string(out), b.Check(string(out))
}

// End ends the shell.
func (s *Session) End() {
	_ = s.names.Close()
	for range s.done { // until the shell has exited
	}
	_ = os.RemoveAll(s.dir)
}
