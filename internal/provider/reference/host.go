package reference

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework-nettypes/iptypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Host is one machine as role resources see it: k8s_machine.x.host, or an object written by
// hand for a machine that k8s_machine does not manage.
type Host struct {
	Name       types.String         `tfsdk:"name"`
	Address    types.String         `tfsdk:"address"`
	PrivateIP  iptypes.IPv4Address  `tfsdk:"private_ip"`
	PublicIP   iptypes.IPv4Address  `tfsdk:"public_ip"`
	Port       types.Int64          `tfsdk:"port"`
	User       types.String         `tfsdk:"user"`
	HostKey    types.String         `tfsdk:"host_key"`
	PodCIDR    cidrtypes.IPv4Prefix `tfsdk:"pod_cidr"`
	InstanceID types.String         `tfsdk:"instance_id"`
	Role       types.String         `tfsdk:"role"`
	Zone       types.String         `tfsdk:"availability_zone"`
	Arch       types.String         `tfsdk:"architecture"`
	Type       types.String         `tfsdk:"instance_type"`
	PowerState types.String         `tfsdk:"power_state"`
	Rebalance  types.Bool           `tfsdk:"drain_on_rebalance"`
}

// OfHost is k8s_machine.x.host. As an input it has no Required attributes: the framework would
// report attributes of a list element as missing while the element is unknown, as
// k8s_machine.x.host is before the first apply. completeHost checks them instead.
var OfHost = tf.NewReference[Host](map[string]schema.Attribute{
	"name": schema.StringAttribute{
		Optional: true, MarkdownDescription: "Name of the machine: its hostname and, on workers, its node name. An object of your own needs it.",
		Validators: []validator.String{argument.MachineName()},
	},
	"address": schema.StringAttribute{
		Optional: true, MarkdownDescription: "IP address or DNS name at which the provider reaches the machine by SSH. For a `k8s_machine` it is the public address if there is one. An object of your own needs it.",
		Validators: []validator.String{tf.HostAddress()},
	},
	"private_ip": schema.StringAttribute{
		Optional: true, CustomType: iptypes.IPv4AddressType{}, MarkdownDescription: "Private IP address, at which the cluster's machines reach each other. An object of your own needs it.",
	},
	"public_ip": schema.StringAttribute{
		Optional: true, CustomType: iptypes.IPv4AddressType{}, MarkdownDescription: "Public IP address, if it has one.",
	},
	"port": schema.Int64Attribute{
		Optional: true, MarkdownDescription: "SSH port. Default: 22.",
		Validators: []validator.Int64{tf.Port()},
	},
	"user": schema.StringAttribute{
		Optional: true, MarkdownDescription: "Login user with passwordless sudo. Default: the provider's `ssh.user`.",
		Validators: []validator.String{tf.LoginUser()},
	},
	"host_key": schema.StringAttribute{
		Optional: true, MarkdownDescription: "SSH host key (public), as `ssh-ed25519 AAAA...`. An object of your own needs it.",
		Validators: []validator.String{argument.HostKey()},
	},
	"pod_cidr": schema.StringAttribute{
		Optional: true, CustomType: cidrtypes.IPv4PrefixType{}, MarkdownDescription: "Network of the pods on the machine, for nodes.",
		Validators: []validator.String{tf.CIDR(component.HostPodCIDR)},
	},
	"instance_id": schema.StringAttribute{
		Optional: true, MarkdownDescription: "Id of the EC2 instance, if it is one. A node then gets a service that drains it before EC2 ends or restarts the instance. With `availability_zone` it gets `spec.providerID` and the label `topology.kubernetes.io/region`. Default: neither.",
		Validators: []validator.String{argument.InstanceID()},
	},
	"instance_type": schema.StringAttribute{
		Optional: true, MarkdownDescription: "Type of the EC2 instance. A node with `instance_id` gets it as the label `node.kubernetes.io/instance-type`. Default: no label.",
		Validators: []validator.String{argument.LabelValue("an instance type")},
	},
	"role": schema.StringAttribute{
		Optional: true, MarkdownDescription: "Role of the `k8s_machine`, for which its security group was made. Other roles are refused. Default: any.",
		Validators: []validator.String{stringvalidator.OneOf(component.RoleController, component.RoleEtcd, component.RoleWorker, component.RoleLoadBalancer)},
	},
	"availability_zone": schema.StringAttribute{
		Optional: true, MarkdownDescription: "Availability zone of the machine. A node gets it as the label `topology.kubernetes.io/zone`. Default: no label.",
		Validators: []validator.String{argument.LabelValue("a zone")},
	},
	"architecture": schema.StringAttribute{
		Optional: true, MarkdownDescription: "Architecture of the machine's processors: `amd64` or `arm64`. Its programs are downloaded for it. A role may have machines of both. Default: `amd64`.",
		Validators: []validator.String{stringvalidator.OneOf(artifact.AMD64, artifact.ARM64)},
	},
	"drain_on_rebalance": schema.BoolAttribute{
		Optional: true, MarkdownDescription: "Whether the node of a Spot instance is also drained when EC2 recommends to replace it. Default: `false`.",
	},
	"power_state": schema.StringAttribute{
		Optional: true, MarkdownDescription: "`running`, `stopped`, or `paused` if it is stopped together with its whole cluster. The provider does not connect to a machine that is not to run. Default: `running`.",
		Validators: []validator.String{stringvalidator.OneOf(Running, Stopped, Paused)},
	},
})

