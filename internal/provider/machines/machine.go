// Package machines has the resources of EC2 instances, k8s_machine, and of their volumes, k8s_volume. What runs
// on a machine is in package roles; in which order machines may go down, in infra/maintenance.
package machines

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework-nettypes/iptypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/boolplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/volume"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// groupsPerInterface is how many security groups AWS allows an interface, unless the account's quota L-2AFB9258 is higher. It
// can be 16. Two of them are those of the network.
// https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html
const (
	groupsPerInterface = 5
	mostPerInterface   = 16
	ofNetwork          = 2
)

var groupID = regexp.MustCompile(`^sg-[0-9a-f]+$`)

type machineResource struct {
	owned.Resource[machineModel, *machineModel]
}

func NewMachine() resource.Resource { return newMachine() }

func newMachine() *machineResource {
	r := &machineResource{}
	r.Resource = owned.Resource[machineModel, *machineModel]{
		Kind: r, Name: "machine", What: "machine", By: "name",
		WhenGone:   "The next apply creates it again.",
		Deadlines:  tf.Deadlines{Create: machineTimeout, Read: argument.ReadTimeout, Update: machineChangeTimeout, Delete: machineChangeTimeout},
		TakesTurns: true,
	}
	return r
}

type machineModel struct {
	owned.Model
	Name              types.String         `tfsdk:"name"`
	Role              types.String         `tfsdk:"role"`
	Network           types.Object         `tfsdk:"network"`
	PrivateIP         iptypes.IPv4Address  `tfsdk:"private_ip"`
	PodCIDR           cidrtypes.IPv4Prefix `tfsdk:"pod_cidr"`
	InstanceType      types.String         `tfsdk:"instance_type"`
	PlacementGroup    types.String         `tfsdk:"placement_group"`
	CPUCredits        types.String         `tfsdk:"cpu_credits"`
	Spot              types.Object         `tfsdk:"spot"`
	AMI               types.String         `tfsdk:"ami"`
	ImageFilter       types.Object         `tfsdk:"image_filter"`
	ImagePolicy       types.String         `tfsdk:"image_policy"`
	RootVolumeSize    types.Int64          `tfsdk:"root_volume_size"`
	RootVolumeType    types.String         `tfsdk:"root_volume_type"`
	RootVolumeIOPS    types.Int64          `tfsdk:"root_volume_iops"`
	RootThroughput    types.Int64          `tfsdk:"root_volume_throughput"`
	RootVolumeKey     types.String         `tfsdk:"root_volume_kms_key_id"`
	DataVolume        types.Object         `tfsdk:"data_volume"`
	AssociatePublicIP types.Bool           `tfsdk:"associate_public_ip_address"`
	AvailabilityZone  types.String         `tfsdk:"availability_zone"`
	SubnetID          types.String         `tfsdk:"subnet_id"`
	InstanceProfile   types.String         `tfsdk:"instance_profile"`
	SecurityGroupIDs  types.Set            `tfsdk:"security_group_ids"`
	PowerState        types.String         `tfsdk:"power_state"`
	User              types.String         `tfsdk:"user"`
	UserData          types.String         `tfsdk:"user_data"`
	Stage             types.Object         `tfsdk:"stage"` // write-only: null except in the configuration
	ImageID           types.String         `tfsdk:"image_id"`
	InstanceState     types.String         `tfsdk:"instance_state"`
	PublicIP          iptypes.IPv4Address  `tfsdk:"public_ip"`
	HostKey           types.String         `tfsdk:"host_key"`
	Host              types.Object         `tfsdk:"host"`
}

