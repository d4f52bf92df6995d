// Package roles has the resources that install something on machines: etcd cluster, etcd backup, control plane,
// worker pool and load balancer, with the action that takes a snapshot. One generic resource plans, applies,
// refreshes, imports and removes all of them. A role adds its model, its settings and its checks. What a role is
// on machines is in infra/rollout.
package roles

import (
	"context"
	"maps"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// kind is what one kind of role resource (an etcd cluster, a control plane, a worker pool, a load
// balancer) adds to what all of them share. M is its Terraform model, S its role in a
// package below rollout.
type kind[M any, S rollout.Role] struct {
	name        string // "etcd_cluster"
	title       string // in messages: "etcd cluster"
	description string
	// settings are the arguments that are copied to the specification. attributes are the other
	// arguments, and the computed attributes.
	settings   settings[M, S]
	attributes map[string]schema.Attribute

	// common returns the attributes that every role resource has.
	common func(*M) *roleModel
	// check validates a planned model, as far as it is known. Errors of the specification are
	// returned by field; all others are added to diags. s has the settings of the plan. prior is
	// nil on creation.
	check func(ctx context.Context, plan, prior *M, s S, diags *diag.Diagnostics) invalid.Fields
	// kubernetes returns the attribute version of a role that runs a Kubernetes release; nil for
	// the other roles.
	kubernetes func(*M) types.String
	// outputs sets the computed attributes that are derived from others. They are unknown if one of
	// those is.
	outputs func(ctx context.Context, m *M, diags *diag.Diagnostics)
	// complete adds to the library's role, which has the settings of a model, what else the model says. All
	// configured values are known.
	complete func(ctx context.Context, d *session.Session, m *M, s *S, diags *diag.Diagnostics)
	// given adds to the library's role what only the configuration has: write-only values. It is nil if there are
	// none.
	given func(ctx context.Context, config *M, s *S)
	// downloads sets the artifacts of a role, and in the model the releases that the catalog
	// chooses. It is nil if there are none.
	downloads func(*artifact.Catalog, *M, *S) error

	// needed returns how many of so many hosts must run unless the whole cluster is paused; nil
	// means none.
	needed func(hosts int) int

	// keys is set for a role whose machines have certificates of the cluster.
	keys bool
	// lost says in a warning of the plan what is lost with the role's data; nil for a role without
	// data of its own. seen is what the last refresh knew.
	lost func(seen knownContents) string
	// guard refuses a planned change, or warns of it, based on what the last refresh knew; nil for
	// a role without such facts.
	guard func(ctx context.Context, plan, prior *M, known knowledge, diags *diag.Diagnostics)

	// observed sets computed attributes from what was observed, for a role that has such; else nil.
	// They are observed after an apply too. Without a report it plans them as unknown.
	observed func(ctx context.Context, d *session.Session, m *M, report *rollout.Report)

	// importer says how a role is imported.
	importer importer[M, S]

	// For a role that also owns an object in AWS; each may be nil. acquire creates the object
	// before anything is installed and reports whether it exists. inspect returns what differs on
	// it. release deletes it last. The ownership says who owns it; acquire makes it on creation.
	acquire func(ctx context.Context, d *session.Session, plan, prior *M, h *session.Ownership, diags *diag.Diagnostics) bool
	inspect func(ctx context.Context, d *session.Session, m *M, h *session.Ownership, diags *diag.Diagnostics) []finding.Finding
	release func(ctx context.Context, d *session.Session, m *M, h session.Ownership, diags *diag.Diagnostics)
}

// roleModel is embedded in the model of every role resource.
type roleModel struct {
	ID       types.String   `tfsdk:"id"`
	Claim    types.String   `tfsdk:"claim"`
	Drift    types.Map      `tfsdk:"drift"`
	Files    types.Map      `tfsdk:"files"`
	Timeouts timeouts.Value `tfsdk:"timeouts"`

	ExtraFiles types.Map         `tfsdk:"extra_files"`
	contents   map[string][]byte // write-only, by path: only while planning and applying
}

// roleAttributes are the attributes that every role resource has.
func roleAttributes(ctx context.Context) map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"id": schema.StringAttribute{
			Computed: true, MarkdownDescription: "Identifier: the cluster's name; for a worker pool `<cluster>/<name>`.",
			PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
		},
		"claim":    argument.ClaimAttribute("on every machine, in `/var/lib/k8s-from-scratch/claims/`", argument.GuardsRemoval),
		"drift":    tf.DriftAttribute(),
		"timeouts": roleDeadlines.Attribute(ctx),
		"files": schema.MapAttribute{
			Computed: true, ElementType: linesType,
			MarkdownDescription: "Every file and program of this resource on its machines, by path: the lines of a text, the authority of a certificate, the keys of a secret, the digest of anything else. " +
				"`[name]` before a line names the machines that have it. A plan shows here what a change rewrites.",
		},
	}
}

// A roll drains node by node; see max_unavailable and drain_timeout.
const rollTimeout = 60 * time.Minute

var roleDeadlines = tf.Deadlines{Create: argument.RoleTimeout, Read: argument.ReadTimeout, Update: rollTimeout, Delete: argument.RoleTimeout}

// roleResource is the Terraform resource of a role.
type roleResource[M any, S rollout.Role] struct {
	session.Base
	kind kind[M, S]
}

