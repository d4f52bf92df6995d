package machines

import (
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// User data of a machine beside those of the provider: user_data of k8s_machine.

func userDataAttribute() schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true,
		MarkdownDescription: "User data for cloud-init, beside the provider's own: a script (`#!`), a `#cloud-config`, or another format of cloud-init. EC2 limits both together to 16 KiB. Not for " +
			"secrets: the state contains it. A change replaces the machine. Default: none.",
		Validators:    []validator.String{stringvalidator.LengthAtLeast(1)},
		PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
	}
}

// checkUserData refuses user data of a new machine that are too long together with the provider's, as far
// as those are known.
func checkUserData(d *session.Session, m machineModel, diags *diag.Diagnostics) {
	text := m.UserData.ValueString()
	keys, err := d.AuthorizedKeys()
	if text == "" || err != nil || awsmachine.CheckUserData(text) != nil { // reported elsewhere
		return
	}
	n, err := awsmachine.Spec{Name: m.Name.ValueString(), User: m.User.ValueString(), AuthorizedKeys: keys, UserData: text}.UserDataBytes(d.Rand)
	if err == nil && n > awsmachine.MaxUserData {
		diags.AddAttributeError(path.Root("user_data"), "Too much user data", fmt.Sprintf("With what the provider adds, the machine's user data would have %d bytes, and EC2 takes %d: "+
			"shorten the text by %d bytes, or let the machine fetch the rest, for example with #include. A text with other characters than ASCII takes a third more.", n, awsmachine.MaxUserData, n-awsmachine.MaxUserData))
	}
}
