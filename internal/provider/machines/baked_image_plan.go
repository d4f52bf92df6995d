package machines

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	awsnetwork "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/bake"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Plan implements owned.Kind.
func (r *bakedImage) Plan(ctx context.Context, p *owned.Plan[bakedImageModel]) {
	plan, state := &p.Plan, p.State
	network, _ := reference.OfNetwork.Read(ctx, plan.Network, p.Diags)
	session.AddFieldErrors(ctx, p.Request.Plan, append(plan.check(ctx), plan.checkPlace(ctx, network, p.Diags)...), p.Diags)
	if p.Diags.HasError() {
		return
	}
	if p.Config.Cluster.IsNull() {
		plan.Cluster = plan.defaultCluster(network)
	}
	r.planContent(ctx, plan, p.Diags)
	if p.New {
		r.Session.CheckAgentKey(p.Diags)
		plan.warnOfNoWay(p.Diags)
		return
	}
	if !p.Config.KMSKeyID.IsNull() && comparesAlias(state.KMSKeyID, plan.KMSKeyID) {
		p.Diags.AddAttributeError(path.Root("kms_key_id"), "An alias cannot be compared with a key", fmt.Sprintf("The state has %s, and a plan does not know whether %s is the same key: write the key as in the state.",
			state.KMSKeyID.ValueString(), plan.KMSKeyID.ValueString()))
	}
	other := false
	if !plan.Cluster.Equal(state.Cluster) {
		if p.Ownership.Imported && !plan.Cluster.IsUnknown() {
			p.Diags.AddAttributeError(path.Root("cluster"), "Imported image of another cluster", fmt.Sprintf("Image %s belongs to cluster %s: to replace it would delete the other cluster's image. "+
				"Set cluster, or remove it from this state with `terraform state rm`.", state.ID.ValueString(), state.Cluster.ValueString()))
		}
		p.Response.RequiresReplace.Append(path.Root("cluster"))
		other = true
	}
	for name, same := range map[string]bool{"digest": plan.Digest.Equal(state.Digest), "root_volume_size": plan.RootVolumeSize.Equal(state.RootVolumeSize)} {
		if !same {
			p.Response.RequiresReplace.Append(path.Root(name))
			other = true
		}
	}
	if other || len(tf.Replacing(ctx, p.Request, p.Diags)) > 0 {
		plan.ID, plan.BaseImageID, plan.SnapshotIDs = types.StringUnknown(), types.StringUnknown(), types.ListUnknown(types.StringType)
		if p.Config.KMSKeyID.IsNull() {
			plan.KMSKeyID = types.StringUnknown()
		}
		r.Session.CheckAgentKey(p.Diags)
		plan.warnOfNoWay(p.Diags)
		r.warnOfUsers(ctx, p)
	}
}

// warnOfNoWay warns of a machine in a default subnet that would reach nothing while it becomes an image.
func (m bakedImageModel) warnOfNoWay(diags *diag.Diagnostics) {
	if m.Network.IsNull() && m.SubnetID.IsNull() && m.AssociatePublicIP.Equal(types.BoolValue(false)) {
		diags.AddAttributeWarning(path.Root("associate_public_ip_address"), "The machine may reach nothing", "Without a public address the machine downloads nothing in a default subnet of AWS: its way out is an internet gateway, and it has no NAT gateway. "+
			"Set associate_public_ip_address to true, or subnet_id to a subnet with another way out.")
	}
}

// usersKey is the private-state entry with the instances that the last refresh has found to use the image.
const usersKey = "users"

// warnOfUsers says which instances use an image that is to be replaced.
func (r *bakedImage) warnOfUsers(ctx context.Context, p *owned.Plan[bakedImageModel]) {
	if p.Request.Private == nil {
		return
	}
	users := tf.ReadPrivate[[]string](ctx, p.Request.Private, usersKey, p.Diags)
	if len(users) == 0 {
		return
	}
	p.Diags.AddWarning("The AMI is in use", fmt.Sprintf("%s is used by %s. It stays in the account as long as an instance has it, and afterwards it is drift of the new image, which an apply deletes. "+
		"That needs create_before_destroy: otherwise the AMI has to be replaced before there is a new one, and the apply ends with an error while it is in use.",
		p.State.ID.ValueString(), strings.Join(users, ", ")))
}

// defaultCluster returns the cluster of an image that has no argument cluster.
func (m bakedImageModel) defaultCluster(network reference.Network) types.String {
	switch {
	case m.Network.IsUnknown():
		return types.StringUnknown()
	case m.Network.IsNull():
		return m.Name
	}
	return network.Cluster
}

// known reports whether everything is known that the content depends on.
func (m bakedImageModel) known() bool {
	return tf.AllKnown(m.Roles, m.Kubernetes, m.Etcd, m.Containerd, m.Runc, m.CNIPlugins, m.KubeProxy, m.Packages, m.ContainerImages, m.AMI, m.ImageFilter, m.InstanceType)
}

// planContent plans what follows from the content.
func (r *bakedImage) planContent(ctx context.Context, m *bakedImageModel, diags *diag.Diagnostics) {
	m.Digest, m.Versions = types.StringUnknown(), types.MapUnknown(types.StringType)
	if !m.known() {
		return
	}
	content := m.content(ctx, r.Session, diags)
	digest, err := content.Digest(r.Session.Catalog)
	var versions map[string]string
	if err == nil {
		versions, err = content.Versions(r.Session.Catalog)
	}
	if err != nil {
		session.AddError(diags, "Cannot tell what image "+m.Name.ValueString()+" has", err)
		return
	}
	m.Digest, m.Versions = types.StringValue(digest), tf.StringMapValue(versions)
}

