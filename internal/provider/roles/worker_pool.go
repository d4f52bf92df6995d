package roles

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/registry"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/workerpool"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/freeform"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

type workerPoolModel struct {
	roleModel
	Name              types.String         `tfsdk:"name"`
	Version           types.String         `tfsdk:"version"`
	Hosts             types.List           `tfsdk:"hosts"`
	ControlPlane      types.Object         `tfsdk:"control_plane"`
	ContainerdVersion types.String         `tfsdk:"containerd_version"`
	RuncVersion       types.String         `tfsdk:"runc_version"`
	CNIVersion        types.String         `tfsdk:"cni_plugins_version"`
	CNI               types.String         `tfsdk:"cni"`
	SandboxImage      types.String         `tfsdk:"sandbox_image"`
	Labels            types.Map            `tfsdk:"labels"`
	Taints            types.List           `tfsdk:"taints"`
	Registries        types.Map            `tfsdk:"registries"`
	KubeProxy         types.Bool           `tfsdk:"kube_proxy"`
	KubeletConfig     types.Dynamic        `tfsdk:"kubelet_config"`
	KubeProxyConfig   types.Dynamic        `tfsdk:"kube_proxy_config"`
	ContainerdConfig  types.Dynamic        `tfsdk:"containerd_config"`
	ExtraArgs         types.Object         `tfsdk:"extra_args"`
	AllowedCIDRs      types.Set            `tfsdk:"allowed_cidrs"`
	MaxUnavailable    types.Int64          `tfsdk:"max_unavailable"`
	DrainTimeout      timetypes.GoDuration `tfsdk:"drain_timeout"`
	EarlyRenewal      timetypes.GoDuration `tfsdk:"early_renewal"`
}

type taintModel struct {
	Key    types.String `tfsdk:"key"`
	Value  types.String `tfsdk:"value"`
	Effect types.String `tfsdk:"effect"`
}

var taint = tf.NewReference[taintModel](map[string]schema.Attribute{
	"key":   schema.StringAttribute{Required: true, MarkdownDescription: "Key of the taint."},
	"value": schema.StringAttribute{Optional: true, MarkdownDescription: "Value of the taint. Default: none."},
	"effect": schema.StringAttribute{
		Required: true, MarkdownDescription: "Effect of the taint: `NoSchedule`, `PreferNoSchedule` or `NoExecute`.",
		Validators: []validator.String{stringvalidator.OneOf("NoSchedule", "PreferNoSchedule", "NoExecute")},
	},
})

func taintsAttribute() schema.ListNestedAttribute {
	a := taint.Inputs("Taints of the nodes. A change is made through the API and restarts nothing. Default: none.")
	a.Required, a.Optional = false, true
	return a
}

// workerPrograms are the programs on a worker that take flags.
var workerPrograms = programList{artifact.Kubelet, artifact.KubeProxy}

func NewWorkerPool() resource.Resource {
	return &roleResource[workerPoolModel, workerpool.Pool]{kind: kind[workerPoolModel, workerpool.Pool]{
		name:        "worker_pool",
		title:       "worker pool",
		keys:        true,
		description: "containerd, runc, CNI plugins, kubelet and kube-proxy on a set of hosts, which become nodes. A change that disturbs running pods goes through the nodes, `max_unavailable` at a time: cordon, drain, change, uncordon.",
		settings:    workerPoolSettings(),
		attributes: map[string]schema.Attribute{
			"name": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString("workers"),
				MarkdownDescription: "Name of the pool, for `id`. A change does nothing to the nodes. Default: `workers`.",
				Validators:          []validator.String{argument.PartName()},
			},
			"hosts":         reference.HostsAttribute("Machines of the pool: workers, or controllers that are nodes. With `cni = \"bridge\"` each needs a `pod_cidr`. A host may move to another pool in one apply. `[]` is a pool without nodes."),
			"control_plane": reference.OfControlPlane.Input(reference.ControlPlaneDescription + " " + carriesKeys),
		},
		common:     func(m *workerPoolModel) *roleModel { return &m.roleModel },
		check:      checkWorkerPool,
		kubernetes: func(m *workerPoolModel) types.String { return m.Version },
		outputs:    workerPoolOutputs,
		complete:   completeWorkerPool,
		given: func(ctx context.Context, config *workerPoolModel, s *workerpool.Pool) {
			s.Spec.Containerd.Registries = registries.toSpec(ctx, config.Registries)
		},
		downloads: workerPoolDownloads,
		importer:  workerPoolImporter(),
	}}
}

