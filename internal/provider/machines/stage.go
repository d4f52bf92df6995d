package machines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// stageModel is stage of k8s_machine.
type stageModel struct {
	Kubernetes types.String `tfsdk:"kubernetes_version"`
	Etcd       types.String `tfsdk:"etcd_version"`
	Containerd types.String `tfsdk:"containerd_version"`
	Runc       types.String `tfsdk:"runc_version"`
	CNIPlugins types.String `tfsdk:"cni_plugins_version"`
	KubeProxy  types.Bool   `tfsdk:"kube_proxy"`
}

// stageAttribute returns stage. It is write-only, since it matters only while the machine is launched:
// neither the state nor a plan has it, so that another release touches no machine.
func stageAttribute() schema.SingleNestedAttribute {
	version := func(description string, check validator.String) schema.StringAttribute {
		return schema.StringAttribute{Optional: true, WriteOnly: true, MarkdownDescription: description, Validators: []validator.String{notStaged{check}}}
	}
	return schema.SingleNestedAttribute{
		Optional: true, WriteOnly: true,
		MarkdownDescription: "Releases that the machine downloads and verifies in the background from its first boot on, so that its roles find them there. Nothing is installed before a role does it. " +
			"Write-only: a change has an effect only at the next launch. Needs Terraform 1.11. Default: none; the roles download everything.",
		Attributes: map[string]schema.Attribute{
			"kubernetes_version":  version("`version` of `k8s_control_plane` and `k8s_worker_pool`. Default: none, which on a worker means no downloads at all.", argument.KubernetesVersion()),
			"etcd_version":        version("`version` of `k8s_etcd_cluster`. Default: none.", argument.EtcdVersion()),
			"containerd_version":  version("`containerd_version` of `k8s_worker_pool`. Default: the default of that argument.", argument.ContainerdVersion()),
			"runc_version":        version("`runc_version` of `k8s_worker_pool`. Default: the default of that argument.", argument.ReleaseVersion()),
			"cni_plugins_version": version("`cni_plugins_version` of `k8s_worker_pool`. Default: the default of that argument.", argument.ReleaseVersion()),
			"kube_proxy":          schema.BoolAttribute{Optional: true, WriteOnly: true, MarkdownDescription: "`kube_proxy` of `k8s_worker_pool`. Default: `true`."},
		},
	}
}

// notStaged warns of releases that the validator refuses: they are not staged. The role with such a
// release decides whether it is an error, on its own attribute.
type notStaged struct{ validator.String }

func (v notStaged) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	var refused validator.StringResponse
	v.String.ValidateString(ctx, req, &refused)
	for _, d := range refused.Diagnostics.Errors() {
		resp.Diagnostics.AddAttributeWarning(req.Path, "Not staged", d.Detail())
	}
}

// bootCommand returns the command with which a new machine stages what its roles will install; empty
// if there is nothing. What cannot be staged is no error.
func bootCommand(ctx context.Context, d *session.Session, m machineModel, config tfsdk.Config, diags *diag.Diagnostics) string {
	var object types.Object
	diags.Append(config.GetAttribute(ctx, path.Root("stage"), &object)...)
	stage, ok := tf.Object[stageModel](ctx, object, diags)
	if !ok {
		return ""
	}
	role := infraaws.MachineRole(m.Role.ValueString())
	state, err := staging(ctx, &d.Staged, d.Catalog.ForArch(awsmachine.Architecture(m.InstanceType.ValueString())), role, role == infraaws.RoleWorker || !m.PodCIDR.IsNull(), component.Releases{
		Kubernetes: stage.Kubernetes.ValueString(), Etcd: stage.Etcd.ValueString(), Containerd: stage.Containerd.ValueString(),
		Runc: stage.Runc.ValueString(), CNIPlugins: stage.CNIPlugins.ValueString(),
		NoKubeProxy: stage.KubeProxy.Equal(types.BoolValue(false)),
	})
	state.Authorities = d.Authorities
	command, invalid := host.StageCommand(state, d.Proxy.Environment()...)
	if err = errors.Join(err, invalid); err != nil {
		tflog.Warn(ctx, "machine: not everything is staged", map[string]any{"machine": m.Name.ValueString(), "error": foreign.Text(err.Error())})
	}
	return command
}

// fitting returns what a new machine does early in its first boot: it stages, and powers itself off at a time that is not
// zero. If user data with both are too long for EC2, it does not stage, and if they still are, it does neither. These are warnings.
func fitting(spec awsmachine.Spec, at time.Time, stage string, rand io.Reader, diags *diag.Diagnostics) string {
	size := func(command string) int {
		spec.BootCommand = command
		n, _ := spec.UserDataBytes(rand) // the launch reports the error
		return n
	}
	if stage != "" {
		with := size(bootCommands(at, stage))
		if with <= awsmachine.MaxUserData {
			return bootCommands(at, stage)
		}
		diags.AddAttributeWarning(path.Root("stage"), "Not staged", fmt.Sprintf("The machine's user data would have %d bytes, and EC2 takes %d. "+
			"user_data, the SSH keys that are authorised on the machine and machine_authorities leave too little room. Its roles download everything themselves.", with, awsmachine.MaxUserData))
	}
	if at.IsZero() {
		return ""
	}
	with := size(bootCommands(at, ""))
	if with <= awsmachine.MaxUserData {
		return bootCommands(at, "")
	}
	diags.AddAttributeWarning(path.Root("user_data"), "No timer at the first boot", fmt.Sprintf("The machine's user data would have %d bytes, and EC2 takes %d. "+
		"The machine gets the timer of its expires_at over SSH instead: if the apply is killed before, it runs on.", with, awsmachine.MaxUserData))
	return ""
}

// staging returns what a machine of a role fetches ahead, and what it needs as a node. It is valid also
// with an error.
func staging(ctx context.Context, s *session.StagedChecksums, c *artifact.Catalog, role infraaws.MachineRole, node bool, r component.Releases) (desired.State, error) {
	var downloads []artifact.Artifact
	var packages []string
	var err error
	switch role {
	case infraaws.RoleController:
		downloads, err = r.Controller(c)
	case infraaws.RoleEtcd:
		downloads, err = component.Releases{Etcd: r.Etcd}.Controller(c)
	case infraaws.RoleLoadBalancer:
		packages = component.LoadBalancerPackages()
	}
	if node {
		more, failed := r.Worker(c)
		downloads, err = append(downloads, more...), errors.Join(err, failed)
		packages = component.WorkerPackages()
	}
	if err == nil || errors.Is(err, artifact.ErrUnknownChecksum) {
		err = s.Add(ctx, c, downloads)
	}
	return component.Staged(downloads, packages), err
}
