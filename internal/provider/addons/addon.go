// Package addons has the resource of objects in a cluster, k8s_addon. It connects to no machine.
package addons

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/addon"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

type addonResource struct{ session.Base }

var (
	_ resource.ResourceWithConfigure   = (*addonResource)(nil)
	_ resource.ResourceWithModifyPlan  = (*addonResource)(nil)
	_ resource.ResourceWithImportState = (*addonResource)(nil)
)

func NewResource() resource.Resource { return &addonResource{} }

type addonModel struct {
	ID           types.String `tfsdk:"id"`
	Name         types.String `tfsdk:"name"`
	PKI          types.Object `tfsdk:"pki"`
	ControlPlane types.Object `tfsdk:"control_plane"`
	Manifests    types.List   `tfsdk:"manifests"`

	SensitiveManifests types.List `tfsdk:"sensitive_manifests"`

	Wait     types.Bool     `tfsdk:"wait"`
	Claim    types.String   `tfsdk:"claim"`
	Drift    types.Map      `tfsdk:"drift"`
	Objects  types.Map      `tfsdk:"objects"`
	Timeouts timeouts.Value `tfsdk:"timeouts"`
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

var addonDeadlines = tf.Deadlines{Create: argument.RoleTimeout, Read: argument.ReadTimeout, Update: argument.RoleTimeout, Delete: argument.PKITimeout, Waits: true}

// addonImportNeeds are the arguments that an import id must contain.
var addonImportNeeds = []string{"name", "control_plane", "pki"}

// addonRecord is what an addon keeps in private state: its claim, and the objects that it has
// applied.
type addonRecord struct {
	Claim   string           `json:"claim"`
	Objects []kube.ObjectRef `json:"objects"`
}

// inventoryKey is the private-state entry of addonRecord.
const inventoryKey = "inventory"

// Metadata implements resource.Resource.
func (r *addonResource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_addon"
}

// Schema implements resource.Resource.
func (r *addonResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Objects in the cluster that belong together: applied by server-side apply, compared with the cluster on every plan, " +
			"and deleted when they are no longer part of the addon. `coredns` and `metrics-server` are built in." +
			reference.ImportDescription(addonImportNeeds) + " `manifests` must be given unless the addon is built in, since the cluster does not record which objects belong together. " +
			"The objects in `manifests` that exist in the cluster belong to the addon from then on; an object that left `manifests` earlier is not found.\n\n" +
			"Two addons may have the same object, such as a `Namespace`. The one that was applied last owns it. That is no drift of the other one. If the owner deletes it, the next plan of the other one shows that it is missing.",
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
			"pki":           reference.OfPKI.Input(reference.PKIDescription),
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
			"wait": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(true),
				MarkdownDescription: "Whether apply waits until the Deployments, DaemonSets and StatefulSets among the objects are available. The wait ends early if a pod of theirs, or of " +
					"a Job among the objects, has failed for 20 seconds: it crash-loops, or its image cannot be pulled. Default: `true`.",
			},
			"claim": argument.ClaimAttribute("the annotation `k8s-from-scratch/claim` of every object", argument.GuardsRemoval),
			"drift": tf.DriftAttribute(),
			"objects": schema.MapAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "Every object of the addon: `Kind namespace/name` to `sha256:<digest>` of its wanted content, or to `sensitive`. A plan shows here which objects a change affects.",
			},
		},
		Blocks: map[string]schema.Block{"timeouts": addonDeadlines.Block(ctx)},
	}
}

// addon turns the model into the library's addon.
func (m *addonModel) addon(ctx context.Context, diags *diag.Diagnostics) addon.Addon {
	ref, _ := reference.PKIFrom(ctx, m.PKI, diags)
	cp, _ := reference.OfControlPlane.Read(ctx, m.ControlPlane, diags)
	out := addon.Addon{
		API:  fleet.API{Endpoint: cp.Endpoint.ValueString(), PKI: ref},
		Name: m.Name.ValueString(),
		Wait: m.Wait.ValueBool(),
	}
	if m.builtIn() {
		build, ok := builtinAddons[out.Name]
		if !ok {
			diags.AddAttributeError(path.Root("name"), "Unknown addon",
				fmt.Sprintf("%q is not built in (coredns and metrics-server are): set manifests.", out.Name))
			return out
		}
		objects, err := build(cp.Spec(ref))
		if err != nil {
			diags.AddError("The addon cannot be built", err.Error())
		}
		out.Objects = objects
		return out
	}
	var errs invalid.Fields
	out.Objects, out.Hidden, errs = m.readManifests()
	for _, e := range errs {
		diags.AddAttributeError(tf.Path(e.Field), e.Problem, e.Err.Error())
	}
	return out
}

