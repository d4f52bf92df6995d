package roles

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework-nettypes/iptypes"
	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"sigs.k8s.io/yaml"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/controlplane"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/freeform"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

type controlPlaneModel struct {
	roleModel
	Version          types.String         `tfsdk:"version"`
	Hosts            types.List           `tfsdk:"hosts"`
	Etcd             types.Object         `tfsdk:"etcd"`
	LB               types.Object         `tfsdk:"lb"`
	PodCIDR          cidrtypes.IPv4Prefix `tfsdk:"pod_cidr"`
	ServiceCIDR      cidrtypes.IPv4Prefix `tfsdk:"service_cidr"`
	NodeCIDRs        types.Set            `tfsdk:"node_cidrs"`
	PodRoutes        types.Map            `tfsdk:"pod_routes"`
	DNSIP            iptypes.IPv4Address  `tfsdk:"dns_ip"`
	Domain           types.String         `tfsdk:"domain"`
	ExtraSANs        types.List           `tfsdk:"extra_sans"`
	AllowedCIDRs     types.Set            `tfsdk:"allowed_cidrs"`
	AuditPolicy      types.String         `tfsdk:"audit_policy"`
	Authentication   types.Dynamic        `tfsdk:"authentication"`
	WorkloadIdentity types.Object         `tfsdk:"workload_identity"`
	Access           types.List           `tfsdk:"access"`
	AdmissionPlugins types.Dynamic        `tfsdk:"admission_plugins"`
	SchedulerConfig  types.Dynamic        `tfsdk:"scheduler_config"`
	ExtraArgs        types.Object         `tfsdk:"extra_args"`
	EarlyRenewal     timetypes.GoDuration `tfsdk:"early_renewal"`
	Ref              types.Object         `tfsdk:"ref"`
}

// controlPlanePrograms are the programs on a controller, without etcd.
var controlPlanePrograms = programList{artifact.KubeAPIServer, artifact.KubeControllerManager, artifact.KubeScheduler}

func NewControlPlane() resource.Resource {
	return &roleResource[controlPlaneModel, controlplane.ControlPlane]{kind: kind[controlPlaneModel, controlplane.ControlPlane]{
		name:        "control_plane",
		title:       "control plane",
		keys:        true,
		description: "kube-apiserver, kube-controller-manager and kube-scheduler on a set of hosts. All API servers are active; the controller managers and the schedulers elect a leader. A change goes through the hosts one at a time, behind health checks.",
		settings:    controlPlaneSettings(),
		attributes: map[string]schema.Attribute{
			"hosts": reference.HostsAttribute("Machines of the control plane, at most seven. Adding or removing hosts leaves the others running.", listvalidator.SizeBetween(1, 7)),
			"etcd":  reference.OfEtcd.Input("etcd of the cluster: `k8s_etcd_cluster.<name>.ref`. A change of members restarts the API servers one at a time. " + carriesKeys),
			"lb": reference.OfLB.Optional("Load balancer of the cluster: `k8s_lb.<name>.ref` or `k8s_nlb.<name>.ref`, with the same machines as `hosts`. Several hosts need one. A change replaces the API server's " +
				"address in the workers' kubeconfigs, one machine at a time. Default: none; the only host is then the endpoint."),
			"ref": reference.OfControlPlane.Output("Reference: the value for `control_plane` of other resources."),
		},
		common:     func(m *controlPlaneModel) *roleModel { return &m.roleModel },
		check:      checkControlPlane,
		guard:      guardControlPlane,
		kubernetes: func(m *controlPlaneModel) types.String { return m.Version },
		outputs:    controlPlaneOutputs,
		needed:     oneHost,
		complete:   completeControlPlane,
		downloads: func(c *artifact.Catalog, _ *controlPlaneModel, s *controlplane.ControlPlane) (err error) {
			s.Spec.Artifacts, err = c.ForArchs(archsOf(s.Targets), func(c *artifact.Catalog) ([]artifact.Artifact, error) { return c.ControlPlaneSet(s.Spec.Version) })
			return err
		},
		importer: controlPlaneImporter(),
	}}
}

