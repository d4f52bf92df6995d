package status

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/status"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// TestStatusAttributes puts a status with an alarm, and an empty one, into the attributes of
// k8s_cluster_status. A member that does not answer has no database there.
func TestStatusAttributes(t *testing.T) {
	t.Parallel()
	var described datasource.SchemaResponse
	NewDataSource().Schema(t.Context(), datasource.SchemaRequest{}, &described)
	set := func(st status.Cluster) tfsdk.State {
		t.Helper()
		hosts := types.ListNull(reference.OfHost.Type())
		m := clusterStatusModel{ControlPlane: types.ObjectNull(reference.OfControlPlane.Type().AttrTypes),
			Controllers: hosts, EtcdHosts: hosts, Workers: hosts}
		m.fill(t.Context(), st, time.Now())
		state := tfsdk.State{Schema: described.Schema, Raw: tftypes.NewValue(described.Schema.Type().TerraformType(t.Context()), nil)}
		if diags := state.Set(t.Context(), &m); diags.HasError() {
			t.Fatal(diags)
		}
		return state
	}
	get := func(s tfsdk.State, attribute string, to any) {
		t.Helper()
		if diags := s.GetAttribute(t.Context(), path.Root(attribute), to); diags.HasError() {
			t.Fatal(diags)
		}
	}
	alarm := status.EtcdAlarm{Machine: "controller-0", Member: "a", Type: etcd.NoSpace, Quota: 3000}
	for _, tt := range []struct {
		name      string
		status    status.Cluster
		databases map[string]etcdDatabase
		alarms    []string
	}{
		{"nothing was asked", status.Cluster{Healthy: true}, map[string]etcdDatabase{}, []string{}},
		{"an alarm, and a silent member",
			status.Cluster{Alarms: []status.EtcdAlarm{alarm}, Etcd: []status.EtcdMember{
				{Machine: "controller-0", ID: "a", DBSize: 2 << 30, DBSizeInUse: 1 << 30, DBQuota: 3 << 30,
					Disk: etcd.Disk{Syncs: 5000, Sync: 1024 * time.Millisecond, Commit: 8 * time.Millisecond}, RoundTrip: 1600 * time.Microsecond},
				{Machine: "controller-1", ID: "b", DBSize: 200, DBSizeInUse: 100},
				{Machine: "controller-2"},
			}},
			map[string]etcdDatabase{"controller-0": {Size: 2 << 30, SizeInUse: 1 << 30, Quota: 3 << 30, Fragmented: true}, "controller-1": {Size: 200, SizeInUse: 100}},
			[]string{alarm.String()}},
	} {
		state := set(tt.status)
		var databases map[string]etcdDatabase
		var alarms []string
		var disks map[string]etcdDisk
		get(state, "etcd_databases", &databases)
		get(state, "alarms", &alarms)
		get(state, "etcd_disks", &disks)
		var trips map[string]float64
		get(state, "etcd_round_trips", &trips)
		if trips == nil || len(trips) != len(tt.databases) || len(trips) > 0 && trips["controller-0"] != 1.6 {
			t.Errorf("%s: round trips %v, wanted 1.6 of controller-0", tt.name, trips)
		}
		if slow := (etcdDisk{Sync: 1024, Commit: 8, Slow: true}); disks == nil || len(disks) != len(tt.databases) || len(disks) > 0 && disks["controller-0"] != slow {
			t.Errorf("%s: disks %v, wanted %v of controller-0", tt.name, disks, slow)
		}
		if databases == nil || !maps.Equal(databases, tt.databases) {
			t.Errorf("%s: databases %v, wanted %v", tt.name, databases, tt.databases)
		}
		if alarms == nil || !slices.Equal(alarms, tt.alarms) {
			t.Errorf("%s: alarms %q, wanted %q", tt.name, alarms, tt.alarms)
		}
	}
}
