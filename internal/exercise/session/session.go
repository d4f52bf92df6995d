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
	"syscall"
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

// patience is how long the shell may take to exit when it gets no more scripts.
const patience = 5 * time.Second

// Session is a shell. It leads a process group, to which all programs belong that scripts start.
type Session struct {
	dir      string // for scripts and their output
	cmd      *exec.Cmd
	cancel   context.CancelFunc // kills the process group
	patience time.Duration
	names    io.WriteCloser
	done     chan string
	count    int
}

// Play runs the scripts of a page in a shell of its own, those that take minutes only on request. told hears of each script
// what it has printed, and whether that is right. Its error ends the page.
func Play(ctx context.Context, page exercise.Page, dir string, env []string, long bool, told func(b exercise.Block, took time.Duration, printed string, err error) error) error {
	s, err := Start(ctx, dir, env)
	if err != nil {
		return err
	}
	defer s.End()
	for _, b := range page.Blocks {
		if b.Long && !long {
			continue
		}
		began := time.Now()
		printed, err := s.Run(ctx, b)
		if err := told(b, time.Since(began), printed, err); err != nil {
			return err
		}
	}
	return nil
}

// Start starts a shell in a directory, with an environment.
func Start(ctx context.Context, dir string, env []string) (*Session, error) {
	scripts, err := os.MkdirTemp("", "exercise-")
	if err != nil {
		return nil, err
	}
	namesIn, names, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ended, endedOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &Session{dir: scripts, cmd: exec.CommandContext(ctx, "bash", "-c", loop), cancel: cancel, patience: patience, names: names, done: make(chan string)}
	s.cmd.Dir, s.cmd.Env, s.cmd.ExtraFiles = dir, env, []*os.File{namesIn, endedOut}
	s.cmd.SysProcAttr, s.cmd.Cancel = &syscall.SysProcAttr{Setpgid: true}, s.kill
	if err := s.cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	_, _ = namesIn.Close(), endedOut.Close()
	exited := make(chan struct{})
	go func() {
		_ = s.cmd.Wait()
		_ = s.kill() // what scripts have left in the background
		close(exited)
	}()
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

// kill kills the shell and all that its scripts have started.
func (s *Session) kill() error { return syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) }

// End ends the shell, also in the middle of a script.
func (s *Session) End() {
	defer s.cancel()
	_ = s.names.Close()
	defer time.AfterFunc(s.patience, s.cancel).Stop()
	for range s.done { // until the shell has exited
	}
	_ = os.RemoveAll(s.dir)
}
