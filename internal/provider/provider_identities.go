package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/identity"
)

// What identifies each resource. An object in AWS is also identified by its account and region.

var (
	idPath = path.Root("id")

	byCluster = identity.Part{Name: "cluster", Description: "Name of the cluster.", At: idPath}
	// ofCluster is the cluster in an id "<cluster>/<name>", and ofNetwork that of a network's reference.
	ofCluster = identity.Part{Name: "cluster", Description: "Name of the cluster.", At: idPath, Of: identity.First}
	ofNetwork = identity.Part{Name: "cluster", Description: "Name of the cluster.", At: path.Root("network").AtName("cluster")}

	clusterInAWS = identity.Identity{Parts: []identity.Part{byCluster}, InAWS: true}
	clusterRole  = identity.Identity{Parts: []identity.Part{byCluster}}
	// What is moved to another cluster in place, or renamed, changes its identity.
	backupIdentity = identity.Identity{Parts: []identity.Part{byCluster}, Mutable: true}

	volumeIdentity = identity.Identity{Parts: []identity.Part{ofNetwork,
		{Name: "name", Description: "Name of the volume in its cluster.", At: path.Root("name")}}, InAWS: true}
	imageIdentity = identity.Identity{Parts: []identity.Part{{Name: "cluster", Description: "Cluster in the tags of the image.", At: path.Root("cluster")},
		{Name: "name", Description: "Name of the image.", At: path.Root("name")}}, InAWS: true}
	machineIdentity = identity.Identity{Parts: []identity.Part{ofNetwork,
		{Name: "name", Description: "Name of the machine in its cluster.", At: path.Root("name")}}, InAWS: true}
	pkiIdentity = identity.Identity{Parts: []identity.Part{byCluster,
		{Name: "prefix", Description: "Prefix of the parameters' names, for the key store `ssm`.", Default: "`/k8s/<cluster>/pki/`", At: path.Root("prefix")}}, InAWS: true}
	copyIdentity = identity.Identity{Parts: []identity.Part{
		{Name: "bucket", Description: "Bucket of the copy.", At: path.Root("bucket")},
		{Name: "prefix", Description: "What the key of the object begins with.", At: path.Root("prefix")}}, Mutable: true}
	issuerIdentity = identity.Identity{Parts: []identity.Part{{Name: "issuer", Description: "URL of the issuer.", At: idPath}}, InAWS: true}
	poolIdentity   = identity.Identity{Parts: []identity.Part{ofCluster,
		{Name: "name", Description: "Name of the worker pool.", At: idPath, Of: identity.Rest}}, Mutable: true}
	addonIdentity = identity.Identity{Parts: []identity.Part{ofCluster,
		{Name: "name", Description: "Name of the addon.", At: idPath, Of: identity.Rest}}, Mutable: true}
	kubeconfigIdentity = identity.Identity{Parts: []identity.Part{ofCluster,
		{Name: "user", Description: "User in the certificate.", At: idPath, Of: identity.Rest}}, Mutable: true}
)