// Schema implements resource.Resource.
func (r *machineResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	keep := []planmodifier.String{stringplanmodifier.UseStateForUnknown()}
	resp.Schema = schema.Schema{
		MarkdownDescription: "One EC2 instance with a stable name and private address, a pinned SSH host key and the routes to its pods. Before it is stopped or terminated, the provider drains its " +
			"node, and stops its API server and etcd member only while the cluster can work without them.",
		Attributes: owned.With(ctx, r.Deadlines, map[string]schema.Attribute{
			"id": schema.StringAttribute{Computed: true, MarkdownDescription: "Identifier: the id of the EC2 instance. Import takes it, `<cluster>/<name>`, or `<cluster>/<id>`, refused if the instance belongs to another cluster; then `#` and the host key's fingerprint if the console does not show it.", PlanModifiers: keep},
			"name": schema.StringAttribute{
				Required: true, MarkdownDescription: "Name of the machine: its hostname and, on workers, its node name. A change replaces the machine.",
				Validators:    []validator.String{argument.MachineName()},
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"role": schema.StringAttribute{
				Required: true, MarkdownDescription: "Role of the machine: `controller`, `etcd`, `worker` or `lb`. It selects the security group. A change replaces the machine.",
				Validators: []validator.String{stringvalidator.OneOf(
					string(infraaws.RoleController), string(infraaws.RoleEtcd), string(infraaws.RoleWorker), string(infraaws.RoleLoadBalancer))},
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"network": reference.OfNetwork.Input("Network of the cluster: `k8s_network.<name>.ref`. Another VPC or subnet replaces the machine; another security group is set in place."),
			"private_ip": schema.StringAttribute{
				Optional: true, Computed: true, CustomType: iptypes.IPv4AddressType{},
				MarkdownDescription: "Private IP address, within one of the network's `subnets` and not one of the five addresses that AWS reserves in each subnet. A change replaces the " +
					"machine. Default: AWS chooses an address at launch; set one to keep it when the machine is replaced.",
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplaceIfConfigured()},
			},
			"availability_zone": schema.StringAttribute{
				Optional: true, Computed: true,
				MarkdownDescription: "Availability zone: one of the network's. The machine gets the zone's public subnet if `associate_public_ip_address` is true, otherwise its private one. A change replaces " +
					"the machine. Default: the zone of `subnet_id` or of the subnet that contains `private_ip`, otherwise the first zone.",
				Validators:    []validator.String{stringvalidator.LengthAtLeast(1)},
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplaceIfConfigured()},
			},
			"subnet_id": schema.StringAttribute{
				Optional: true, Computed: true,
				MarkdownDescription: "Subnet: one of the network's. A change replaces the machine. Default: the subnet that contains `private_ip`, otherwise a subnet in `availability_zone`.",
				Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
				PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplaceIfConfigured()},
			},
			"pod_cidr": schema.StringAttribute{
				Optional: true, CustomType: cidrtypes.IPv4PrefixType{},
				MarkdownDescription: "Network of the pods on the machine, outside of the VPC's network. Every route table of the network's subnets gets a route for it, and the source/destination check is " +
					"turned off. A controller may have one if its network has `controller_pods`. Changed in place. Default: none.",
				Validators: []validator.String{tf.CIDR(component.ClusterCIDR)},
			},
			"instance_type": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(infraaws.DefaultInstanceType),
				MarkdownDescription: "Instance type, with x86-64 or arm64 processors. A change between these two replaces the machine. Other changes are made in place: the machine is drained, stopped and " +
					"started, one machine of the cluster at a time, and gets another public address. Default: `" + infraaws.DefaultInstanceType + "`.",
				Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"placement_group": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Name of an existing placement group. Changed in place: the machine is drained, stopped and started, and gets another public address. If the group has no capacity, the " +
					"machine returns to its previous group. Default: none; a group that somebody else has chosen is drift.",
				Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"cpu_credits": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Credit option of a burstable instance type (t2, t3, t3a): `standard` throttles a machine without CPU credits, and `unlimited` charges for more. Changed in place, while " +
					"the machine runs. Default: the account's option for the type, which is not compared.",
				Validators: []validator.String{stringvalidator.OneOf(awsmachine.CreditsStandard, awsmachine.CreditsUnlimited)},
			},
			"spot": spotAttribute(),
			"ami": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Image for the next launch: an AMI id, or `resolve:ssm:` and the name of a public SSM parameter that holds one. The image needs cloud-init and systemd. A change takes " +
					"effect when the machine is replaced: see `image_policy`. Default: the newest Debian 13 at launch.",
				Validators: []validator.String{amiReference()},
			},
			"image_filter": imageFilterAttribute(),
			"image_policy": imagePolicyAttribute(),
			"root_volume_size": schema.Int64Attribute{
				Optional: true, Computed: true, Default: int64default.StaticInt64(awsmachine.DefaultRootVolumeGiB),
				MarkdownDescription: "Size of the root volume in GiB. It is increased in place while the machine runs, including partition and file system (ext4, xfs, btrfs); it cannot be " +
					"decreased. EC2 accepts four changes of a volume within 24 hours. Default: 20.",
				Validators: []validator.Int64{int64validator.Between(8, 16384)},
			},
			"root_volume_type": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(volume.DefaultType),
				MarkdownDescription: "Type of the root volume: `gp3`, `gp2`, `io1` or `io2`. Changed in place while the machine runs. Default: `" + volume.DefaultType + "`.",
				Validators:          []validator.String{stringvalidator.OneOf(volume.Types()...)},
			},
			"root_volume_iops": schema.Int64Attribute{
				Optional: true, Computed: true, MarkdownDescription: "I/O operations per second of the root volume, at most 500 for each GiB with `gp3`. `io1` and `io2` need it, and `gp2` has none of its own. " +
					"Changed in place. Default: 3000 with `gp3`.",
				Validators: []validator.Int64{int64validator.Between(1, volume.MaxIOPS)},
			},
			"root_volume_throughput": schema.Int64Attribute{
				Optional: true, Computed: true, MarkdownDescription: "Throughput of a `gp3` root volume in MiB/s, at most a quarter of `root_volume_iops`. Changed in place. Default: 125 with `gp3`, none with other types.",
				Validators: []validator.Int64{int64validator.Between(1, volume.MaxThroughputMiB)},
			},
			"root_volume_kms_key_id": rootKeyAttribute(),
			"data_volume":            dataVolumeAttribute(),
			"associate_public_ip_address": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(true),
				MarkdownDescription: "Whether the machine gets a public address at launch, at which the provider reaches it. With `false` the provider needs `ssh.bastion`, `ssh.instance_connect` or a private " +
					"connection, and the machine needs another way to the internet. A change replaces the machine. Default: `true`.",
				PlanModifiers: []planmodifier.Bool{boolplanmodifier.RequiresReplace()},
			},
			"instance_profile": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Name of an existing IAM instance profile. The metadata service gives the credentials of its role to programs on the machine, but not to pods with a network of their own. " +
					"Changed in place, while the machine runs. Default: none; a profile that somebody else has attached is drift.",
				Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"security_group_ids": schema.SetAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Ids of further security groups of the machine, in the same VPC. EC2 takes five groups for a machine unless the account's quota is higher, and `k8s_network` gives it two. " +
					"Changed in place, while the machine runs. Default: none; a group that somebody else has added is drift.",
				Validators: []validator.Set{
					setvalidator.SizeAtMost(mostPerInterface - ofNetwork),
					setvalidator.ValueStringsAre(stringvalidator.RegexMatches(groupID, "must be the id of a security group, such as sg-0123456789abcdef0")),
				},
			},
			"power_state": schema.StringAttribute{
				Optional: true, Computed: true,
				MarkdownDescription: "`running` or `stopped`. A machine is drained before it stops, and keeps its disk, private address, Elastic IP and host key. A stop is refused if the cluster cannot work " +
					"without the machine. `paused` of `k8s_network` stops a whole cluster. Default: `running`, or `stopped` in a paused network.",
				Validators: []validator.String{stringvalidator.OneOf(reference.Running, reference.Stopped)},
			},
			"user": schema.StringAttribute{
				Optional: true, Computed: true,
				MarkdownDescription: "Login user, created at launch with passwordless sudo and the provider's SSH key. A change replaces the machine. Default: the provider's `ssh.user`.",
				Validators:          []validator.String{tf.LoginUser()},
				PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplaceIfConfigured()},
			},
			"user_data": userDataAttribute(),
			"stage":     stageAttribute(),
			"image_id":  schema.StringAttribute{Computed: true, MarkdownDescription: "AMI in use.", PlanModifiers: keep},
			"instance_state": schema.StringAttribute{
				Computed:            true,
				MarkdownDescription: "State of the instance in EC2. A plan always sets it to `power_state`.",
			},
			"public_ip": schema.StringAttribute{
				Computed: true, CustomType: iptypes.IPv4AddressType{},
				MarkdownDescription: "Public IP address: the Elastic IP once one is associated, else an address that changes with every stop and start.",
			},
			"host_key": schema.StringAttribute{Computed: true, MarkdownDescription: "SSH host key (public), as `ssh-ed25519 AAAA...`.", PlanModifiers: keep},
			"host":     reference.OfHost.Output("Reference: the value for `host`, `hosts` and `controllers` of other resources."),
		}),
	}
}

