// Command soak runs the tests that take too long for `make test`, in parts of at most 90 minutes
// each. Without an argument it lists the parts, and says which are due: those that have not run on the
// code that they cover since it changed. With the name of a part it runs that one; its last line of
// output is the figures. With "due", and perhaps a time such as 3h, it runs the parts that are due.
//
// A run leaves a record in runs, from which docs/guides/soak.md gets its figures. The tests log the
// figures as "figures: ...". Everything about a part is defined in parts.go.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
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
	if len(args) > 2 && args[0] == "exec" {
		return witness(args[1], args[2:])
	}
	args = append(args, "", "")[:2]
	if args[1] != "" && args[0] != "due" {
		return errors.New("a time, such as TIME=3h, is for PART=due")
	}
	s := soak{root: ".", parts: parts, out: out}
	switch args[0] {
	case "":
		return s.list(ctx)
	case "guide":
		return s.writeGuide()
	case "due":
		within := time.Duration(1<<63 - 1)
		if args[1] != "" {
			var err error
			if within, err = time.ParseDuration(args[1]); err != nil {
				return fmt.Errorf("the time for the parts that are due, such as 3h: %w", err)
			}
		}
		return s.due(ctx, within)
	}
	i := slices.IndexFunc(parts, func(p part) bool { return p.name == args[0] })
	if i < 0 {
		return fmt.Errorf("there is no part %q; make soak lists them", args[0])
	}
	return s.part(ctx, parts[i])
}

// soak is a repository with its parts.
type soak struct {
	root  string
	parts []part
	out   io.Writer
}

// state returns the records of all parts, and why parts are due.
func (s soak) state(ctx context.Context) (records map[string]record, why map[string]string, err error) {
	t, err := readTree(ctx, s.root)
	if err != nil {
		return nil, nil, err
	}
	records, why = map[string]record{}, map[string]string{}
	for _, p := range s.parts {
		r, err := readRecord(s.root, p.name)
		if err != nil {
			return nil, nil, err
		}
		records[p.name], why[p.name] = r, due(p, r, t.digest)
	}
	return records, why, nil
}

func (s soak) list(ctx context.Context) error {
	records, why, err := s.state(ctx)
	if err != nil {
		return err
	}
	for _, p := range s.parts {
		state := "not due"
		if why[p.name] != "" {
			state = "due: " + why[p.name]
		}
		_, _ = fmt.Fprintf(s.out, "make soak PART=%-10s  %2.0f min, %s; it shows %s\n", p.name, records[p.name].needs().Minutes(), state, p.shows)
	}
	return nil
}

// root returns an error unless this process is root's.
func root() error {
	if os.Getuid() != 0 {
		return errors.New("the local EC2 runs real machines and needs root")
	}
	return nil
}

// part runs a part and keeps what it found.
func (s soak) part(ctx context.Context, p part) error {
	if err := root(); err != nil {
		return err
	}
	deps := exec.CommandContext(ctx, "scripts/deps.sh", p.name)
	deps.Dir, deps.Stdout, deps.Stderr = s.root, s.out, s.out
	if err := deps.Run(); err != nil {
		return fmt.Errorf("scripts/deps.sh: %w", err)
	}
	return s.keep(ctx, p)
}

// keep runs a part and writes its record, and with it the guide. A run that fails leaves the figures
// of the last one that passed.
func (s soak) keep(ctx context.Context, p part) error {
	before, err := readTree(ctx, s.root)
	if err != nil {
		return err
	}
	e, err := newEvidence()
	defer func() { _ = os.RemoveAll(e.dir) }()
	if err != nil {
		return err
	}
	found, failed := p.run(ctx, s.root, e, s.out)
	if ctx.Err() != nil {
		return errors.Join(failed, ctx.Err())
	}
	today := time.Now().UTC().Format(time.DateOnly)
	if failed != nil {
		r, err := readRecord(s.root, p.name)
		if err == nil {
			r.Failed = today
			err = r.write(s.root, p.name)
		}
		return errors.Join(failed, err)
	}
	r := record{Date: today, Seconds: int(found.took.Seconds()), Figures: found.said, Packages: found.packages()}
	after, err := readTree(ctx, s.root)
	if err == nil {
		var covers map[string]*big.Int
		if covers, err = e.covers(ctx, after, p); err == nil {
			r.cover(p, covers, before.digest, after.digest)
		}
	}
	if err != nil {
		err = fmt.Errorf("it passed, but what it covers is not known: %w", err)
	}
	return errors.Join(err, r.write(s.root, p.name), s.writeGuide())
}

// due runs the parts that are due, as many as fit into a time, and lists what became of them.
func (s soak) due(ctx context.Context, within time.Duration) error {
	if err := root(); err != nil {
		return err
	}
	start := time.Now()
	records, why, err := s.state(ctx)
	if err != nil {
		return err
	}
	ended := map[string]string{}
	var failed []string
	for q := queue(s.parts, records, why); ctx.Err() == nil; {
		i := next(q, records, within-time.Since(start))
		if i < 0 {
			break
		}
		p := q[i]
		q = slices.Delete(q, i, i+1)
		ended[p.name] = "passed"
		if err := s.part(ctx, p); err != nil {
			_, _ = fmt.Fprintf(s.out, "soak %s: %v\n", p.name, err)
			ended[p.name] = "did not pass"
			failed = append(failed, p.name)
		}
	}
	if _, why, err = s.state(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	for _, p := range s.parts {
		if ended[p.name]+why[p.name] != "" {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", p.name, cmp.Or(ended[p.name], "not run"), cmp.Or(why[p.name], "not due any more"))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(failed) > 0 {
		return fmt.Errorf("did not pass: %s", strings.Join(failed, ", "))
	}
	return ctx.Err()
}
