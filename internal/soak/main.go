// Command soak runs the tests that take too long for `make test`, in parts of at most 90 minutes
// each. Without an argument it lists the parts. With one it runs that part; its last line of output
// is the figures for docs/guides/soak.md.
//
// The tests log the figures as "figures: ...". Everything about a part is defined in parts.go.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 || args[0] == "" {
		for _, p := range parts {
			_, _ = fmt.Fprintf(out, "make soak PART=%-10s  %s\n", p.name, p.shows)
		}
		return nil
	}
	i := slices.IndexFunc(parts, func(p part) bool { return p.name == args[0] })
	if i < 0 {
		return fmt.Errorf("there is no part %q; make soak lists them", args[0])
	}
	if os.Getuid() != 0 {
		return errors.New("the local EC2 runs real machines and needs root")
	}
	return parts[i].run(ctx, out)
}

// run runs the part's steps one after the other, even if one fails, and prints the summary.
func (p part) run(ctx context.Context, out io.Writer) error {
	start := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit))
	defer cancel()
	if p.load {
		busy(ctx)
	}
	var found figures
	var errs []error
	for _, s := range p.steps {
		errs = append(errs, s.run(ctx, io.MultiWriter(out, &found)))
	}
	found.flush()
	err := errors.Join(errs...)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w; a lab may be left: bin/k8s-lab --state-dir /var/tmp/k8s-e2e-.../lab down", context.Cause(ctx), err)
	}
	_, _ = fmt.Fprintln(out, p.summary(found, time.Since(start), err))
	return err
}

// summary returns the part's line of figures.
func (p part) summary(f figures, took time.Duration, err error) string {
	words := slices.Clone(f.said)
	words = append(words, fmt.Sprintf("%d of %d packages passed", f.passed, f.passed+f.failed), fmt.Sprintf("%.0f s", took.Seconds()))
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
	for _, p := range s.packages {
		args = append(args, "./internal/e2e/"+p)
	}
	return args
}

func (s step) run(ctx context.Context, out io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", s.args()...)
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Stdout, cmd.Stderr = out, out
	// go test and its children end together.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s go %s: %w", strings.Join(s.env, " "), strings.Join(cmd.Args[1:], " "), err)
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