// Find implements owned.Kind.
func (r *machineResource) Find(ctx context.Context, op *owned.Operation, id string, m *machineModel) error {
	id, hostKey, given := strings.Cut(id, "#")
	if given && !fingerprint.MatchString(hostKey) {
		return fmt.Errorf("%q is not the fingerprint of a host key, such as SHA256:nThbg6kXUpJWGl7E1IGOCspRomTxdCARLviKw6E5SY8; ssh-keygen -l -f /etc/ssh/ssh_host_ed25519_key.pub prints it", hostKey)
	}
	cluster, id, named, err := namedID(ctx, op.Client, id, instanceID, awsmachine.Named)
	if err != nil {
		return err
	}
	found, podCIDR, err := awsmachine.Find(ctx, op.Client, id, hostKey)
	if err != nil {
		return err
	}
	if named && found.Cluster != cluster {
		return fmt.Errorf("instance %s is machine %s of cluster %s, not of cluster %s: nothing was imported", id, found.Name, found.Cluster, cluster)
	}
	ref, network, err := reference.FindNetwork(ctx, op.Client, found.Cluster)
	if err != nil {
		return err
	}
	op.Exists(found.Claim, found.Unsettled)
	m.Name, m.Role, m.User = types.StringValue(found.Name), types.StringValue(string(found.Role)), types.StringValue(found.User)
	m.Network, m.PodCIDR, m.Tags = ref, tf.OptionalPrefix(podCIDR), op.Tags(found.Tags)
	m.PowerState = types.StringValue(reference.Running)
	if found.State == reference.Stopped {
		m.PowerState = types.StringValue(reference.Stopped)
	}
	m.InstanceType, m.RootVolumeSize = types.StringValue(found.InstanceType), types.Int64Value(int64(found.RootVolumeGiB))
	m.ImagePolicy = types.StringValue(imageAtLaunch)
	if found.Tags[infraaws.TagRoll] != "" {
		m.ImagePolicy = types.StringValue(imageRolls)
	}
	m.RootVolumeType, m.RootVolumeKey = types.StringValue(found.RootVolume.Type), tf.OptionalString(found.RootVolumeKey)
	m.AssociatePublicIP = types.BoolValue(found.PublicIP.IsValid())
	m.PlacementGroup, m.Spot = tf.OptionalString(found.PlacementGroup), spotValue(found.Spot)
	m.InstanceProfile, m.UserData = tf.OptionalString(found.InstanceProfile), tf.OptionalString(found.UserData)
	m.SecurityGroupIDs = furtherGroups(found, network.MachineGroups(found.Role))
	m.DataVolume = dataVolumeValue(ctx, found.Data, op.Diags)
	m.fill(ctx, found)
	return nil
}

// furtherGroups returns the security groups of an imported machine but those of its network.
func furtherGroups(found awsmachine.Machine, ofNetwork []string) types.Set {
	var ids []attr.Value
	for _, id := range found.SecurityGroupIDs {
		if !slices.Contains(ofNetwork, id) {
			ids = append(ids, types.StringValue(id))
		}
	}
	if len(ids) == 0 {
		return types.SetNull(types.StringType)
	}
	return types.SetValueMust(types.StringType, ids)
}

// A machine boots within a minute or two. Old instance types and the search for capacity take
// longer.
const machineTimeout = 10 * time.Minute

// Draining, a stop, a start, and waiting until the machine is healthy again. Waiting for its
// turn does not count.
const machineChangeTimeout = 20 * time.Minute
