package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
)

// publish publishes an image.
func (c *cli) publish() *cobra.Command {
	return &cobra.Command{
		Use: "publish RELEASE [VARIANT]", Short: "Publish the image of a release of Debian again, or a variant of it; print its id",
		Args: cobra.RangeArgs(1, 2), ValidArgs: machine.Variants(),
		Long: `publish publishes the image of a release of Debian, such as 13, again under a new id. It is the newest one
from then on, and the SSM parameter of the release names it.

With a variant it publishes an image of the account that differs from Debian's as the images of others do:
` + strings.Join(machine.Variants(), ", ") + `.`,
		Example: example(`sudo k8s-lab publish 13`, `sudo k8s-lab publish 13 fips`),
		RunE: c.with(func(ctx context.Context, l *lab.Lab, args []string) error {
			id, err := l.PublishImage(ctx, args[0], append(args, "")[1])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.stdout, id)
			return err
		}),
	}
}
