package machines

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// The data volume of a machine: data_volume of k8s_machine.

// dataVolumeModel is data_volume.
type dataVolumeModel struct {
	ID         types.String `tfsdk:"id"`
	MountPoint types.String `tfsdk:"mount_point"`
}

func dataVolumeAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "Volume with the machine's data, which stays when the machine is replaced. An empty volume is formatted once with ext4. A volume can be added in place; any other change " +
			"replaces the machine. Default: none.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				Required: true, MarkdownDescription: "Id of the volume: `k8s_volume.<name>.id`. It must be in the availability zone of the machine, and not be attached to another one.",
				Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"mount_point": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(component.EtcdDataDir),
				MarkdownDescription: "Directory at which it is mounted: one of its own, such as below `/var/lib`. Default: `" + component.EtcdDataDir + "`, the data of etcd.",
			},
		},
	}
}

// dataUnits are the units that may start only once the data volume is mounted.
func dataUnits() []string {
	return []string{component.EtcdUnit, component.ContainerdUnit, component.KubeletUnit}
}

// dataVolume returns the machine's data volume, nil without one. Unknown values become empty.
func (m machineModel) dataVolume(ctx context.Context, diags *diag.Diagnostics) *awsmachine.DataVolume {
	if m.DataVolume.IsNull() || m.DataVolume.IsUnknown() {
		return nil
	}
	v, _ := tf.Object[dataVolumeModel](ctx, m.DataVolume, diags)
	return &awsmachine.DataVolume{ID: v.ID.ValueString(), MountPoint: v.MountPoint.ValueString(), Units: dataUnits()}
}

// dataVolumeValue returns data_volume of a machine that is imported.
func dataVolumeValue(ctx context.Context, v *awsmachine.DataVolume, diags *diag.Diagnostics) types.Object {
	fields := map[string]attr.Type{"id": types.StringType, "mount_point": types.StringType}
	if v == nil {
		return types.ObjectNull(fields)
	}
	o, d := types.ObjectValueFrom(ctx, fields, dataVolumeModel{ID: types.StringValue(v.ID), MountPoint: types.StringValue(v.MountPoint)})
	diags.Append(d...)
	return o
}

// movesData reports whether a machine with this data volume is replaced to get the planned one: the
// programs that use the old volume must end, and leave their cluster, before the volume is gone. A
// volume whose id is not known yet is another volume.
func (m machineModel) movesData(plan machineModel) bool {
	return !m.DataVolume.IsNull() && !m.DataVolume.Equal(plan.DataVolume)
}

// usesDataOtherwise reports whether an update to the plan may have to do something to the data volume: it
// is another one, or the refresh has found drift.
func (m machineModel) usesDataOtherwise(plan machineModel) bool {
	return !m.DataVolume.Equal(plan.DataVolume) || len(m.Drift.Elements()) > 0
}

// inspectData returns how the machine's use of its data volume differs from what is wanted. A machine
// that cannot be asked is a warning.
func (r *machineResource) inspectData(ctx context.Context, m machineModel, found awsmachine.Machine, spec awsmachine.Spec, known []finding.Finding, diags *diag.Diagnostics) []finding.Finding {
	away := slices.ContainsFunc(known, func(f finding.Finding) bool { return f.Kind == finding.DataVolume && f.Problem != finding.Ephemeral })
	if spec.DataVolume == nil || found.State != reference.Running || m.stops() || away || r.Session.WarnOfUnknownSSH(diags) {
		return nil
	}
	differs, err := awsmachine.InspectDataVolume(ctx, found, spec, r.Session.Connect)
	if err != nil {
		if r.Session.FirstWarning(m.Name.ValueString()) {
			diags.AddWarning("How machine "+m.Name.ValueString()+" uses its data volume is not known", foreign.Text(err.Error()))
		}
		return nil
	}
	return differs
}
