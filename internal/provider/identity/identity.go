// Package identity gives every resource its identity in Terraform: the few names by which people and other programs
// find the same object again. The identity follows from the state, so no resource says anything about it itself.
package identity

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/identityschema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Names of the attributes that say where in AWS an object is.
const (
	Account = "account_id"
	Region  = "region"
)

// Part is one attribute of an identity.
type Part struct {
	Name, Description string
	// Default says what an import takes if the attribute is not given. Without it the attribute is required.
	Default string
	// At is where the state has the value, and Of which part of the text there it is; nil means all.
	At path.Path
	Of func(string) string
}

// First returns what is before the first slash, or all of a text without one.
func First(s string) string { first, _, _ := strings.Cut(s, "/"); return first }

// Rest returns what is after the first slash.
func Rest(s string) string { _, rest, _ := strings.Cut(s, "/"); return rest }

// Identity is the identity of one type of resource.
type Identity struct {
	Parts []Part
	// InAWS adds the account and the region in which the object was made.
	InAWS bool
	// Mutable says that a change in place may change the identity.
	Mutable bool
}

// schema is that of the identity.
func (i Identity) schema() identityschema.Schema {
	out := map[string]identityschema.Attribute{}
	for _, p := range i.Parts {
		a := identityschema.StringAttribute{Description: p.Description, RequiredForImport: p.Default == "", OptionalForImport: p.Default != ""}
		if p.Default != "" {
			a.Description += " Default: " + p.Default + "."
		}
		out[p.Name] = a
	}
	if i.InAWS {
		out[Account] = identityschema.StringAttribute{OptionalForImport: true, Description: "Id of the AWS account. Default: the account of the provider. An import from any other account is an error."}
		out[Region] = identityschema.StringAttribute{OptionalForImport: true, Description: "AWS region. Default: the region of the provider. An import from any other region is an error."}
	}
	return identityschema.Schema{Attributes: out}
}

// follow sets an identity to what the state and the private state say. Account and region stay as they were if the
// private state was lost.
func (i Identity) follow(ctx context.Context, id *tfsdk.ResourceIdentity, state tfsdk.State, private tf.PrivateState, diags *diag.Diagnostics) {
	if id == nil || state.Raw.IsNull() {
		return
	}
	set := func(name string, v types.String) { diags.Append(id.SetAttribute(ctx, path.Root(name), v)...) }
	for _, p := range i.Parts {
		var v types.String
		diags.Append(state.GetAttribute(ctx, p.At, &v)...)
		if v.IsUnknown() { // a create that failed
			v = types.StringNull()
		}
		if p.Of != nil && !v.IsNull() {
			v = types.StringValue(p.Of(v.ValueString()))
		}
		set(p.Name, v)
	}
	if h := tf.ReadPrivate[session.Ownership](ctx, private, session.OwnershipKey, diags); i.InAWS && h.Account != "" {
		set(Account, types.StringValue(h.Account))
		set(Region, types.StringValue(h.Region))
	}
}

// importID returns the import id of an identity.
func (i Identity) importID(values map[string]string) string {
	var id strings.Builder
	for _, p := range i.Parts {
		if v := values[p.Name]; v != "" {
			if id.Len() > 0 && !strings.HasPrefix(v, "/") {
				id.WriteByte('/')
			}
			id.WriteString(v)
		}
	}
	return id.String()
}

// read returns the values of an identity.
func (i Identity) read(ctx context.Context, id *tfsdk.ResourceIdentity, diags *diag.Diagnostics) map[string]string {
	out := map[string]string{}
	for name := range i.schema().Attributes {
		var v types.String
		diags.Append(id.GetAttribute(ctx, path.Root(name), &v)...)
		out[name] = v.ValueString()
	}
	return out
}

// checkAccount returns an error if an identity is of another account or region than the provider's.
func checkAccount(ctx context.Context, d *session.Session, values map[string]string) error {
	if values[Account] == "" && values[Region] == "" {
		return nil
	}
	client, err := d.AWS(ctx)
	if err != nil {
		return err
	}
	account, arn, err := d.Identity(ctx, client)
	if err != nil {
		return err
	}
	for name, here := range map[string]string{Account: account, Region: client.Region} {
		if wanted := values[name]; wanted != "" && wanted != here {
			return fmt.Errorf("the identity has %s = %q, and the provider works in account %s, region %s (as %s): nothing was looked at", name, wanted, account, client.Region, arn)
		}
	}
	return nil
}