// controlPlaneSettings are the arguments that are fields of the specification.
func controlPlaneSettings() settings[controlPlaneModel, controlplane.ControlPlane] {
	network := func(description string, fallback netip.Prefix) schema.StringAttribute {
		return schema.StringAttribute{
			Optional: true, Computed: true, CustomType: cidrtypes.IPv4PrefixType{},
			MarkdownDescription: description + fixedWithData + " Default: `" + fallback.String() + "`; what exists keeps its network.",
			Validators:          []validator.String{tf.CIDR(component.ClusterCIDR)},
			PlanModifiers: []planmodifier.String{
				tf.KeepDefault(fallback.String()), stringplanmodifier.RequiresReplaceIf(replaceIfInState, replacesControlPlane, replacesControlPlane),
			},
		}
	}
	return settings[controlPlaneModel, controlplane.ControlPlane]{
		extraFilesName: extraFilesSetting(func(m *controlPlaneModel) *roleModel { return &m.roleModel }, func(s *controlplane.ControlPlane) *[]desired.ExtraFile { return &s.Spec.Extra }),
		"version": newSetting(schema.StringAttribute{
			Required: true,
			MarkdownDescription: "Kubernetes release, such as `1.36.4`. A change rolls through the hosts one at a time. An upgrade goes one minor release at a time, and never back to " +
				"an earlier one.",
			Validators: []validator.String{argument.KubernetesVersion()},
		}, text, func(m *controlPlaneModel, s *controlplane.ControlPlane) (*types.String, *string) {
			return &m.Version, &s.Spec.Version
		}),
		"pod_cidr": newSetting(network("Network of the pods. Each worker has a part of it.", component.DefaultPodCIDR),
			prefix, func(m *controlPlaneModel, s *controlplane.ControlPlane) (*cidrtypes.IPv4Prefix, *netip.Prefix) {
				return &m.PodCIDR, &s.Spec.Cluster.PodCIDR
			}),
		"service_cidr": newSetting(network("Network of the services, outside of the VPC's network. Its first address is the API server's.", component.DefaultServiceCIDR),
			prefix, func(m *controlPlaneModel, s *controlplane.ControlPlane) (*cidrtypes.IPv4Prefix, *netip.Prefix) {
				return &m.ServiceCIDR, &s.Spec.Cluster.ServiceCIDR
			}),
		"node_cidrs": newSetting(schema.SetAttribute{
			Optional: true, ElementType: cidrtypes.IPv4PrefixType{},
			MarkdownDescription: "Networks of the subnets for machines, including workers: `k8s_network.<name>.node_cidrs`. Pods reach these machines with their own addresses, and all other traffic of " +
				"pods is masqueraded. Changed in place. Default: none; traffic of pods to machines is masqueraded as well.",
			Validators: []validator.Set{setvalidator.ValueStringsAre(tf.CIDR(component.ClusterCIDR))},
		}, prefixes, func(m *controlPlaneModel, s *controlplane.ControlPlane) (*types.Set, *[]netip.Prefix) {
			return &m.NodeCIDRs, &s.Spec.Cluster.NodeCIDRs
		}),
		"pod_routes": newSetting(schema.MapAttribute{
			Optional: true, ElementType: iptypes.IPv4AddressType{},
			MarkdownDescription: "Routes to the pods of all nodes, for machines without a VPC: a map from a node's pod network to its private address, such as `{ for h in local.workers : h.pod_cidr => " +
				"h.private_ip }`. The routes are set on every machine. Changed in place. Default: none.",
			Validators: []validator.Map{mapvalidator.KeysAre(tf.CIDR(component.HostPodCIDR)), mapvalidator.ValueStringsAre(tf.IPv4())},
		}, addressByNetwork, func(m *controlPlaneModel, s *controlplane.ControlPlane) (*types.Map, *map[netip.Prefix]netip.Addr) {
			return &m.PodRoutes, &s.Spec.Cluster.PodRoutes
		}),
		"dns_ip": newSetting(schema.StringAttribute{
			Optional: true, Computed: true, CustomType: iptypes.IPv4AddressType{},
			MarkdownDescription: "Service address of cluster DNS, within `service_cidr`. Default: the tenth address of `service_cidr`.",
		}, address, func(m *controlPlaneModel, s *controlplane.ControlPlane) (*iptypes.IPv4Address, *netip.Addr) {
			return &m.DNSIP, &s.Spec.Cluster.DNSIP
		}),
		"domain": newSetting(schema.StringAttribute{
			Optional: true, Computed: true, Default: stringdefault.StaticString(component.DefaultDomain),
			MarkdownDescription: "Domain of cluster DNS." + fixedWithData + " Default: `" + component.DefaultDomain + "`.",
			Validators:          []validator.String{tf.DNSDomain()},
			PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
		}, text, func(m *controlPlaneModel, s *controlplane.ControlPlane) (*types.String, *string) {
			return &m.Domain, &s.Spec.Cluster.Domain
		}),
		"extra_sans": newSetting(schema.ListAttribute{
			Optional: true, ElementType: types.StringType,
			MarkdownDescription: "Additional names and addresses in the API servers' certificates. A change reissues the certificates in place. Default: none.",
			Validators:          []validator.List{listvalidator.ValueStringsAre(tf.HostAddress())},
		}, texts, func(m *controlPlaneModel, s *controlplane.ControlPlane) (*types.List, *[]string) {
			return &m.ExtraSANs, &s.Spec.APIServer.ExtraSANs
		}),
		"audit_policy": newSetting(schema.StringAttribute{
			Optional: true,
			MarkdownDescription: "Audit policy (`audit.k8s.io/v1`) in YAML. A policy that kube-apiserver would refuse is an error of the plan. A change restarts the API servers one at a time. Default: " +
				"the metadata of most requests, and no bodies of requests or responses.",
			PlanModifiers: []planmodifier.String{tf.KeepSame(sameYAML)},
		}, document, func(m *controlPlaneModel, s *controlplane.ControlPlane) (*types.String, *[]byte) {
			return &m.AuditPolicy, &s.Spec.APIServer.AuditPolicy
		}),
		"authentication": newSetting(
			freeform.Object("Who signs people in: `jwt` of AuthenticationConfiguration, a list of OpenID Connect issuers. What kube-apiserver would refuse is an error of the plan. The API servers load a "+
				"change without a restart. Default: none; only certificates and service accounts' tokens are accepted."),
			object, func(m *controlPlaneModel, s *controlplane.ControlPlane) (*types.Dynamic, *map[string]any) {
				return &m.Authentication, &s.Spec.APIServer.Authentication
			}),
		"workload_identity": newSetting(reference.OfWorkloadIdentity.Optional("Who signs the tokens of service accounts, so that AWS accepts them: `k8s_workload_identity.<name>.ref`. The cluster's own "+
			"issuer stays accepted. A running cluster changes its issuer in two applies, and a plan that skips one is refused. Default: the cluster's own issuer."), issuerConversion, func(m *controlPlaneModel, s *controlplane.ControlPlane) (*types.Object, *string) {
			return &m.WorkloadIdentity, &s.Spec.APIServer.Issuer
		}),
		"access": accessSetting(),
		"admission_plugins": newSetting(
			freeform.Objects("Configuration of admission plugins: an object from the plugin's name to its configuration. An unknown plugin is an error of the plan. A plugin that is off by default "+
				"also needs the flag `enable-admission-plugins`. A change restarts the API servers one at a time. Default: none."),
			objectByName, func(m *controlPlaneModel, s *controlplane.ControlPlane) (*types.Dynamic, *map[string]map[string]any) {
				return &m.AdmissionPlugins, &s.Spec.APIServer.AdmissionPlugins
			}),
		"scheduler_config": newSetting(
			freeform.Object("Fields of KubeSchedulerConfiguration, as an object, merged over the provider's. Unknown fields are errors. A change restarts the schedulers one at a "+
				"time. Default: none."),
			object, func(m *controlPlaneModel, s *controlplane.ControlPlane) (*types.Dynamic, *map[string]any) {
				return &m.SchedulerConfig, &s.Spec.Scheduler.Config
			}),
		"allowed_cidrs": allowedCIDRs("ports 6443, 10257 and 10259 of the control plane, beside pods", "the workers, the load balancer and direct clients",
			func(m *controlPlaneModel, s *controlplane.ControlPlane) (*types.Set, *[]netip.Prefix) {
				return &m.AllowedCIDRs, &s.Spec.AllowedCIDRs
			}),
		"extra_args": extraArgsSetting(controlPlanePrograms, func(m *controlPlaneModel, s *controlplane.ControlPlane) (*types.Object, map[string]*component.Args) {
			return &m.ExtraArgs, map[string]*component.Args{
				artifact.KubeAPIServer:         &s.Spec.APIServer.Args,
				artifact.KubeControllerManager: &s.Spec.ControllerManager.Args,
				artifact.KubeScheduler:         &s.Spec.Scheduler.Args,
			}
		}),
		"early_renewal": newSetting(earlyRenewalAttribute(), duration, func(m *controlPlaneModel, s *controlplane.ControlPlane) (*timetypes.GoDuration, *time.Duration) {
			return &m.EarlyRenewal, &s.Spec.EarlyRenewal
		}),
	}
}

