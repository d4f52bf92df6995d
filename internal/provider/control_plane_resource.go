package provider

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// Networks of a cluster that does not choose its own.
const (
	defaultPodCIDR     = "10.200.0.0/16"
	defaultServiceCIDR = "10.32.0.0/24"
	defaultDomain      = "cluster.local"
)

type controlPlaneModel struct {
	roleModel
	Version               types.String `tfsdk:"version"`
	Hosts                 types.List   `tfsdk:"hosts"`
	PKI                   types.Object `tfsdk:"pki"`
	Etcd                  types.Object `tfsdk:"etcd"`
	LB                    types.Object `tfsdk:"lb"`
	PodCIDR               types.String `tfsdk:"pod_cidr"`
	ServiceCIDR           types.String `tfsdk:"service_cidr"`
	NodeCIDRs             types.Set    `tfsdk:"node_cidrs"`
	DNSIP                 types.String `tfsdk:"dns_ip"`
	Domain                types.String `tfsdk:"domain"`
	ExtraSANs             types.List   `tfsdk:"extra_sans"`
	AuditPolicy           types.String `tfsdk:"audit_policy"`
	AdmissionPlugins      types.Map    `tfsdk:"admission_plugins"`
	SchedulerConfig       types.String `tfsdk:"scheduler_config"`
	APIServerArgs         types.Map    `tfsdk:"api_server_args"`
	ControllerManagerArgs types.Map    `tfsdk:"controller_manager_args"`
	SchedulerArgs         types.Map    `tfsdk:"scheduler_args"`
	EarlyRenewal          types.String `tfsdk:"early_renewal"`
	Ref                   types.Object `tfsdk:"ref"`
}

func newControlPlaneResource() resource.Resource {
	return &roleResource[controlPlaneModel, rollout.ControlPlane]{role: role[controlPlaneModel, rollout.ControlPlane]{
		name:       "control_plane",
		title:      "control plane",
		schema:     controlPlaneSchema,
		common:     func(m *controlPlaneModel) *roleModel { return &m.roleModel },
		check:      checkControlPlane,
		kubernetes: func(m *controlPlaneModel) types.String { return m.Version },
		outputs:    controlPlaneOutputs,
		spec:       controlPlaneSpec,
		recall:     recallControlPlane(),
	}}
}

