// Command movedclock is the provider with a wrong clock: terraform-provider-k8s with a clock that
// is off by the duration in K8S_E2E_CLOCK_OFFSET ("-1h", "8000h"; empty is no offset). The kernel's
// clock cannot be changed for one process, or for the machines of the local EC2.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	fwprovider "github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"k8s.io/klog/v2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "movedclock:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var offset time.Duration
	if text := os.Getenv("K8S_E2E_CLOCK_OFFSET"); text != "" {
		var err error
		if offset, err = time.ParseDuration(text); err != nil {
			return err
		}
	}
	klog.SetLogger(logr.Discard())
	p := provider.NewAt("test", func() time.Time { return time.Now().Add(offset) })
	err := providerserver.Serve(ctx, func() fwprovider.Provider { return p },
		providerserver.ServeOpts{Address: "registry.terraform.io/k8s-from-scratch/k8s"})
	return errors.Join(err, p.Close())
}