// fixedWithData describes an argument that guardControlPlane guards.
const fixedWithData = " A change is refused while etcd has data. It replaces the control plane if the same apply replaces the `k8s_etcd_cluster`."

// replacesControlPlane describes replaceIfInState, which replaces the control plane if the state
// has a value. An import that does not find the network leaves the value to the configuration.
const replacesControlPlane = "A change replaces the control plane."

func replaceIfInState(_ context.Context, req planmodifier.StringRequest, resp *stringplanmodifier.RequiresReplaceIfFuncResponse) {
	resp.RequiresReplace = !req.StateValue.IsNull()
}

func checkControlPlane(ctx context.Context, plan, prior *controlPlaneModel, s controlplane.ControlPlane, diags *diag.Diagnostics) invalid.Fields {
	errs := s.Spec.Check()
	warnOfSystemNames(s.Spec.Access, diags)
	if hosts, known := reference.HostsFrom(ctx, plan.Hosts, diags); known {
		s.Spec.Cluster.NodeCIDRs = allPrefixes(plan.NodeCIDRs)
		errs = append(errs, s.Spec.CheckHosts(reference.ComponentHosts(hosts))...)
	}
	errs = append(errs, checkControlPlaneParts(ctx, plan, diags)...)
	if prior != nil {
		warnOfLostNames(ctx, plan, prior, diags)
	}
	if prior == nil {
		warnOfUnknownRelease(types.StringNull(), plan.Version, version.NotKnown, diags)
		return errs
	}
	warnOfUnknownRelease(prior.Version, plan.Version, version.NotKnown, diags)
	checkUpgrade(prior.Version, plan.Version, version.CheckUpgrade, diags)
	former := extraArgs(prior.ExtraArgs, artifact.KubeAPIServer)
	if tf.AllKnown(plan.ExtraArgs) {
		errs = append(errs, s.Spec.APIServer.Args.CheckFixed(artifact.KubeAPIServer, former)...)
	}
	if v, err := version.Parse(plan.Version.ValueString()); err == nil {
		if err := component.CheckServedAPIs(v, former); err != nil {
			diags.AddAttributeError(path.Root("version"), "API version still in use", err.Error())
		}
	}
	return errs
}

