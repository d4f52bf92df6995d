package provider

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
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// TestStatusAttributes puts a status with an alarm, and an empty one, into the attributes of
// k8s_cluster_status. A member that does not answer has no database there.
func TestStatusAttributes(t *testing.T) {
	t.Parallel()
	var described datasource.SchemaResponse
	newClusterStatusDataSource().Schema(t.Context(), datasource.SchemaRequest{}, &described)
	set := func(st rollout.Status) tfsdk.State {
		t.Helper()
		hosts := types.ListNull(hostRef.Type())
		m := clusterStatusModel{PKI: types.ObjectNull(pkiRef.Type().AttrTypes), ControlPlane: types.ObjectNull(controlPlaneRef.Type().AttrTypes),
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
	alarm := rollout.EtcdAlarm{Machine: "controller-0", Member: "a", Type: etcd.NoSpace, Quota: 3000}
	for _, tt := range []struct {
		name      string
		status    rollout.Status
		databases map[string]etcdDatabase
		alarms    []string
	}{
		{"nothing was asked", rollout.Status{Healthy: true}, map[string]etcdDatabase{}, []string{}},
		{"an alarm, and a silent member",
			rollout.Status{Alarms: []rollout.EtcdAlarm{alarm}, Etcd: []rollout.EtcdMemberStatus{
				{Machine: "controller-0", ID: "a", DBSize: 2000, DBSizeInUse: 1000, DBQuota: 3000},
				{Machine: "controller-1", ID: "b", DBSize: 200, DBSizeInUse: 100},
				{Machine: "controller-2"},
			}},
			map[string]etcdDatabase{"controller-0": {Size: 2000, SizeInUse: 1000, Quota: 3000}, "controller-1": {Size: 200, SizeInUse: 100}},
			[]string{alarm.String()}},
	} {
		state := set(tt.status)
		var databases map[string]etcdDatabase
		var alarms []string
		get(state, "etcd_databases", &databases)
		get(state, "alarms", &alarms)
		if databases == nil || !maps.Equal(databases, tt.databases) {
			t.Errorf("%s: databases %v, wanted %v", tt.name, databases, tt.databases)
		}
		if alarms == nil || !slices.Equal(alarms, tt.alarms) {
			t.Errorf("%s: alarms %q, wanted %q", tt.name, alarms, tt.alarms)
		}
	}
}
