package identity

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// plain is a resource without an identity, with what every resource of this provider has.
type plain interface {
	resource.ResourceWithConfigure
	resource.ResourceWithModifyPlan
	resource.ResourceWithImportState
}

// identified is a resource with its identity.
type identified struct {
	plain
	base     session.Base
	identity Identity
}

var _ resource.ResourceWithIdentity = (*identified)(nil)

// With returns the constructor of a resource with its identity.
func With(make func() resource.Resource, i Identity) func() resource.Resource {
	return func() resource.Resource {
		r := make()
		switch r.(type) {
		case resource.ResourceWithConfigValidators, resource.ResourceWithValidateConfig, resource.ResourceWithUpgradeState, resource.ResourceWithMoveState:
			panic(fmt.Sprintf("%T has a method that package identity does not pass on", r))
		}
		return &identified{plain: r.(plain), identity: i}
	}
}

// Metadata implements resource.Resource.
func (r *identified) Metadata(ctx context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	r.plain.Metadata(ctx, req, resp)
	resp.ResourceBehavior.MutableIdentity = r.identity.Mutable
}

// Configure implements resource.ResourceWithConfigure.
func (r *identified) Configure(ctx context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	r.base.Configure(ctx, req, resp)
	r.plain.Configure(ctx, req, resp)
}

// IdentitySchema implements resource.ResourceWithIdentity.
func (r *identified) IdentitySchema(_ context.Context, _ resource.IdentitySchemaRequest, resp *resource.IdentitySchemaResponse) {
	resp.IdentitySchema = r.identity.schema()
}

// Create implements resource.Resource.
func (r *identified) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	r.plain.Create(ctx, req, resp)
	r.identity.follow(ctx, resp.Identity, resp.State, resp.Private, &resp.Diagnostics)
}

// Read implements resource.Resource.
func (r *identified) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	r.plain.Read(ctx, req, resp)
	state := resp.State
	if state.Raw.IsNull() { // what is gone had an identity too
		state = req.State
	}
	r.identity.follow(ctx, resp.Identity, state, resp.Private, &resp.Diagnostics)
}

// Update implements resource.Resource.
func (r *identified) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	r.plain.Update(ctx, req, resp)
	r.identity.follow(ctx, resp.Identity, resp.State, resp.Private, &resp.Diagnostics)
}

// ImportState implements resource.ResourceWithImportState. An identity is imported by the id that follows from it.
func (r *identified) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	if req.ID == "" && req.Identity != nil {
		if req.ID = r.idOf(ctx, req.Identity, &resp.Diagnostics); resp.Diagnostics.HasError() {
			return
		}
	}
	r.plain.ImportState(ctx, req, resp)
	r.identity.follow(ctx, resp.Identity, resp.State, resp.Private, &resp.Diagnostics)
}

// idOf returns the import id of an identity, which must be of the provider's account and region.
func (r *identified) idOf(ctx context.Context, id *tfsdk.ResourceIdentity, diags *diag.Diagnostics) string {
	values := r.identity.read(ctx, id, diags)
	if diags.HasError() {
		return ""
	}
	if err := checkAccount(ctx, r.base.Session, values); err != nil {
		session.AddError(diags, "Cannot import "+r.identity.importID(values), err)
	}
	return r.identity.importID(values)
}
