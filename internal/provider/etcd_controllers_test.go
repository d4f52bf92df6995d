package provider

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
)

// TestEtcdFindsControllers checks that API servers on other machines are looked for, whatever the roles of
// the members' hosts are.
func TestEtcdFindsControllers(t *testing.T) {
	t.Parallel()
	c := newRoles(t)
	var described resource.SchemaResponse
	NewEtcdCluster().Schema(t.Context(), resource.SchemaRequest{}, &described)
	for _, role := range []any{nil, "controller", "etcd"} {
		host := with(c.etcd["hosts"].([]any)[0].(values), values{"role": role})
		state := tfsdk.State{Schema: described.Schema, Raw: buildObject(t, described, with(c.etcd, values{"hosts": []any{host}}))}
		var m etcdModel
		var diags diag.Diagnostics
		diags.Append(state.Get(t.Context(), &m)...)
		spec := etcdSpec(t.Context(), c.data, &m, &diags)
		if diags.HasError() {
			t.Fatal(diags)
		}
		if spec.Controllers == nil {
			t.Errorf("members with the role %v: no controllers are looked for", role)
		}
	}
}
