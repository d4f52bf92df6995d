package reference

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

var GenerationDescriptions = map[pki.Kind]string{
	pki.KindKubernetesCA:   "Certificate authority of the API servers, kubelets, other components and people.",
	pki.KindEtcdCA:         "Certificate authority of etcd's members and clients.",
	pki.KindFrontProxyCA:   "Certificate authority of the aggregation layer, with which the API servers identify themselves to extension API servers such as metrics-server.",
	pki.KindServiceAccount: "Key that signs the tokens of service accounts.",
	pki.KindEncryption:     "Key that encrypts secrets in etcd.",
}

// generationsModel is `generations`: a list for every key.
type generationsModel struct {
	KubernetesCA   types.List `tfsdk:"kubernetes_ca"`
	EtcdCA         types.List `tfsdk:"etcd_ca"`
	FrontProxyCA   types.List `tfsdk:"front_proxy_ca"`
	ServiceAccount types.List `tfsdk:"service_account"`
	Encryption     types.List `tfsdk:"encryption"`
}

// NewGenerations makes the model of a list for each key.
func NewGenerations(of func(pki.Kind) types.List) generationsModel {
	return generationsModel{
		KubernetesCA: of(pki.KindKubernetesCA), EtcdCA: of(pki.KindEtcdCA), FrontProxyCA: of(pki.KindFrontProxyCA),
		ServiceAccount: of(pki.KindServiceAccount), Encryption: of(pki.KindEncryption),
	}
}

// OfGenerations is `generations` in a reference: a list for every key.
var OfGenerations = tf.NewReference[generationsModel](func() map[string]schema.Attribute {
	out := map[string]schema.Attribute{}
	for _, k := range pki.Kinds() {
		out[string(k)] = schema.ListAttribute{Required: true, ElementType: types.Int64Type, MarkdownDescription: GenerationDescriptions[k]}
	}
	return out
}())

// NumbersFrom reads a list of numbers. It returns false if part of the list is unknown.
func NumbersFrom(l types.List) ([]int, bool) {
	if !tf.AllKnown(l) {
		return nil, false
	}
	var out []int
	for _, e := range l.Elements() {
		n, ok := e.(types.Int64)
		if !ok || n.IsNull() {
			return nil, false
		}
		out = append(out, int(n.ValueInt64()))
	}
	return out, true
}

// GenerationOf returns the list of one key in an argument or a reference, null if it is not set.
func GenerationOf(o types.Object, k pki.Kind) types.List {
	null := types.ListNull(types.Int64Type)
	if o.IsUnknown() {
		return types.ListUnknown(types.Int64Type)
	}
	if l, ok := o.Attributes()[string(k)].(types.List); ok {
		return l
	}
	return null
}

// GenerationsFrom reads the object. A list that is null or unknown is [1].
func GenerationsFrom(o types.Object) pki.Generations {
	var g pki.Generations
	for _, k := range pki.Kinds() {
		if list, known := NumbersFrom(GenerationOf(o, k)); known {
			g = g.With(k, list)
		}
	}
	return g
}

// GenerationsValue is the inverse of GenerationsFrom. It sets every key.
func GenerationsValue(ctx context.Context, g pki.Generations) types.Object {
	return OfGenerations.Value(ctx, NewGenerations(func(k pki.Kind) types.List { return NumbersValue(g.Of(k)) }))
}

// NumbersValue is the inverse of NumbersFrom.
func NumbersValue(numbers []int) types.List {
	var list []attr.Value
	for _, n := range numbers {
		list = append(list, types.Int64Value(int64(n)))
	}
	return types.ListValueMust(types.Int64Type, list)
}

// GenerationsIn returns the attribute `generations` of a reference.
func GenerationsIn(ref types.Object) types.Object {
	if ref.IsUnknown() {
		return OfGenerations.Unknown()
	}
	if g, ok := ref.Attributes()["generations"].(types.Object); ok {
		return g
	}
	return types.ObjectNull(OfGenerations.Type().AttrTypes)
}

// CheckRotationFinished refuses a plan that takes a role further than one step of a rotation: a
// step that failed half way must be finished first. The error is on the argument that has the keys, although the argument at
// fault belongs to k8s_pki; the message names it.
func CheckRotationFinished(ctx context.Context, req resource.ModifyPlanRequest, diags *diag.Diagnostics) {
	if req.State.Raw.IsNull() {
		return
	}
	was, planned, at := PlannedPKI(ctx, req, diags)
	if diags.HasError() {
		return
	}
	before, after := GenerationsIn(was), GenerationsIn(planned)
	for _, k := range pki.Kinds() {
		prior, _ := NumbersFrom(GenerationOf(before, k))
		next, known := NumbersFrom(GenerationOf(after, k))
		if !known || len(prior) == 0 || len(next) == 0 || slices.Equal(prior, next) {
			continue
		}
		if err := pki.CheckGenerations(prior, next); err != nil {
			diags.AddAttributeError(at, "An earlier step of the rotation is not finished here",
				fmt.Sprintf("This resource was last applied with generations.%s = %s of k8s_pki, and is now planned with %s: %s.\n\n"+
					"An apply has probably failed before it reached this resource. Set generations.%s of k8s_pki back to the value of that apply, and apply until a plan is empty.",
					k, pki.FormatGenerations(prior), pki.FormatGenerations(next), err, k))
		}
	}
}
