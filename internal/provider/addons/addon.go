// Package addons has the resource of objects in a cluster, k8s_addon. It connects to no machine.
package addons

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
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

// builtinAddons are the addons that need no manifests from the user.
var builtinAddons = map[string]func(component.Cluster) ([]*unstructured.Unstructured, error){
	"coredns": func(c component.Cluster) ([]*unstructured.Unstructured, error) {
		return component.CoreDNS(component.CoreDNSSpec{Domain: c.Domain, DNSIP: c.DNSIP, PKI: c.PKI})
	},
	"metrics-server": func(c component.Cluster) ([]*unstructured.Unstructured, error) {
		return component.MetricsServer(component.MetricsServerSpec{PKI: c.PKI})
	},
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
		MarkdownDescription: "Objects in the cluster that belong together: applied by server-side apply, compared with the cluster on every plan, " +
			"and deleted when they are no longer part of the addon. `coredns` and `metrics-server` are built in." +
			reference.ImportDescription("`<cluster>/<name>` of a built-in addon", addonImportNeeds) + " `manifests` must be given unless the addon is built in, since the cluster does not record which objects belong together. " +
			"The objects in `manifests` that exist in the cluster belong to the addon from then on; an object that left `manifests` earlier is not found.\n\n" +
			"Two addons may have the same object, such as a `Namespace`. The one that was applied last owns it. That is no drift of the other one. If the owner deletes it, the next plan of the other one shows that it is missing.\n\n" +
			"What a controller owns is left to it: what a manifest does not have, what Kubernetes' own controllers write (a HorizontalPodAutoscaler's replicas, the rules of an aggregated ClusterRole), " +
			"and CA bundles for which the manifest has an empty text. `ignore_fields` names what else is left to others. The [guide](../guides/addons.md) has examples.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				Computed: true, MarkdownDescription: "Identifier: `<cluster>/<name>`.",
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"name": schema.StringAttribute{
				Required:            true,
				MarkdownDescription: "Name of the addon. Without `manifests` it must be a built-in addon: `coredns` or `metrics-server`. A change replaces the addon.",
				Validators:          []validator.String{argument.PartName()},
				PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"control_plane": reference.OfControlPlane.Input(reference.ControlPlaneDescription),
			"manifests": schema.ListAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Kubernetes objects in YAML or JSON. One string may contain several documents. Changed in place; an object that is no longer listed is deleted. " +
					"Default: those of the built-in addon.",
				Validators:    []validator.List{listvalidator.SizeAtLeast(1)},
				PlanModifiers: []planmodifier.List{tf.KeepSameList(sameManifests)},
			},
			"sensitive_manifests": schema.ListAttribute{
				Optional: true, Sensitive: true, ElementType: types.StringType,
				MarkdownDescription: "More objects, in the same form. Terraform does not show them, neither do errors and `drift` show their values, and `objects` has no digest of them. " +
					"They are in the state like every argument. The values of any `Secret` are never shown in `drift`. Default: none.",
				Validators:    []validator.List{listvalidator.SizeAtLeast(1)},
				PlanModifiers: []planmodifier.List{tf.KeepSameList(sameManifests)},
			},
			"ignore_fields": schema.MapAttribute{
				Optional: true, ElementType: types.ListType{ElemType: types.StringType},
				MarkdownDescription: "Fields of the manifests that are left to others: once the object exists, they are neither compared nor applied. A new object gets them from its manifest. " +
					"The key is an object as `drift` names it (`Deployment web/shop`), or a kind for every object of it (`Deployment`). The values are paths of fields as `drift` writes them " +
					"(`spec.template.spec.containers[shop].image`, `metadata.annotations[\"example.com/note\"]`), or as Kubernetes writes them in a conflict (`.spec.containers[name=\"shop\"].image`). " +
					"`[*]` stands for every element of a list. A field that no manifest has is an error: others may set it anyway. Changed in place. Default: none.",
				Validators: []validator.Map{mapvalidator.SizeAtLeast(1), mapvalidator.ValueListsAre(listvalidator.SizeAtLeast(1))},
			},
			"force_conflicts": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				MarkdownDescription: "Whether apply takes fields from other field managers that apply them server-side too, such as another tool. Otherwise it fails, names the manager and the fields, and changes nothing of the object. " +
					"What others have only written, as `kubectl edit` does, is drift and always taken back. Changed in place. Default: `false`.",
			},
			"wait": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(true),
				MarkdownDescription: "Whether apply waits until the Deployments, DaemonSets and StatefulSets among the objects are available, and until Jobs with `ttlSecondsAfterFinished` have completed. " +
					"The wait ends early if such a Job fails, or if a pod of theirs, or of another Job among the objects, has failed for 20 seconds: it crash-loops, or its image cannot be pulled. Default: `true`.",
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
				MarkdownDescription: "Objects that the planned apply deletes and makes anew, with the fields because of which it must: they cannot be changed in place. No other object is replaced. " +
					"An object with which data would be lost (`PersistentVolumeClaim`, `PersistentVolume`, `Namespace`, `CustomResourceDefinition`, a `StatefulSet` that deletes its claims) and a custom resource are never replaced: the plan or the apply is an error. " +
					"Empty after the next refresh.",
			},
			"finished_jobs": schema.SetAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "Jobs of the addon that have completed. Such a Job counts as done while its manifest stays the same, also when it is gone, as after its `ttlSecondsAfterFinished`. " +
					"A changed manifest runs it again, and so does a replacement of the addon. That a Job has completed is seen by an apply that waits, and by a refresh while the Job exists or up to an hour after its end, from its events.",
			},
		},
	}
}