// workerPoolSettings are the arguments that are fields of the specification.
func workerPoolSettings() settings[workerPoolModel, workerpool.Pool] {
	const withoutDrain = "A change goes through the nodes, `max_unavailable` at a time, without draining them: only pods that start afterwards use the new release."
	release := func(program, fallback, change string, check validator.String) schema.StringAttribute {
		return schema.StringAttribute{
			Optional: true, Computed: true, Default: stringdefault.StaticString(fallback),
			MarkdownDescription: fmt.Sprintf("%s release. %s Default: `%s`.", program, change, fallback),
			Validators:          []validator.String{check},
		}
	}
	return settings[workerPoolModel, workerpool.Pool]{
		extraFilesName: extraFilesSetting(func(m *workerPoolModel) *roleModel { return &m.roleModel }, func(s *workerpool.Pool) *[]desired.ExtraFile { return &s.Spec.Extra }),
		"version": newSetting(schema.StringAttribute{
			Optional: true, Computed: true,
			MarkdownDescription: "Kubernetes release of kubelet and kube-proxy, such as `1.36.4`: not newer than the API server, and at most three minor releases older. A change " +
				"drains and rolls the nodes. Default: the release of `control_plane`.",
			Validators:    []validator.String{argument.KubernetesVersion()},
			PlanModifiers: []planmodifier.String{releaseOfControlPlane{}},
		}, text, func(m *workerPoolModel, s *workerpool.Pool) (*types.String, *string) {
			return &m.Version, &s.Spec.Version
		}),
		"containerd_version": newSetting(release("containerd", artifact.DefaultContainerd, "A change drains and rolls the nodes.", argument.ContainerdVersion()),
			text, func(m *workerPoolModel, s *workerpool.Pool) (*types.String, *string) {
				return &m.ContainerdVersion, &s.Spec.Containerd.Version
			}),
		"cni_plugins_version": newSetting(release("CNI plugins", artifact.DefaultCNIPlugins, withoutDrain, argument.ReleaseVersion()),
			text, func(m *workerPoolModel, s *workerpool.Pool) (*types.String, *string) {
				return &m.CNIVersion, &s.Spec.CNI.Version
			}),
		"runc_version": newSetting(schema.StringAttribute{
			Optional: true, Computed: true,
			MarkdownDescription: "runc release. An existing pool keeps its release until another one is given. " + withoutDrain +
				" Default: the newest one in `artifact_checksums`, else `" + artifact.DefaultRunc + "`.",
			Validators:    []validator.String{argument.ReleaseVersion()},
			PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
		}, text, func(m *workerPoolModel, s *workerpool.Pool) (*types.String, *string) {
			return &m.RuncVersion, &s.Spec.Containerd.RuncVersion
		}),
		"cni": newSetting(schema.StringAttribute{
			Optional: true, Computed: true, Default: stringdefault.StaticString(component.CNIBridge),
			MarkdownDescription: "Network of pods. `bridge`: the bridge plugin, with addresses from each host's `pod_cidr`. `none`: no network, for Cilium and others that are installed afterwards. A " +
				"change to `none` drains the nodes and removes the bridge network; a change to `bridge` does not drain them. Default: `bridge`.",
			Validators: []validator.String{stringvalidator.OneOf(component.CNIBridge, component.CNINone)},
		}, text, func(m *workerPoolModel, s *workerpool.Pool) (*types.String, *string) {
			return &m.CNI, &s.Spec.CNI.Network
		}),
		"kube_proxy": newSetting(schema.BoolAttribute{
			Optional: true, Computed: true, Default: booldefault.StaticBool(true),
			MarkdownDescription: "Whether kube-proxy runs on the nodes. `false` is for a network that replaces it, such as Cilium with `kubeProxyReplacement`, which must run already if the pool is in " +
				"use. A change goes through the nodes, `max_unavailable` at a time, without draining them. Default: `true`.",
		}, absence, func(m *workerPoolModel, s *workerpool.Pool) (*types.Bool, *bool) {
			return &m.KubeProxy, &s.Spec.KubeProxy.Off
		}),
		"sandbox_image": newSetting(schema.StringAttribute{
			Optional: true, Computed: true, Default: stringdefault.StaticString(component.DefaultSandboxImage),
			MarkdownDescription: "Image of the pod sandbox. A change drains and rolls the nodes. Default: `" + component.DefaultSandboxImage + "`.",
		}, text, func(m *workerPoolModel, s *workerpool.Pool) (*types.String, *string) {
			return &m.SandboxImage, &s.Spec.Containerd.SandboxImage
		}),
		"labels": newSetting(schema.MapAttribute{
			Optional: true, ElementType: types.StringType,
			MarkdownDescription: "Labels of the nodes, without those that every kubelet sets itself, such as `kubernetes.io/hostname`. A node also gets labels of its region, zone and instance type, unless this argument sets them. A change is made through the API and restarts nothing. Default: none.",
			Validators:          []validator.Map{mapvalidator.KeysAre(stringvalidator.LengthBetween(1, 317))},
		}, textByName, func(m *workerPoolModel, s *workerpool.Pool) (*types.Map, *map[string]string) {
			return &m.Labels, &s.Spec.Kubelet.Labels
		}),
		"taints": newSetting(taintsAttribute(), conversion[types.List, []component.Taint]{taintsFrom, taintsValue},
			func(m *workerPoolModel, s *workerpool.Pool) (*types.List, *[]component.Taint) {
				return &m.Taints, &s.Spec.Kubelet.Taints
			}),
		"registries": newSetting(argument.RegistriesAttribute("A change restarts nothing."), registries, func(m *workerPoolModel, s *workerpool.Pool) (*types.Map, *registry.Registries) {
			return &m.Registries, &s.Spec.Containerd.Registries
		}),
		"kubelet_config": newSetting(
			freeform.Object("Fields of KubeletConfiguration, as an object, merged over the provider's. Unknown fields are errors. A change restarts the kubelets one at a time while pods keep "+
				"running. A change of how pods are placed, such as `cpuManagerPolicy`, or of `providerID` drains the nodes. Default: none."),
			object, func(m *workerPoolModel, s *workerpool.Pool) (*types.Dynamic, *map[string]any) {
				return &m.KubeletConfig, &s.Spec.Kubelet.Config
			}),
		"kube_proxy_config": newSetting(
			freeform.Object("Fields of KubeProxyConfiguration, as an object, merged over the provider's. Unknown fields are errors. A change restarts kube-proxy one node at a "+
				"time. Default: none."),
			object, func(m *workerPoolModel, s *workerpool.Pool) (*types.Dynamic, *map[string]any) {
				return &m.KubeProxyConfig, &s.Spec.KubeProxy.Config
			}),
		"containerd_config": newSetting(
			freeform.Object("Settings of containerd's configuration file (version 3), as an object, merged over the provider's. A change drains and rolls the nodes. Default: none."),
			object, func(m *workerPoolModel, s *workerpool.Pool) (*types.Dynamic, *map[string]any) {
				return &m.ContainerdConfig, &s.Spec.Containerd.Config
			}),
		"allowed_cidrs": allowedCIDRs("the kubelets (port 10250) and the health check of kube-proxy (10256), beside pods", "the controllers",
			func(m *workerPoolModel, s *workerpool.Pool) (*types.Set, *[]netip.Prefix) {
				return &m.AllowedCIDRs, &s.Spec.AllowedCIDRs
			}),
		"extra_args": extraArgsSetting(workerPrograms, func(m *workerPoolModel, s *workerpool.Pool) (*types.Object, map[string]*component.Args) {
			return &m.ExtraArgs, map[string]*component.Args{artifact.Kubelet: &s.Spec.Kubelet.Args, artifact.KubeProxy: &s.Spec.KubeProxy.Args}
		}),
		"max_unavailable": newSetting(schema.Int64Attribute{
			Optional:            true,
			MarkdownDescription: "How many nodes a roll may take down at the same time. The next node follows as soon as one is Ready again. Default: 1.",
			Validators:          []validator.Int64{int64validator.AtLeast(1)},
		}, number, func(m *workerPoolModel, s *workerpool.Pool) (*types.Int64, *int) {
			return &m.MaxUnavailable, &s.MaxUnavailable
		}),
		"drain_timeout": newSetting(tf.DurationAttribute(fmt.Sprintf("How long draining a node may take, PodDisruptionBudgets included, as a duration such as `10m`. After that the roll stops. Nothing was changed on the "+
			"node by then, and it accepts pods again. Default: `%s`, times the provider's `patience`.",
			tf.ShortDuration(fleet.DefaultDrainTimeout))),
			duration, func(m *workerPoolModel, s *workerpool.Pool) (*timetypes.GoDuration, *time.Duration) {
				return &m.DrainTimeout, &s.DrainTimeout
			}),
		"early_renewal": newSetting(earlyRenewalAttribute(), duration, func(m *workerPoolModel, s *workerpool.Pool) (*timetypes.GoDuration, *time.Duration) {
			return &m.EarlyRenewal, &s.Spec.EarlyRenewal
		}),
	}
}

