// Command benchkubeadm measures two ways to the same cluster, on the same machines of the local EC2:
// kubeadm with everything installed and pulled beforehand, and a whole terraform apply of
// examples/ha-cluster from nothing. They alternate, each in a new lab. docs/design/kubeadm.md says
// what each clock includes.
//
// bench.go has the order, config.go what kubeadm and the machines read, machines/ the machines.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-kubeadm:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("bench-kubeadm", flag.ContinueOnError)
	rounds := f.Int("rounds", 3, "how often each side is measured")
	only := f.String("only", "", "measure one side only: kubeadm or apply")
	if err := f.Parse(args); err != nil {
		return err
	}
	switch {
	case *rounds < 1 || *rounds > 100:
		return fmt.Errorf("-rounds %d: between 1 and 100", *rounds)
	case *only != "" && *only != sideKubeadm && *only != sideApply:
		return fmt.Errorf("-only %s: %s or %s", *only, sideKubeadm, sideApply)
	case os.Getuid() != 0:
		return errors.New("the local EC2 runs real machines and needs root: sudo make bench-kubeadm")
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, "examples", "ha-cluster")); err != nil {
		return fmt.Errorf("run it from the top of the repository: %w", err)
	}
	b := &bench{root: root, dir: filepath.Join(root, ".bench-kubeadm"), out: os.Stdout, report: progress.New(os.Stdout)}
	return b.run(ctx, *rounds, *only)
}
