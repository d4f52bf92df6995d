// Command ensure makes the machine image of package prepared, unless the cache has it. make artifacts runs
// it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/prepared"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	program, err := filepath.Abs(filepath.Join("bin", "k8s-lab"))
	if err != nil {
		return err
	}
	_, err = prepared.Ensure(ctx, prepared.Options{Program: program, Progress: progress.New(os.Stdout)})
	return err
}
