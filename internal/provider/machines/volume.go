package machines

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsnetwork "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/volume"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

var (
	_ resource.ResourceWithConfigure   = (*volumeResource)(nil)
	_ resource.ResourceWithModifyPlan  = (*volumeResource)(nil)
	_ resource.ResourceWithImportState = (*volumeResource)(nil)
)

var volumeDeadlines = tf.Deadlines{Create: volumeTimeout, Read: argument.ReadTimeout, Update: volumeTimeout, Delete: volumeTimeout}

type volumeResource struct{ session.Base }

func NewVolume() resource.Resource { return &volumeResource{} }

type volumeModel struct {
	ID               types.String   `tfsdk:"id"`
	Name             types.String   `tfsdk:"name"`
	Network          types.Object   `tfsdk:"network"`
	SubnetID         types.String   `tfsdk:"subnet_id"`
	Size             types.Int64    `tfsdk:"size"`
	Type             types.String   `tfsdk:"type"`
	IOPS             types.Int64    `tfsdk:"iops"`
	Throughput       types.Int64    `tfsdk:"throughput"`
	KMSKeyID         types.String   `tfsdk:"kms_key_id"`
	Adopt            types.Bool     `tfsdk:"adopt"`
	Protection       types.Bool     `tfsdk:"deletion_protection"`
	Tags             types.Map      `tfsdk:"tags"`
	TagsAll          types.Map      `tfsdk:"tags_all"`
	AvailabilityZone types.String   `tfsdk:"availability_zone"`
	Claim            types.String   `tfsdk:"claim"`
	Drift            types.Map      `tfsdk:"drift"`
	Timeouts         timeouts.Value `tfsdk:"timeouts"`
}

func (r *volumeResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "k8s_volume"
}

func (r *volumeResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	keep := []planmodifier.String{stringplanmodifier.UseStateForUnknown()}
	resp.Schema = schema.Schema{
		MarkdownDescription: "One encrypted EBS volume for data that outlive a machine, such as those of an etcd member. `data_volume` of `k8s_machine` attaches and mounts it there. " +
			"It has a life of its own: when the machine is replaced, it stays, and the new machine goes on with its data.\n\n" +
			"**Destroying this resource deletes the volume with all data on it.** Set `prevent_destroy` in the `lifecycle` block, or `deletion_protection`, to keep it. The guide on data volumes shows " +
			"how a controller with one is replaced.\n\n" +
			"A volume that somebody has deleted is made again, empty, after a warning.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{Computed: true, MarkdownDescription: "Identifier: the id of the volume. Import takes it, or `<cluster>/<id>`, which is refused if the volume is another cluster's.", PlanModifiers: keep},
			"name": schema.StringAttribute{
				Required: true, MarkdownDescription: "Name of the volume, of which a cluster has only one. A change replaces the volume.",
				Validators:    []validator.String{argument.PartName()},
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"network": reference.OfNetwork.Input("Network of the cluster: `k8s_network.<name>.ref`. Another cluster's replaces the volume. If the network itself is replaced, the volume stays."),
			"subnet_id": schema.StringAttribute{
				Optional: true, MarkdownDescription: "Subnet of the network whose availability zone the volume is in: that of the machine. A subnet in another zone is an error of the apply, since a volume cannot move. " +
					"Default: the network's first subnet, as for a machine without `private_ip`.",
			},
			"size": schema.Int64Attribute{
				Required: true, MarkdownDescription: "Size in GiB. It is increased in place while the volume is in use, including its file system; it cannot be decreased. EC2 accepts four changes of a volume within 24 hours.",
				Validators: []validator.Int64{int64validator.Between(1, volume.MaxGiB)},
			},
			"type": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(volume.DefaultType),
				MarkdownDescription: "Type of the volume: `gp3`, `gp2`, `io1` or `io2`. Changed in place. Default: `" + volume.DefaultType + "`.",
				Validators:          []validator.String{stringvalidator.OneOf(volume.Types()...)},
			},
			"iops": schema.Int64Attribute{
				Optional: true, Computed: true, MarkdownDescription: "I/O operations per second, at most 500 for each GiB of a `gp3` volume. `io1` and `io2` need it, and `gp2` has none of its own. Changed in place. " +
					"Default: 3000 with `gp3`.",
				Validators: []validator.Int64{int64validator.Between(1, volume.MaxIOPS)},
			},
			"throughput": schema.Int64Attribute{
				Optional: true, Computed: true, MarkdownDescription: "Throughput of a `gp3` volume in MiB/s, at most a quarter of `iops`. Changed in place. Default: 125 with `gp3`, none with other types.",
				Validators: []validator.Int64{int64validator.Between(1, volume.MaxThroughputMiB)},
			},
			"kms_key_id": schema.StringAttribute{
				Optional: true, Computed: true,
				MarkdownDescription: "KMS key (id, ARN or alias) with which the volume is encrypted. Without the key its data are lost. A change replaces the volume by an empty one; between an alias and an id " +
					"it is an error, since the plan does not know which key an alias names. Default: the account's key for EBS.",
				Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
				PlanModifiers: []planmodifier.String{
					stringplanmodifier.UseStateForUnknown(), tf.KeepSame(sameKMSKey),
					stringplanmodifier.RequiresReplaceIf(func(_ context.Context, req planmodifier.StringRequest, resp *stringplanmodifier.RequiresReplaceIfFuncResponse) {
						resp.RequiresReplace = !req.ConfigValue.IsNull() && isAlias(req.StateValue) == isAlias(req.PlanValue)
					}, otherKey, otherKey),
				},
			},
			"adopt":             argument.AdoptAttribute(),
			argument.Protection: argument.ProtectionAttribute(),
			"tags":              argument.TagsAttribute(),
			"tags_all":          argument.TagsAllAttribute(),
			"availability_zone": schema.StringAttribute{Computed: true, MarkdownDescription: "Availability zone of the volume.", PlanModifiers: keep},
			"claim":             argument.ClaimAttribute(argument.InTags, argument.GuardsAll),
			"drift":             tf.DriftAttribute(),
		},
		Blocks: map[string]schema.Block{"timeouts": volumeDeadlines.Block(ctx)},
	}
}

