package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

func defaultStateDir() string {
	return cmp.Or(os.Getenv(lab.StateDirEnv), lab.DefaultStateDir)
}

// lab opens the lab that the flags name. Progress goes to standard error.
func (c *cli) lab() (*lab.Lab, error) {
	return lab.New(c.stateDir, "", progress.New(c.stderr))
}

// open opens the lab for a command that has no flags of its own.
func (c *cli) open(command string, args []string) (*lab.Lab, error) {
	if err := parse(c.flags(command), args); err != nil {
		return nil, err
	}
	return c.lab()
}

func up(ctx context.Context, c *cli, args []string) error {
	f := c.flags("up")
	releases := releaseFlags(f)
	vcpus := f.Int("vcpus", 0, "quota for the vCPUs of running instances")
	if err := parse(f, args); err != nil {
		return err
	}
	if *vcpus < 0 {
		return fmt.Errorf("--vcpus %d: a quota is a positive number", *vcpus)
	}
	l, err := c.lab()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	dir, err := filepath.Abs(c.stateDir)
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	began := time.Now()
	if err := l.Up(ctx, lab.UpOptions{Versions: releases(), VCPUs: *vcpus, Daemon: []string{self, "--state-dir", dir, "daemon"}}); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(c.stdout, "The local EC2 in %s is up (%s).\n", dir, time.Since(began).Round(10*time.Millisecond))
	e, err := l.Endpoints()
	if err != nil {
		return err
	}
	return e.Write(c.stdout)
}

// releaseFlags adds the flags that name releases. The function it returns reads them.
func releaseFlags(f *flag.FlagSet) func() release.Versions {
	kubernetes := f.String("kubernetes", "", "releases the mirror must hold")
	etcd := f.String("etcd", "", "releases of etcd the mirror must hold")
	containerd := f.String("containerd", "", "releases of containerd the mirror must hold")
	return func() release.Versions {
		return release.Versions{Kubernetes: list(*kubernetes), Etcd: list(*etcd), Containerd: list(*containerd)}
	}
}

func down(ctx context.Context, c *cli, args []string) error {
	l, err := c.open("down", args)
	if err != nil {
		return err
	}
	if err := l.Down(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.stdout, "The local EC2 is down; nothing is left of it.")
	return err
}

func status(ctx context.Context, c *cli, args []string) error {
	l, err := c.open("status", args)
	if err != nil {
		return err
	}
	s, err := l.Status(ctx)
	if err != nil {
		return err
	}
	return s.Write(c.stdout, time.Now())
}

func env(_ context.Context, c *cli, args []string) error {
	f := c.flags("env")
	tfvars := f.Bool("tfvars", false, "print Terraform variables as JSON")
	if err := parse(f, args); err != nil {
		return err
	}
	l, err := c.lab()
	if err != nil {
		return err
	}
	if *tfvars {
		vars, err := l.Vars()
		if err != nil {
			return err
		}
		enc := json.NewEncoder(c.stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(vars)
	}
	vars, err := l.Env()
	if err != nil {
		return err
	}
	for _, v := range vars {
		if _, err := fmt.Fprintf(c.stdout, "export %s=%s\n", v[0], shellQuote(v[1])); err != nil {
			return err
		}
	}
	return nil
}

// shellQuote quotes a word for a shell, if it needs quotes.
func shellQuote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func artifacts(ctx context.Context, c *cli, args []string) error {
	f := c.flags("artifacts")
	releases := releaseFlags(f)
	tool := f.String("tool", "", "build only this tool and print its path")
	if err := parse(f, args); err != nil {
		return err
	}
	switch *tool {
	case "":
		l, err := c.lab()
		if err != nil {
			return err
		}
		return l.Provide(ctx, releases())
	case "tofu":
		dir, err := release.EnsureTools(ctx, release.Options{Progress: progress.New(c.stderr)})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(c.stdout, filepath.Join(dir, "tofu"))
		return err
	}
	return fmt.Errorf("there is no tool %q; tofu is the one there is", *tool)
}

func injectFault(ctx context.Context, c *cli, args []string) error {
	f := c.flags("fault")
	if err := f.Parse(args); err != nil {
		return err
	}
	l, err := c.lab()
	if err != nil {
		return err
	}
	switch kind := f.Arg(0); kind {
	case "":
		return errors.New("fault needs list, clear or a kind of fault; k8s-lab help shows them")
	case "clear":
		return l.ClearFaults(ctx)
	case "list":
		faults, err := l.Faults(ctx)
		if err != nil {
			return err
		}
		enc := json.NewEncoder(c.stdout)
		for _, f := range faults {
			if err := enc.Encode(f); err != nil {
				return err
			}
		}
		return nil
	default:
		fields := map[string]any{"kind": kind}
		for _, a := range f.Args()[1:] {
			key, value, ok := strings.Cut(a, "=")
			if !ok {
				return fmt.Errorf("%q is not of the form key=value", a)
			}
			fields[key] = number(value)
		}
		return l.Fault(ctx, fields)
	}
}

// number returns a number if the value is one, else the string.
func number(s string) any {
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		return n
	}
	return s
}

// daemon keeps the lab's daemon running. It is started by up and not documented for people.
func daemon(ctx context.Context, c *cli, args []string) error {
	l, err := c.open("daemon", args)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	return l.Keep(ctx, []string{self, "--state-dir", c.stateDir, "serve"})
}

// serve is the lab's daemon. It is started by daemon.
func serve(ctx context.Context, c *cli, args []string) error {
	l, err := c.open("serve", args)
	if err != nil {
		return err
	}
	ctx, announce := lab.Attend(ctx)
	return l.Serve(ctx, slog.New(slog.NewTextHandler(c.stderr, nil)), announce)
}
