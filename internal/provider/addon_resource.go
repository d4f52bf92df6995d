package provider

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"

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
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

type addonResource struct{ base }

var (
	_ resource.ResourceWithConfigure   = (*addonResource)(nil)
	_ resource.ResourceWithModifyPlan  = (*addonResource)(nil)
	_ resource.ResourceWithImportState = (*addonResource)(nil)
)

func newAddonResource() resource.Resource { return &addonResource{} }

type addonModel struct {
	ID           types.String   `tfsdk:"id"`
	Name         types.String   `tfsdk:"name"`
	PKI          types.Object   `tfsdk:"pki"`
	ControlPlane types.Object   `tfsdk:"control_plane"`
	Manifests    types.List     `tfsdk:"manifests"`
	Wait         types.Bool     `tfsdk:"wait"`
	Drift        types.Map      `tfsdk:"drift"`
	Objects      types.Map      `tfsdk:"objects"`
	Timeouts     timeouts.Value `tfsdk:"timeouts"`
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

var addonDeadlines = tf.Deadlines{Create: roleTimeout, Read: readTimeout, Update: roleTimeout, Delete: pkiTimeout}

// addonImportNeeds are the arguments that an import id must contain.
var addonImportNeeds = []string{"name", "control_plane", "pki"}

// inventoryKey is the private-state entry with the objects that the addon has applied.
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
			importDescription(addonImportNeeds) + " `manifests` must be given unless the addon is built in, since the cluster does not record which objects belong together. " +
			"The objects in `manifests` that exist in the cluster belong to the addon from then on; an object that left `manifests` earlier is not found.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				Computed: true, MarkdownDescription: "Identifier: `<cluster>/<name>`.",
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"name": schema.StringAttribute{
				Required:            true,
				MarkdownDescription: "Name of the addon. Without `manifests` it must be a built-in addon: `coredns` or `metrics-server`. A change replaces the addon.",
				Validators:          []validator.String{machineName()},
				PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"pki":           pkiRef.Input(pkiRefDescription),
			"control_plane": controlPlaneRef.Input(controlPlaneRefDescription),
			"manifests": schema.ListAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Kubernetes objects in YAML or JSON. One string may contain several documents. Changed in place; an object that is no longer listed is deleted. " +
					"Default: those of the built-in addon.",
				Validators:    []validator.List{listvalidator.SizeAtLeast(1)},
				PlanModifiers: []planmodifier.List{tf.KeepSameList(sameManifests)},
			},
			"wait": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(true),
				MarkdownDescription: "Whether apply waits until the Deployments, DaemonSets and StatefulSets among the objects are available. The wait ends early if a pod of theirs, or of " +
					"a Job among the objects, has failed for 20 seconds: it crash-loops, or its image cannot be pulled. Default: `true`.",
			},
			"drift": tf.DriftAttribute(),
			"objects": schema.MapAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "Every object of the addon: `Kind namespace/name` to `sha256:<digest>` of its wanted content. A plan shows here which objects a change affects.",
			},
		},
		Blocks: map[string]schema.Block{"timeouts": addonDeadlines.Block(ctx)},
	}
}

// addon turns the model into the library's addon.
func (m *addonModel) addon(ctx context.Context, diags *diag.Diagnostics) rollout.Addon {
	ref, _ := pkiRefFrom(ctx, m.PKI, diags)
	cp, _ := controlPlaneRef.Read(ctx, m.ControlPlane, diags)
	out := rollout.Addon{
		API:  rollout.API{Endpoint: cp.Endpoint.ValueString(), PKI: ref},
		Name: m.Name.ValueString(),
		Wait: m.Wait.ValueBool(),
	}
	if m.Manifests.IsNull() {
		build, ok := builtinAddons[out.Name]
		if !ok {
			diags.AddAttributeError(path.Root("name"), "Unknown addon",
				fmt.Sprintf("%q is not built in (coredns and metrics-server are): set manifests.", out.Name))
			return out
		}
		objects, err := build(cp.cluster(ref))
		if err != nil {
			diags.AddError("The addon cannot be built", err.Error())
		}
		out.Objects = objects
		return out
	}
	for i, text := range tf.Strings(m.Manifests.Elements()) {
		objects, err := parseManifests(text)
		if err != nil {
			diags.AddAttributeError(path.Root("manifests").AtListIndex(i), "Unusable manifest", err.Error())
			continue
		}
		out.Objects = append(out.Objects, objects...)
	}
	return out
}

// parseManifests reads the objects of one YAML or JSON text; lists are flattened.
func parseManifests(text string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for n := 1; ; n++ {
		var o unstructured.Unstructured
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if len(o.Object) == 0 {
			continue
		}
		if o.IsList() {
			list, err := o.ToList()
			if err != nil {
				return nil, fmt.Errorf("document %d: %w", n, err)
			}
			for i := range list.Items {
				out = append(out, &list.Items[i])
			}
			continue
		}
		if o.GetKind() == "" || o.GetAPIVersion() == "" || o.GetName() == "" {
			return nil, fmt.Errorf("document %d: apiVersion, kind and metadata.name are required", n)
		}
		out = append(out, &o)
	}
}

// sameManifests reports whether two lists of texts contain the same objects in the same order.
func sameManifests(a, b []string) bool {
	objects := func(texts []string) (out []*unstructured.Unstructured, err error) {
		for _, text := range texts {
			more, unusable := parseManifests(text)
			out, err = append(out, more...), errors.Join(err, unusable)
		}
		return out, err
	}
	before, err := objects(a)
	after, alsoErr := objects(b)
	return err == nil && alsoErr == nil && reflect.DeepEqual(before, after)
}

