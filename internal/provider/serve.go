package provider

import (
	"context"
	"errors"
	"os"

	fwprovider "github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
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
	var err error
	if p.timings.recorder != nil && !debug {
		err = p.timings.serve(p, registryAddress)
	} else {
		err = providerserver.Serve(ctx, func() fwprovider.Provider { return p }, providerserver.ServeOpts{Address: registryAddress, Debug: debug})
	}
	p.Settle(ctx)
	return errors.Join(err, p.Close(), p.timings.write(version))
}
