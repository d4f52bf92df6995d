package reference

import (
	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Etcd is k8s_etcd_cluster.x.ref.
type Etcd struct {
	PKI          types.Object `tfsdk:"pki"`
	Version      types.String `tfsdk:"version"`
	Endpoints    types.List   `tfsdk:"endpoints"`
	AllowedCIDRs types.Set    `tfsdk:"allowed_cidrs"`
}

var OfEtcd = tf.NewReference[Etcd](map[string]schema.Attribute{
	"pki":       OfPKI.Input(PKIDescription),
	"version":   Required("etcd release."),
	"endpoints": schema.ListAttribute{Required: true, ElementType: types.StringType, MarkdownDescription: "URLs at which clients reach the members."},
	"allowed_cidrs": schema.SetAttribute{
		Optional: true, ElementType: cidrtypes.IPv4PrefixType{},
		MarkdownDescription: "Networks that may reach the members. They must contain the controllers. Default: no limit.",
	},
})
