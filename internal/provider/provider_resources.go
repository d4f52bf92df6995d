package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/addons"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/keys"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/machines"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/networks"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/roles"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/status"
)

// The provider's resources, in the order in which a cluster is built.

func resources() []func() resource.Resource {
	return []func() resource.Resource{
		networks.NewNetwork,
		machines.NewVolume,
		machines.NewMachine,
		keys.NewPKI,
		keys.NewPKICopy,
		roles.NewLB,
		networks.NewNLB,
		roles.NewEtcdCluster,
		roles.NewEtcdBackup,
		roles.NewControlPlane,
		roles.NewWorkerPool,
		addons.NewResource,
		keys.NewKubeconfig,
	}
}

func dataSources() []func() datasource.DataSource {
	return []func() datasource.DataSource{status.NewDataSource}
}

func ephemeralResources() []func() ephemeral.EphemeralResource {
	return []func() ephemeral.EphemeralResource{keys.NewEphemeralKubeconfig}
}

func actions() []func() action.Action {
	return []func() action.Action{roles.NewEtcdSnapshot}
}