// checkControlPlaneParts checks that the parts of a control plane belong together.
func checkControlPlaneParts(ctx context.Context, plan *controlPlaneModel, diags *diag.Diagnostics) invalid.Fields {
	lb, _ := reference.OfLB.Read(ctx, plan.LB, diags)
	etcd, _ := reference.OfEtcd.Read(ctx, plan.Etcd, diags)
	identity, _ := reference.OfWorkloadIdentity.Read(ctx, plan.WorkloadIdentity, diags)
	errs := component.CheckSameCluster(component.Part{Field: "etcd", Cluster: reference.ClusterOf(ctx, etcd.PKI, diags).ValueString()},
		component.Part{Field: "lb", Cluster: lb.Cluster.ValueString()}, component.Part{Field: "workload_identity", Cluster: identity.Cluster.ValueString()})
	hosts, known := reference.HostsFrom(ctx, plan.Hosts, diags)
	if known {
		errs = append(errs, component.CheckBalanced(lb.Backends(), reference.ComponentHosts(hosts))...)
		errs = append(errs, component.CheckAllowed("etcd", allPrefixes(etcd.AllowedCIDRs), reference.ComponentHosts(hosts), "its API server needs etcd (allowed_cidrs of k8s_etcd_cluster)")...)
	}
	others := slices.DeleteFunc(lb.KnownMachines(), func(m component.Host) bool { // a machine always reaches itself
		return known && len(hosts) == 1 && m.PrivateIP == hosts[0].Node().PrivateIP
	})
	errs = append(errs, component.CheckAllowed("allowed_cidrs", allPrefixes(plan.AllowedCIDRs), others, "the load balancer there reaches the API servers")...)
	if !plan.Hosts.IsUnknown() {
		errs = append(errs, component.CheckBalancer(len(plan.Hosts.Elements()), !plan.LB.IsNull())...)
	}
	return errs
}

