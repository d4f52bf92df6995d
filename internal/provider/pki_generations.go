package provider

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Generations of keys: the argument of k8s_pki that rotates them, and their attribute in its
// reference.

var generationDescriptions = map[pki.Kind]string{
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

// newGenerations makes the model of a list for each key.
func newGenerations(of func(pki.Kind) types.List) generationsModel {
	return generationsModel{
		KubernetesCA: of(pki.KindKubernetesCA), EtcdCA: of(pki.KindEtcdCA), FrontProxyCA: of(pki.KindFrontProxyCA),
		ServiceAccount: of(pki.KindServiceAccount), Encryption: of(pki.KindEncryption),
	}
}

// generationsRef is `generations` in a reference: a list for every key.
var generationsRef = tf.NewReference[generationsModel](func() map[string]schema.Attribute {
	out := map[string]schema.Attribute{}
	for _, k := range pki.Kinds() {
		out[string(k)] = schema.ListAttribute{Required: true, ElementType: types.Int64Type, MarkdownDescription: generationDescriptions[k]}
	}
	return out
}())

// generationsAttribute is the argument `generations` of k8s_pki.
func generationsAttribute() schema.SingleNestedAttribute {
	out := schema.SingleNestedAttribute{
		Optional: true, Attributes: map[string]schema.Attribute{},
		MarkdownDescription: "Generations of each key, by number. The first of a list issues (signs, writes); all of them are trusted (verify, read). A key is rotated in place by " +
			"three applies, without an outage: `[1]`, then `[1, 2]` (2 is created and trusted everywhere), then `[2, 1]` (2 issues, and everything issued by 1 is " +
			"issued again), then `[2]` (1 is no longer trusted, and is deleted from the key store). A plan that skips a step is refused. The guide [Rotate " +
			"keys](../guides/rotation.md) describes each step. Default: `[1]` for every key.",
	}
	for _, k := range pki.Kinds() {
		out.Attributes[string(k)] = schema.ListAttribute{
			Optional: true, ElementType: types.Int64Type,
			MarkdownDescription: generationDescriptions[k] + " Default: `[1]`.",
			Validators:          []validator.List{listvalidator.SizeBetween(1, pki.MaxGenerations), generationList{}},
		}
	}
	return out
}

// generationList validates the list of one key.
type generationList struct{}

func (generationList) Description(context.Context) string {
	return "Different numbers that count from 1."
}
func (v generationList) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (generationList) ValidateList(_ context.Context, req validator.ListRequest, resp *validator.ListResponse) {
	list, known := numbersFrom(req.ConfigValue)
	if !known || len(list) == 0 {
		return
	}
	if err := pki.CheckGenerations(nil, list); err != nil {
		resp.Diagnostics.AddAttributeError(req.Path, "Unusable generations", err.Error()+".")
	}
}

// numbersFrom reads a list of numbers. It returns false if part of the list is unknown.
func numbersFrom(l types.List) ([]int, bool) {
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

// generationOf returns the list of one key in an argument or a reference, null if it is not set.
func generationOf(o types.Object, k pki.Kind) types.List {
	null := types.ListNull(types.Int64Type)
	if o.IsUnknown() {
		return types.ListUnknown(types.Int64Type)
	}
	if l, ok := o.Attributes()[string(k)].(types.List); ok {
		return l
	}
	return null
}

// generationsFrom reads the object. A list that is null or unknown is [1].
func generationsFrom(o types.Object) pki.Generations {
	var g pki.Generations
	for _, k := range pki.Kinds() {
		if list, known := numbersFrom(generationOf(o, k)); known {
			g = g.With(k, list)
		}
	}
	return g
}

// generationsValue is the inverse of generationsFrom. It sets every key.
func generationsValue(ctx context.Context, g pki.Generations) types.Object {
	return generationsRef.Value(ctx, newGenerations(func(k pki.Kind) types.List { return numbersValue(g.Of(k)) }))
}

// numbersValue is the inverse of numbersFrom.
func numbersValue(numbers []int) types.List {
	var list []attr.Value
	for _, n := range numbers {
		list = append(list, types.Int64Value(int64(n)))
	}
	return types.ListValueMust(types.Int64Type, list)
}

// plannedGenerations returns the configured generations with every key set. A list that is unknown
// stays unknown.
func plannedGenerations(ctx context.Context, configured types.Object) types.Object {
	full := generationsFrom(configured)
	return generationsRef.Value(ctx, newGenerations(func(k pki.Kind) types.List {
		if !tf.AllKnown(generationOf(configured, k)) {
			return types.ListUnknown(types.Int64Type)
		}
		return numbersValue(full.Of(k))
	}))
}

// checkRotationStep adds an error if the configured generations must not follow the prior ones.
func checkRotationStep(prior pki.Generations, configured types.Object, diags *diag.Diagnostics) {
	for _, k := range pki.Kinds() {
		next, known := numbersFrom(generationOf(configured, k))
		if !known {
			continue
		}
		if len(next) == 0 {
			next = []int{1}
		}
		if err := pki.CheckGenerations(prior.Of(k), next); err != nil {
			diags.AddAttributeError(path.Root("generations").AtName(string(k)), "Not a step of a rotation",
				fmt.Sprintf("generations.%s = %s cannot follow %s: %s.", k, pki.FormatGenerations(next), pki.FormatGenerations(prior.Of(k)), err))
		}
	}
}

// plannedRotation plans the reference with the configured generations. An attribute is known if its
// generations are only reordered or dropped, and unknown if a new one is created.
func plannedRotation(ctx context.Context, ref pkiRefModel, configured types.Object, diags *diag.Diagnostics) pkiRefModel {
	before := ref.ref()
	checkRotationStep(before.Generations, configured, diags)
	if diags.HasError() {
		return ref
	}
	next := generationsFrom(configured)
	warnOfDroppedGenerations(before.Generations, next, diags)
	arranged, made := before.Arrange(next)
	bundles := map[pki.Kind]*types.String{
		pki.KindKubernetesCA: &ref.KubernetesCA, pki.KindEtcdCA: &ref.EtcdCA, pki.KindFrontProxyCA: &ref.FrontProxyCA,
		pki.KindServiceAccount: &ref.ServiceAccountPublicKey,
	}
	values := map[pki.Kind]string{
		pki.KindKubernetesCA: arranged.KubernetesCA, pki.KindEtcdCA: arranged.EtcdCA, pki.KindFrontProxyCA: arranged.FrontProxyCA,
		pki.KindServiceAccount: arranged.ServiceAccountPublicKey,
	}
	changes := len(made) > 0
	for _, k := range pki.Kinds() {
		unknown := slices.Contains(made, k) || !tf.AllKnown(generationOf(configured, k))
		changes = changes || unknown
		if bundle := bundles[k]; bundle != nil {
			*bundle = types.StringValue(values[k])
			if unknown {
				*bundle = types.StringUnknown()
			}
		}
	}
	if !ref.Keys.IsNull() {
		ref.Keys = tf.StringMapValue(arranged.Keys)
		if changes {
			ref.Keys = types.MapUnknown(types.StringType)
		}
	}
	ref.Generations = plannedGenerations(ctx, configured)
	return ref
}

// warnOfDroppedGenerations warns of what stops working without the dropped generations.
func warnOfDroppedGenerations(prior, next pki.Generations, diags *diag.Diagnostics) {
	consequences := map[pki.Kind]string{
		pki.KindServiceAccount: "Tokens it has signed are refused from then on. Pods get new ones within an hour after the new key has begun to sign. " +
			"Tokens in Secrets of type kubernetes.io/service-account-token, and tokens issued for longer, are not renewed by themselves.",
		pki.KindKubernetesCA: "Client certificates it has issued are refused from then on, including those in people's kubeconfigs. Clients that have only its certificate " +
			"no longer trust the API server. Restart pods that started before the new authority was trusted, unless their client reads the CA again.",
	}
	for _, k := range pki.Kinds() {
		if consequences[k] == "" {
			continue
		}
		var dropped []int
		for _, n := range prior.Of(k) {
			if !slices.Contains(next.Of(k), n) {
				dropped = append(dropped, n)
			}
		}
		if len(dropped) > 0 {
			diags.AddAttributeWarning(path.Root("generations").AtName(string(k)),
				fmt.Sprintf("Generation %s of %s is dropped", strings.Trim(pki.FormatGenerations(dropped), "[]"), k), consequences[k])
		}
	}
}

// warnOfExpiringAuthorities warns of issuing authorities that expire before the certificates they
// would issue.
func warnOfExpiringAuthorities(ref pki.Ref, now time.Time, diags *diag.Diagnostics) {
	for _, ca := range []pki.CAName{pki.KubernetesCA, pki.EtcdCA, pki.FrontProxyCA} {
		due, end, err := pki.RotationDue([]byte(ref.Bundle(ca)))
		if err != nil || now.Before(due) {
			continue
		}
		list := ref.Generations.Of(ca.Kind())
		diags.AddWarning(fmt.Sprintf("Generation %d of %s expires on %s", list[0], ca.Kind(), end.UTC().Format(time.DateOnly)),
			fmt.Sprintf("Certificates it issues from now on expire with it. Rotate it in time: set generations.%s = %s of k8s_pki as the first step.",
				ca.Kind(), pki.FormatGenerations(append(list, slices.Max(list)+1))))
	}
}

// checkRotationFinished refuses a plan that takes a role further than one step of a rotation: a
// step that failed half way must be finished first. The error is on pki, although the argument at
// fault belongs to k8s_pki; the message names it.
func checkRotationFinished(ctx context.Context, req resource.ModifyPlanRequest, diags *diag.Diagnostics) {
	if req.State.Raw.IsNull() {
		return
	}
	var was, planned types.Object
	diags.Append(req.State.GetAttribute(ctx, path.Root("pki"), &was)...)
	diags.Append(req.Plan.GetAttribute(ctx, path.Root("pki"), &planned)...)
	if diags.HasError() {
		return
	}
	before, after := generationsIn(was), generationsIn(planned)
	for _, k := range pki.Kinds() {
		prior, _ := numbersFrom(generationOf(before, k))
		next, known := numbersFrom(generationOf(after, k))
		if !known || len(prior) == 0 || len(next) == 0 || slices.Equal(prior, next) {
			continue
		}
		if err := pki.CheckGenerations(prior, next); err != nil {
			diags.AddAttributeError(path.Root("pki"), "An earlier step of the rotation is not finished here",
				fmt.Sprintf("This resource was last applied with generations.%s = %s of k8s_pki, and is now planned with %s: %s.\n\n"+
					"An apply has probably failed before it reached this resource. Set generations.%s of k8s_pki back to the value of that apply, and apply until a plan is empty.",
					k, pki.FormatGenerations(prior), pki.FormatGenerations(next), err, k))
		}
	}
}

// generationsIn returns the attribute `generations` of a reference.
func generationsIn(ref types.Object) types.Object {
	if ref.IsUnknown() {
		return generationsRef.Unknown()
	}
	if g, ok := ref.Attributes()["generations"].(types.Object); ok {
		return g
	}
	return types.ObjectNull(generationsRef.Type().AttrTypes)
}
