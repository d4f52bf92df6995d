package provider

import (
	"context"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

type clusterStatusDataSource struct{ base }

var _ datasource.DataSourceWithConfigure = (*clusterStatusDataSource)(nil)

func newClusterStatusDataSource() datasource.DataSource { return &clusterStatusDataSource{} }

// statusTimeout bounds asking a cluster of which everything hangs.
const statusTimeout = time.Minute

type clusterStatusModel struct {
	PKI          types.Object        `tfsdk:"pki"`
	ControlPlane types.Object        `tfsdk:"control_plane"`
	Controllers  types.List          `tfsdk:"controllers"`
	EtcdHosts    types.List          `tfsdk:"etcd_hosts"`
	Workers      types.List          `tfsdk:"workers"`
	Healthy      types.Bool          `tfsdk:"healthy"`
	Version      types.String        `tfsdk:"version"`
	Nodes        []nodeStatus        `tfsdk:"nodes"`
	APIServers   []apiServerStatus   `tfsdk:"api_servers"`
	Leases       map[string]string   `tfsdk:"lease_holders"`
	Etcd         []etcdStatus        `tfsdk:"etcd_members"`
	Certificates []certificateStatus `tfsdk:"certificates"`
	Problems     []string            `tfsdk:"problems"`
}

type nodeStatus struct {
	Name          string `tfsdk:"name"`
	Ready         bool   `tfsdk:"ready"`
	Reason        string `tfsdk:"reason"`
	Unschedulable bool   `tfsdk:"unschedulable"`
	InternalIP    string `tfsdk:"internal_ip"`
	ExternalIP    string `tfsdk:"external_ip"`
	PodCIDR       string `tfsdk:"pod_cidr"`
	Version       string `tfsdk:"version"`
	Runtime       string `tfsdk:"runtime"`
}

type apiServerStatus struct {
	Machine string   `tfsdk:"machine"`
	Ready   bool     `tfsdk:"ready"`
	Version string   `tfsdk:"version"`
	Failing []string `tfsdk:"failing"`
}

type etcdStatus struct {
	Machine string `tfsdk:"machine"`
	ID      string `tfsdk:"id"`
	Healthy bool   `tfsdk:"healthy"`
	Leader  bool   `tfsdk:"leader"`
	Learner bool   `tfsdk:"learner"`
	Version string `tfsdk:"version"`
}

type certificateStatus struct {
	Machine  string `tfsdk:"machine"`
	Path     string `tfsdk:"path"`
	Subject  string `tfsdk:"subject"`
	Issuer   string `tfsdk:"issuer"`
	NotAfter string `tfsdk:"not_after"`
}

// Metadata implements datasource.DataSource.
func (s *clusterStatusDataSource) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_cluster_status"
}

// Configure implements datasource.DataSourceWithConfigure.
func (s *clusterStatusDataSource) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	s.configure(req.ProviderData)
}

