package keys

import (
	"context"
	"iter"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/list"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/keystore"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// NewPKIList returns the list of keys in SSM Parameter Store.
func NewPKIList() list.ListResource {
	return &owned.List{Lister: owned.Lister{
		Name: "pki", What: "keys in SSM Parameter Store", Note: " It reads no private key.",
		Each: func(ctx context.Context, c *infraaws.Client, cluster string) iter.Seq2[owned.Found, error] {
			return owned.Each(keystore.List(ctx, c, cluster), func(at keystore.Config) owned.Found {
				id := at.Cluster
				if at.Prefix != keystore.DefaultPrefix(at.Cluster) {
					id += at.Prefix
				}
				return owned.Found{Name: id, ID: id, Identity: map[string]string{"cluster": at.Cluster, "prefix": at.Prefix}}
			})
		},
		Find: func(ctx context.Context, d *session.Session, id string, into owned.Target, diags *diag.Diagnostics) {
			(&pkiResource{session.Base{Session: d}}).find(ctx, id, into, diags)
		},
	}}
}
