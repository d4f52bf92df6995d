package keys

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Generations of keys: the argument of k8s_pki that rotates them, and their attribute in its
// reference.

// generationsAttribute is the argument `generations` of k8s_pki.
func generationsAttribute() schema.SingleNestedAttribute {
	out := schema.SingleNestedAttribute{
		Optional: true, Attributes: map[string]schema.Attribute{},
		MarkdownDescription: "Generations of each key, by number. The first one issues, and all are trusted. Three applies rotate a key without an outage: from `[1]` to `[1, 2]`, `[2, 1]` and `[2]`. " +
			"A plan that skips a step is refused. The guide [Rotate keys](../guides/rotation.md) describes the steps. Default: `[1]`.",
	}
	for _, k := range pki.Kinds() {
		out.Attributes[string(k)] = schema.ListAttribute{
			Optional: true, ElementType: types.Int64Type,
			MarkdownDescription: reference.GenerationDescriptions[k] + " Default: `[1]`.",
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
	list, known := reference.NumbersFrom(req.ConfigValue)
	if !known || len(list) == 0 {
		return
	}
	if err := pki.CheckGenerations(nil, list); err != nil {
		resp.Diagnostics.AddAttributeError(req.Path, "Unusable generations", err.Error()+".")
	}
}

// plannedGenerations returns the configured generations with every key set. A list that is unknown
// stays unknown.
func plannedGenerations(ctx context.Context, configured types.Object) types.Object {
	full := reference.GenerationsFrom(configured)
	return reference.OfGenerations.Value(ctx, reference.NewGenerations(func(k pki.Kind) types.List {
		if !tf.AllKnown(reference.GenerationOf(configured, k)) {
			return types.ListUnknown(types.Int64Type)
		}
		return reference.NumbersValue(full.Of(k))
	}))
}

// checkRotationStep adds an error if the configured generations must not follow the prior ones.
func checkRotationStep(prior pki.Generations, configured types.Object, diags *diag.Diagnostics) {
	for _, k := range pki.Kinds() {
		next, known := reference.NumbersFrom(reference.GenerationOf(configured, k))
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
func plannedRotation(ctx context.Context, ref reference.PKI, configured types.Object, diags *diag.Diagnostics) reference.PKI {
	before := ref.Ref()
	checkRotationStep(before.Generations, configured, diags)
	if diags.HasError() {
		return ref
	}
	next := reference.GenerationsFrom(configured)
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
		unknown := slices.Contains(made, k) || !tf.AllKnown(reference.GenerationOf(configured, k))
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
	for _, c := range pki.Certificates(ref.KubernetesCAChain) {
		due, end, err := pki.RotationDue([]byte(c))
		if err != nil || now.Before(due) {
			continue
		}
		name, _ := pki.CommonName([]byte(c))
		diags.AddWarning(fmt.Sprintf("Authority %s above the Kubernetes CA expires on %s", name, end.UTC().Format(time.DateOnly)),
			"HAProxy and many programs in pods then accept no certificate below it. Rotate to an authority below another root in time, or give the renewed certificate of this one in chain_pem.")
	}
}
