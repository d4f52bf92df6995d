package roles

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/iptypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/loadbalancer"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// The virtual address of a load balancer on several machines.

func standbysAttribute() schema.ListNestedAttribute {
	a := reference.HostsAttribute("Further machines with the same HAProxy, which take `virtual_ip` when the machine that has it fails. Default: none.", listvalidator.SizeAtMost(8))
	a.Required, a.Optional = false, true
	return a
}

func virtualIPSetting() setting[lbModel, loadbalancer.LoadBalancer] {
	return newSetting(schema.StringAttribute{
		Optional: true, CustomType: iptypes.IPv4AddressType{},
		MarkdownDescription: "Address of the API server that `host` and `standbys` share: keepalived gives it to one of them. They must be in one layer-2 network with it. Not for EC2 instances. " +
			"Changed in place; clients then need the new address: see `former_virtual_ips`. Default: none; the endpoints have the address of `host`.",
	}, address, func(m *lbModel, s *loadbalancer.LoadBalancer) (*iptypes.IPv4Address, *netip.Addr) {
		return &m.VirtualIP, &s.Spec.VirtualIP
	})
}

func formerIPsSetting() setting[lbModel, loadbalancer.LoadBalancer] {
	return newSetting(schema.ListAttribute{
		Optional: true, ElementType: iptypes.IPv4AddressType{},
		MarkdownDescription: "Earlier values of `virtual_ip`, which the machines keep beside it, and the API servers' certificates too. With the old address here, a change of `virtual_ip` cuts nobody off. " +
			"Take it out in a later apply, when the workers and kubeconfigs have the new one. Changed in place. Default: none.",
		Validators: []validator.List{listvalidator.SizeAtMost(8), listvalidator.ValueStringsAre(tf.IPv4())},
	}, addresses, func(m *lbModel, s *loadbalancer.LoadBalancer) (*types.List, *[]netip.Addr) {
		return &m.FormerIPs, &s.Spec.FormerIPs
	})
}

// warnOfLostAddress warns if the machines leave the address at which workers reach the API while their
// kubeconfigs still have it.
func warnOfLostAddress(plan, prior *lbModel, diags *diag.Diagnostics) {
	if prior == nil || prior.VirtualIP.IsNull() || plan.VirtualIP.IsUnknown() || plan.VirtualIP.Equal(prior.VirtualIP) || plan.FormerIPs.IsUnknown() {
		return
	}
	old := prior.VirtualIP.ValueString()
	kept := slices.ContainsFunc(plan.FormerIPs.Elements(), func(v attr.Value) bool {
		ip, _ := v.(iptypes.IPv4Address)
		return ip.IsUnknown() || ip.ValueString() == old
	})
	if kept {
		return
	}
	said := "The machines of the load balancer leave " + old + " at once. Workers use it until this apply has changed their kubeconfigs, one worker after the other, after the API servers' certificates. " +
		"If that takes longer than 40 seconds, the nodes become NotReady, and services send nothing to their pods. Kubeconfigs of people that name it do not work any more."
	if !plan.VirtualIP.IsNull() {
		said += fmt.Sprintf("\n\nTo change it without an outage, set former_virtual_ips = [%q] for this apply, and take it out in a later one.", old)
	}
	diags.AddAttributeWarning(path.Root("virtual_ip"), "Workers cannot reach the API until they are changed", said)
}

// names returns the names and addresses of the endpoints, and the former addresses.
func (m *lbModel) names(now ...types.String) types.List {
	if m.FormerIPs.IsUnknown() {
		return types.ListUnknown(types.StringType)
	}
	for _, v := range m.FormerIPs.Elements() {
		ip, _ := v.(iptypes.IPv4Address)
		now = append(now, ip.StringValue)
	}
	return reference.NamesValue(now...)
}

// machines returns the private addresses of the load balancer's own machines by name, unknown if a name is.
func (m *lbModel) machines(ctx context.Context, diags *diag.Diagnostics) types.Map {
	host, known := reference.OfHost.Read(ctx, m.Host, diags)
	standbys, all := reference.HostsFrom(ctx, m.Standbys, diags)
	if !known || !all && !m.Standbys.IsNull() {
		return types.MapUnknown(types.StringType)
	}
	return reference.PrivateIPs(append([]reference.Host{host}, standbys...))
}

func routerIDSetting() setting[lbModel, loadbalancer.LoadBalancer] {
	return newSetting(schema.Int64Attribute{
		Optional: true, Computed: true, Default: int64default.StaticInt64(component.DefaultRouterID),
		MarkdownDescription: fmt.Sprintf("Number of the virtual router of `virtual_ip`, 1 to 255. Each virtual address in a layer-2 network needs its own. Changed in place. Default: %d.", component.DefaultRouterID),
		Validators:          []validator.Int64{int64validator.Between(1, 255)},
	}, number, func(m *lbModel, s *loadbalancer.LoadBalancer) (*types.Int64, *int) {
		return &m.RouterID, &s.Spec.RouterID
	})
}

// ownAddress is the address of the endpoint on a machine that is not an EC2 instance.
func (m *lbModel) ownAddress(h reference.Host) types.String {
	if m.VirtualIP.IsNull() {
		return h.Address
	}
	return m.VirtualIP.StringValue
}

// checkVirtualIP checks that the machines of a load balancer can share its virtual address.
func checkVirtualIP(ctx context.Context, plan *lbModel, s loadbalancer.LoadBalancer, diags *diag.Diagnostics) invalid.Fields {
	host, _ := reference.OfHost.Read(ctx, plan.Host, diags)
	standbys, _ := reference.HostsFrom(ctx, plan.Standbys, diags)
	machines := append([]reference.Host{host}, standbys...)
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
	if controllers, known := reference.HostsFrom(ctx, plan.Controllers, diags); known {
		for _, c := range controllers {
			s.Spec.Backends = append(s.Spec.Backends, c.Node())
		}
	}
	return s.Spec.CheckMachines(reference.ComponentHosts(machines), !plan.Standbys.IsNull() && len(plan.Standbys.Elements()) > 0)
}
