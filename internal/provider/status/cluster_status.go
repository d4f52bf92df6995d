// Package status has the data source of what a cluster is doing now, k8s_cluster_status. It changes nothing.
package status

import (
	"context"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/status"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

type clusterStatusDataSource struct{ session.Base }

var _ datasource.DataSourceWithConfigure = (*clusterStatusDataSource)(nil)

func NewDataSource() datasource.DataSource { return &clusterStatusDataSource{} }

// statusTimeout limits a query of a cluster in which nothing answers.
const statusTimeout = time.Minute

type clusterStatusModel struct {
	ControlPlane types.Object            `tfsdk:"control_plane"`
	Controllers  types.List              `tfsdk:"controllers"`
	EtcdHosts    types.List              `tfsdk:"etcd_hosts"`
	Workers      types.List              `tfsdk:"workers"`
	Healthy      types.Bool              `tfsdk:"healthy"`
	Version      types.String            `tfsdk:"version"`
	Nodes        []nodeStatus            `tfsdk:"nodes"`
	APIServers   []apiServerStatus       `tfsdk:"api_servers"`
	Leases       map[string]string       `tfsdk:"lease_holders"`
	Etcd         []etcdStatus            `tfsdk:"etcd_members"`
	Databases    map[string]etcdDatabase `tfsdk:"etcd_databases"`
	Disks        map[string]etcdDisk     `tfsdk:"etcd_disks"`
	RoundTrips   map[string]float64      `tfsdk:"etcd_round_trips"`
	Alarms       []string                `tfsdk:"alarms"`
	Certificates []certificateStatus     `tfsdk:"certificates"`
	Snapshot     types.Object            `tfsdk:"newest_snapshot"`
	Problems     []string                `tfsdk:"problems"`
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

type etcdDatabase struct {
	Size      int64 `tfsdk:"size"`
	SizeInUse int64 `tfsdk:"size_in_use"`
	Quota     int64 `tfsdk:"quota"`
	// Fragmented is what makes k8s_etcd_cluster plan a defragmentation.
	Fragmented bool `tfsdk:"fragmented"`
}

type etcdDisk struct {
	Sync   int64 `tfsdk:"sync_ms"`
	Commit int64 `tfsdk:"commit_ms"`
	Slow   bool  `tfsdk:"slow"`
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
	s.Receive(req.ProviderData)
}

// Schema implements datasource.DataSource.
func (s *clusterStatusDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	hosts := func(description string) schema.ListAttribute {
		return schema.ListAttribute{Optional: true, ElementType: reference.OfHost.Type(), MarkdownDescription: description}
	}
	text := func(description string) schema.StringAttribute {
		return schema.StringAttribute{Computed: true, MarkdownDescription: description}
	}
	boolean := func(description string) schema.BoolAttribute {
		return schema.BoolAttribute{Computed: true, MarkdownDescription: description}
	}
	number := func(description string) schema.Int64Attribute {
		return schema.Int64Attribute{Computed: true, MarkdownDescription: description}
	}
	list := func(description string, attributes map[string]schema.Attribute) schema.ListNestedAttribute {
		return schema.ListNestedAttribute{Computed: true, MarkdownDescription: description, NestedObject: schema.NestedAttributeObject{Attributes: attributes}}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "The present status of a cluster. A cluster that is unhealthy or cannot be reached never fails a plan: `healthy` is false, and `problems` and `alarms` say why. The " +
			"machines of a paused cluster are not asked: it is not healthy, and `problems` says so.",
		Attributes: map[string]schema.Attribute{
			"control_plane": schema.ObjectAttribute{Required: true, AttributeTypes: reference.OfControlPlane.Type().AttrTypes, MarkdownDescription: reference.ControlPlaneDescription},
			"controllers":   hosts("Machines of the API servers, which are asked directly. Default: none."),
			"etcd_hosts":    hosts("Machines of the etcd members, which are asked directly. Default: `controllers`."),
			"workers":       hosts("Machines of the workers, whose units and certificates are looked at. Default: none."),
			"healthy":       boolean("Whether everything that was asked (API servers, etcd members and nodes) answered and is healthy, no unit of theirs fails, etcd has no alarm, and no member has failed to take a snapshot."),
			"version":       text("Kubernetes release of the API server behind the public endpoint."),
			"nodes": list("Nodes, by name.", map[string]schema.Attribute{
				"name":          text("Name of the node."),
				"ready":         boolean("Whether the node is Ready."),
				"reason":        text("Why the node is not Ready; empty if it is."),
				"unschedulable": boolean("Whether the node is cordoned."),
				"internal_ip":   text("Private address."),
				"external_ip":   text("Public address."),
				"pod_cidr":      text("Network of the pods on the node."),
				"version":       text("Kubernetes release of the kubelet."),
				"runtime":       text("Container runtime and its version."),
			}),
			"api_servers": list("API servers, each asked directly.", map[string]schema.Attribute{
				"machine": text("Name of the machine."),
				"ready":   boolean("Whether `/readyz` reports that the API server is ready."),
				"version": text("Kubernetes release of the API server."),
				"failing": schema.ListAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "Checks of `/readyz` that fail."},
			}),
			"lease_holders": schema.MapAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "Lease of a leader election to the machine that holds it."},
			"etcd_members": list("etcd members, each asked directly.", map[string]schema.Attribute{
				"machine": text("Name of the machine."),
				"id":      text("Id of the member, in hexadecimal."),
				"healthy": boolean("Whether the member answers a linearizable read and has no alarm."),
				"leader":  boolean("Whether the member is the leader."),
				"learner": boolean("Whether the member is a learner, which does not vote yet."),
				"version": text("etcd release of the member."),
			}),
			"etcd_databases": schema.MapNestedAttribute{
				Computed: true,
				MarkdownDescription: "Machine of an etcd member to the size of its database, without the members that do not answer. " +
					"The sizes change all the time, so an output that has them shows up in most plans.",
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"size":        number("Size of the database's file in bytes. The quota limits it, and only a defragmentation makes it smaller."),
					"size_in_use": number("How many bytes of the file hold data."),
					"quota":       number("Size in bytes at which etcd stores nothing more and raises the alarm `NOSPACE`. 0 if the release of etcd does not report it (before 3.6), negative if there is no quota."),
					"fragmented":  boolean("Whether a defragmentation is worth the moment in which the member does not answer: at least 32 MiB are free inside, and either the file is a quarter of the quota or more and half of it is free, or the file is nine tenths of the quota and its data three quarters or less."),
				}},
			},
			"etcd_disks": schema.MapNestedAttribute{
				Computed: true,
				MarkdownDescription: "Machine of an etcd member to the speed of its disk since the member started, in powers of two of a millisecond, without the members that do not answer. " +
					"etcd advises at most 10 ms for `sync_ms` and 25 ms for `commit_ms`. An output that has them shows up in some plans.",
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"sync_ms":   number("Of the writes to the log, 99 of 100 were synced within this time."),
					"commit_ms": number("Of the commits to the database, 99 of 100 took at most this time."),
					"slow":      boolean("Whether, of at least 2000 writes, more than one in a hundred took longer than 512 ms. Members then lose their leader under load. It does not make the cluster unhealthy."),
				}},
			},
			"etcd_round_trips": schema.MapAttribute{
				Computed: true, ElementType: types.Float64Type,
				MarkdownDescription: "Machine of an etcd member to milliseconds: the smoothed round trips of etcd's probes to the farthest member, an upper bound (0.1, 0.2, 0.4, ...) for 99 of 100 since the member " +
					"started. 0 without another member, and on a learner. An output that has them shows up in some plans.",
			},
			"alarms": schema.ListAttribute{Computed: true, ElementType: types.StringType,
				MarkdownDescription: "Active alarms of etcd (`NOSPACE`, `CORRUPT`), one sentence each: the machine, what the alarm means and what to do. The next apply of `k8s_etcd_cluster` ends `NOSPACE`."},
			"certificates": list("Certificates on the given machines.", map[string]schema.Attribute{
				"machine":   text("Name of the machine."),
				"path":      text("Path of the file."),
				"subject":   text("Common name of the certificate."),
				"issuer":    text("Common name of the certificate authority that issued it."),
				"not_after": text("Expiry of the certificate, in RFC 3339."),
			}),
			"newest_snapshot": schema.ObjectAttribute{Computed: true, AttributeTypes: reference.OfSnapshot.Type().AttrTypes,
				MarkdownDescription: "The newest good snapshot of etcd, with the attributes of `newest` of `k8s_etcd_backup`. Null if the members keep none, or none of them knows."},
			"problems": schema.ListAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "What is unhealthy or could not be asked, and why, one sentence each. A unit that fails is named with the last error in its journal."},
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
	cp, _ := reference.OfControlPlane.Read(ctx, m.ControlPlane, &resp.Diagnostics)
	ref, _ := reference.PKIFrom(ctx, cp.PKI, &resp.Diagnostics)
	query := status.Query{
		API:         fleet.API{Endpoint: cp.Endpoint.ValueString(), PKI: ref},
		Controllers: reference.TargetsFrom(ctx, s.Session, m.Controllers, &resp.Diagnostics),
		Etcd:        reference.TargetsFrom(ctx, s.Session, m.EtcdHosts, &resp.Diagnostics),
		Workers:     reference.TargetsFrom(ctx, s.Session, m.Workers, &resp.Diagnostics),
	}
	if m.EtcdHosts.IsNull() {
		query.Etcd = query.Controllers
	}
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, statusTimeout))
	defer cancel()
	seen := status.Cluster{Problems: []string{"The machines of the API servers are stopped on purpose, so nothing was asked."}}
	if cp.PowerState.ValueString() != reference.Stopped {
		seen = status.Of(ctx, s.Session.Fleet(ctx), query)
	}
	m.fill(ctx, seen, s.Session.Now())
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// fill sets the attributes from what was observed. The values are stable as long as the cluster
// does not change, so that an output that uses them does not show up in every plan. Only the sizes
// of etcd's databases, the speed of disks, the round trips and the age of the newest snapshot are not,
// so they are in attributes of their own.
func (m *clusterStatusModel) fill(ctx context.Context, st status.Cluster, now time.Time) {
	m.Snapshot = reference.SnapshotValue(ctx, st.Snapshot, now)
	m.Healthy, m.Version = types.BoolValue(st.Healthy), types.StringValue(st.Version)
	m.Problems = append([]string{}, st.Problems...)
	m.Nodes, m.APIServers, m.Etcd, m.Certificates = []nodeStatus{}, []apiServerStatus{}, []etcdStatus{}, []certificateStatus{}
	m.Databases, m.Disks, m.RoundTrips, m.Alarms = map[string]etcdDatabase{}, map[string]etcdDisk{}, map[string]float64{}, []string{}
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
		if e.ID != "" {
			space := etcd.Space{Size: e.DBSize, InUse: e.DBSizeInUse, Quota: e.DBQuota}
			m.Databases[e.Machine] = etcdDatabase{space.Size, space.InUse, space.Quota, space.Fragmented()}
			m.Disks[e.Machine] = etcdDisk{e.Disk.Sync.Milliseconds(), e.Disk.Commit.Milliseconds(), e.Disk.Slow()}
			m.RoundTrips[e.Machine] = float64(e.RoundTrip.Microseconds()) / 1000
		}
	}
	for _, a := range st.Alarms {
		m.Alarms = append(m.Alarms, a.String())
	}
	for _, c := range st.Certificates {
		m.Certificates = append(m.Certificates, certificateStatus{c.Machine, c.Path, c.Subject, c.Issuer, c.NotAfter.UTC().Format(time.RFC3339)})
	}
}
