// Command bench measures the provider. The subcommand plans measures what plans cost. The subcommand
// class measures many clusters in one account at once. The subcommand apply measures how long an apply takes, beside other ways to the same cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/bench/apply"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/bench/plans"
)

func main() {
	plans.ServeIfPlugin()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return
	case !errors.Is(err, plans.ErrSaid):
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	os.Exit(1)
}

func run(ctx context.Context, args []string) error {
	measure := map[string]func(context.Context, []string) error{"plans": plans.Run, "class": plans.Class, "apply": apply.Run}
	if len(args) == 0 || measure[args[0]] == nil {
		return errors.New("say what to measure, plans, class or apply, and then its flags; -h lists them")
	}
	return measure[args[0]](ctx, args[1:])
}