// releaseOfControlPlane is the default of version: the release of the API servers, which are upgraded first.
type releaseOfControlPlane struct{}

func (releaseOfControlPlane) Description(context.Context) string {
	return "The release of control_plane."
}
func (r releaseOfControlPlane) MarkdownDescription(ctx context.Context) string {
	return r.Description(ctx)
}

func (releaseOfControlPlane) PlanModifyString(ctx context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	if !req.ConfigValue.IsNull() {
		return
	}
	var ref types.Object
	resp.Diagnostics.Append(req.Plan.GetAttribute(ctx, path.Root("control_plane"), &ref)...)
	resp.PlanValue = types.StringUnknown()
	if cp, known := reference.OfControlPlane.Read(ctx, ref, &resp.Diagnostics); known {
		resp.PlanValue = cp.Version
	}
}

func checkWorkerPool(ctx context.Context, plan, prior *workerPoolModel, s workerpool.Pool, diags *diag.Diagnostics) invalid.Fields {
	cp, _ := reference.OfControlPlane.Read(ctx, plan.ControlPlane, diags)
	checkKubeletSkew(cp.Version, plan.Version, diags)
	before := types.StringNull()
	if prior != nil {
		before = prior.Version
		warnOfChangedSettings(prior.Version, plan.Version, s.Spec.Kubelet, diags)
		warnOfDrain(ctx, plan, prior, s, diags)
	}
	warnOfUnknownRelease(before, plan.Version, version.NotKnown, diags)
	errs := s.Spec.Check()
	if hosts, known := reference.HostsFrom(ctx, plan.Hosts, diags); known {
		s.Spec.Cluster = component.Cluster{PodCIDR: tf.Prefix(cp.PodCIDR), NodeCIDRs: allPrefixes(cp.NodeCIDRs), PodRoutes: reference.PodRoutesFrom(cp.PodRoutes)}
		errs = append(errs, s.Spec.CheckHosts(reference.ComponentHosts(hosts))...)
		for _, w := range s.Spec.CheckMaxPods(reference.ComponentHosts(hosts)) {
			diags.AddAttributeWarning(tf.Path(w.Field), w.Problem, w.Err.Error())
		}
		warnOfUntainted(hosts, plan.Taints, s.Spec.Kubelet.Taints, diags)
	}
	return errs
}