// Schema implements datasource.DataSource.
func (s *clusterStatusDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	hosts := func(description string) schema.ListAttribute {
		return schema.ListAttribute{Optional: true, ElementType: hostRef.Type(), MarkdownDescription: description}
	}
	text := func(description string) schema.StringAttribute {
		return schema.StringAttribute{Computed: true, MarkdownDescription: description}
	}
	truth := func(description string) schema.BoolAttribute {
		return schema.BoolAttribute{Computed: true, MarkdownDescription: description}
	}
	list := func(description string, attributes map[string]schema.Attribute) schema.ListNestedAttribute {
		return schema.ListNestedAttribute{Computed: true, MarkdownDescription: description, NestedObject: schema.NestedAttributeObject{Attributes: attributes}}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "How a cluster is at this moment. An unhealthy cluster, or one that cannot be reached, never fails a plan: `healthy` is false and `problems` says why.",
		Attributes: map[string]schema.Attribute{
			"pki":           schema.ObjectAttribute{Required: true, AttributeTypes: pkiRef.Type().AttrTypes, MarkdownDescription: pkiRefDescription},
			"control_plane": schema.ObjectAttribute{Required: true, AttributeTypes: controlPlaneRef.Type().AttrTypes, MarkdownDescription: controlPlaneRefDescription},
			"controllers":   hosts("Machines of the API servers, to ask each directly. Default: none is asked."),
			"etcd_hosts":    hosts("Machines of the etcd members. Default: `controllers`."),
			"workers":       hosts("Machines of the workers, for their certificates. Default: none is asked."),
			"healthy":       truth("Whether every API server, etcd member and node that was asked is well, and all could be asked."),
			"version":       text("Version of the API server behind the endpoint."),
			"nodes": list("Nodes, by name.", map[string]schema.Attribute{
				"name":          text("Name."),
				"ready":         truth("Whether it is Ready."),
				"reason":        text("Why it is not; empty when it is."),
				"unschedulable": truth("Whether it is cordoned."),
				"internal_ip":   text("Private address."),
				"external_ip":   text("Public address."),
				"pod_cidr":      text("Network of its pods."),
				"version":       text("Version of its kubelet."),
				"runtime":       text("Container runtime and its version."),
			}),
			"api_servers": list("API servers, each asked directly.", map[string]schema.Attribute{
				"machine": text("Machine."),
				"ready":   truth("Whether `/readyz` says so."),
				"version": text("Version."),
				"failing": schema.ListAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "Checks of `/readyz` that do not pass."},
			}),
			"lease_holders": schema.MapAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "Leader election lease to the machine that holds it."},
			"etcd_members": list("etcd members, each asked directly.", map[string]schema.Attribute{
				"machine": text("Machine."),
				"id":      text("Member id, hexadecimal."),
				"healthy": truth("Whether it answers a linearizable read."),
				"leader":  truth("Whether it leads."),
				"learner": truth("Whether it does not vote yet."),
				"version": text("Version."),
			}),
			"certificates": list("Certificates on the machines that were given.", map[string]schema.Attribute{
				"machine":   text("Machine."),
				"path":      text("File."),
				"subject":   text("Common name."),
				"issuer":    text("Common name of the authority."),
				"not_after": text("When it expires, RFC 3339."),
			}),
			"problems": schema.ListAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "What could not be asked and why, one sentence each."},
		},
	}
}

// Read implements datasource.DataSource.
func (s *clusterStatusDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m clusterStatusModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ref, _ := pkiRefFrom(ctx, m.PKI, &resp.Diagnostics)
	cp, _ := controlPlaneRef.Read(ctx, m.ControlPlane, &resp.Diagnostics)
	query := rollout.StatusQuery{
		API:         rollout.API{Endpoint: cp.Endpoint.ValueString(), PKI: ref},
		Controllers: targetsFrom(ctx, s.data, m.Controllers, &resp.Diagnostics),
		Etcd:        targetsFrom(ctx, s.data, m.EtcdHosts, &resp.Diagnostics),
		Workers:     targetsFrom(ctx, s.data, m.Workers, &resp.Diagnostics),
	}
	if m.EtcdHosts.IsNull() {
		query.Etcd = query.Controllers
	}
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	m.take(s.data.engine(ctx).Status(ctx, query))
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// take fills in what was seen. Nothing in it changes while the cluster stays
// as it is, so that an output made of it does not show up in every plan.
func (m *clusterStatusModel) take(st rollout.Status) {
	m.Healthy, m.Version = types.BoolValue(st.Healthy), types.StringValue(st.Version)
	m.Problems = append([]string{}, st.Problems...)
	m.Nodes, m.APIServers, m.Etcd, m.Certificates = []nodeStatus{}, []apiServerStatus{}, []etcdStatus{}, []certificateStatus{}
	for _, n := range st.Nodes {
		m.Nodes = append(m.Nodes, nodeStatus{n.Name, n.Ready, n.Reason, n.Unschedulable, n.InternalIP, n.ExternalIP, n.PodCIDR, n.Version, n.Runtime})
	}
	for _, a := range st.APIServers {
		m.APIServers = append(m.APIServers, apiServerStatus{a.Machine, a.Ready, a.Version, append([]string{}, a.Failing...)})
	}
	m.Leases = map[string]string{}
	for _, l := range st.Leases {
		m.Leases[l.Name] = l.Holder
	}
	for _, e := range st.Etcd {
		m.Etcd = append(m.Etcd, etcdStatus{e.Machine, e.ID, e.Healthy, e.Leader, e.Learner, e.Version})
	}
	for _, c := range st.Certificates {
		m.Certificates = append(m.Certificates, certificateStatus{c.Machine, c.Path, c.Subject, c.Issuer, c.NotAfter.UTC().Format(time.RFC3339)})
	}
}
