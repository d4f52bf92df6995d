// Package owned has what all resources do that own an object in AWS: they claim it when they make or adopt it, look
// whether they still own it, settle the claim once a state holds it, and change and delete nothing of another
// owner. A resource adds what its object is.
package owned

import (
	"context"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Model is embedded in the model of every such resource.
type Model struct {
	ID         types.String   `tfsdk:"id"`
	Adopt      types.Bool     `tfsdk:"adopt"`
	Protection types.Bool     `tfsdk:"deletion_protection"`
	Tags       types.Map      `tfsdk:"tags"`
	TagsAll    types.Map      `tfsdk:"tags_all"`
	Claim      types.String   `tfsdk:"claim"`
	Drift      types.Map      `tfsdk:"drift"`
	Timeouts   timeouts.Value `tfsdk:"timeouts"`
}

func (m *Model) owned() *Model { return m }

// model is a pointer to a model that embeds [Model].
type model[M any] interface {
	*M
	owned() *Model
}

// With returns attributes with those of [Model] added, but id, which differs from resource to resource.
func With(ctx context.Context, deadlines tf.Deadlines, attributes map[string]schema.Attribute) map[string]schema.Attribute {
	maps.Copy(attributes, map[string]schema.Attribute{
		"adopt":             argument.AdoptAttribute(),
		argument.Protection: argument.ProtectionAttribute(),
		"tags":              argument.TagsAttribute(),
		"tags_all":          argument.TagsAllAttribute(),
		"claim":             argument.ClaimAttribute(argument.InTags, argument.GuardsAll),
		"drift":             tf.DriftAttribute(),
		"timeouts":          deadlines.Attribute(ctx),
	})
	return attributes
}

// Kind is what a resource with the model M adds. All of it is about one object, which may consist of several in AWS.
type Kind[M any] interface {
	// Plan checks and completes a planned model. It does no network I/O.
	Plan(ctx context.Context, p *Plan[M])
	// Make makes the object, or continues with the remains of an interrupted run. It reports an existing object
	// also with an error, since it costs money.
	Make(ctx context.Context, op *Operation, m *M) error
	// Look sets the model's computed attributes to what is found, and notes what differs from the model. Its error is
	// infraaws.ErrNotFound if the object is gone.
	Look(ctx context.Context, op *Operation, m *M) error
	// Change brings the object from the state to the model. An error leaves the state as it is, unless
	// something is said to exist.
	Change(ctx context.Context, op *Operation, m, state *M) error
	// Remove deletes the object. An object that is gone is no error.
	Remove(ctx context.Context, op *Operation, m *M) error
	// Find sets the model to the object that an import names.
	Find(ctx context.Context, op *Operation, id string, m *M) error
}

// Operation is one operation on an object, and what its kind says of it.
type Operation struct {
	Client    *infraaws.Client
	Ownership session.Ownership
	// RemoveTags are the keys of tags that an update takes away.
	RemoveTags []string
	Config     tfsdk.Config
	Diags      *diag.Diagnostics
	// Drift is what differs on the object.
	Drift []finding.Finding

	read      tf.PrivateState
	write     tf.PrivateStateWriter
	exists    bool
	claim     infraaws.Claim
	unsettled []string
}

// Exists says that the object, or a part of it, exists with a claim, and where that claim is not settled.
func (op *Operation) Exists(claim infraaws.Claim, unsettled []string) {
	if !op.exists {
		op.exists, op.claim = true, claim
	}
	op.unsettled = append(op.unsettled, unsettled...)
}

// Keep writes an entry of private state.
func (op *Operation) Keep(ctx context.Context, key string, value any) {
	tf.WritePrivate(ctx, op.write, key, value, op.Diags)
}

// Tags returns the argument tags of an imported object with these tags.
func (op *Operation) Tags(found map[string]string) types.Map {
	if own := op.Client.OwnTags(found); own != nil {
		return tf.StringMapValue(own)
	}
	return types.MapNull(types.StringType)
}

// Kept reads an entry of private state that an earlier operation has written. It returns the zero value if there is none.
func Kept[T any](ctx context.Context, op *Operation, key string) (out T) {
	if op.read == nil {
		return out
	}
	return tf.ReadPrivate[T](ctx, op.read, key, op.Diags)
}

// Plan is one planned object.
type Plan[M any] struct {
	Request  resource.ModifyPlanRequest
	Response *resource.ModifyPlanResponse
	Diags    *diag.Diagnostics

	Config, Plan M
	State        M // without values if there is no object yet
	New          bool
	// Ownership says who owns the object. It is the zero Ownership if that is not known.
	Ownership session.Ownership
}

// Resource is the resource of a kind. The type that is the kind embeds it.
type Resource[M any, P model[M]] struct {
	session.Base
	Kind Kind[M]

	Name      string // "volume"
	What      string // in messages, before what names the object: "volume"
	By        string // the attribute that names an object
	WhenGone  string // what follows when an object is gone
	Deadlines tf.Deadlines
	// TakesTurns says that Change and Remove limit their time themselves: waiting for a turn does not count.
	TakesTurns bool
}

// Metadata implements resource.Resource.
func (r *Resource[M, P]) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + r.Name
}

// ModifyPlan implements resource.ResourceWithModifyPlan.
func (r *Resource[M, P]) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	defer func() {
		argument.PlannedEnd(ctx, argument.ObjectName(ctx, r.What, r.By, req.State, resp.Plan), req, resp)
	}()
	if req.Plan.Raw.IsNull() || r.Session == nil {
		return
	}
	p := &Plan[M]{Request: req, Response: resp, Diags: &resp.Diagnostics, New: req.State.Raw.IsNull()}
	resp.Diagnostics.Append(req.Config.Get(ctx, &p.Config)...)
	resp.Diagnostics.Append(req.Plan.Get(ctx, &p.Plan)...)
	if !p.New {
		resp.Diagnostics.Append(req.State.Get(ctx, &p.State)...)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	if !p.New && req.Private != nil {
		p.Ownership = session.ReadOwnership(ctx, req.Private, P(&p.State).owned().Claim, p.Diags)
	}
	common := P(&p.Plan).owned()
	common.TagsAll = r.Session.PlanTags(common.Tags, p.Diags)
	r.Kind.Plan(ctx, p)
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &p.Plan)...)
}