// readManifests reads the objects of both arguments, as far as the texts are known. hidden are
// those whose content must not be shown.
func (m *addonModel) readManifests() (all, hidden []*unstructured.Unstructured, errs invalid.Fields) {
	lists, errs := kube.ReadManifests(kube.Manifests{Field: "manifests", Texts: textsAt(m.Manifests)},
		kube.Manifests{Field: "sensitive_manifests", Texts: textsAt(m.SensitiveManifests), Secret: true})
	return slices.Concat(lists...), lists[1], errs
}

// textsAt returns the elements of a list, empty where they are unknown.
func textsAt(l types.List) []string {
	out := make([]string, len(l.Elements()))
	for i, e := range l.Elements() {
		if s, ok := e.(types.String); ok {
			out[i] = s.ValueString()
		}
	}
	return out
}

// builtIn reports whether the addon's objects are the provider's.
func (m *addonModel) builtIn() bool { return m.Manifests.IsNull() && m.SensitiveManifests.IsNull() }

// sameManifests reports whether two lists of texts contain the same objects in the same order.
func sameManifests(a, b []string) bool {
	before, wrong := kube.ReadManifests(kube.Manifests{Texts: a})
	after, alsoWrong := kube.ReadManifests(kube.Manifests{Texts: b})
	return len(wrong) == 0 && len(alsoWrong) == 0 && reflect.DeepEqual(before, after)
}

// complete sets the attributes that are computed from the objects.
func (m *addonModel) complete(ctx context.Context, a addon.Addon, diags *diag.Diagnostics) {
	m.ID = types.StringValue(reference.ClusterOf(ctx, m.PKI, diags).ValueString() + "/" + a.Name)
	digests := map[string]string{}
	for _, o := range a.Objects {
		b, err := o.MarshalJSON()
		if err != nil {
			diags.AddError("The addon cannot be built", err.Error())
			return
		}
		digests[kube.RefOf(o).String()] = "sha256:" + desired.Sum(b)
	}
	for _, o := range a.Hidden {
		digests[kube.RefOf(o).String()] = "sensitive"
	}
	m.Objects = tf.StringMapValue(digests)
}

