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
			return func(yield func(owned.Found, error) bool) {
				for at, err := range keystore.List(ctx, c, cluster) {
					found := owned.Found{ID: at.Cluster, Identity: map[string]string{"cluster": at.Cluster, "prefix": at.Prefix}}
					if at.Prefix != keystore.DefaultPrefix(at.Cluster) {
						found.ID += at.Prefix
					}
					found.Name = found.ID
					if !yield(found, err) {
						return
					}
				}
			}
		},
		Find: func(ctx context.Context, d *session.Session, id string, into owned.Target, diags *diag.Diagnostics) {
			(&pkiResource{session.Base{Session: d}}).find(ctx, id, into, diags)
		},
	}}
}
