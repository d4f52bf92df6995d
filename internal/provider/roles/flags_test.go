package roles_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/roles"
)

// TestFlags checks that a flag can be given twice, as a number, and taken away, and that another
// spelling is no change.
func TestFlags(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	with := func(flags providertest.Values) providertest.Values {
		return providertest.With(c.ControlPlane, providertest.Values{"extra_args": providertest.Values{"kube_apiserver": flags}})
	}
	i := c.Applied("k8s_control_plane", with(providertest.Values{"v": 4, "profiling": nil, "service-account-key-file": []any{"/a", "/b"}}))
	m := roles.ControlPlaneModel{}
	got := extraArgsOf(t, i, &m)
	if want := map[string][]string{"v": {"4"}, "profiling": nil, "service-account-key-file": {"/a", "/b"}}; !maps.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("flags %v, wanted %v", got, want)
	}
	if ch := i.Plan(with(providertest.Values{"v": 4, "profiling": nil, "service-account-key-file": []any{"/a", "/b"}})); !i.Empty(ch) {
		t.Errorf("the second plan is not empty: %s", i.Differences(ch))
	}
	for what, flags := range map[string]providertest.Values{
		"another value": {"v": 5, "profiling": nil, "service-account-key-file": []any{"/a", "/b"}},
		"one less":      {"v": 4, "profiling": nil, "service-account-key-file": []any{"/a"}},
		"not removed":   {"v": 4, "service-account-key-file": []any{"/a", "/b"}},
	} {
		if ch := i.Plan(with(flags)); ch.Failure() != "" || i.Empty(ch) {
			t.Errorf("%s plans nothing: %s", what, ch.Failure())
		}
	}
}

// extraArgsOf returns the flags of kube-apiserver in the state.
func extraArgsOf(t *testing.T, i *providertest.Instance, m *roles.ControlPlaneModel) map[string][]string {
	t.Helper()
	var described resource.SchemaResponse
	roles.NewControlPlane().Schema(t.Context(), resource.SchemaRequest{}, &described)
	state := tfsdk.State{Schema: described.Schema, Raw: i.State}
	if diags := state.Get(t.Context(), m); diags.HasError() {
		t.Fatal(diags)
	}
	return roles.ExtraArgs(m.ExtraArgs, artifact.KubeAPIServer)
}
