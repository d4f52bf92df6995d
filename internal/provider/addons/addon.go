// Package addons has the resource of objects in a cluster, k8s_addon. It connects to no machine.
package addons

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

type addonResource struct {
	session.Base
	controlPlaneOf ControlPlaneOf
}

// ControlPlaneOf returns the reference to the control plane of a cluster, as an argument, for an import.
type ControlPlaneOf func(ctx context.Context, d *session.Session, cluster string) (any, error)

var (
	_ resource.ResourceWithConfigure   = (*addonResource)(nil)
	_ resource.ResourceWithModifyPlan  = (*addonResource)(nil)
	_ resource.ResourceWithImportState = (*addonResource)(nil)
)

func NewResource(of ControlPlaneOf) resource.Resource { return &addonResource{controlPlaneOf: of} }

type addonModel struct {
	ID           types.String `tfsdk:"id"`
	Name         types.String `tfsdk:"name"`
	ControlPlane types.Object `tfsdk:"control_plane"`
	Version      types.String `tfsdk:"version"`
	Image        types.String `tfsdk:"image"`
	Environment  types.Map    `tfsdk:"environment"`
	Manifests    types.List   `tfsdk:"manifests"`

	SensitiveManifests types.List `tfsdk:"sensitive_manifests"`

	IgnoreFields   types.Map      `tfsdk:"ignore_fields"`
	ForceConflicts types.Bool     `tfsdk:"force_conflicts"`
	Wait           types.Bool     `tfsdk:"wait"`
	Claim          types.String   `tfsdk:"claim"`
	Drift          types.Map      `tfsdk:"drift"`
	Objects        types.Map      `tfsdk:"objects"`
	Replaces       types.Map      `tfsdk:"replaces"`
	FinishedJobs   types.Set      `tfsdk:"finished_jobs"`
	Timeouts       timeouts.Value `tfsdk:"timeouts"`
}

var addonDeadlines = tf.Deadlines{Create: argument.RoleTimeout, Read: argument.ReadTimeout, Update: argument.RoleTimeout, Delete: argument.PKITimeout}

// addonImportNeeds are the arguments that an import id must contain.
var addonImportNeeds = []string{"name", "control_plane"}

// Metadata implements resource.Resource.
func (r *addonResource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_addon"
}

// Schema implements resource.Resource.
func (r *addonResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Objects in the cluster that belong together. They are applied by server-side apply, compared with the cluster in every plan, and deleted when they are no longer part of the addon. `coredns`, `metrics-server`, `cloud-controller-manager` and `local-path-provisioner` are built in.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				Computed: true, MarkdownDescription: "Identifier: `<cluster>/<name>`.",
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"name": schema.StringAttribute{
				Required:            true,
				MarkdownDescription: "Name of the addon. Without `manifests` it must be a built-in addon: `coredns`, `metrics-server`, `cloud-controller-manager` or `local-path-provisioner`. A change replaces the addon.",
				Validators:          []validator.String{argument.PartName()},
				PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"control_plane": reference.OfControlPlane.Input(reference.ControlPlaneDescription),
			"version": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Release of a built-in addon, without `v`. A plan with a release that is not built in lists the releases that are. A change rolls the pods, and apply waits for them. Default: " +
					"the newest that this provider has.",
				Validators: []validator.String{stringvalidator.ConflictsWith(path.MatchRoot("image"), path.MatchRoot("manifests"), path.MatchRoot("sensitive_manifests"))},
			},
			"image": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Image of a built-in addon, not with `version`: for a release that is not built in, or a registry of your own. A change rolls the pods, and apply waits for them. " +
					"Default: the image of `version`.",
				Validators: []validator.String{stringvalidator.ConflictsWith(path.MatchRoot("manifests"), path.MatchRoot("sensitive_manifests"))},
			},
			"environment": schema.MapAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Further environment variables of a built-in addon's program, such as `HTTPS_PROXY` and `NO_PROXY` of `cloud-controller-manager`. A variable that is null is left out. Plan and state show the values, so they must have no password. A change rolls the pods. Default: none.",
				Validators:          []validator.Map{mapvalidator.ConflictsWith(path.MatchRoot("manifests"), path.MatchRoot("sensitive_manifests"))},
			},
			"manifests": schema.ListAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Kubernetes objects in YAML or JSON. One string may contain several documents. Changed in place; an object that is no longer listed is deleted. Default: the manifests of " +
					"the built-in addon.",
				Validators:    []validator.List{listvalidator.SizeAtLeast(1)},
				PlanModifiers: []planmodifier.List{tf.KeepSameList(sameManifests)},
			},
			"sensitive_manifests": schema.ListAttribute{
				Optional: true, Sensitive: true, ElementType: types.StringType,
				MarkdownDescription: "More objects, in the same form, which Terraform does not show. Errors and `drift` hide their values, and `objects` has no digest of them. The state contains them, as it " +
					"contains every argument. `drift` never shows the values of a `Secret`. Default: none.",
				Validators:    []validator.List{listvalidator.SizeAtLeast(1)},
				PlanModifiers: []planmodifier.List{tf.KeepSameList(sameManifests)},
			},
			"ignore_fields": schema.MapAttribute{
				Optional: true, ElementType: types.ListType{ElemType: types.StringType},
				MarkdownDescription: "Fields of the manifests that other programs manage. Once the object exists, the fields are neither compared nor applied. The key is an object (`Deployment web/shop`) or " +
					"a kind (`Deployment`). The values are paths of fields, as in `drift` or in a conflict. Changed in place. Default: none.",
				Validators: []validator.Map{mapvalidator.SizeAtLeast(1), mapvalidator.ValueListsAre(listvalidator.SizeAtLeast(1))},
			},
			"force_conflicts": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				MarkdownDescription: "Whether apply takes fields from other field managers that apply them server-side. With `false` such a conflict is an error that names the manager and the fields, and the " +
					"object is not changed. Changed in place. Default: `false`.",
			},
			"wait": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(true),
				MarkdownDescription: "Whether apply waits until Deployments, DaemonSets and StatefulSets are available, and until Jobs with `ttlSecondsAfterFinished` have completed. The wait ends early if a " +
					"Job fails or a pod has failed for 20 seconds. Default: `true`.",
			},
			"claim":    argument.ClaimAttribute("the annotation `k8s-from-scratch/claim` of every object", argument.GuardsRemoval),
			"drift":    tf.DriftAttribute(),
			"timeouts": addonDeadlines.Attribute(ctx),
			"objects": schema.MapAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "Every object of the addon: `Kind namespace/name` to `sha256:<digest>` of its wanted content, or to `sensitive`. A plan shows here which objects a change affects.",
			},
			"replaces": schema.MapAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "Objects that the planned apply deletes and creates again, with the fields that cannot be changed in place. No other object is replaced. If a replacement would lose data, " +
					"the plan or the apply fails instead. Empty after the next refresh.",
			},
			"finished_jobs": schema.SetAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "Jobs of the addon that have completed. A completed Job counts as done while its manifest stays the same, even after Kubernetes has deleted it " +
					"(`ttlSecondsAfterFinished`). A changed manifest or a replaced addon runs the Job again.",
			},
		},
	}
}
