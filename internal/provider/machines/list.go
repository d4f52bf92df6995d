package machines

import (
	"context"
	"iter"

	"github.com/hashicorp/terraform-plugin-framework/list"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/volume"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
)

// NewMachineList returns the list of machines.
func NewMachineList() list.ListResource {
	return &owned.List{Lister: newMachine().Lister("machines", " A machine that is still being created is not listed.",
		func(ctx context.Context, c *infraaws.Client, cluster string) iter.Seq2[owned.Found, error] {
			return owned.Each(awsmachine.List(ctx, c, cluster), func(m awsmachine.Machine) owned.Found { return owned.Named(m.Cluster, m.Name, m.ID) })
		})}
}

// NewVolumeList returns the list of volumes.
func NewVolumeList() list.ListResource {
	return &owned.List{Lister: newVolume().Lister("data volumes", "",
		func(ctx context.Context, c *infraaws.Client, cluster string) iter.Seq2[owned.Found, error] {
			return owned.Each(volume.List(ctx, c, cluster), func(v volume.Volume) owned.Found { return owned.Named(v.Cluster, v.Name, v.ID) })
		})}
}