// content returns what the image has.
func (m bakedImageModel) content(ctx context.Context, d *session.Session, diags *diag.Diagnostics) bake.Content {
	filter := machineModel{ImageFilter: m.ImageFilter}.imageFilter(ctx, diags)
	return bake.Content{
		Roles: m.roles(),
		Releases: component.Releases{
			Kubernetes: m.Kubernetes.ValueString(), Etcd: cmp.Or(m.Etcd.ValueString(), artifact.DefaultEtcd), Containerd: m.Containerd.ValueString(), Runc: m.Runc.ValueString(),
			CNIPlugins: m.CNIPlugins.ValueString(), NoKubeProxy: m.KubeProxy.Equal(types.BoolValue(false)),
		},
		Packages: tf.Strings(m.Packages.Elements()), Images: tf.Strings(m.ContainerImages.Elements()),
		Base: m.AMI.ValueString(), BaseFilter: filter, Arch: awsmachine.Architecture(m.InstanceType.ValueString()), Authorities: d.Authorities,
	}
}

// check returns errors for values that contradict one another.
func (m bakedImageModel) check(ctx context.Context) (errs invalid.Fields) {
	if !m.AMI.IsNull() && !m.ImageFilter.IsNull() {
		errs.Say("image_filter", "Two images", "Both ami and image_filter say on which image this one is based: remove one of them.")
	}
	errs = append(errs, awsmachine.CheckInstanceType(m.InstanceType.ValueString())...)
	if !tf.AllKnown(m.Roles) {
		return errs
	}
	has := func(of ...infraaws.MachineRole) bool {
		return slices.ContainsFunc(of, func(role infraaws.MachineRole) bool { return slices.Contains(m.roles(), role) })
	}
	if m.Kubernetes.IsNull() && has(infraaws.RoleController, infraaws.RoleWorker) {
		errs.Say("kubernetes_version", "Which Kubernetes?", "The image is for controllers or workers: set kubernetes_version, or choose other roles.")
	}
	for _, of := range []struct {
		field string
		set   bool
		roles []infraaws.MachineRole
	}{
		{"kubernetes_version", !m.Kubernetes.IsNull(), []infraaws.MachineRole{infraaws.RoleController, infraaws.RoleWorker}},
		{"etcd_version", !m.Etcd.IsNull(), []infraaws.MachineRole{infraaws.RoleEtcd}},
		{"containerd_version", !m.Containerd.IsNull(), []infraaws.MachineRole{infraaws.RoleWorker}},
		{"runc_version", !m.Runc.IsNull(), []infraaws.MachineRole{infraaws.RoleWorker}},
		{"cni_plugins_version", !m.CNIPlugins.IsNull(), []infraaws.MachineRole{infraaws.RoleWorker}},
		{"kube_proxy", !m.KubeProxy.IsNull(), []infraaws.MachineRole{infraaws.RoleWorker}},
		{"container_images", !m.ContainerImages.IsNull(), []infraaws.MachineRole{infraaws.RoleWorker}},
	} {
		if of.set && !has(of.roles...) {
			errs.Say(of.field, "Not for these roles", "%s has no effect without the role %s: add it to roles, or remove %s.", of.field, of.roles[0], of.field)
		}
	}
	return append(errs, argument.Registries(ctx, m.Registries).Check("registries")...)
}

// checkPlace returns errors for where the machine is made.
func (m bakedImageModel) checkPlace(ctx context.Context, network reference.Network, diags *diag.Diagnostics) (errs invalid.Fields) {
	if m.Network.IsNull() {
		if m.SecurityGroupIDs.IsNull() {
			errs.Say("security_group_ids", "No security group", "Without a network the machine needs a security group that lets the provider reach it: set network, or security_group_ids.")
		}
		return errs
	}
	ids, known := network.KnownSubnetIDs(ctx, diags)
	if known && chosen(m.SubnetID) && !slices.Contains(ids, m.SubnetID.ValueString()) {
		errs.Say("subnet_id", "Not a subnet of the network", "%s is none of the network's subnets: %s.", m.SubnetID.ValueString(), strings.Join(ids, ", "))
		return errs
	}
	if at := m.subnet(ctx, network, diags); known && m.AssociatePublicIP.ValueBool() && tf.AllKnown(at.Public) && !at.Public.IsNull() && !at.Public.ValueBool() {
		errs.Say("associate_public_ip_address", "Public address in a private subnet", "The machine would be in %s, whose default route does not lead to an internet gateway: nothing could reach it at a public address. "+
			"Set associate_public_ip_address to false, or choose a public subnet.", at.CIDR.ValueString())
	}
	return errs
}

// subnet returns the subnet of the network in which the machine is made.
func (m bakedImageModel) subnet(ctx context.Context, network reference.Network, diags *diag.Diagnostics) reference.Subnet {
	return machineModel{SubnetID: m.SubnetID, AssociatePublicIP: m.AssociatePublicIP}.subnetOf(network.KnownSubnets(ctx, diags))
}

// groups returns the security groups of the machine.
func (m bakedImageModel) groups(network reference.Network) []string {
	out := tf.Strings(m.SecurityGroupIDs.Elements())
	if ssh := reference.SecurityGroupsFrom(network.SecurityGroupIDs)[awsnetwork.GroupSSH]; ssh != "" {
		out = append(out, ssh)
	}
	return out
}