// complete sets the attributes that are computed from the objects.
func (m *addonModel) complete(ctx context.Context, a rollout.Addon, diags *diag.Diagnostics) {
	m.ID = types.StringValue(clusterOf(ctx, m.PKI, diags).ValueString() + "/" + a.Name)
	digests := map[string]string{}
	for _, o := range a.Objects {
		b, err := o.MarshalJSON()
		if err != nil {
			diags.AddError("The addon cannot be built", err.Error())
			return
		}
		var key bytes.Buffer
		key.WriteString(o.GetKind() + " ")
		if o.GetNamespace() != "" {
			key.WriteString(o.GetNamespace() + "/")
		}
		key.WriteString(o.GetName())
		digests[key.String()] = "sha256:" + desired.Sum(b)
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
	checkRotationFinished(ctx, req, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	if req.Config.Raw.IsFullyKnown() {
		a := plan.addon(ctx, &resp.Diagnostics)
		plan.complete(ctx, a, &resp.Diagnostics)
	} else {
		plan.Objects = types.MapUnknown(types.StringType)
		if plan.Manifests.IsNull() && builtinAddons[plan.Name.ValueString()] == nil && !plan.Name.IsUnknown() {
			plan.addon(ctx, &resp.Diagnostics)
		}
	}
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
}

// Create implements resource.Resource. Applying is idempotent: after a failure the next create
// continues where this one stopped.
func (r *addonResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var plan addonModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := tf.WithTimeout(ctx, plan.Timeouts.Create, addonDeadlines.Create, &resp.Diagnostics)
	defer cancel()
	inventory := r.apply(ctx, &plan, nil, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	tf.WritePrivate(ctx, resp.Private, inventoryKey, inventory, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

// Update implements resource.Resource.
func (r *addonResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan addonModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	inventory := tf.ReadPrivate[[]kube.ObjectRef](ctx, req.Private, inventoryKey, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := tf.WithTimeout(ctx, plan.Timeouts.Update, addonDeadlines.Update, &resp.Diagnostics)
	defer cancel()
	inventory = r.apply(ctx, &plan, inventory, &resp.Diagnostics)
	tf.WritePrivate(ctx, resp.Private, inventoryKey, inventory, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

func (r *addonResource) apply(ctx context.Context, m *addonModel, inventory []kube.ObjectRef, diags *diag.Diagnostics) []kube.ObjectRef {
	a := m.addon(ctx, diags)
	if diags.HasError() {
		return inventory
	}
	inventory, err := r.data.engine(ctx).ApplyObjects(ctx, a, inventory)
	if err != nil {
		addError(diags, "Cannot apply the addon "+a.Name, err)
		return inventory
	}
	m.Drift = tf.NoDrift()
	m.complete(ctx, a, diags)
	return inventory
}

// open reads the state, the objects that it describes and the objects on record.
func (r *addonResource) open(ctx context.Context, from tfsdk.State, private tf.PrivateState, diags *diag.Diagnostics) (addonModel, rollout.Addon, []kube.ObjectRef) {
	var state addonModel
	diags.Append(from.Get(ctx, &state)...)
	inventory := tf.ReadPrivate[[]kube.ObjectRef](ctx, private, inventoryKey, diags)
	if diags.HasError() {
		return state, rollout.Addon{}, nil
	}
	return state, state.addon(ctx, diags), inventory
}

// Read implements resource.Resource.
func (r *addonResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	state, a, inventory := r.open(ctx, req.State, req.Private, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := tf.WithTimeout(ctx, state.Timeouts.Read, addonDeadlines.Read, &resp.Diagnostics)
	defer cancel()
	report, err := r.data.engine(ctx).ObserveObjects(ctx, a, inventory)
	if err != nil {
		addError(&resp.Diagnostics, "Cannot compare the addon "+a.Name+" with the cluster", err)
		return
	}
	for _, f := range report.Unjudged {
		resp.Diagnostics.AddWarning("The addon "+a.Name+" could not be compared completely", remote.Redact(f.String()))
	}
	state.Drift = driftValue(report.Findings)
	resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
}

// Delete implements resource.Resource. If the API server cannot be reached any more, the objects
// are left with a warning.
func (r *addonResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	state, a, inventory := r.open(ctx, req.State, req.Private, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := tf.WithTimeout(ctx, state.Timeouts.Delete, addonDeadlines.Delete, &resp.Diagnostics)
	defer cancel()
	err := r.data.engine(ctx).RemoveObjects(ctx, a, inventory)
	var network net.Error
	switch {
	case err == nil:
	case errors.As(err, &network):
		resp.Diagnostics.AddWarning("The objects of addon "+a.Name+" were not deleted",
			"The API server cannot be reached: "+remote.Redact(err.Error())+"\n\nIf the cluster is destroyed as well, they are gone with it. Otherwise delete them with kubectl.")
	default:
		addError(&resp.Diagnostics, "Cannot delete the addon "+a.Name, err)
	}
}

// ImportState implements resource.ResourceWithImportState.
func (r *addonResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	fail := func(err error) { addError(&resp.Diagnostics, "Cannot import this addon", err) }
	if err := r.data.readImportID(ctx, req.ID, addonImportNeeds, nil, &resp.State); err != nil {
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
	inventory, err := r.data.engine(ctx).FindObjects(ctx, a)
	if err != nil {
		fail(err)
		return
	}
	if len(inventory) == 0 {
		fail(fmt.Errorf("none of the %d objects of addon %s exists in the cluster: remove the import, and apply creates them", len(a.Objects), a.Name))
		return
	}
	if m.Wait.IsNull() {
		m.Wait = types.BoolValue(true)
	}
	m.Drift = tf.NoDrift()
	m.complete(ctx, a, &resp.Diagnostics)
	tf.WritePrivate(ctx, resp.Private, inventoryKey, inventory, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}
