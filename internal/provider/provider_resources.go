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
		newNetworkResource,
		newVolumeResource,
		newMachineResource,
		newPKIResource,
		newPKICopyResource,
		newLBResource,
		newNLBResource,
		newEtcdClusterResource,
		newEtcdBackupResource,
		newControlPlaneResource,
		newWorkerPoolResource,
		newAddonResource,
		newKubeconfigResource,
	}
}

func dataSources() []func() datasource.DataSource {
	return []func() datasource.DataSource{newClusterStatusDataSource}
}

func ephemeralResources() []func() ephemeral.EphemeralResource {
	return []func() ephemeral.EphemeralResource{newKubeconfigEphemeral}
}

func actions() []func() action.Action {
	return []func() action.Action{newEtcdSnapshotAction}
}
