package reference

import (
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// WorkloadIdentity is k8s_workload_identity.x.ref.
type WorkloadIdentity struct {
	Cluster types.String `tfsdk:"cluster"`
	Issuer  types.String `tfsdk:"issuer"`
}

var OfWorkloadIdentity = tf.NewReference[WorkloadIdentity](map[string]schema.Attribute{
	"cluster": schema.StringAttribute{Optional: true, MarkdownDescription: "Name of the cluster. Default: not checked."},
	"issuer":  Required("URL of the issuer, at which its documents are."),
})
