package machines

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/volume"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

type volumeResource struct {
	owned.Resource[volumeModel, *volumeModel]
}

func NewVolume() resource.Resource { return newVolume() }

func newVolume() *volumeResource {
	r := &volumeResource{}
	r.Resource = owned.Resource[volumeModel, *volumeModel]{
		Kind: r, Name: "volume", What: "volume", By: "name",
		WhenGone:  "The next apply creates an empty volume, and replaces the machine that used this one.",
		Deadlines: tf.Deadlines{Create: volumeTimeout, Read: argument.ReadTimeout, Update: volumeTimeout, Delete: volumeTimeout},
	}
	return r
}

type volumeModel struct {
	owned.Model
	Name             types.String `tfsdk:"name"`
	Network          types.Object `tfsdk:"network"`
	SubnetID         types.String `tfsdk:"subnet_id"`
	Size             types.Int64  `tfsdk:"size"`
	Type             types.String `tfsdk:"type"`
	IOPS             types.Int64  `tfsdk:"iops"`
	Throughput       types.Int64  `tfsdk:"throughput"`
	KMSKeyID         types.String `tfsdk:"kms_key_id"`
	AvailabilityZone types.String `tfsdk:"availability_zone"`
}

// Schema implements resource.Resource.
func (r *volumeResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	keep := []planmodifier.String{stringplanmodifier.UseStateForUnknown()}
	resp.Schema = schema.Schema{
		MarkdownDescription: "One encrypted EBS volume for data that outlive a machine, such as the data of an etcd member. `data_volume` of `k8s_machine` attaches and mounts it. **Destroying this " +
			"resource deletes the volume with all data on it.**",
		Attributes: owned.With(ctx, r.Deadlines, map[string]schema.Attribute{
			"id": schema.StringAttribute{Computed: true, MarkdownDescription: "Identifier: the id of the volume. Import takes it, or `<cluster>/<name>`, or `<cluster>/<id>`, which is refused if the volume belongs to another cluster.", PlanModifiers: keep},
			"name": schema.StringAttribute{
				Required: true, MarkdownDescription: "Name of the volume, which is unique in the cluster. A change replaces the volume.",
				Validators:    []validator.String{argument.PartName()},
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"network": reference.OfNetwork.Input("Network of the cluster: `k8s_network.<name>.ref`. The network of another cluster replaces the volume. If the network itself is replaced, the volume stays."),
			"subnet_id": schema.StringAttribute{
				Optional: true, MarkdownDescription: "Subnet of the network that determines the volume's availability zone: the subnet of the machine. A subnet in another zone is an error of the apply, since a volume cannot " +
					"move. Default: the network's first subnet, as for a machine without `private_ip`.",
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
			"availability_zone": schema.StringAttribute{Computed: true, MarkdownDescription: "Availability zone of the volume.", PlanModifiers: keep},
		}),
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

// Plan implements owned.Kind.
func (r *volumeResource) Plan(ctx context.Context, p *owned.Plan[volumeModel]) {
	plan, state := &p.Plan, p.State
	network, _ := reference.OfNetwork.Read(ctx, plan.Network, p.Diags)
	if !p.New && p.Request.Private != nil && tf.ReadPrivate[bool](ctx, p.Request.Private, enlargedKey, p.Diags) {
		plan.keepEnlarged(state, p.Diags)
	}
	performance := plan.performance()
	errs := performance.plan("", p.Config.performance(), state.performance())
	plan.IOPS, plan.Throughput = performance.IOPS, performance.Throughput
	if ids, known := network.KnownSubnetIDs(ctx, p.Diags); known && !plan.SubnetID.IsNull() && !plan.SubnetID.IsUnknown() && !slices.Contains(ids, plan.SubnetID.ValueString()) {
		errs.Say("subnet_id", "Not a subnet of the network", "%s is none of the network's subnets: %s.", plan.SubnetID.ValueString(), strings.Join(ids, ", "))
	}
	if !p.New {
		if size := state.Size.ValueInt64(); !plan.Size.IsUnknown() && plan.Size.ValueInt64() < size {
			errs.Say("size", "A volume cannot shrink", "Volume %s has %d GiB: set size to %d.", plan.Name.ValueString(), size, size)
		}
		if !plan.KMSKeyID.IsUnknown() && !plan.KMSKeyID.Equal(state.KMSKeyID) && isAlias(plan.KMSKeyID) != isAlias(state.KMSKeyID) {
			errs.Say("kms_key_id", "An alias cannot be compared with a key", "The state has %s, and a plan does not know whether %s is the same key: write the key as in the state.",
				state.KMSKeyID.ValueString(), plan.KMSKeyID.ValueString())
		}
		old, known := reference.OfNetwork.Read(ctx, state.Network, p.Diags)
		if known && !network.Cluster.IsUnknown() && !network.Cluster.Equal(old.Cluster) {
			if p.Ownership.Imported {
				errs.Say("network", "Imported volume of another cluster", "Volume %s belongs to cluster %s: to replace it would delete the other cluster's data. Remove it from this state with `terraform state rm`.",
					state.ID.ValueString(), old.Cluster.ValueString())
			}
			p.Response.RequiresReplace.Append(path.Root("network"))
			plan.ID, plan.AvailabilityZone = types.StringUnknown(), types.StringUnknown()
		}
	}
	session.AddFieldErrors(ctx, p.Request.Plan, errs, p.Diags)
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

// Find implements owned.Kind.
func (r *volumeResource) Find(ctx context.Context, op *owned.Operation, id string, m *volumeModel) error {
	cluster, id, named, err := namedID(ctx, op.Client, id, volumeID, volume.Named)
	if err != nil {
		return err
	}
	found, err := volume.Find(ctx, op.Client, id)
	switch {
	case err != nil:
		return err
	case found.Cluster == "" || found.Name == "":
		return fmt.Errorf("volume %s was not made by this provider: the tags %s, %s and %s say which volume of which cluster it is. To import another one, set them first, the second one to \"volume\"",
			id, infraaws.TagCluster, infraaws.TagKind, infraaws.TagResource)
	case named && found.Cluster != cluster:
		return fmt.Errorf("volume %s is volume %s of cluster %s, not of cluster %s: nothing was imported", id, found.Name, found.Cluster, cluster)
	}
	ref, network, err := reference.FindNetwork(ctx, op.Client, found.Cluster)
	if err != nil {
		return err
	}
	op.Exists(found.Claim, found.Unsettled)
	m.Name, m.Network, m.Type = types.StringValue(found.Name), ref, types.StringValue(found.Type)
	m.KMSKeyID, m.Tags = tf.OptionalString(found.KMSKeyID), op.Tags(found.Tags)
	for k, s := range network.Subnets {
		if s.AvailabilityZone == found.AvailabilityZone {
			if k > 0 { // the first one is the default
				m.SubnetID = types.StringValue(s.ID)
			}
			break
		}
	}
	m.fill(found)
	return nil
}

// A volume is made and changed within seconds or a few minutes, and waits at most five minutes
// until it is detached.
const volumeTimeout = 15 * time.Minute
