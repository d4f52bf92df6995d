package machines

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/listplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// bakedImage is k8s_image: an image that has what the roles of its machines install.
type bakedImage struct {
	owned.Resource[bakedImageModel, *bakedImageModel]
}

// NewImage returns the resource k8s_image.
func NewImage() resource.Resource { return newImage() }

func newImage() *bakedImage {
	r := &bakedImage{}
	r.Resource = owned.Resource[bakedImageModel, *bakedImageModel]{
		Kind: r, Name: "image", What: "image", By: "name",
		WhenGone:  "The next apply makes it again. Machines that were made of it go on to run.",
		Deadlines: tf.Deadlines{Create: imageTimeout, Read: argument.ReadTimeout, Update: imageChangeTimeout, Delete: imageChangeTimeout},
	}
	return r
}

const (
	// imageTimeout is for the boot, the downloads and the snapshot, which takes minutes.
	imageTimeout       = 60 * time.Minute
	imageChangeTimeout = 15 * time.Minute
)

type bakedImageModel struct {
	owned.Model
	Name              types.String `tfsdk:"name"`
	Cluster           types.String `tfsdk:"cluster"`
	Roles             types.Set    `tfsdk:"roles"`
	Kubernetes        types.String `tfsdk:"kubernetes_version"`
	Etcd              types.String `tfsdk:"etcd_version"`
	Containerd        types.String `tfsdk:"containerd_version"`
	Runc              types.String `tfsdk:"runc_version"`
	CNIPlugins        types.String `tfsdk:"cni_plugins_version"`
	KubeProxy         types.Bool   `tfsdk:"kube_proxy"`
	Packages          types.Set    `tfsdk:"packages"`
	ContainerImages   types.Set    `tfsdk:"container_images"`
	Registries        types.Map    `tfsdk:"registries"`
	AMI               types.String `tfsdk:"ami"`
	ImageFilter       types.Object `tfsdk:"image_filter"`
	InstanceType      types.String `tfsdk:"instance_type"`
	Network           types.Object `tfsdk:"network"`
	SubnetID          types.String `tfsdk:"subnet_id"`
	SecurityGroupIDs  types.Set    `tfsdk:"security_group_ids"`
	AssociatePublicIP types.Bool   `tfsdk:"associate_public_ip_address"`
	RootVolumeSize    types.Int64  `tfsdk:"root_volume_size"`
	KMSKeyID          types.String `tfsdk:"kms_key_id"`
	Digest            types.String `tfsdk:"digest"`
	Versions          types.Map    `tfsdk:"versions"`
	SnapshotIDs       types.List   `tfsdk:"snapshot_ids"`
	BaseImageID       types.String `tfsdk:"base_image_id"`
}

// minImageGiB is the default size of an image: that of Debian's.
const minImageGiB = 8

// packageName matches the name of a package of Debian.
// https://www.debian.org/doc/debian-policy/ch-controlfields.html#source
var packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)

