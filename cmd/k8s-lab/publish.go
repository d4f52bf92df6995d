package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab"
)

// publish publishes an image.
func (c *cli) publish() *cobra.Command {
	return &cobra.Command{
		Use: "publish RELEASE", Short: "Publish the image of a release of Debian again, as a newer one; print its id", Args: named,
		Long: `publish publishes the image of a release of Debian, such as 13, again under a new id. It is the newest one
from then on, and the SSM parameter of the release names it.`,
		Example: example(`sudo k8s-lab publish 13`),
		RunE: c.with(func(ctx context.Context, l *lab.Lab, args []string) error {
			id, err := l.PublishImage(ctx, args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.stdout, id)
			return err
		}),
	}
}