func controlPlaneSchema(ctx context.Context) schema.Schema {
	network := func(description, fallback string) schema.StringAttribute {
		return schema.StringAttribute{
			Optional: true, Computed: true, Default: stringdefault.StaticString(fallback),
			MarkdownDescription: description + " Default: `" + fallback + "`. A change replaces the control plane.",
			Validators:          []validator.String{canonicalCIDR(8, 28)},
			PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplaceIf(wasKnown, onceKnown, onceKnown)},
		}
	}
	return schema.Schema{
		MarkdownDescription: "kube-apiserver, kube-controller-manager and kube-scheduler on a set of hosts: active/active API servers, " +
			"leader-elected managers and schedulers.\n\n" +
			"The first installation goes to all hosts in parallel. Every later change rolls through them one at a time, behind health checks; " +
			"an upgrade replaces all API servers before the first manager.",
		Attributes: roleAttributes(map[string]schema.Attribute{
			"version": schema.StringAttribute{
				Required: true,
				MarkdownDescription: "Kubernetes release, such as `1.36.4`. A change rolls through the hosts one at a time; one minor at a time, " +
					"and never back to an earlier minor.",
				Validators: []validator.String{kubernetesVersion()},
			},
			"hosts": hostsAttribute("Machines of the control plane. Adding and removing hosts leaves the others running.", listvalidator.SizeBetween(1, 7)),
			"pki":   pkiRefAttribute(),
			"etcd": schema.SingleNestedAttribute{
				Required: true, MarkdownDescription: "etcd: `k8s_etcd_cluster.<name>.ref`. New members are taken up one API server at a time.",
				Attributes: requiredRef(etcdRefType),
			},
			"lb": schema.SingleNestedAttribute{
				Required: true, MarkdownDescription: "Load balancer: `k8s_lb.<name>.ref`. Its addresses are in the API servers' certificates.",
				Attributes: requiredRef(lbRefType),
			},
			"pod_cidr":     network("Network of the pods; each worker has a part of it.", defaultPodCIDR),
			"service_cidr": network("Network of the services. Its first address is the API server's. It must not overlap with the VPC's, whose DNS server would be taken for a service.", defaultServiceCIDR),
			"node_cidrs": schema.SetAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Subnets of the cluster's machines, those of workers included: `k8s_network.<name>.node_cidrs`. Pods reach them, other pods and services with their own addresses; " +
					"everything else that pods send is masqueraded, and so is what goes to a subnet's third address, where a VPC has its DNS server. " +
					"A change is made in place by the worker pools and restarts nothing. Default: none; pods then reach machines with the address of their own machine.",
				Validators: []validator.Set{setvalidator.ValueStringsAre(canonicalCIDR(8, 28))},
			},
			"dns_ip": schema.StringAttribute{
				Optional: true, Computed: true,
				MarkdownDescription: "Service address of cluster DNS. Default: the tenth address of `service_cidr`.",
				Validators:          []validator.String{ipv4()},
			},
			"domain": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(defaultDomain),
				MarkdownDescription: "Domain of cluster DNS. Default: `" + defaultDomain + "`. A change replaces the control plane.",
				Validators:          []validator.String{dnsDomain()},
				PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"extra_sans": schema.ListAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Further names and addresses in the API servers' certificates. A change reissues them in place.",
				Validators:          []validator.List{listvalidator.ValueStringsAre(hostAddress())},
			},
			"audit_policy": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Audit policy (`audit.k8s.io/v1`) in YAML. Default: metadata of everything but health checks and leases, " +
					"never the content of secrets. A policy kube-apiserver would refuse is an error of the plan. A change restarts the API servers one at a time.",
			},
			"admission_plugins": schema.MapAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Configuration of admission plugins: name to its configuration object as JSON. A plugin the release does not have is an error of the plan; " +
					"one that is not enabled by default has to be named in `api_server_args` (`enable-admission-plugins`) as well. A change restarts the API servers one at a time.",
			},
			"scheduler_config": objectJSON("Fields of KubeSchedulerConfiguration as JSON, merged over the provider's; unknown fields are errors. " +
				"A change restarts the schedulers one at a time."),
			"api_server_args":         argsAttribute("kube-apiserver"),
			"controller_manager_args": argsAttribute("kube-controller-manager"),
			"scheduler_args":          argsAttribute("kube-scheduler"),
			"early_renewal":           earlyRenewalAttribute(),
			"ref": schema.SingleNestedAttribute{
				Computed: true, MarkdownDescription: "What workers, addons, kubeconfigs and status take as `control_plane`.",
				Attributes: computedRef(controlPlaneRefType),
			},
		}),
		Blocks: roleBlocks(ctx),
	}
}

// An import that does not find a network leaves it to the configuration.
const onceKnown = "A change replaces the control plane."

func wasKnown(_ context.Context, req planmodifier.StringRequest, resp *stringplanmodifier.RequiresReplaceIfFuncResponse) {
	resp.RequiresReplace = !req.StateValue.IsNull()
}

var controlPlaneRefType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"cluster":          types.StringType,
	"version":          types.StringType,
	"endpoint":         types.StringType,
	"private_endpoint": types.StringType,
	"pod_cidr":         types.StringType,
	"service_cidr":     types.StringType,
	"node_cidrs":       types.SetType{ElemType: types.StringType},
	"dns_ip":           types.StringType,
	"domain":           types.StringType,
}}

type controlPlaneRefModel struct {
	Cluster         types.String `tfsdk:"cluster"`
	Version         types.String `tfsdk:"version"`
	Endpoint        types.String `tfsdk:"endpoint"`
	PrivateEndpoint types.String `tfsdk:"private_endpoint"`
	PodCIDR         types.String `tfsdk:"pod_cidr"`
	ServiceCIDR     types.String `tfsdk:"service_cidr"`
	NodeCIDRs       types.Set    `tfsdk:"node_cidrs"`
	DNSIP           types.String `tfsdk:"dns_ip"`
	Domain          types.String `tfsdk:"domain"`
}

// controlPlaneAttribute is the required input `control_plane`.
func controlPlaneAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Required: true, MarkdownDescription: "Control plane: `k8s_control_plane.<name>.ref`.",
		Attributes: requiredRef(controlPlaneRefType),
	}
}

