package argument

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/registry"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// The argument `registries` of a worker pool and of an image.

type registryModel struct {
	Mirrors types.List `tfsdk:"mirrors"`
}

type mirrorModel struct {
	URL             types.String `tfsdk:"url"`
	CA              types.String `tfsdk:"ca_pem"`
	User            types.String `tfsdk:"user"`
	Password        types.String `tfsdk:"password_wo"` // write-only: null except in the configuration
	PasswordVersion types.Int64  `tfsdk:"password_wo_version"`
}

// sibling is an attribute beside the one that is validated.
func sibling(name string) path.Expression { return path.MatchRelative().AtParent().AtName(name) }

var mirror = tf.NewReference[mirrorModel](map[string]schema.Attribute{
	"url": schema.StringAttribute{
		Required: true, MarkdownDescription: "URL of the mirror: https, or http for a mirror without a login. With a path, that is where its API begins; without one, the API is below `/v2`.",
		Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
	},
	"ca_pem": schema.StringAttribute{
		Optional: true, MarkdownDescription: "Certificates of authorities, PEM, that are trusted beside those of the machine. Default: none.",
		Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
	},
	"user": schema.StringAttribute{
		Optional: true, MarkdownDescription: "User of the login, with `password_wo`. It also gets tokens where the mirror wants tokens. Default: no login.",
		Validators: []validator.String{stringvalidator.LengthAtLeast(1), stringvalidator.AlsoRequires(sibling("password_wo"))},
	},
	"password_wo": schema.StringAttribute{
		Optional: true, WriteOnly: true, Sensitive: true,
		MarkdownDescription: "Password of the user. May be ephemeral. It is in no state and in no plan; on a machine it is in a file that only root reads. Needs Terraform 1.11. Default: none.",
		Validators:          []validator.String{stringvalidator.LengthAtLeast(1), stringvalidator.AlsoRequires(sibling("user"))},
	},
	"password_wo_version": schema.Int64Attribute{
		Optional: true, MarkdownDescription: "Version of the password, a number. Increase it when you change the password: no plan sees the password itself. Default: 0.",
		Validators: []validator.Int64{int64validator.AtLeast(0), int64validator.AlsoRequires(sibling("password_wo"))},
	},
})

var registryOf = tf.NewReference[registryModel](map[string]schema.Attribute{"mirrors": mirrorsAttribute()})

func mirrorsAttribute() schema.ListNestedAttribute {
	a := mirror.Inputs("Servers that have images of the registry, in the order in which they are asked. The registry itself is asked at last; list it here if it needs an authority or a login.")
	a.Validators = []validator.List{listvalidator.SizeAtLeast(1)}
	return a
}

// RegistriesAttribute returns the argument. change says what a change does.
func RegistriesAttribute(change string) schema.MapNestedAttribute {
	return schema.MapNestedAttribute{
		Optional: true,
		MarkdownDescription: "Where images come from: name of an image registry, a host with a port if need be, to its mirrors; `*` is all registries that are not named. " + change + " " +
			"The guide [Registries](../guides/registries.md) has examples. Default: every registry itself.",
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{"mirrors": mirrorsAttribute()}},
	}
}

// Registries reads the argument. It has passwords only if the value is that of a configuration.
func Registries(ctx context.Context, v types.Map) registry.Registries {
	var out registry.Registries
	for name, value := range v.Elements() {
		if out == nil {
			out = registry.Registries{}
		}
		var diags diag.Diagnostics // always empty: the models fit the references
		o, _ := value.(types.Object)
		r, _ := registryOf.Read(ctx, o, &diags)
		out[name] = nil
		for _, element := range r.Mirrors.Elements() { // one that is not known keeps its place
			o, _ := element.(types.Object)
			m, _ := mirror.Read(ctx, o, &diags)
			out[name] = append(out[name], registry.Mirror{URL: m.URL.ValueString(), CA: m.CA.ValueString(), User: m.User.ValueString(),
				Password: m.Password.ValueString(), PasswordVersion: m.PasswordVersion.ValueInt64()})
		}
	}
	return out
}

// RegistriesValue is the inverse of Registries, without passwords.
func RegistriesValue(ctx context.Context, all registry.Registries) types.Map {
	if len(all) == 0 {
		return types.MapNull(registryOf.Type())
	}
	out := map[string]attr.Value{}
	for name, mirrors := range all {
		var list []attr.Value
		for _, m := range mirrors {
			version := types.Int64Null()
			if m.PasswordVersion != 0 {
				version = types.Int64Value(m.PasswordVersion)
			}
			list = append(list, mirror.Value(ctx, mirrorModel{URL: types.StringValue(m.URL), CA: tf.OptionalString(m.CA), User: tf.OptionalString(m.User), PasswordVersion: version}))
		}
		out[name] = registryOf.Value(ctx, registryModel{Mirrors: types.ListValueMust(mirror.Type(), list)})
	}
	return types.MapValueMust(registryOf.Type(), out)
}
