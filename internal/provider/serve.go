package provider

import (
	"context"
	"errors"
	"os"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"
)

// registryAddress is the provider's address in registries.
const registryAddress = "registry.terraform.io/k8s-from-scratch/k8s"

// Serve serves the provider to Terraform until Terraform says that it may end. debug waits for a
// debugger instead and prints how to reattach Terraform.
//
// Terraform says so by go-plugin's Shutdown, after it has taken every answer. Then the server stops
// and Serve goes on with what may be said only now: that a state has what was created. A process
// that is killed does not get there.
func Serve(ctx context.Context, version string, debug bool) error {
	if !debug { // Terraform's environment is not that of a debugger
		if err := limitSDKLog(); err != nil {
			return err
		}
	}
	p := New(version)
	p.timings = startTimings(os.Getenv)
	var options []tf6server.ServeOpt
	if debug {
		options = append(options, tf6server.WithManagedDebug())
	}
	err := tf6server.Serve(registryAddress, func() tfprotov6.ProviderServer { return Server(p) }, options...)
	p.Settle(ctx)
	return errors.Join(err, p.Close(), p.timings.write(version))
}