const otherKey = "Another KMS key replaces the volume."

// sameKMSKey reports whether one text is the ARN of the key that the other names by its id, or of the alias.
func sameKMSKey(a, b string) bool {
	id := func(s string) string {
		if i := strings.Index(s, ":key/"); i >= 0 {
			return s[i+len(":key/"):]
		}
		if i := strings.Index(s, ":alias/"); i >= 0 {
			return s[i+1:]
		}
		return s
	}
	arn := func(s string) bool { return strings.HasPrefix(s, "arn:") }
	return a == b || arn(a) != arn(b) && id(a) == id(b)
}

func isAlias(s types.String) bool {
	return strings.HasPrefix(s.ValueString(), "alias/") || strings.Contains(s.ValueString(), ":alias/")
}

// ModifyPlan implements resource.ResourceWithModifyPlan.
func (r *volumeResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	defer func() {
		argument.PlannedEnd(ctx, argument.ObjectName(ctx, "volume", "name", req.State, resp.Plan), req, resp)
	}()
	if req.Plan.Raw.IsNull() || r.Session == nil {
		return
	}
	var config, plan, state volumeModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	exists := !req.State.Raw.IsNull()
	if exists {
		resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	network, _ := reference.OfNetwork.Read(ctx, plan.Network, &resp.Diagnostics)
	plan.TagsAll = r.Session.PlanTags(plan.Tags, &resp.Diagnostics)
	if exists && req.Private != nil && tf.ReadPrivate[bool](ctx, req.Private, enlargedKey, &resp.Diagnostics) {
		plan.keepEnlarged(state, &resp.Diagnostics)
	}
	p := plan.performance()
	errs := p.plan("", config.performance(), state.performance())
	plan.IOPS, plan.Throughput = p.IOPS, p.Throughput
	if ids, known := network.KnownSubnetIDs(ctx, &resp.Diagnostics); known && !plan.SubnetID.IsNull() && !plan.SubnetID.IsUnknown() && !slices.Contains(ids, plan.SubnetID.ValueString()) {
		errs.Say("subnet_id", "Not a subnet of the network", "%s is none of the network's subnets: %s.", plan.SubnetID.ValueString(), strings.Join(ids, ", "))
	}
	if exists {
		if size := state.Size.ValueInt64(); !plan.Size.IsUnknown() && plan.Size.ValueInt64() < size {
			errs.Say("size", "A volume cannot shrink", "Volume %s has %d GiB: set size to %d.", plan.Name.ValueString(), size, size)
		}
		if !plan.KMSKeyID.IsUnknown() && !plan.KMSKeyID.Equal(state.KMSKeyID) && isAlias(plan.KMSKeyID) != isAlias(state.KMSKeyID) {
			errs.Say("kms_key_id", "An alias cannot be compared with a key", "The state has %s, and whether %s is the same key is not known to a plan: write it as in the state.",
				state.KMSKeyID.ValueString(), plan.KMSKeyID.ValueString())
		}
		old, known := reference.OfNetwork.Read(ctx, state.Network, &resp.Diagnostics)
		if known && !network.Cluster.IsUnknown() && !network.Cluster.Equal(old.Cluster) {
			if req.Private != nil && session.ReadHolding(ctx, req.Private, state.Claim, &resp.Diagnostics).Imported {
				errs.Say("network", "Imported volume of another cluster", "Volume %s is that of cluster %s: to replace it would delete the other cluster's data. Remove it from this state with `terraform state rm`.",
					state.ID.ValueString(), old.Cluster.ValueString())
			}
			resp.RequiresReplace.Append(path.Root("network"))
			plan.ID, plan.AvailabilityZone = types.StringUnknown(), types.StringUnknown()
		}
	}
	session.AddFieldErrors(ctx, req.Plan, errs, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
}

// enlargedKey is the private-state entry which says that somebody else has made the volume larger than
// it was configured.
const enlargedKey = "enlarged"

// keepEnlarged plans the present size of a volume that somebody else has enlarged. It is no error: a
// destroy begins with such a plan too.
func (m *volumeModel) keepEnlarged(state volumeModel, diags *diag.Diagnostics) {
	if m.Size.IsUnknown() || m.Size.ValueInt64() >= state.Size.ValueInt64() {
		return
	}
	diags.AddAttributeWarning(path.Root("size"), "The volume was enlarged",
		fmt.Sprintf("Somebody has enlarged volume %s to %d GiB, and a volume cannot shrink: set size to %d. It keeps that size until then.", m.Name.ValueString(), state.Size.ValueInt64(), state.Size.ValueInt64()))
	m.Size = state.Size
}

func (m volumeModel) performance() performanceModel {
	return performanceModel{m.Type, m.Size, m.IOPS, m.Throughput}
}

// ImportState implements resource.ResourceWithImportState.
func (r *volumeResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	fail := func(err error) { session.AddError(&resp.Diagnostics, "Cannot import volume "+req.ID, err) }
	client, err := r.Session.AWS(ctx)
	if err != nil {
		fail(err)
		return
	}
	cluster, id, named := strings.Cut(req.ID, "/")
	if !named {
		cluster, id = "", req.ID
	}
	found, err := volume.Find(ctx, client, id)
	switch {
	case err != nil:
	case found.Cluster == "" || found.Name == "":
		err = fmt.Errorf("volume %s was not made by this provider: the tags %s, %s and %s say which volume of which cluster it is. To import another one, set them first, the second one to \"volume\"",
			id, infraaws.TagCluster, infraaws.TagKind, infraaws.TagResource)
	case named && found.Cluster != cluster:
		err = fmt.Errorf("volume %s is volume %s of cluster %s, not of cluster %s: nothing was imported", id, found.Name, found.Cluster, cluster)
	}
	var h session.Holding
	var ref types.Object
	var network awsnetwork.Network
	if err == nil {
		h, err = r.Session.Imported(ctx, client, found.Claim)
	}
	if err == nil {
		ref, network, err = reference.FindNetwork(ctx, client, found.Cluster)
	}
	if err != nil {
		fail(err)
		return
	}
	var m volumeModel
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), found.ID)...)
	resp.Diagnostics.Append(resp.State.Get(ctx, &m)...)
	m.Name, m.Network, m.Type = types.StringValue(found.Name), ref, types.StringValue(found.Type)
	m.KMSKeyID = tf.OptionalString(found.KMSKeyID)
	for k, s := range network.Subnets {
		if s.AvailabilityZone == found.AvailabilityZone {
			if k > 0 { // the first one is the default
				m.SubnetID = types.StringValue(s.ID)
			}
			break
		}
	}
	m.Tags = types.MapNull(types.StringType)
	if own := client.OwnTags(found.Tags); own != nil {
		m.Tags = tf.StringMapValue(own)
	}
	m.TagsAll = r.Session.FoundTags(m.Tags)
	m.fill(found)
	m.Claim = types.StringValue(h.ID)
	tf.WritePrivate(ctx, resp.Private, session.HoldingKey, h, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// A volume is made and changed within seconds or a few minutes, and waits at most five minutes
// until it is detached.
const volumeTimeout = 15 * time.Minute
