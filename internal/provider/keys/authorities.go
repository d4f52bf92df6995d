package keys

import (
	"context"
	"regexp"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// The argument authorities of k8s_pki: authorities that are given instead of generated.

const authoritiesName = "authorities"

// authorityModel is one of `authorities.<kind>`.
type authorityModel struct {
	Certificate types.String `tfsdk:"certificate_pem"`
	Chain       types.String `tfsdk:"chain_pem"`
	Key         types.String `tfsdk:"private_key_wo"` // write-only: null except in the configuration
}

var authorityOf = tf.NewReference[authorityModel](authorityAttributes())

func authorityAttributes() map[string]schema.Attribute {
	some := []validator.String{stringvalidator.LengthAtLeast(1)}
	return map[string]schema.Attribute{
		"certificate_pem": schema.StringAttribute{
			Required: true, Validators: some,
			MarkdownDescription: "Certificate of the authority, PEM, and nothing else. RSA with 2048 to 4096 bits, or ECDSA. It cannot change: another certificate is another generation.",
		},
		"chain_pem": schema.StringAttribute{
			Optional: true, Validators: some,
			MarkdownDescription: "Certificates above the authority, PEM, up to the root, which is last. Required for an intermediate in `kubernetes_ca`, and not used elsewhere. They verify servers, never clients. A change restarts controller managers.",
		},
		"private_key_wo": schema.StringAttribute{
			Optional: true, WriteOnly: true, Sensitive: true, Validators: some,
			MarkdownDescription: "Private key of the authority, PEM, not encrypted: PKCS #8, PKCS #1 or SEC 1. May be ephemeral. It goes only into the key store, which with `key_store = \"state\"` is the state; once it is there, it can be removed here. Needs Terraform 1.11.",
		},
	}
}

// authoritiesAttribute is the argument `authorities` of k8s_pki.
func authoritiesAttribute() schema.SingleNestedAttribute {
	out := schema.SingleNestedAttribute{
		Optional: true, Attributes: map[string]schema.Attribute{},
		MarkdownDescription: "Authorities that are given instead of generated, such as intermediates of a company's root. A new generation rotates to one or away from it. " +
			"The guide [Rotate keys](../guides/rotation.md) describes the steps. Default: all are generated.",
	}
	for _, k := range pki.AuthorityKinds() {
		out.Attributes[string(k)] = schema.MapNestedAttribute{
			Optional: true, NestedObject: schema.NestedAttributeObject{Attributes: authorityAttributes()},
			MarkdownDescription: "Given generations of `generations." + string(k) + "`, by number. Default: none.",
			Validators:          []validator.Map{mapvalidator.KeysAre(stringvalidator.RegexMatches(generationNumber, "must be the number of a generation"))},
		}
	}
	return out
}

var generationNumber = regexp.MustCompile(`^[1-9][0-9]{0,8}$`)

// readAuthorities reads the authorities from a configuration, which alone has their keys. What is
// unknown is empty; known is false if it is more than keys.
func readAuthorities(ctx context.Context, config tfsdk.Config, diags *diag.Diagnostics) (given pki.Authorities, known bool) {
	var all types.Object
	diags.Append(config.GetAttribute(ctx, path.Root(authoritiesName), &all)...)
	given, known = pki.Authorities{}, !all.IsUnknown()
	for _, k := range pki.AuthorityKinds() {
		list, _ := all.Attributes()[string(k)].(types.Map)
		known = known && !list.IsUnknown()
		given[k] = map[int]pki.Given{}
		for number, one := range list.Elements() {
			n, err := strconv.Atoi(number)
			o, ok := one.(types.Object)
			m, here := authorityOf.Read(ctx, o, diags)
			known = known && (o.IsNull() || here && tf.AllKnown(m.Certificate, m.Chain))
			if err != nil || !ok || !here {
				continue
			}
			given[k][n] = pki.Given{
				KeyPair:  pki.KeyPair{CertPEM: []byte(m.Certificate.ValueString()), KeyPEM: []byte(m.Key.ValueString())},
				ChainPEM: []byte(m.Chain.ValueString()),
			}
		}
	}
	return given, known
}

// planAuthorities checks the given authorities of a plan, and returns the planned chain. public are
// the public entries of the key store, none before the creation.
func (r *pkiResource) planAuthorities(ctx context.Context, req resource.ModifyPlanRequest, plan pkiModel, public map[string]string, diags *diag.Diagnostics) types.String {
	given, known := readAuthorities(ctx, req.Config, diags)
	wanted := reference.GenerationsFrom(plan.Generations)
	for _, k := range pki.AuthorityKinds() {
		if !tf.AllKnown(reference.GenerationOf(plan.Generations, k)) {
			delete(given, k)
			known = false
		}
	}
	errs := given.Check(wanted, public, r.Session.Now())
	for _, e := range given.MissingKeys(func(k pki.Kind, n int) bool { return public[pki.PublicName(k, n)] != "" }) {
		var key types.String
		diags.Append(req.Config.GetAttribute(ctx, tf.Path(e.Field), &key)...)
		if key.IsNull() && !plan.Adopt.ValueBool() && plan.RestoreFrom.IsNull() {
			e.Missing = false
			errs = append(errs, e)
		}
	}
	if known {
		errs = append(errs, given.MissingChains(wanted, public)...)
	}
	session.AddFieldErrors(ctx, req.Plan, errs, diags)
	if !known {
		return types.StringUnknown()
	}
	return tf.OptionalString(given.Chain(wanted))
}