// ModifyPlan parses the manifests and plans the attribute objects.
func (r *addonResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		return
	}
	var plan addonModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	reference.CheckRotationFinished(ctx, req, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	plan.checkPower(ctx, req, &resp.Diagnostics)
	session.AddFieldErrors(ctx, req.Plan, plan.check(ctx, &resp.Diagnostics), &resp.Diagnostics)
	// Broken manifests are errors also while other arguments are not known yet.
	a := addon.Addon{Name: plan.Name.ValueString()}
	if known := req.Config.Raw.IsFullyKnown(); known || !plan.builtIn() || builtinAddons[a.Name] == nil && !plan.Name.IsUnknown() {
		a = plan.addon(ctx, &resp.Diagnostics)
		if known {
			plan.complete(ctx, a, &resp.Diagnostics)
		}
	}
	if !req.Config.Raw.IsFullyKnown() {
		plan.Objects = types.MapUnknown(types.StringType)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
}

// check checks that the addon's references belong together.
func (m *addonModel) check(ctx context.Context, diags *diag.Diagnostics) invalid.Fields {
	cp, _ := reference.OfControlPlane.Read(ctx, m.ControlPlane, diags)
	return component.CheckSameCluster(component.Part{Field: "control_plane", Cluster: cp.Cluster.ValueString()},
		component.Part{Field: "pki", Cluster: reference.ClusterOf(ctx, m.PKI, diags).ValueString()})
}

// Create implements resource.Resource. Applying is idempotent: after a failure the next create
// continues where this one stopped.
func (r *addonResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var plan addonModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := argument.Patiently(ctx, plan.Timeouts.Create, addonDeadlines.Create, &resp.Diagnostics)
	defer cancel()
	rec := r.apply(ctx, &plan, addonRecord{}, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	plan.Claim = types.StringValue(rec.Claim)
	tf.WritePrivate(ctx, resp.Private, inventoryKey, rec, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

// Update implements resource.Resource.
func (r *addonResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan addonModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	_, _, rec := r.open(ctx, req.State, req.Private, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := argument.Patiently(ctx, plan.Timeouts.Update, addonDeadlines.Update, &resp.Diagnostics)
	defer cancel()
	rec = r.apply(ctx, &plan, rec, &resp.Diagnostics)
	tf.WritePrivate(ctx, resp.Private, inventoryKey, rec, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

func (r *addonResource) apply(ctx context.Context, m *addonModel, rec addonRecord, diags *diag.Diagnostics) addonRecord {
	a := m.addon(ctx, diags)
	if diags.HasError() {
		return rec
	}
	var err error
	if rec.Claim, err = r.Session.ClaimID(rec.Claim, m.Claim.ValueString()); err == nil && !m.off(ctx, diags) {
		a.Claim = rec.Claim
		rec.Objects, err = a.Apply(ctx, r.Session.Fleet(ctx), rec.Objects)
	}
	if err != nil {
		session.AddError(diags, "Cannot apply the addon "+a.Name, err)
		return rec
	}
	m.Drift = tf.NoDrift()
	m.complete(ctx, a, diags)
	return rec
}

// open reads the state, the objects that it describes and the record.
func (r *addonResource) open(ctx context.Context, from tfsdk.State, private tf.PrivateState, diags *diag.Diagnostics) (addonModel, addon.Addon, addonRecord) {
	var state addonModel
	diags.Append(from.Get(ctx, &state)...)
	rec := tf.ReadPrivate[addonRecord](ctx, private, inventoryKey, diags)
	if diags.HasError() {
		return state, addon.Addon{}, rec
	}
	a := state.addon(ctx, diags)
	a.Claim = cmp.Or(rec.Claim, state.Claim.ValueString())
	if rec.Objects == nil { // the private state was lost, see ReadHolding
		rec.Objects = kube.RefsOf(a.Objects)
	}
	return state, a, rec
}

// Read implements resource.Resource.
func (r *addonResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	state, a, rec := r.open(ctx, req.State, req.Private, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := argument.Patiently(ctx, state.Timeouts.Read, addonDeadlines.Read, &resp.Diagnostics)
	defer cancel()
	if state.off(ctx, &resp.Diagnostics) {
		return
	}
	drift, unjudged, err := a.Observe(ctx, r.Session.Fleet(ctx), rec.Objects)
	if err != nil {
		session.AddError(&resp.Diagnostics, "Cannot compare the addon "+a.Name+" with the cluster", err)
		return
	}
	for _, f := range unjudged {
		resp.Diagnostics.AddWarning("The addon "+a.Name+" could not be compared completely", foreign.Text(f.String()))
	}
	state.Claim, state.Drift = tf.OptionalString(a.Claim), argument.DriftValue(drift)
	resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
}

// Delete implements resource.Resource. If the API server cannot be reached any more, the objects
// are left with a warning.
func (r *addonResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	state, a, rec := r.open(ctx, req.State, req.Private, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := argument.Patiently(ctx, state.Timeouts.Delete, addonDeadlines.Delete, &resp.Diagnostics)
	defer cancel()
	if state.off(ctx, &resp.Diagnostics) {
		resp.Diagnostics.AddWarning("The objects of addon "+a.Name+" were not deleted",
			"The machines of the API servers are stopped. If the cluster is destroyed as well, the objects are gone with it. Otherwise delete them with kubectl, when it runs again.")
		return
	}
	kept, err := a.Remove(ctx, r.Session.Fleet(ctx), rec.Objects)
	if len(kept) > 0 {
		resp.Diagnostics.AddWarning(fmt.Sprintf("%d objects of addon %s were kept", len(kept), a.Name),
			fmt.Sprintf("Another k8s_addon has applied them since: the one that replaces this one, if its lifecycle block says create_before_destroy, or one to which their manifests "+
				"were moved. The first of them is %s.", kept[0]))
	}
	var network net.Error
	switch {
	case err == nil:
	case errors.As(err, &network):
		resp.Diagnostics.AddWarning("The objects of addon "+a.Name+" were not deleted",
			"The API server cannot be reached: "+foreign.Text(err.Error())+"\n\nIf the cluster is destroyed as well, they are gone with it. Otherwise delete them with kubectl.")
	default:
		session.AddError(&resp.Diagnostics, "Cannot delete the addon "+a.Name, err)
	}
}

// ImportState implements resource.ResourceWithImportState.
func (r *addonResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	fail := func(err error) { session.AddError(&resp.Diagnostics, "Cannot import this addon", err) }
	if err := reference.ReadImportID(ctx, r.Session, req.ID, addonImportNeeds, nil, &resp.State); err != nil {
		fail(err)
		return
	}
	var m addonModel
	resp.Diagnostics.Append(resp.State.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	a := m.addon(ctx, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	var rec addonRecord
	var err error
	if rec.Objects, rec.Claim, err = a.Find(ctx, r.Session.Fleet(ctx)); err != nil {
		fail(err)
		return
	}
	if rec.Claim, err = r.Session.ClaimID(rec.Claim); err != nil {
		fail(err)
		return
	}
	if len(rec.Objects) == 0 {
		fail(fmt.Errorf("none of the %d objects of addon %s exists in the cluster: remove the import, and apply creates them", len(a.Objects), a.Name))
		return
	}
	if m.Wait.IsNull() {
		m.Wait = types.BoolValue(true)
	}
	m.Drift = tf.NoDrift()
	m.Claim = tf.OptionalString(rec.Claim)
	m.complete(ctx, a, &resp.Diagnostics)
	tf.WritePrivate(ctx, resp.Private, inventoryKey, rec, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}