// warnOfUntainted warns of controllers on which all pods may run.
func warnOfUntainted(hosts []reference.Host, configured types.List, taints []component.Taint, diags *diag.Diagnostics) {
	controller := slices.IndexFunc(hosts, func(h reference.Host) bool { return h.Role.ValueString() == component.RoleController })
	tainted := slices.ContainsFunc(taints, func(t component.Taint) bool { return t.Effect == "NoSchedule" || t.Effect == "NoExecute" })
	if controller < 0 || tainted || !tf.AllKnown(configured) {
		return
	}
	diags.AddAttributeWarning(path.Root("taints"), "Pods run beside the control plane",
		fmt.Sprintf("%s is a controller, and without a taint of effect NoSchedule every pod may run on it. Pods that need much memory or disk then stop etcd and the API server. "+
			`Add { key = "node-role.kubernetes.io/control-plane", effect = "NoSchedule" }, unless the cluster is small and this is wanted.`, hosts[controller].Name.ValueString()))
}

// warnOfChangedSettings warns of settings whose meaning changes with the upgrade to the new
// release.
func warnOfChangedSettings(from, to types.String, kubelet component.KubeletSpec, diags *diag.Diagnostics) {
	old, now, known := parseVersions(from, to)
	if !known {
		return
	}
	for _, words := range component.KubeletChanges(old, now, kubelet.Config, kubelet.Args) {
		diags.AddAttributeWarning(path.Root("version"), "A setting changes its meaning", words)
	}
}

// warnOfDrain warns of settings of the kubelet for which nodes are drained, unlike for others.
func warnOfDrain(ctx context.Context, plan, prior *workerPoolModel, s workerpool.Pool, diags *diag.Diagnostics) {
	if !tf.AllKnown(plan.KubeletConfig) {
		return
	}
	var before workerpool.Pool
	workerPoolSettings().toSpec(ctx, prior, &before)
	if fields := s.Spec.EmptyNodeFields(before.Spec); len(fields) > 0 {
		diags.AddAttributeWarning(path.Root("kubelet_config"), "Nodes are drained",
			fmt.Sprintf("A kubelet places pods by %s, and the pods on a node have been placed by the former values. So the nodes are drained, max_unavailable at a time, and the files are deleted "+
				"in which their kubelets note the assigned processors and memory.", strings.Join(fields, ", ")))
	}
}

