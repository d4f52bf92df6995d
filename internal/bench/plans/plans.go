// Package plans measures what plans of large clusters cost the provider. It makes a fleet that costs
// little (package hosts), lets Terraform and the provider build a cluster of it, and measures for 6,
// 50 and 200 workers a plan without changes and one with a damaged machine: wall time, the provider's
// processor time and memory, round trips, handshakes and bytes of SSH, and calls of AWS.
//
// What is real: Terraform, the provider, SSH, the shell and its scripts on each machine, etcd, the
// API server, the local EC2's API. What is not: the programs of the workers, systemd, and packages.
// There is one controller. Wall time includes the work of all machines, which are on this computer.
package plans

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/bench/hosts"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

// ErrSaid is returned when this program has failed in network namespaces of its own, and has
// printed the reason.
var ErrSaid = errors.New("the reason was printed before")

// Run is the subcommand plans, with its arguments. It needs root, and starts this program again in network
// namespaces of its own.
func Run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench plans", flag.ContinueOnError)
	o := options{Kubernetes: true, Log: io.Discard}
	workers := flags.String("workers", "6,50,200", "numbers of workers, in ascending order")
	flags.StringVar(&o.Profile, "profile", "", "directory for profiles of the provider, which then is part of this program: its cost is not measured")
	flags.StringVar(&o.Mirror, "mirror", "", "directory of the artifact mirror; the cache's when empty")
	flags.StringVar(&o.Provider, "provider", "", "the provider's program; built when empty")
	verbose := flags.Bool("v", false, "show what Terraform prints")
	if err := flags.Parse(args); err != nil {
		return err
	}
	sizes, err := parseSizes(*workers)
	if err != nil {
		return err
	}
	if *verbose {
		o.Log = os.Stderr
	}
	return o.inNamespaces(ctx, func(dir string) error {
		all, err := measureAll(ctx, dir, o, sizes, os.Stdout)
		if err != nil {
			return err
		}
		fmt.Println()
		for _, aim := range aims(all) {
			fmt.Println(aim)
		}
		return judge(all)
	})
}

// inNamespaces runs f, with a directory for it, in network namespaces of its own. Before, it finds what the options do not
// say.
func (o *options) inNamespaces(ctx context.Context, f func(dir string) error) error {
	if os.Getuid() != 0 {
		return errors.New("the machines are directories with mounts, which need root: use sudo")
	}
	// Terraform starts the provider in another directory.
	for _, name := range []*string{&o.Profile, &o.Provider} {
		if *name != "" {
			var err error
			if *name, err = filepath.Abs(*name); err != nil {
				return err
			}
		}
	}
	if o.Profile != "" {
		if err := os.MkdirAll(o.Profile, 0o755); err != nil {
			return err
		}
	}
	if err := find(ctx, o); err != nil {
		return err
	}
	inside, err := hosts.Enter(ctx, privateNetwork, publicNetwork)
	if again := new(exec.ExitError); errors.As(err, &again) {
		return ErrSaid
	}
	if !inside {
		return err
	}
	dir, err := os.MkdirTemp("", "k8s-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	return f(dir)
}

func parseSizes(text string) ([]int, error) {
	var sizes []int
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 || n > 230 || len(sizes) > 0 && n <= sizes[len(sizes)-1] {
			return nil, fmt.Errorf("-workers %s: want ascending numbers from 1 to 230", text)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// find completes the options with what is built or in the cache, and notes it for this program's
// next run, which has no network.
func find(ctx context.Context, o *options) error {
	show := release.Options{Progress: progress.New(os.Stdout)}
	var err error
	if o.CLI, err = workspace.FindCLI(func() (string, error) {
		dir, err := release.EnsureTools(ctx, show)
		return filepath.Join(dir, "tofu"), err
	}); err != nil {
		return err
	}
	if o.Mirror == "" {
		if o.Mirror, err = release.EnsureMirror(ctx, show); err != nil {
			return err
		}
	}
	if o.Provider == "" {
		root, err := os.Getwd()
		if err != nil {
			return err
		}
		if err := workspace.Build(ctx, root, filepath.Join(root, "bin"), "."); err != nil {
			return err
		}
		o.Provider = filepath.Join(root, "bin", "terraform-provider-k8s")
	}
	os.Args = append(os.Args, "-mirror="+o.Mirror, "-provider="+o.Provider)
	return os.Setenv("TF_ACC_TERRAFORM_PATH", o.CLI)
}

// measureAll measures all sizes, and prints and returns the figures.
func measureAll(ctx context.Context, dir string, o options, sizes []int, w io.Writer) ([]figures, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := newCluster(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.site.fleet.Close() }()
	var all []figures
	for _, n := range sizes {
		_, _ = fmt.Fprintf(w, "growing to %d workers\n", n)
		f, err := c.measure(ctx, n)
		if err != nil {
			return nil, err
		}
		all = append(all, f...)
	}
	_, _ = fmt.Fprintln(w)
	return all, printTable(w, all)
}