// hostForms is the end of the description of every argument that takes hosts.
const hostForms = "`k8s_machine.<name>.host`, or an object with at least `name`, `address`, `private_ip` and `host_key`."

// completeHost validates that a host has the attributes that every role needs.
type completeHost struct{}

func (completeHost) Description(context.Context) string {
	return "A host has name, address, private_ip and host_key."
}
func (v completeHost) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (completeHost) ValidateObject(ctx context.Context, req validator.ObjectRequest, resp *validator.ObjectResponse) {
	h, ok := OfHost.Read(ctx, req.ConfigValue, &resp.Diagnostics)
	if !ok {
		return
	}
	for _, a := range []struct {
		name  string
		value attr.Value
	}{{"name", h.Name}, {"address", h.Address}, {"private_ip", h.PrivateIP}, {"host_key", h.HostKey}} {
		if a.value.IsNull() {
			resp.Diagnostics.AddAttributeError(req.Path.AtName(a.name), "Incomplete host", "A host needs "+a.name+".")
		}
	}
}

// HostAttribute is a required argument that takes one host.
func HostAttribute(description string) schema.SingleNestedAttribute {
	a := OfHost.Input(description + " It is " + hostForms)
	a.Validators = []validator.Object{completeHost{}}
	return a
}

// HostsAttribute is a required argument that takes at least one host.
func HostsAttribute(description string, validators ...validator.List) schema.ListNestedAttribute {
	a := OfHost.Inputs(description + " Each is " + hostForms)
	a.Validators, a.NestedObject.Validators = validators, []validator.Object{completeHost{}}
	return a
}

// Remote returns how to connect to the host. Through a bastion or a tunnel, that is its private address.
func (h Host) Remote(d *session.Session) remote.Host { return h.RemoteAt(h.Address.ValueString(), d) }

// RemoteAt is remote with another address than the host's, by which it is reached directly.
func (h Host) RemoteAt(address string, d *session.Session) remote.Host {
	out := remote.Host{
		Name:     h.Name.ValueString(),
		Address:  address,
		Port:     int(h.Port.ValueInt64()),
		User:     h.User.ValueString(),
		HostKeys: []string{h.HostKey.ValueString()},
		Off:      h.Off(),
	}
	if out.User == "" {
		out.User = d.SSH.User
	}
	return d.Way(out, h.PrivateIP.ValueString(), h.InstanceID.ValueString(), h.Address.ValueString(), h.PublicIP.ValueString())
}

