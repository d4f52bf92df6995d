package roles_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/etcdcluster"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/roles"
)

// TestEtcdFindsControllers checks that API servers on other machines are looked for, whatever the roles of
// the members' hosts are.
func TestEtcdFindsControllers(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	var described resource.SchemaResponse
	roles.NewEtcdCluster().Schema(t.Context(), resource.SchemaRequest{}, &described)
	for _, role := range []any{nil, "controller", "etcd"} {
		host := providertest.With(c.Etcd["hosts"].([]any)[0].(providertest.Values), providertest.Values{"role": role})
		state := tfsdk.State{Schema: described.Schema, Raw: buildObject(t, described, providertest.With(c.Etcd, providertest.Values{"hosts": []any{host}}))}
		var m roles.EtcdModel
		var diags diag.Diagnostics
		diags.Append(state.Get(t.Context(), &m)...)
		var spec etcdcluster.Cluster
		roles.CompleteEtcd(t.Context(), c.Data, &m, &spec, &diags)
		if diags.HasError() {
			t.Fatal(diags)
		}
		if spec.Controllers == nil {
			t.Errorf("members with the role %v: no controllers are looked for", role)
		}
	}
}
