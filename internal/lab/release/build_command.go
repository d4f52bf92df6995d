package release

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// command prepares a program that runs in dir, in its own process group, which is ended when ctx
// ends.
func (b *builder) command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PWD="+dir, "GOWORK=off", "GOOS="+goos, "GOARCH="+goarch, "GOAMD64=v1")
	if os.Getenv("HOME") == "" {
		// The go command needs these if there is no home directory.
		for name, dir := range map[string]string{"GOCACHE": "go-build", "GOPATH": "go"} {
			if os.Getenv(name) == "" {
				cmd.Env = append(cmd.Env, name+"="+filepath.Join(filepath.Dir(b.work), dir))
			}
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// run runs cmd and calls line, which may be nil, with each line of its standard error. The error
// holds the last 20 lines.
func run(cmd *exec.Cmd, line func(string)) error {
	const keep = 20
	var tail []string
	pr, pw := io.Pipe()
	cmd.Stderr = pw
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(pr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if line != nil {
				line(lines.Text())
			}
			if tail = append(tail, lines.Text()); len(tail) > keep {
				tail = tail[1:]
			}
		}
		_, _ = io.Copy(io.Discard, pr)
	}()
	err := cmd.Run()
	_ = pw.Close()
	<-done
	if err == nil {
		return nil
	}
	name := filepath.Base(cmd.Path)
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%s is not installed: %w", name, err)
	}
	return fmt.Errorf("running %s: %w\n%s", name, err, strings.Join(tail, "\n"))
}

// runBuild runs a `go build -v` and shows its progress.
func (b *builder) runBuild(cmd *exec.Cmd, title string) error {
	var fetched, compiled atomic.Int64
	stop := b.progress.Job("building "+title+" from Go modules", func() string {
		switch f, c := fetched.Load(), compiled.Load(); {
		case c > 0:
			return fmt.Sprintf("%d packages compiled", c)
		case f > 0:
			return fmt.Sprintf("%d modules fetched", f)
		}
		return ""
	})
	err := run(cmd, func(line string) {
		switch {
		case strings.HasPrefix(line, "go: downloading "):
			fetched.Add(1)
		case !strings.ContainsAny(line, " \t#:"):
			compiled.Add(1)
		}
	})
	stop(err)
	return err
}