// Node returns the host as the cluster sees it. Null or unknown attributes are zero.
func (h Host) Node() component.Node {
	return component.Node{
		Name:      h.Name.ValueString(),
		PrivateIP: tf.Addr(h.PrivateIP),
		PublicIP:  tf.Addr(h.PublicIP),
		PodCIDR:   tf.Prefix(h.PodCIDR),
		Zone:      h.Zone.ValueString(),
		Arch:      h.Arch.ValueString(),

		InstanceID: h.InstanceID.ValueString(), InstanceType: h.Type.ValueString(), DrainOnRebalance: h.Rebalance.ValueBool(),
	}
}

// HostsFrom reads a list of hosts. It returns false if a host is unknown as a whole. Single
// attributes may be unknown in either case.
func HostsFrom(ctx context.Context, l types.List, diags *diag.Diagnostics) ([]Host, bool) {
	return tf.Objects[Host](ctx, l, diags)
}

// ControllersValue returns the private addresses of hosts by name, unknown if a name is.
func ControllersValue(ctx context.Context, l types.List, diags *diag.Diagnostics) types.Map {
	hosts, known := HostsFrom(ctx, l, diags)
	if !known {
		return types.MapUnknown(types.StringType)
	}
	return PrivateIPs(hosts)
}

// PrivateIPs is ControllersValue of hosts that are known.
func PrivateIPs(hosts []Host) types.Map {
	out := map[string]attr.Value{}
	for _, h := range hosts {
		if h.Name.IsUnknown() {
			return types.MapUnknown(types.StringType)
		}
		out[h.Name.ValueString()] = h.PrivateIP.StringValue
	}
	return types.MapValueMust(types.StringType, out)
}

// ComponentHosts returns hosts as the library checks them. Null or unknown attributes are zero.
func ComponentHosts(hosts []Host) []component.Host {
	var out []component.Host
	for _, h := range hosts {
		out = append(out, component.Host{Node: h.Node(), Address: h.Address.ValueString(), Role: h.Role.ValueString()})
	}
	return out
}

// Off reports whether the machine is not to run.
func (h Host) Off() bool {
	p := h.PowerState.ValueString()
	return p == Stopped || p == Paused
}

// TargetsFrom returns the known hosts as the library's targets.
func TargetsFrom(ctx context.Context, d *session.Session, l types.List, diags *diag.Diagnostics) []fleet.Target {
	hosts, _ := HostsFrom(ctx, l, diags)
	var out []fleet.Target
	for _, h := range hosts {
		out = append(out, fleet.Target{Host: h.Remote(d), Node: h.Node()})
	}
	return out
}

// HostOf returns an EC2 machine as k8s_machine.x.host.
func HostOf(m awsmachine.Machine) Host {
	h := Host{
		Name: types.StringValue(m.Name), User: types.StringValue(m.User), Role: types.StringValue(string(m.Role)), Port: types.Int64Value(22),
		PrivateIP: tf.OptionalAddr(m.PrivateIP), PublicIP: tf.OptionalAddr(m.PublicIP), HostKey: tf.OptionalString(m.HostKey),
		InstanceID: types.StringValue(m.ID), Zone: types.StringValue(m.AvailabilityZone), Arch: types.StringValue(awsmachine.Architecture(m.InstanceType)),
		Type: types.StringValue(m.InstanceType), PowerState: types.StringValue(Running),
	}
	h.Address = h.PublicIP.StringValue
	if h.PublicIP.IsNull() {
		h.Address = h.PrivateIP.StringValue
	}
	return h
}

// RunningMachines returns the running machines of a cluster with one of the roles, which it finds by their
// tags.
func RunningMachines(ctx context.Context, d *session.Session, cluster string, roles ...infraaws.MachineRole) ([]fleet.Target, error) {
	client, err := d.AWS(ctx)
	if err != nil {
		return nil, err
	}
	machines, err := awsmachine.FindRunning(ctx, client, cluster, roles...)
	if err != nil {
		return nil, err
	}
	var out []fleet.Target
	for _, m := range machines {
		host := HostOf(m)
		out = append(out, fleet.Target{Host: host.Remote(d), Node: host.Node()})
	}
	return out, nil
}