// checkKubeletSkew adds an error to the attribute version if the API server does not support the
// kubelet's release.
func checkKubeletSkew(server, kubelet types.String, diags *diag.Diagnostics) {
	s, k, known := parseVersions(server, kubelet)
	if !known {
		return
	}
	if err := version.CheckKubeletSkew(s, k); err != nil {
		diags.AddAttributeError(path.Root("version"), "Unsupported version skew", err.Error())
	}
}

func workerPoolOutputs(ctx context.Context, m *workerPoolModel, diags *diag.Diagnostics) {
	if m.RuncVersion.IsNull() && (m.Hosts.IsUnknown() || len(m.Hosts.Elements()) > 0) {
		m.RuncVersion = types.StringUnknown() // it is chosen with the first hosts
	}
	m.ID = types.StringUnknown()
	if cluster := reference.ClusterOf(ctx, reference.PKIIn(m.ControlPlane), diags); !cluster.IsUnknown() && !m.Name.IsUnknown() {
		m.ID = types.StringValue(cluster.ValueString() + "/" + m.Name.ValueString())
	}
}

// taintsFrom returns the taints, or nil unless all of them are known.
func taintsFrom(ctx context.Context, list types.List) []component.Taint {
	if !tf.AllKnown(list) {
		return nil
	}
	var diags diag.Diagnostics // always empty: the model fits the reference
	models, _ := tf.Objects[taintModel](ctx, list, &diags)
	var out []component.Taint
	for _, t := range models {
		out = append(out, component.Taint{Key: t.Key.ValueString(), Value: t.Value.ValueString(), Effect: t.Effect.ValueString()})
	}
	return out
}

// taintsValue is the inverse of taintsFrom.
func taintsValue(ctx context.Context, taints []component.Taint) types.List {
	if len(taints) == 0 {
		return types.ListNull(taint.Type())
	}
	var out []attr.Value
	for _, t := range taints {
		out = append(out, taint.Value(ctx, taintModel{Key: types.StringValue(t.Key), Value: tf.OptionalString(t.Value), Effect: types.StringValue(t.Effect)}))
	}
	return types.ListValueMust(taint.Type(), out)
}

// workerPoolDownloads sets the artifacts of a pool. A pool keeps its release of runc. Without hosts, whose processors
// are not known then, it needs none, and has no release of runc yet.
func workerPoolDownloads(c *artifact.Catalog, m *workerPoolModel, s *workerpool.Pool) (err error) {
	containerd := &s.Spec.Containerd
	if len(s.Targets) == 0 {
		m.RuncVersion = tf.OptionalString(containerd.RuncVersion)
		return nil
	}
	if containerd.RuncVersion == "" {
		containerd.RuncVersion = c.ForArch(archsOf(s.Targets)[0]).RuncVersion()
		m.RuncVersion = types.StringValue(containerd.RuncVersion)
	}
	s.Spec.Artifacts, err = c.ForArchs(archsOf(s.Targets), func(c *artifact.Catalog) ([]artifact.Artifact, error) {
		return c.WorkerSet(s.Spec.Version, containerd.Version, containerd.RuncVersion, s.Spec.CNI.Version, !s.Spec.KubeProxy.Off)
	})
	return err
}

func completeWorkerPool(ctx context.Context, d *session.Session, m *workerPoolModel, s *workerpool.Pool, diags *diag.Diagnostics) {
	cp, _ := reference.OfControlPlane.Read(ctx, m.ControlPlane, diags)
	s.Spec.Cluster, s.Spec.ControlPlaneEndpoint = cp.Spec(ctx, diags), cp.PrivateEndpoint.ValueString()
	s.Targets, s.Endpoint = reference.TargetsFrom(ctx, d, m.Hosts, diags), cp.Endpoint.ValueString()
	s.Spec.Proxy, s.Spec.Cluster.Authorities = d.Proxy, d.Authorities
}

// registries is the conversion of `registries`. It has passwords only if the value is that of a configuration.
var registries = conversion[types.Map, registry.Registries]{toSpec: argument.Registries, fromSpec: argument.RegistriesValue}
