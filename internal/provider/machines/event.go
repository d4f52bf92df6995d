package machines

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

const moveIt = "To be rid of the event at a time of your own, move the machine to another host: apply once with power_state = \"stopped\", and once without it."

// warnOfEvents warns of what EC2 has scheduled for a running machine.
func (m machineModel) warnOfEvents(ctx context.Context, c *infraaws.Client, found awsmachine.Machine, diags *diag.Diagnostics) {
	if found.State != reference.Running {
		return
	}
	name := m.Name.ValueString()
	events, err := awsmachine.Scheduled(ctx, c, found.ID)
	if err != nil {
		diags.AddWarning("What EC2 has scheduled for "+name+" is not known", foreign.Text(err.Error()))
	}
	for _, e := range events {
		detail := fmt.Sprintf("EC2 has scheduled %s of instance %s, not before %s: %s.", e.Code, found.ID, e.NotBefore.UTC().Format("2006-01-02 15:04:05 MST"), foreign.Text(e.Description))
		if found.Role != infraaws.RoleLoadBalancer {
			detail += " If it is a node, the node is drained from five minutes before."
		}
		switch {
		case found.Spot:
			detail += "\n\nTo be rid of the event, replace the machine: EC2 cannot move a Spot instance to another host, and ends it where it would stop another instance."
		case e.Effect() == awsmachine.Stops:
			detail += " The next apply after the stop starts it again, on another host.\n\n" + moveIt
		default:
			detail += "\n\n" + moveIt
		}
		diags.AddWarning(fmt.Sprintf("EC2 will %s %s", e.Effect(), name), detail)
	}
}