func (m controlPlaneRefModel) cluster(ref pki.Ref) component.Cluster {
	return component.Cluster{
		Name:        m.Cluster.ValueString(),
		Domain:      m.Domain.ValueString(),
		PodCIDR:     parsePrefix(m.PodCIDR),
		ServiceCIDR: parsePrefix(m.ServiceCIDR),
		NodeCIDRs:   prefixesFrom(m.NodeCIDRs),
		DNSIP:       parseAddr(m.DNSIP),
		PKI:         ref,
	}
}

func checkControlPlane(ctx context.Context, plan, prior *controlPlaneModel, diags *diag.Diagnostics) {
	pods, services := prefixNamed("pod_cidr", plan.PodCIDR), prefixNamed("service_cidr", plan.ServiceCIDR)
	checkDisjoint(services, pods, diags)
	checkNodeCIDRs(plan.NodeCIDRs, pods, services, diags)
	if ip := parseAddr(plan.DNSIP); ip.IsValid() && services.prefix.IsValid() && (!services.prefix.Contains(ip) || ip == firstAddress(services.prefix, 1)) {
		diags.AddAttributeError(path.Root("dns_ip"), "Unusable address",
			fmt.Sprintf("%s must lie in service_cidr %s and must not be its first address, which is the API server's.", ip, services.prefix))
	}
	if hosts, known := hostsFrom(ctx, plan.Hosts, diags); known {
		checkHosts(path.Root("hosts"), hosts, diags)
		for i, h := range hosts {
			checkMachineNetwork(path.Root("hosts").AtListIndex(i), h, plan.NodeCIDRs, diags)
		}
	}
	if prior != nil {
		checkUpgrade(prior.Version, plan.Version, version.CheckUpgrade, diags)
	}
	checkConfig("scheduler_config", plan.SchedulerConfig, artifact.KubeScheduler, plan.Version, component.CheckSchedulerConfig, diags)
	if policy := plan.AuditPolicy.ValueString(); policy != "" {
		if err := component.CheckAuditPolicy([]byte(policy)); err != nil {
			diags.AddAttributeError(path.Root("audit_policy"), "Unusable audit policy", err.Error())
		}
	}
	checkAdmission(plan, diags)
	checkFlags(artifact.KubeAPIServer, plan.Version, "api_server_args", plan.APIServerArgs, diags)
	checkFlags(artifact.KubeControllerManager, plan.Version, "controller_manager_args", plan.ControllerManagerArgs, diags)
	checkFlags(artifact.KubeScheduler, plan.Version, "scheduler_args", plan.SchedulerArgs, diags)
	if v, err := version.Parse(plan.Version.ValueString()); err == nil && prior != nil {
		if err := component.CheckServedAPIs(v, component.SingleArgs(stringMap(prior.APIServerArgs))); err != nil {
			diags.AddAttributeError(path.Root("version"), "API version in use", err.Error())
		}
	}
}

// checkAdmission reports admission plugins that the release does not have.
func checkAdmission(plan *controlPlaneModel, diags *diag.Diagnostics) {
	v, err := version.Parse(plan.Version.ValueString())
	if err != nil {
		return
	}
	for name := range plan.AdmissionPlugins.Elements() {
		if err := component.CheckAdmissionPlugin(v, name); err != nil {
			diags.AddAttributeError(path.Root("admission_plugins").AtMapKey(name), "Unknown admission plugin", err.Error())
		}
	}
	if err := component.CheckAdmissionFlags(v, component.SingleArgs(stringMap(plan.APIServerArgs))); err != nil {
		diags.AddAttributeError(path.Root("api_server_args"), "Unknown admission plugin", err.Error())
	}
}

// checkNodeCIDRs reports subnets of machines that overlap each other, pods or services.
func checkNodeCIDRs(subnets types.Set, pods, services namedPrefix, diags *diag.Diagnostics) {
	known := prefixesFrom(subnets)
	for i, p := range known {
		nodes := namedPrefix{path.Root("node_cidrs"), "node_cidrs", p}
		checkDisjoint(nodes, pods, diags)
		checkDisjoint(nodes, services, diags)
		for _, other := range known[:i] {
			if p.Overlaps(other) {
				diags.AddAttributeError(nodes.path, "Overlapping networks", fmt.Sprintf("node_cidrs has %s and %s, which overlap: subnets do not.", other, p))
			}
		}
	}
}

