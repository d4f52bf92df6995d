package networks

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
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
		MarkdownDescription: "The network of one cluster: a VPC, subnets in one or more availability zones, an internet gateway, route tables, optional NAT gateways, one security group per role, and one for SSH. " +
			"With `vpc_id` and `subnet_ids` the cluster uses an existing VPC, and only the security groups are created.",
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
				MarkdownDescription: "Subnets of the adopted VPC for machines, in one or more availability zones. Their route tables get a route to the pods of every machine. Changed in place; machines stay " +
					"where they are. Add subnets at the end, since `node_cidr` is the network of the first one. Default: the created subnets.",
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
				MarkdownDescription: "Network of the machines in the first availability zone, within `vpc_cidr`. Further zones get the following networks of the same size, such as `10.240.1.0/24`. A change " +
					"replaces the network and every machine. Default: `10.240.0.0/24`; in an adopted VPC the network of the first subnet.",
				Validators:    []validator.String{tf.CIDR(networkCIDR), stringvalidator.ConflictsWith(own)},
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplaceIfConfigured()},
			},
			"node_cidrs": schema.ListAttribute{
				Computed: true, ElementType: cidrtypes.IPv4PrefixType{},
				MarkdownDescription: "Networks of all subnets, in the order of `subnets`: the value for `node_cidrs` of `k8s_control_plane`. `node_cidrs[0]` is the network of the machines in the first zone, " +
					"`node_cidrs[1]` the network of the second zone.",
			},
			"subnets": reference.OfSubnet.Outputs("All subnets: one for the machines of each availability zone, then the public subnets that belong to private ones. With an adopted VPC, the subnets in `subnet_ids`."),
			"availability_zones": schema.ListAttribute{
				Optional: true, Computed: true, ElementType: types.StringType,
				MarkdownDescription: "Availability zones, such as `[\"eu-central-1a\", \"eu-central-1b\"]`. Each gets a subnet for machines. Zones are added and removed in place at the end of the list; any other " +
					"change replaces the network and every machine. Default: `zone_count` zones that offer `instance_types`.",
				Validators: []validator.List{listvalidator.ConflictsWith(own), listvalidator.SizeAtLeast(1), listvalidator.UniqueValues(), listvalidator.ValueStringsAre(zoneName())},
			},
			"zone_count": schema.Int64Attribute{
				Optional: true, Computed: true,
				MarkdownDescription: "Number of availability zones, if they are not named: the first ones of the region that offer `instance_types`. They stay as they were chosen. Default: 1.",
				Validators:          []validator.Int64{int64validator.Between(1, awsnetwork.MaxZones), int64validator.ConflictsWith(own, path.MatchRoot("availability_zones"))},
			},
			"nat_gateways": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Makes the subnets of machines private, with NAT gateways in a public subnet of each zone: `one` for all zones, or `per_zone`. A change between these two is made in " +
					"place; adding or removing the argument replaces the network and every machine. Default: none; the subnets are public.",
				Validators: []validator.String{stringvalidator.OneOf(string(awsnetwork.OneNATGateway), string(awsnetwork.NATGatewayPerZone)), stringvalidator.ConflictsWith(own)},
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplaceIf(privacyChanges,
					"Private subnets cannot become public ones, or the other way round.", "Private subnets cannot become public ones, or the other way round.")},
			},
			"public_cidr": schema.StringAttribute{
				Optional: true, Computed: true, CustomType: cidrtypes.IPv4PrefixType{},
				MarkdownDescription: "Network of the first zone's public subnet, within `vpc_cidr`, if `nat_gateways` is set. Further zones get the following networks of the same size. A change replaces the " +
					"network and every machine. Default: a network in the middle of `vpc_cidr`, of the size of `node_cidr`.",
				Validators: []validator.String{tf.CIDR(networkCIDR), stringvalidator.ConflictsWith(own), stringvalidator.AlsoRequires(path.MatchRoot("nat_gateways"))},
			},
			"nat_ips": schema.MapAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "Elastic IPs of the NAT gateways by availability zone: the addresses from which machines in private subnets reach the internet. A NAT gateway that is made again keeps its address.",
			},
			"instance_types": schema.SetAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Instance types that the machines will have. Subnets are made in zones that offer all of these types; a zone in `availability_zones` that lacks one is refused. " +
					"The types matter only when a subnet is created. Default: `" + infraaws.DefaultInstanceType + "`, unless `availability_zones` is set.",
				Validators: []validator.Set{setvalidator.SizeAtLeast(1), setvalidator.ValueStringsAre(instanceTypeName()), setvalidator.ConflictsWith(own)},
			},
			"admin_cidrs": schema.SetAttribute{
				Required: true, ElementType: cidrtypes.IPv4PrefixType{},
				MarkdownDescription: "Networks from which people and Terraform reach the machines by SSH and the API server through the load balancer: usually your own public address as a " +
					"/32. By default 55 fit, 45 with `controller_pods`. The whole internet (`0.0.0.0/0`) must be written explicitly. Changed in place.",
				Validators: []validator.Set{setvalidator.SizeAtLeast(1), setvalidator.ValueStringsAre(tf.CIDR(component.AnyCIDR))},
			},
			"nodeport_cidrs": schema.SetAttribute{
				Optional: true, ElementType: cidrtypes.IPv4PrefixType{},
				MarkdownDescription: "Networks from which the NodePorts (30000-32767) of workers are reachable. Changed in place. Default: none.",
				Validators:          []validator.Set{setvalidator.ValueStringsAre(tf.CIDR(component.AnyCIDR))},
			},
			"bastion_role": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Role of the machines through which the provider reaches all others: `lb`, `controller` or `worker`. The security groups let in SSH from these machines. Prefer `lb`: " +
					"where pods run, they reach SSH as well. Changed in place. Default: none.",
				Validators: []validator.String{stringvalidator.OneOf(string(infraaws.RoleLoadBalancer), string(infraaws.RoleController), string(infraaws.RoleWorker))},
			},
			"instance_connect_endpoint": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				MarkdownDescription: "Whether to make an EC2 Instance Connect Endpoint with a security group, for the provider's `ssh.instance_connect`. AWS allows one endpoint in a VPC, needs some minutes " +
					"to make or delete it, and charges nothing for it. Changed in place. Default: `false`.",
			},
			"instance_connect_endpoint_id": schema.StringAttribute{
				Computed: true, MarkdownDescription: "Id of the EC2 Instance Connect Endpoint; null without `instance_connect_endpoint`.",
			},
			"controller_pods": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				MarkdownDescription: "Whether controllers may be nodes. `k8s_machine` then takes a `pod_cidr` for them, and their security group lets in traffic to pods. Pods on controllers reach etcd's " +
					"ports, which require a client certificate. Changed in place. Default: `false`.",
			},
			"ignore_rules": ignoreRulesAttribute(),
			"delete_leftovers": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				MarkdownDescription: "Whether a destroy also deletes what controllers in the cluster have made: load balancers, security groups, volumes with their data. `false`: it names " +
					"them, and deletes nothing. Must be applied before the destroy. The cluster's name must be unique among all tools in the account. Default: `false`.",
			},
			"paused": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				MarkdownDescription: "Whether the whole cluster is paused: all its machines are drained and stopped, and `false` starts them again. Disks, private addresses, the Elastic IP and host keys " +
					"stay. While it is paused, no other argument of the cluster can be changed: see the guide on pausing. Default: `false`.",
			},
			"expires_at": schema.StringAttribute{
				Optional: true, CustomType: timetypes.RFC3339Type{},
				MarkdownDescription: "When all machines power themselves off, as RFC 3339, such as `2026-12-01T18:00:00Z`, also if nobody applies. From then on the cluster counts as paused: a later time, or none, " +
					"starts it again. Not with Spot machines. Changed in place. Default: never.",
			},
			"expired": schema.BoolAttribute{Computed: true, MarkdownDescription: "Whether `expires_at` had passed at the last refresh."},
			"security_group_ids": schema.MapAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "Ids of security groups: of each role (`lb`, `controller`, `etcd`, `worker`), and `ssh`, which every machine has as well.",
			},
			"ref": reference.OfNetwork.Output("Reference: the value for `network` of `k8s_machine`."),
		}),
	}
}

// zoneName accepts the name of an availability zone, in which machines can be.
func zoneName() validator.String { return tf.Check("an availability zone", infraaws.CheckZone) }

// instanceTypeName accepts the name of an instance type that machines can have.
func instanceTypeName() validator.String {
	return tf.Check("an EC2 instance type", func(s string) error { return awsmachine.CheckInstanceType(s).Err() })
}
