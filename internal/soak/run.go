package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// result is what a run of a part found.
type result struct {
	figures
	took time.Duration
}

// run runs the part's steps one after the other, even if one fails, and prints the summary. The
// programs leave evidence of what they executed.
func (p part) run(ctx context.Context, root string, e evidence, out io.Writer) (result, error) {
	start := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit))
	defer cancel()
	if p.load {
		busy(ctx)
	}
	var found figures
	var errs []error
	for _, s := range p.steps {
		errs = append(errs, s.run(ctx, root, e, io.MultiWriter(out, &found)))
	}
	found.flush()
	err := errors.Join(errs...)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w; a lab may be left: bin/k8s-lab --state-dir /var/tmp/k8s-e2e-.../lab down", context.Cause(ctx), err)
	}
	r := result{found, time.Since(start)}
	_, _ = fmt.Fprintln(out, p.summary(r.said, r.packages(), r.took, err))
	return r, err
}

// summary returns the part's line of figures.
func (p part) summary(said []string, packages string, took time.Duration, err error) string {
	words := slices.Clone(said)
	if packages != "" {
		words = append(words, packages, fmt.Sprintf("%.0f s", took.Seconds()))
	}
	line := "soak " + p.name + ": " + strings.Join(words, ", ")
	if err != nil {
		line += ", FAILED"
	}
	return line
}

func (s step) args() []string {
	args := []string{"test", "-count=1", "-vet=off", "-v", "-p", "2", "-timeout", (limit - 5*time.Minute).String()}
	if s.only != "" {
		args = append(args, "-run", s.only)
	}
	for _, dir := range s.dirs() {
		args = append(args, "./"+dir)
	}
	return args
}

// dirs returns the directories of the step's packages.
func (s step) dirs() (dirs []string) {
	for _, p := range s.packages {
		dirs = append(dirs, path.Join("internal/e2e", p))
	}
	return dirs
}

func (s step) run(ctx context.Context, root string, e evidence, out io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := s.args()
	cmd := exec.CommandContext(ctx, "go", slices.Insert(slices.Clone(args), 1, "-cover", "-coverpkg=./...", "-exec", self+" exec "+e.dir)...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), s.env...)
	cmd.Stdout, cmd.Stderr = out, out
	// go test and its children end together. It waits for a test that takes its lab down.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 3 * time.Minute
	if err := cmd.Run(); err != nil {
		if cmd.Process != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what has not ended with go test
		}
		return fmt.Errorf("%s go %s: %w", strings.Join(s.env, " "), strings.Join(args, " "), err)
	}
	return nil
}

// busy keeps every processor busy until ctx ends.
func busy(ctx context.Context) {
	for range runtime.NumCPU() {
		go func() {
			for ctx.Err() == nil {
				continue // a busy loop on purpose
			}
		}()
	}
}

// figures extracts the results from the output of go test -v.
type figures struct {
	said           []string // logged by the tests
	passed, failed int      // packages
	rest           []byte
}

var (
	saidLine   = regexp.MustCompile(`^\s+\w+\.go:\d+: figures: (.+)$`)
	passedLine = regexp.MustCompile(`^ok  \t`)
	failedLine = regexp.MustCompile(`^FAIL\t`)
)

// Write implements io.Writer.
func (f *figures) Write(b []byte) (int, error) {
	f.rest = append(f.rest, b...)
	for {
		line, rest, whole := bytes.Cut(f.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		f.rest = rest
		f.line(string(line))
	}
}

// packages says how many packages passed.
func (f *figures) packages() string {
	return fmt.Sprintf("%d of %d packages passed", f.passed, f.passed+f.failed)
}

func (f *figures) flush() { _, _ = f.Write([]byte("\n")) }

func (f *figures) line(line string) {
	if m := saidLine.FindStringSubmatch(line); m != nil {
		f.said = append(f.said, m[1])
	}
	if passedLine.MatchString(line) {
		f.passed++
	}
	if failedLine.MatchString(line) {
		f.failed++
	}
}
