package machines

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// The KMS key of a machine's root volume: root_volume_kms_key_id of k8s_machine.

const otherRootKey = "Another KMS key replaces the machine."

func rootKeyAttribute() schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true, Computed: true,
		MarkdownDescription: "KMS key (id, ARN or alias) that encrypts the root volume. The caller must be allowed to use it: see the guide on IAM. A change replaces the machine, but a change between " +
			"an alias and an id is an error. Removing the argument changes nothing. Default: the account's key for EBS.",
		Validators: []validator.String{argument.KMSKey()},
		PlanModifiers: []planmodifier.String{
			tf.KeepSame(sameKMSKey),
			stringplanmodifier.RequiresReplaceIf(func(_ context.Context, req planmodifier.StringRequest, resp *stringplanmodifier.RequiresReplaceIfFuncResponse) {
				resp.RequiresReplace = !req.ConfigValue.IsNull() && !comparesAlias(req.StateValue, req.PlanValue)
			}, otherRootKey, otherRootKey),
		},
	}
}

// comparesAlias reports whether one of two keys is given by an alias and the other one is not, so that they
// may be the same. A key that is not given, or not known yet, is another one.
func comparesAlias(state, plan types.String) bool {
	return tf.AllSet(state, plan) && isAlias(state) != isAlias(plan)
}

// planRootKey plans the key of the root volume. A machine without the argument keeps what it has.
func (m *machineModel) planRootKey(ctx context.Context, p tfsdk.Plan, config, state machineModel, diags *diag.Diagnostics) {
	if config.RootVolumeKey.IsNull() {
		m.RootVolumeKey = state.RootVolumeKey
		return
	}
	if comparesAlias(state.RootVolumeKey, m.RootVolumeKey) {
		var errs invalid.Fields
		errs.Say("root_volume_kms_key_id", "An alias cannot be compared with a key", "The state has %s, and a plan does not know whether %s is the same key: write the key as in the state.",
			state.RootVolumeKey.ValueString(), m.RootVolumeKey.ValueString())
		session.AddFieldErrors(ctx, p, errs, diags)
	}
}

// seeRootKey takes over the key of the root volume that was found, if it is certainly another one.
func (m *machineModel) seeRootKey(found awsmachine.Machine) {
	if known := m.RootVolumeKey; !known.IsNull() && !isAlias(known) && found.RootVolumeKey != "" && !sameKMSKey(known.ValueString(), found.RootVolumeKey) {
		m.RootVolumeKey = types.StringValue(found.RootVolumeKey)
	}
}