// checkMachineNetwork reports a host outside the subnets of the machines.
func checkMachineNetwork(at path.Path, h hostModel, subnets types.Set, diags *diag.Diagnostics) {
	ip, known := parseAddr(h.PrivateIP), prefixesFrom(subnets)
	if !ip.IsValid() || len(known) == 0 || !allKnown(subnets) ||
		slices.ContainsFunc(known, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return
	}
	diags.AddAttributeError(at.AtName("private_ip"), "Machine outside the subnets of the machines",
		fmt.Sprintf("%s is in none of the control plane's node_cidrs, %s: add the subnet that %s is in.",
			ip, strings.Join(stringsFrom(subnets.Elements()), ", "), h.Name.ValueString()))
}

// firstAddress returns the n-th address of a network, counted from its base.
func firstAddress(p netip.Prefix, n int) netip.Addr {
	a := p.Masked().Addr()
	for range n {
		a = a.Next()
	}
	return a
}

func controlPlaneOutputs(ctx context.Context, m *controlPlaneModel, diags *diag.Diagnostics) {
	m.ID = clusterOf(ctx, m.PKI, diags)
	if m.DNSIP.IsUnknown() && !m.ServiceCIDR.IsUnknown() {
		m.DNSIP = types.StringValue(firstAddress(parsePrefix(m.ServiceCIDR), 10).String())
	}
	lb, _ := lbRefFrom(ctx, m.LB, diags)
	m.Ref = types.ObjectValueMust(controlPlaneRefType.AttrTypes, map[string]attr.Value{
		"cluster":          m.ID,
		"version":          m.Version,
		"endpoint":         lb.Endpoint,
		"private_endpoint": lb.PrivateEndpoint,
		"pod_cidr":         m.PodCIDR,
		"service_cidr":     m.ServiceCIDR,
		"node_cidrs":       m.NodeCIDRs,
		"dns_ip":           m.DNSIP,
		"domain":           m.Domain,
	})
}

func controlPlaneSpec(ctx context.Context, d *providerData, m *controlPlaneModel, diags *diag.Diagnostics) rollout.ControlPlane {
	ref, _ := pkiRefFrom(ctx, m.PKI, diags)
	lb, _ := lbRefFrom(ctx, m.LB, diags)
	etcd, _ := object[etcdRefModel](ctx, m.Etcd, diags)
	artifacts, err := d.catalog.ControlPlaneSet(m.Version.ValueString())
	checkDownloads(err, diags)
	admission := map[string]map[string]any{}
	for name, config := range stringMap(m.AdmissionPlugins) {
		o, err := parseObject(config)
		if err != nil {
			diags.AddAttributeError(path.Root("admission_plugins").AtMapKey(name), "Unusable configuration", err.Error())
		}
		admission[name] = o
	}
	targets := targetsFrom(ctx, d, m.Hosts, diags)
	spec := component.ControlPlaneSpec{
		Cluster: component.Cluster{
			Name:        ref.Cluster,
			Domain:      m.Domain.ValueString(),
			PodCIDR:     parsePrefix(m.PodCIDR),
			ServiceCIDR: parsePrefix(m.ServiceCIDR),
			NodeCIDRs:   prefixesFrom(m.NodeCIDRs),
			DNSIP:       parseAddr(m.DNSIP),
			PKI:         ref,
		},
		Version:               m.Version.ValueString(),
		PublicEndpoint:        lb.PublicHost.ValueString(),
		PrivateEndpoint:       lb.PrivateHost.ValueString(),
		ExtraSANs:             stringsFrom(m.ExtraSANs.Elements()),
		Nodes:                 nodesOf(targets),
		EtcdEndpoints:         stringsFrom(etcd.Endpoints.Elements()),
		Artifacts:             artifacts,
		AdmissionPlugins:      admission,
		SchedulerConfig:       objectFrom(m.SchedulerConfig),
		APIServerArgs:         component.SingleArgs(stringMap(m.APIServerArgs)),
		ControllerManagerArgs: component.SingleArgs(stringMap(m.ControllerManagerArgs)),
		SchedulerArgs:         component.SingleArgs(stringMap(m.SchedulerArgs)),
		EarlyRenewal:          duration(m.EarlyRenewal, 0),
	}
	if policy := m.AuditPolicy.ValueString(); policy != "" {
		spec.AuditPolicy = []byte(policy)
	}
	return rollout.ControlPlane{Spec: spec, Targets: targets}
}
