// Command terraform-provider-k8s serves the provider to Terraform or OpenTofu. With the argument
// "artifacts" it prints what the machines of a cluster download, and with "quotas" whether an account has room for a plan.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/inventory"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/quotas"
)

// version is set by the release build.
var version = "dev"

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "terraform-provider-k8s:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "artifacts":
			return inventory.Command(ctx, os.Args[2:], os.Stdout, os.Stderr)
		case "quotas":
			return quotas.Command(ctx, os.Args[2:], os.Stdin, os.Stdout, os.Stderr)
		}
	}
	debug := flag.Bool("debug", false, "wait for a debugger: print how to reattach Terraform, and serve until interrupted")
	flag.Parse()

	// client-go logs to standard error, which Terraform would show as output of the provider.
	klog.SetLogger(logr.Discard())

	return provider.Serve(ctx, version, *debug)
}