var (
	_ resource.ResourceWithConfigure  = (*roleResource[any, rollout.Role])(nil)
	_ resource.ResourceWithModifyPlan = (*roleResource[any, rollout.Role])(nil)
)

// Metadata implements resource.Resource.
func (r *roleResource[M, S]) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + r.kind.name
}

// Schema implements resource.Resource.
func (r *roleResource[M, S]) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	attributes := r.kind.settings.addTo(r.kind.attributes)
	maps.Copy(attributes, roleAttributes(ctx))
	resp.Schema = schema.Schema{
		MarkdownDescription: r.kind.description,
		Attributes:          attributes,
	}
}

// ModifyPlan checks the configuration and computes what follows from it, including the digests of
// the files on the machines. It does no network I/O.
func (r *roleResource[M, S]) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	defer r.checkSuccession(ctx, req, &resp.Diagnostics)
	defer r.planEnd(ctx, req, resp)
	if req.Plan.Raw.IsNull() {
		return
	}
	var plan M
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	var prior *M
	if !req.State.Raw.IsNull() {
		prior = new(M)
		resp.Diagnostics.Append(req.State.Get(ctx, prior)...)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	common := r.kind.common(&plan)
	common.readContents(ctx, req.Config, &resp.Diagnostics)
	var s S
	r.kind.settings.toSpec(ctx, &plan, &s)
	power := r.power(ctx, req.Plan, &resp.Diagnostics)
	r.checkPower(ctx, req, power, &resp.Diagnostics)
	r.checkNamesStay(ctx, req, &resp.Diagnostics)
	session.AddFieldErrors(ctx, req.Plan, r.kind.check(ctx, &plan, prior, s, &resp.Diagnostics), &resp.Diagnostics)
	session.AddFieldErrors(ctx, req.Plan, checkExtraFiles(ctx, s.Definition().Name, req.Config, common, &resp.Diagnostics), &resp.Diagnostics)
	if r.kind.guard != nil && r.Session != nil {
		known := knowledge{gone: r.Session.IsGone, fresh: r.Session.Successions.IsFresh, note: r.Session.Successions.Fresh}
		if req.Private != nil {
			known.contents = tf.ReadPrivate[knownContents](ctx, req.Private, contentsKey, &resp.Diagnostics)
		}
		r.kind.guard(ctx, &plan, prior, known, &resp.Diagnostics)
	}
	reference.CheckRotationFinished(ctx, req, &resp.Diagnostics)
	if prior != nil && r.kind.keys {
		checkKeysStay(ctx, r.kind.title, req, &resp.Diagnostics)
		checkClusterStays(ctx, r.kind.title, req, &resp.Diagnostics)
	}
	if r.Session != nil {
		r.Session.CheckAgentKey(&resp.Diagnostics)
	}
	if r.kind.kubernetes != nil && r.Session != nil {
		warnOfEndOfLife(r.kind.kubernetes(&plan), r.Session.Now(), &resp.Diagnostics)
	}
	r.kind.outputs(ctx, &plan, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	common.Files = types.MapUnknown(linesType)
	if r.Session != nil && !r.Session.ChecksumsUnknown {
		var rec roleRecord
		if req.Private != nil {
			rec = tf.ReadPrivate[roleRecord](ctx, req.Private, recordKey, &resp.Diagnostics)
		}
		if !req.Config.Raw.IsFullyKnown() {
			common.Files = r.plannedFiles(ctx, req, rec)
		} else {
			r.complete(ctx, &plan, &s, &resp.Diagnostics)
			if resp.Diagnostics.HasError() {
				return
			}
			if r.checkPlaces(&plan, s, &resp.Diagnostics); resp.Diagnostics.HasError() {
				return
			}
			known := rec.addChecksums(s.Definition().Artifacts)
			r.setFiles(&plan, s, types.ListUnknown(types.StringType), &resp.Diagnostics)
			if !known {
				if err := r.Session.Catalog.Resolvable(s.Definition().Artifacts); err != nil {
					resp.Diagnostics.AddAttributeError(path.Root("version"), "Unknown checksum", err.Error())
				}
			}
		}
	}
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
	if power.allOff() {
		r.keepComputed(ctx, req, resp)
		return
	}
	if r.kind.observed != nil && !resp.Plan.Raw.Equal(req.State.Raw) {
		r.kind.observed(ctx, r.Session, &plan, nil)
		resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
	}
}

// spec turns a model into the library's role. All configured values are known.
func (r *roleResource[M, S]) spec(ctx context.Context, m *M, diags *diag.Diagnostics) S {
	var s S
	r.kind.settings.toSpec(ctx, m, &s)
	r.complete(ctx, m, &s, diags)
	return s
}

// complete completes the library's role, which has the settings of a model.
func (r *roleResource[M, S]) complete(ctx context.Context, m *M, s *S, diags *diag.Diagnostics) {
	r.kind.complete(ctx, r.Session, m, s, diags)
	if r.kind.downloads != nil {
		checkDownloads(r.kind.downloads(r.Session.Catalog, m, s), diags)
	}
}

// specWithoutDownloads is spec without artifacts: an imported model may have no version yet.
func (r *roleResource[M, S]) specWithoutDownloads(ctx context.Context, m *M, diags *diag.Diagnostics) S {
	var s S
	r.kind.settings.toSpec(ctx, m, &s)
	r.kind.complete(ctx, r.Session, m, &s, diags)
	return s
}
