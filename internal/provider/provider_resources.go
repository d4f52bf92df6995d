package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/resource"
)

// The provider's resources, in the order in which a cluster is built.

func resources() []func() resource.Resource {
	return []func() resource.Resource{
		NewNetwork,
		NewVolume,
		NewMachine,
		NewPKI,
		NewPKICopy,
		NewLB,
		NewNLB,
		NewEtcdCluster,
		NewEtcdBackup,
		NewControlPlane,
		NewWorkerPool,
		NewResource,
		NewKubeconfig,
	}
}

func dataSources() []func() datasource.DataSource {
	return []func() datasource.DataSource{NewDataSource}
}

func ephemeralResources() []func() ephemeral.EphemeralResource {
	return []func() ephemeral.EphemeralResource{NewEphemeralKubeconfig}
}

func actions() []func() action.Action {
	return []func() action.Action{NewEtcdSnapshot}
}
