package machines

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// The values of image_policy.
const (
	imageAtLaunch = "launch"
	imageRolls    = "roll"
)

func imagePolicyAttribute() schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true, Computed: true, Default: stringdefault.StaticString(imageAtLaunch),
		MarkdownDescription: "Effect of a newer image. `" + imageAtLaunch + "`: the next launch uses it. `" + imageRolls + "`: each apply replaces one machine of the cluster whose image is not the one that `ami` or `image_filter` finds, " +
			"while all others of its role are healthy. Default: `" + imageAtLaunch + "`.",
		Validators: []validator.String{stringvalidator.OneOf(imageAtLaunch, imageRolls)},
	}
}

// rollKey is the private-state entry with what the last refresh found out about a newer image.
const rollKey = "roll"

// rolling is what a refresh found out about a newer image.
type rolling struct {
	Image   string   `json:"image,omitempty"` // empty if the machine has the newest one
	Turn    bool     `json:"turn,omitempty"`
	Why     string   `json:"why,omitempty"` // it is not the machine's turn, although it would be next
	Waiting []string `json:"waiting,omitempty"`
}

// lookForImage finds out whether the machine is to be replaced for a newer image by the next apply.
func (r *machineResource) lookForImage(ctx context.Context, client *infraaws.Client, m machineModel, spec awsmachine.Spec, diags *diag.Diagnostics) rolling {
	if m.ImagePolicy.ValueString() != imageRolls || m.InstanceState.ValueString() != reference.Running || m.stops() || m.Protection.ValueBool() {
		return rolling{}
	}
	name := m.Name.ValueString()
	found, err := awsmachine.NextInRoll(ctx, client, spec, m.ID.ValueString())
	if err != nil {
		diags.AddWarning("Whether there is a newer image for "+name+" is not known", foreign.Text(err.Error()))
		return rolling{}
	}
	out := rolling{Image: found.Image, Waiting: found.Waiting}
	if found.Next != name {
		return out
	}
	kind := []infraaws.MachineRole{infraaws.RoleController, infraaws.RoleEtcd} // those with members of etcd and API servers
	if m.Role.ValueString() == string(infraaws.RoleWorker) {
		kind = []infraaws.MachineRole{infraaws.RoleWorker}
	}
	err = r.Session.Rolls.Turn(ctx, spec.Cluster, name, func(ctx context.Context) ([]fleet.Target, error) {
		return reference.RunningMachines(ctx, r.Session, spec.Cluster, kind...)
	}, r.Session.Works)
	if err != nil {
		out.Why = err.Error()
	}
	out.Turn = err == nil
	return out
}

// planRoll plans the replacement of the machine for a newer image, and reports whether it is replaced.
func (m *machineModel) planRoll(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse, state machineModel) bool {
	if m.ImagePolicy.ValueString() != imageRolls || req.Private == nil {
		return false
	}
	roll := tf.ReadPrivate[rolling](ctx, req.Private, rollKey, &resp.Diagnostics)
	name := m.Name.ValueString()
	switch {
	case roll.Image == "" || m.stops() || state.Protection.ValueBool():
		return false
	case roll.Why != "":
		resp.Diagnostics.AddAttributeWarning(path.Root("image_policy"), name+" waits with its newer image",
			fmt.Sprintf("It has %s, and the newest image is %s. It is not replaced by this plan: %s.", state.ImageID.ValueString(), roll.Image, foreign.Text(roll.Why)))
		return false
	case !roll.Turn:
		return false
	}
	then := "It is the last one."
	if len(roll.Waiting) > 0 {
		then = fmt.Sprintf("%s follow, one with each apply.", strings.Join(roll.Waiting, ", "))
	}
	resp.Diagnostics.AddAttributeWarning(path.Root("image_policy"), name+" is replaced for a newer image",
		fmt.Sprintf("It has %s, and the newest image is %s. %s", state.ImageID.ValueString(), roll.Image, then))
	m.ImageID = types.StringUnknown()
	resp.RequiresReplace.Append(path.Root("image_id"))
	return true
}
