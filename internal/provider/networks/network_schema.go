package networks

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	awsnetwork "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Schema implements resource.Resource.
func (r *networkResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	own := path.MatchRoot("vpc_id")
	resp.Schema = schema.Schema{
		MarkdownDescription: "The network of one cluster: a VPC with a subnet in each of one or more availability zones, an internet gateway, route tables and NAT gateways if wanted, and one security group " +
			"per role with only the rules that the role needs. With `vpc_id` and `subnet_ids` an existing VPC is adopted, and only the security groups are created.\n\n" +
			"Everything is tagged with the cluster's name and with whose it is. The next apply finds by these tags what an interrupted one has created. What another " +
			"state has created under the same name is refused before anything is written; see `adopt`.",
		Attributes: owned.With(ctx, r.Deadlines, map[string]schema.Attribute{
			"id": schema.StringAttribute{
				Computed: true, MarkdownDescription: "Identifier: the cluster's name. Import takes it.",
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"cluster": schema.StringAttribute{
				Required: true, MarkdownDescription: "Name of the cluster. A change replaces the network and every machine in it.",
				Validators:    []validator.String{argument.ClusterName()},
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"vpc_id": schema.StringAttribute{
				Optional: true, Computed: true,
				MarkdownDescription: "VPC to adopt instead of creating one. It is never changed or deleted. A change replaces the network. Default: a VPC is created, and this is its id.",
				Validators:          []validator.String{stringvalidator.AlsoRequires(path.MatchRoot("subnet_ids"))},
				PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplaceIfConfigured()},
			},
			"subnet_ids": schema.ListAttribute{
				Optional: true, Computed: true, ElementType: types.StringType,
				MarkdownDescription: "Subnets of the adopted VPC for machines, in one or more availability zones. `k8s_machine` says how a machine gets one of them. A route to " +
					"the pods of every machine is added to the route table of each subnet, whether it is associated with the subnet or is the VPC's main one; nothing else " +
					"in these tables is changed. Changed in place; machines stay where they are. Add subnets at the end, since `node_cidr` is the network of the first " +
					"one. Default: the subnets that are created.",
				Validators: []validator.List{listvalidator.AlsoRequires(own), listvalidator.SizeAtLeast(1), listvalidator.UniqueValues()},
			},
			"subnet_id": schema.StringAttribute{Computed: true, MarkdownDescription: "The first of `subnet_ids`."},
			"vpc_cidr": schema.StringAttribute{
				Optional: true, Computed: true, CustomType: cidrtypes.IPv4PrefixType{},
				MarkdownDescription: "Network of the VPC that is created. A change replaces the network and every machine. Default: `10.240.0.0/16`.",
				Validators:          []validator.String{tf.CIDR(networkCIDR), stringvalidator.ConflictsWith(own)},
				PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplaceIfConfigured()},
			},
			"node_cidr": schema.StringAttribute{
				Optional: true, Computed: true, CustomType: cidrtypes.IPv4PrefixType{},
				MarkdownDescription: "Network of the machines in the first availability zone, within `vpc_cidr`. Those in further zones are the networks of the same size that follow: `10.240.1.0/24` after " +
					"`10.240.0.0/24`. A change replaces the network and every machine. Default: `10.240.0.0/24`; with an adopted VPC, the network of the first subnet.",
				Validators:    []validator.String{tf.CIDR(networkCIDR), stringvalidator.ConflictsWith(own)},
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplaceIfConfigured()},
			},
			"node_cidrs": schema.ListAttribute{
				Computed: true, ElementType: cidrtypes.IPv4PrefixType{},
				MarkdownDescription: "Networks of all subnets, in the order of `subnets`: the value for `node_cidrs` of `k8s_control_plane`. `node_cidrs[0]` is the network of the machines in the first zone, " +
					"`node_cidrs[1]` that of the second.",
			},
			"subnets": reference.OfSubnet.Outputs("All subnets: one for the machines of each availability zone, then the public ones beside private ones. With an adopted VPC, those of `subnet_ids`."),
			"availability_zones": schema.ListAttribute{
				Optional: true, Computed: true, ElementType: types.StringType,
				MarkdownDescription: "Availability zones, such as `[\"eu-central-1a\", \"eu-central-1b\"]`. Each gets a subnet for machines. Zones that are added at the end get theirs in place, and those that are taken " +
					"away from the end lose them, which fails as long as machines are in them; any other change replaces the network and every machine. Default: `zone_count` of those that offer " +
					"`instance_types`.",
				Validators: []validator.List{listvalidator.ConflictsWith(own), listvalidator.SizeAtLeast(1), listvalidator.UniqueValues()},
			},
			"zone_count": schema.Int64Attribute{
				Optional: true, Computed: true,
				MarkdownDescription: "Number of availability zones, if they are not named: the first ones of the region that offer `instance_types`. They stay as they were chosen. Default: 1.",
				Validators:          []validator.Int64{int64validator.Between(1, awsnetwork.MaxZones), int64validator.ConflictsWith(own, path.MatchRoot("availability_zones"))},
			},
			"nat_gateways": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Makes the subnets of machines private: nothing in the internet reaches them, and they reach the internet through NAT gateways. Each zone gets a public subnet beside, in which the " +
					"NAT gateways are and the machines with `associate_public_ip_address = true`. With `one`, all zones use the NAT gateway of the first one; if that zone fails, no machine in a private subnet " +
					"reaches the internet. With `per_zone`, each zone has its own. `one` and `per_zone` replace one another in place; to add or remove the argument replaces the network and every machine. " +
					"Default: none, and the subnets of machines are public.",
				Validators: []validator.String{stringvalidator.OneOf(string(awsnetwork.OneNATGateway), string(awsnetwork.NATGatewayPerZone)), stringvalidator.ConflictsWith(own)},
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplaceIf(privacyChanges,
					"Private subnets cannot become public ones, or the other way round.", "Private subnets cannot become public ones, or the other way round.")},
			},
			"public_cidr": schema.StringAttribute{
				Optional: true, Computed: true, CustomType: cidrtypes.IPv4PrefixType{},
				MarkdownDescription: "Network of the public subnet in the first availability zone if `nat_gateways` is set, within `vpc_cidr`. Those in further zones follow, as with `node_cidr`. A change replaces the network " +
					"and every machine. Default: a network of the size of `node_cidr` in the middle of `vpc_cidr`, such as `10.240.128.0/24`; none without `nat_gateways`.",
				Validators: []validator.String{tf.CIDR(networkCIDR), stringvalidator.ConflictsWith(own), stringvalidator.AlsoRequires(path.MatchRoot("nat_gateways"))},
			},
			"nat_ips": schema.MapAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "Elastic IPs of the NAT gateways by availability zone: the addresses from which machines in private subnets reach the internet. A NAT gateway that is made again keeps its address.",
			},
			"instance_types": schema.SetAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Instance types that the machines are to have. Not every availability zone offers every type: subnets are made in zones that offer all of these, and a zone in " +
					"`availability_zones` that does not is refused. They matter only when a subnet is created. Default: `" + infraaws.DefaultInstanceType + "`, unless `availability_zones` is set.",
				Validators: []validator.Set{setvalidator.SizeAtLeast(1), setvalidator.ValueStringsAre(instanceTypeName()), setvalidator.ConflictsWith(own)},
			},
			"admin_cidrs": schema.SetAttribute{
				Required: true, ElementType: cidrtypes.IPv4PrefixType{},
				MarkdownDescription: "Networks from which people and Terraform reach the machines by SSH and the API server through the load balancer: usually your own public address as a " +
					"/32. The whole internet (`0.0.0.0/0`) must be written explicitly. Changed in place.",
				Validators: []validator.Set{setvalidator.SizeAtLeast(1), setvalidator.ValueStringsAre(tf.CIDR(component.AnyCIDR))},
			},
			"nodeport_cidrs": schema.SetAttribute{
				Optional: true, ElementType: cidrtypes.IPv4PrefixType{},
				MarkdownDescription: "Networks from which the NodePorts (30000-32767) of workers are reachable. Changed in place. Default: none.",
				Validators:          []validator.Set{setvalidator.ValueStringsAre(tf.CIDR(component.AnyCIDR))},
			},
			"bastion_role": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Role of the machines through which the others are reached: `lb`, `controller` or `worker`. The security groups let SSH in from them to every machine, as the " +
					"provider's `ssh.bastion` needs it when the bastion is a machine of the cluster, and let them reach the API servers. Prefer `lb`: pods run on workers, and with `controller_pods` on controllers, and from a role with pods these reach SSH, too. Changed in " +
					"place. Default: none.",
				Validators: []validator.String{stringvalidator.OneOf(string(infraaws.RoleLoadBalancer), string(infraaws.RoleController), string(infraaws.RoleWorker))},
			},
			"instance_connect_endpoint": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				MarkdownDescription: "Whether to make an EC2 Instance Connect Endpoint, and a security group for it that SSH on every machine is open to. The provider's `ssh.instance_connect` then " +
					"reaches machines without public addresses and without a bastion. It is in the first public subnet, in an adopted VPC in the first subnet, and has an address there that AWS chooses: without `nat_gateways` that may be the `private_ip` of a machine to come. AWS allows one endpoint in a VPC, takes some minutes to make or to delete it, and charges nothing for it. Changed in place. Default: `false`.",
			},
			"instance_connect_endpoint_id": schema.StringAttribute{
				Computed: true, MarkdownDescription: "Id of the EC2 Instance Connect Endpoint; null without `instance_connect_endpoint`.",
			},
			"controller_pods": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				MarkdownDescription: "Whether controllers may be nodes: `k8s_machine` takes a `pod_cidr` for them, and their security group lets in what reaches pods. Ports 22, 2379 " +
					"and 2380 stay closed to workers, and so to their pods. Pods on controllers reach etcd's ports, which want a client certificate. Changed in place. Default: `false`.",
			},
			"ignore_rules": ignoreRulesAttribute(),
			"paused": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				MarkdownDescription: "Whether the whole cluster is paused: every `k8s_machine` with this network is stopped, and starts again with `false`. Before the first instance stops, pods are " +
					"ended, then the API servers and the etcd members stop, the leader last. Disks, private addresses, the Elastic IP and host keys stay. While a cluster is paused, the provider " +
					"connects to none of its machines, and other arguments of its resources cannot be changed: see the guide on pausing. To stop one machine, set its `power_state`. Default: `false`.",
			},
			"security_group_ids": schema.MapAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "Id of the security group by role: `lb`, `controller`, `etcd`, `worker`.",
			},
			"ref": reference.OfNetwork.Output("Reference: the value for `network` of `k8s_machine`."),
		}),
	}
}

// instanceTypeName accepts the name of an instance type that machines can have.
func instanceTypeName() validator.String {
	return tf.Check("an EC2 instance type", func(s string) error { return awsmachine.CheckInstanceType(s).Err() })
}