// balancer returns the argument lb. Without one, the only controller is the address of the cluster.
func (m *controlPlaneModel) balancer(ctx context.Context, diags *diag.Diagnostics) reference.LB {
	hosts, known := reference.HostsFrom(ctx, m.Hosts, diags)
	if !m.LB.IsNull() || !known || len(hosts) != 1 {
		return reference.LBFrom(ctx, m.LB, diags)
	}
	public, port := hosts[0].PublicIP.StringValue, types.Int64Value(component.APIServerPort)
	if public.IsNull() {
		public = hosts[0].Address
	}
	private := hosts[0].PrivateIP.StringValue
	return reference.LB{Names: reference.NamesValue(public, private), Endpoint: reference.URLOf(public, port), PrivateEndpoint: reference.URLOf(private, port)}
}

// warnOfLostNames warns if the name by which workers reach the API leaves the certificates while their
// kubeconfigs still have it.
func warnOfLostNames(ctx context.Context, plan, prior *controlPlaneModel, diags *diag.Diagnostics) {
	before, after := prior.balancer(ctx, diags), plan.balancer(ctx, diags)
	if before.Names.IsUnknown() || plan.ExtraSANs.IsUnknown() || before.PrivateEndpoint.Equal(after.PrivateEndpoint) {
		return
	}
	kept := append(tf.Strings(plan.ExtraSANs.Elements()), tf.Strings(after.Names.Elements())...)
	lost := slices.DeleteFunc(tf.Strings(before.Names.Elements()), func(name string) bool {
		return slices.Contains(kept, name) || !after.Endpoint.IsUnknown() && after.Endpoint.Equal(before.Endpoint) && strings.Contains(after.Endpoint.ValueString(), "/"+name+":")
	})
	if len(lost) == 0 {
		return
	}
	diags.AddAttributeWarning(path.Root("lb"), "Workers cannot reach the API until they are changed",
		fmt.Sprintf("The API servers' certificates lose %s, and the workers' kubeconfigs name one of these until this apply has changed them. Kubeconfigs of people that name one do not work any more.\n\n"+
			"To move without an outage, keep the old load balancer for this apply and set extra_sans to its ref.names. The guide on load balancers shows it.", strings.Join(lost, ", ")))
}

