package provider

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/iptypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// The virtual address of a load balancer on several machines.

func standbysAttribute() schema.ListNestedAttribute {
	a := hostsAttribute("Further machines with the same HAProxy, which take `virtual_ip` when the machine that has it fails. Default: none.", listvalidator.SizeAtMost(8))
	a.Required, a.Optional = false, true
	return a
}

func virtualIPSetting() setting[lbModel, rollout.LoadBalancer] {
	return newSetting(schema.StringAttribute{
		Optional: true, CustomType: iptypes.IPv4AddressType{},
		MarkdownDescription: "Address of the API server that no machine has of its own. keepalived, which is installed with it, gives it to `host` or to one of `standbys`. All of them are in one layer-2 network with it, " +
			"and pass VRRP (IP protocol 112) to one another. It is the address of both endpoints. Not for EC2 instances: a VPC does not follow such an address. " +
			"A change is made in place, and clients need the new address. Default: none; the address of `host` is that of the endpoints.",
	}, address, func(m *lbModel, s *rollout.LoadBalancer) (*iptypes.IPv4Address, *netip.Addr) {
		return &m.VirtualIP, &s.Spec.VirtualIP
	})
}

func routerIDSetting() setting[lbModel, rollout.LoadBalancer] {
	return newSetting(schema.Int64Attribute{
		Optional: true, Computed: true, Default: int64default.StaticInt64(component.DefaultRouterID),
		MarkdownDescription: fmt.Sprintf("Number of the virtual router of `virtual_ip`, 1 to 255. Each virtual address in a layer-2 network needs its own. Changed in place. Default: %d.", component.DefaultRouterID),
		Validators:          []validator.Int64{int64validator.Between(1, 255)},
	}, number, func(m *lbModel, s *rollout.LoadBalancer) (*types.Int64, *int) { return &m.RouterID, &s.Spec.RouterID })
}

// ownAddress is the address of the endpoint on a machine that is not an EC2 instance.
func (m *lbModel) ownAddress(h hostModel) types.String {
	if m.VirtualIP.IsNull() {
		return h.Address
	}
	return m.VirtualIP.StringValue
}

// checkVirtualIP checks that the machines of a load balancer can share its virtual address.
func checkVirtualIP(ctx context.Context, plan *lbModel, s rollout.LoadBalancer, diags *diag.Diagnostics) invalid.Fields {
	host, _ := hostRef.Read(ctx, plan.Host, diags)
	standbys, _ := hostsFrom(ctx, plan.Standbys, diags)
	machines := append([]hostModel{host}, standbys...)
	if !plan.VirtualIP.IsNull() {
		for _, h := range machines {
			if h.InstanceID.ValueString() != "" {
				diags.AddAttributeError(path.Root("virtual_ip"), "Virtual address on an EC2 instance",
					fmt.Sprintf("%s is the EC2 instance %s. A VPC delivers packets to the addresses of its network interfaces only, so it does not follow a virtual address. "+
						"Use the Elastic IP of k8s_lb, or k8s_nlb.", h.Name.ValueString(), h.InstanceID.ValueString()))
				break
			}
		}
	}
	if controllers, known := hostsFrom(ctx, plan.Controllers, diags); known {
		for _, c := range controllers {
			s.Spec.Backends = append(s.Spec.Backends, c.node())
		}
	}
	return s.Spec.CheckMachines(componentHosts(machines), !plan.Standbys.IsNull() && len(plan.Standbys.Elements()) > 0)
}
