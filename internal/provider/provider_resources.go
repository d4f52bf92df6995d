package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/addons"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/identity"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/keys"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/machines"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/networks"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/roles"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/status"
)

// The provider's resources, in the order in which a cluster is built.

func resources() []func() resource.Resource {
	return []func() resource.Resource{
		identity.With(networks.NewNetwork, clusterInAWS),
		identity.With(machines.NewVolume, volumeIdentity),
		identity.With(machines.NewImage, imageIdentity),
		identity.With(machines.NewMachine, machineIdentity),
		identity.With(keys.NewPKI, pkiIdentity),
		identity.With(keys.NewPKICopy, copyIdentity),
		identity.With(keys.NewWorkloadIdentity, issuerIdentity),
		identity.With(roles.NewLB, clusterRole),
		identity.With(networks.NewNLB, clusterInAWS),
		identity.With(roles.NewEtcdCluster, clusterRole),
		identity.With(roles.NewEtcdBackup, backupIdentity),
		identity.With(roles.NewControlPlane, clusterRole),
		identity.With(roles.NewWorkerPool, poolIdentity),
		identity.With(newAddon, addonIdentity),
		identity.With(keys.NewKubeconfig, kubeconfigIdentity),
	}
}

func newAddon() resource.Resource { return addons.NewResource(roles.ControlPlaneOf) }

func dataSources() []func() datasource.DataSource {
	return []func() datasource.DataSource{status.NewDataSource}
}

func ephemeralResources() []func() ephemeral.EphemeralResource {
	return []func() ephemeral.EphemeralResource{keys.NewEphemeralKubeconfig}
}

// lists are of the resources for which AWS can be asked by tags. A k8s_lb is on a machine, and only its Elastic IP is in AWS.
func lists() []func() list.ListResource {
	return []func() list.ListResource{networks.NewNetworkList, machines.NewVolumeList, machines.NewMachineList, keys.NewPKIList, networks.NewNLBList}
}

func actions() []func() action.Action {
	return []func() action.Action{roles.NewEtcdSnapshot}
}