// sameYAML reports whether two YAML texts have the same value. The file that is written from an
// audit policy keeps neither comments nor order. A text with a duplicate field equals nothing.
func sameYAML(a, b string) bool {
	var before, after any
	return yaml.UnmarshalStrict([]byte(a), &before) == nil && yaml.UnmarshalStrict([]byte(b), &after) == nil && reflect.DeepEqual(before, after)
}

func controlPlaneOutputs(ctx context.Context, m *controlPlaneModel, diags *diag.Diagnostics) {
	keys := reference.PKIIn(m.Etcd)
	m.ID = reference.ClusterOf(ctx, keys, diags)
	if (m.DNSIP.IsNull() || m.DNSIP.IsUnknown()) && !m.ServiceCIDR.IsUnknown() {
		m.DNSIP = tf.OptionalAddr(component.DefaultDNSIP(tf.Prefix(m.ServiceCIDR)))
	}
	lb := m.balancer(ctx, diags)
	m.Ref = reference.OfControlPlane.Value(ctx, reference.ControlPlane{
		PKI: keys, Version: m.Version, Endpoint: lb.Endpoint, PrivateEndpoint: lb.PrivateEndpoint,
		PodCIDR: m.PodCIDR, ServiceCIDR: m.ServiceCIDR, NodeCIDRs: m.NodeCIDRs, PodRoutes: m.PodRoutes, DNSIP: m.DNSIP, Domain: m.Domain,
		PowerState: apiPower(ctx, m.Hosts, diags),
	})
}

// apiPower returns the power state of an API: stopped if all of its machines are.
func apiPower(ctx context.Context, l types.List, diags *diag.Diagnostics) types.String {
	hosts, known := reference.HostsFrom(ctx, l, diags)
	if !known || slices.ContainsFunc(hosts, func(h reference.Host) bool { return h.PowerState.IsUnknown() }) {
		return types.StringUnknown()
	}
	if powerOf("hosts", hosts).allOff() {
		return types.StringValue(reference.Stopped)
	}
	return types.StringValue(reference.Running)
}

// balancedByUs reports whether the load balancer is a k8s_lb or k8s_nlb, which send clients to every API server
// that answers health checks. Of others it is not known how they choose and check.
func balancedByUs(ctx context.Context, m *controlPlaneModel, diags *diag.Diagnostics) bool {
	return !m.LB.IsNull() && !reference.LBFrom(ctx, m.LB, diags).Controllers.IsNull()
}

// oneHost is the needed hosts of a role that works with a single one.
func oneHost(int) int { return 1 }

func completeControlPlane(ctx context.Context, d *session.Session, m *controlPlaneModel, s *controlplane.ControlPlane, diags *diag.Diagnostics) {
	lb := m.balancer(ctx, diags)
	etcd, _ := reference.OfEtcd.Read(ctx, m.Etcd, diags)
	ref, _ := reference.PKIFrom(ctx, etcd.PKI, diags)
	s.Spec.Cluster.Name, s.Spec.Cluster.PKI, s.Spec.Cluster.Authorities = ref.Cluster, ref, d.Authorities
	s.Spec.Cluster.DNSIP = tf.Addr(m.DNSIP) // an output, if it is not configured
	s.Spec.EndpointNames, s.Spec.EtcdEndpoints = tf.Strings(lb.Names.Elements()), tf.Strings(etcd.Endpoints.Elements())
	s.Spec.ShutdownDelay = time.Duration(lb.NoticeSeconds.ValueInt64()) * time.Second
	s.Targets = reference.TargetsFrom(ctx, d, m.Hosts, diags)
	if balancedByUs(ctx, m, diags) {
		s.Balancer = lb.Endpoint.ValueString()
	}
}