// Schema implements resource.Resource.
func (r *bakedImage) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	keep := []planmodifier.String{stringplanmodifier.UseStateForUnknown()}
	release := func(of, fallback string, check validator.String) schema.StringAttribute {
		return schema.StringAttribute{
			Optional: true, MarkdownDescription: fmt.Sprintf("Release of %s. A change replaces the image. Default: `%s`.", of, fallback), Validators: []validator.String{check},
		}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "One AMI that has what the roles of its machines install: packages, programs and container images. A machine is made for it, which is gone when the image is there. " +
			"`ami` of `k8s_machine` takes the `id`. With `create_before_destroy` a change makes the new AMI first.",
		Attributes: owned.With(ctx, r.Deadlines, map[string]schema.Attribute{
			"id": schema.StringAttribute{Computed: true, MarkdownDescription: "Identifier: the id of the AMI. Import takes it, or `<cluster>/<name>`, or `<cluster>/<id>`, which is refused if the image belongs to another cluster.", PlanModifiers: keep},
			"name": schema.StringAttribute{
				Required: true, MarkdownDescription: "Name of the image. The AMI has it in its own name, after the cluster and before a digest of the content. A change replaces the image.",
				Validators:    []validator.String{tf.DNSLabel(40)},
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"cluster": schema.StringAttribute{
				Optional: true, Computed: true,
				MarkdownDescription: "Cluster in the tags of the image and of the machine that is made for it. Machines of other clusters may have the image too. A change replaces the image. Default: the cluster of `network`, otherwise the image's name.",
				Validators:          []validator.String{argument.ClusterName()},
			},
			"roles": schema.SetAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Roles of the machines that get the image, of `controller`, `etcd`, `worker` and `lb`. A change replaces the image. Default: all.",
				Validators:          []validator.Set{setvalidator.SizeAtLeast(1), setvalidator.ValueStringsAre(stringvalidator.OneOf(roleNames()...))},
			},
			"kubernetes_version": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "Release of Kubernetes: `version` of `k8s_control_plane` and `k8s_worker_pool`, whose own version wins and is downloaded if it is another one. Needed with the roles `controller` and `worker`. A change replaces the image.",
				Validators:          []validator.String{argument.KubernetesVersion()},
			},
			"etcd_version":        release("etcd, for the role `etcd`", artifact.DefaultEtcd, argument.EtcdVersion()),
			"containerd_version":  release("containerd, for workers", artifact.DefaultContainerd, argument.ContainerdVersion()),
			"runc_version":        release("runc, for workers", artifact.DefaultRunc, argument.ReleaseVersion()),
			"cni_plugins_version": release("the CNI plugins, for workers", artifact.DefaultCNIPlugins, argument.ReleaseVersion()),
			"kube_proxy":          schema.BoolAttribute{Optional: true, MarkdownDescription: "Whether workers have kube-proxy: `kube_proxy` of `k8s_worker_pool`. A change replaces the image. Default: `true`."},
			"packages": schema.SetAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Further packages of the distribution. What they start runs on every machine. A change replaces the image. Default: none.",
				Validators:          []validator.Set{setvalidator.ValueStringsAre(stringvalidator.RegexMatches(packageName, "must be the name of a package, such as chrony"))},
			},
			"container_images": schema.SetAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Further container images of pods, with registry and tag or digest, such as `quay.io/cilium/cilium:v1.19.0`. Workers have the images of sandboxes, CoreDNS and metrics-server anyway. A change replaces the image. Default: none.",
				Validators:          []validator.Set{setvalidator.ValueStringsAre(stringvalidator.RegexMatches(containerImage, "must name a registry, a repository, and a tag or digest, such as quay.io/cilium/cilium:v1.19.0"))},
			},
			"registries": argument.RegistriesAttribute("Used only while the image is made; none of it is in the image."),
			"ami": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "Image on which this one is based: an AMI id, or `resolve:ssm:` and the name of a public SSM parameter that holds one. The image needs cloud-init and systemd. A change replaces the image. Default: the newest Debian 13 when the image is made.",
				Validators:          []validator.String{amiReference()},
			},
			"image_filter": baseFilterAttribute(),
			"instance_type": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(infraaws.DefaultInstanceType),
				MarkdownDescription: "Type of the machine that is made for the image. Machines of the image need a type of the same architecture, x86-64 or arm64: a change between these two replaces the image. Default: `" + infraaws.DefaultInstanceType + "`.",
				Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"network": reference.OfNetwork.Optional("Network of a cluster, in which the machine is made: `k8s_network.<name>.ref`. Without it set `security_group_ids`. Another cluster replaces the image. Default: none."),
			"subnet_id": schema.StringAttribute{
				Optional: true, MarkdownDescription: "Subnet in which the machine is made, from which it must reach what it downloads. The security groups must be of its VPC. Used only while the image is made. Default: a subnet of the network that is public or private as `associate_public_ip_address` says; without a network, one of the default VPC.",
				Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"security_group_ids": schema.SetAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Ids of security groups of the machine, beside that of the network for SSH: of the VPC of the subnet, or of the default VPC without one. They must let the provider reach port 22, and the machine what it downloads. Used only while the image is made. Default: none.",
				Validators: []validator.Set{
					setvalidator.SizeBetween(1, mostPerInterface-ofNetwork),
					setvalidator.ValueStringsAre(stringvalidator.RegexMatches(groupID, "must be the id of a security group, such as sg-0123456789abcdef0")),
				},
			},
			"associate_public_ip_address": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(true),
				MarkdownDescription: "Whether the machine gets a public address, at which the provider reaches it. With `false` the provider needs `ssh.bastion`, `ssh.instance_connect` or a private connection. Used only while the image is made. Default: `true`.",
			},
			"root_volume_size": schema.Int64Attribute{
				Optional: true, Computed: true, Default: int64default.StaticInt64(minImageGiB),
				MarkdownDescription: "Size of the image in GiB, at least that of the image on which it is based. Machines of the image need a root volume of this size or more. A change replaces the image. Default: 8.",
				Validators:          []validator.Int64{int64validator.Between(minImageGiB, 16384)},
			},
			"kms_key_id": schema.StringAttribute{
				Optional: true, Computed: true,
				MarkdownDescription: "KMS key (id, ARN or alias) with which the image's snapshot is encrypted. Machines of the image need the right to use it. A change replaces the image; between an alias and an id it is an error. Default: the account's key for EBS.",
				Validators:          []validator.String{argument.KMSKey()},
				PlanModifiers: []planmodifier.String{
					stringplanmodifier.UseStateForUnknown(), tf.KeepSame(sameKMSKey),
					stringplanmodifier.RequiresReplaceIf(func(_ context.Context, req planmodifier.StringRequest, resp *stringplanmodifier.RequiresReplaceIfFuncResponse) {
						resp.RequiresReplace = !req.ConfigValue.IsNull() && !comparesAlias(req.StateValue, req.PlanValue)
					}, otherImageKey, otherImageKey),
				},
			},
			"digest":   schema.StringAttribute{Computed: true, MarkdownDescription: "Digest of the content, and of the scripts that make it. Another digest is another image: a new version of the provider may have other scripts or default releases."},
			"versions": schema.MapAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "Versions of the programs, by name."},
			"snapshot_ids": schema.ListAttribute{
				Computed: true, ElementType: types.StringType, MarkdownDescription: "Ids of the AMI's snapshots.", PlanModifiers: []planmodifier.List{listplanmodifier.UseStateForUnknown()},
			},
			"base_image_id": schema.StringAttribute{Computed: true, MarkdownDescription: "AMI on which this one is based.", PlanModifiers: keep},
		}),
	}
}

const otherImageKey = "Another KMS key replaces the image."

// containerImage matches a container image with its registry, as containerd pulls it.
var containerImage = regexp.MustCompile(`^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$`)

// roleNames are the roles of machines.
func roleNames() (names []string) {
	for _, role := range infraaws.MachineRoles() {
		names = append(names, string(role))
	}
	return names
}

// baseFilterAttribute is image_filter of k8s_machine for the image on which another one is based.
func baseFilterAttribute() schema.SingleNestedAttribute {
	a := imageFilterAttribute()
	a.MarkdownDescription = "Finds the image on which this one is based when it is made, in place of `ami`: the newest available image for the processors of `instance_type` with an EBS root volume. A change replaces the image. Default: none."
	return a
}

// roles returns the roles of the machines that get the image, sorted.
func (m bakedImageModel) roles() (out []infraaws.MachineRole) {
	if m.Roles.IsNull() {
		out = infraaws.MachineRoles()
	}
	for _, name := range tf.Strings(m.Roles.Elements()) {
		out = append(out, infraaws.MachineRole(name))
	}
	slices.Sort(out)
	return out
}
