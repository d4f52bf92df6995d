// Command try runs pages of exercises against the cluster of the shell's environment, in the current directory, and
// shows each script with what it prints: go run ./internal/exercise/try examples/labs/loops.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/exercise"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/exercise/session"
)

func main() {
	long := flag.Bool("long", false, "run also the sections that take minutes")
	onward := flag.Bool("onward", false, "go on after a script that prints something else")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	failed := false
	for _, file := range flag.Args() {
		if err := try(ctx, file, *long, *onward); err != nil {
			fmt.Fprintln(os.Stderr, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

func try(ctx context.Context, file string, long, onward bool) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	page, err := exercise.Parse(file, string(raw))
	if err != nil {
		return err
	}
	var failed error
	err = session.Play(ctx, page, ".", os.Environ(), long, func(b exercise.Block, took time.Duration, printed string, err error) error {
		fmt.Printf("--- %s:%d %s, %.1f s\n%s---\n%s", b.File, b.Line, b.Section, took.Seconds(), b.Script, printed)
		if err == nil {
			return nil
		}
		fmt.Printf("=== %v\n", err)
		if failed = fmt.Errorf("%s:%d fails", b.File, b.Line); onward {
			return nil
		}
		return failed
	})
	if err == nil {
		err = failed
	}
	return err
}
