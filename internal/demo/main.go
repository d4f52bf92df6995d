// Command demo runs the project's main job on one Linux machine: it builds the programs, starts the
// local EC2, applies examples/ha-cluster and says how to continue. "down" destroys everything
// again.
//
// It only runs other programs, so that compiling it is fast.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 || (args[0] != "up" && args[0] != "down") {
		return fmt.Errorf("usage: demo up|down")
	}
	if os.Getuid() != 0 {
		return fmt.Errorf("the local EC2 runs real machines and needs root: sudo make demo")
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, "examples", "ha-cluster")); err != nil {
		return fmt.Errorf("run it from the top of the repository: %w", err)
	}
	d := &demo{root: root, dir: filepath.Join(root, ".demo"), began: time.Now(), report: progress.New(os.Stdout)}
	if args[0] == "down" {
		return d.down(ctx)
	}
	return d.up(ctx)
}
