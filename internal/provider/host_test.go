package provider

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/iptypes"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/etcdcluster"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

func TestCompleteHost(t *testing.T) {
	check := func(o types.Object) string {
		var resp validator.ObjectResponse
		reference.CompleteHost{}.ValidateObject(context.Background(), validator.ObjectRequest{Path: path.Root("hosts").AtListIndex(1), ConfigValue: o}, &resp)
		var said []string
		for _, d := range resp.Diagnostics {
			said = append(said, d.Detail())
		}
		return strings.Join(said, " ")
	}
	h := reference.Host{
		Name: types.StringValue("a"), Address: types.StringUnknown(), PrivateIP: iptypes.NewIPv4AddressValue("10.0.0.1"),
		HostKey: types.StringUnknown(),
	}
	if said := check(reference.OfHost.Value(t.Context(), h)); said != "" {
		t.Errorf("a host of which something is not known yet: %s", said)
	}
	if said := check(reference.OfHost.Unknown()); said != "" {
		t.Errorf("a host of which nothing is known yet: %s", said)
	}
	h.HostKey, h.Address = types.StringNull(), types.StringNull()
	if said := check(reference.OfHost.Value(t.Context(), h)); said != "A host needs address. A host needs host_key." {
		t.Errorf("an incomplete host: %q", said)
	}
}

// TestHostErrors checks that an error about a host is on the host's attribute, and that an unknown
// value is no error.
func TestHostErrors(t *testing.T) {
	t.Parallel()
	c := newRoles(t)
	host := func(more values) values { return with(c.pool["hosts"].([]any)[0].(values), more) }
	pool := func(hosts ...any) values { return with(c.pool, values{"hosts": hosts}) }
	const first, second = `"hosts").ElementKeyInt(0): `, `"hosts").ElementKeyInt(1): `
	other := values{"name": "worker-1", "private_ip": "10.240.0.21", "address": "203.0.113.8", "pod_cidr": "10.200.1.0/24"}
	for _, test := range []struct {
		name, resource string
		config         values
		want           string
	}{
		{"all is well", "k8s_worker_pool", pool(host(nil), host(other)), ""},
		{"no pods", "k8s_worker_pool", pool(host(values{"pod_cidr": nil})),
			first + `Worker without a pod network: worker-0 needs pod_cidr, a part of the cluster's 10.200.0.0/16 that no other worker has: set it on its k8s_machine.`},
		{"pods not known yet", "k8s_worker_pool", pool(host(values{"pod_cidr": unknown})), ""},
		{"no pods of ours", "k8s_worker_pool", with(pool(host(values{"pod_cidr": nil})), values{"cni": "none"}), ""},
		{"pods outside", "k8s_worker_pool", pool(host(values{"pod_cidr": "10.201.0.0/24"})),
			first + `Pod network outside the cluster's: pod_cidr 10.201.0.0/24 of worker-0 is outside the cluster's pod_cidr 10.200.0.0/16.`},
		{"pods overlap", "k8s_worker_pool", pool(host(nil), host(with(other, values{"pod_cidr": "10.200.0.0/25"}))),
			second + `Overlapping pod networks: pod_cidr 10.200.0.0/25 of worker-1 overlaps 10.200.0.0/24 of worker-0.`},
		{"same name", "k8s_worker_pool", pool(host(nil), host(with(other, values{"name": "worker-0"}))),
			second + `Duplicate host: Host 1 has the same name as host 0: worker-0.`},
		{"a host not known yet", "k8s_worker_pool", pool(host(nil), unknown, host(nil)), ""},
		{"same address", "k8s_lb", values{"cluster": "demo", "host": host(nil), "port": 7443, "controllers": []any{host(nil), host(with(other, values{"address": "203.0.113.9"}))}, "pki": c.pool["pki"]},
			`"controllers").ElementKeyInt(1): Duplicate host: Host 1 has the same address as host 0: 203.0.113.9.`},
		{"two members", "k8s_etcd_cluster", with(c.etcd, values{"hosts": []any{host(nil), unknown}}),
			`"hosts"): Even number of etcd members: 2 etcd members tolerate no more failures than 1, and a split leaves neither half a majority: use 1, 3, 5 or 7.`},
	} {
		if got := c.instance(test.resource).plan(test.config).failure(); got != test.want {
			t.Errorf("%s: got %q, wanted %q", test.name, got, test.want)
		}
	}
}

// TestCheckRestoredMachines covers plans that restore, and delete the data of machines too.
func TestCheckRestoredMachines(t *testing.T) {
	t.Parallel()
	host := func(name, id string) reference.Host {
		h := reference.Host{Name: types.StringValue(name), InstanceID: types.StringValue(id)}
		if id == "?" {
			h.InstanceID = types.StringUnknown()
		}
		return h
	}
	before := []reference.Host{host("a", "i-1"), host("b", "i-2"), host("c", "i-3")}
	s3, one := etcdcluster.Restore{Bucket: "b"}, etcdcluster.Restore{Member: "a"}
	force := func(r etcdcluster.Restore) etcdcluster.Restore { r.ReplaceData = true; return r }
	for name, test := range map[string]struct {
		restore etcdcluster.Restore
		now     []reference.Host
		gone    string
		want    string // names in the error
	}{
		"in place":                      {s3, before, "", ""},
		"the others are gone":           {one, []reference.Host{before[0], host("b", "?"), host("c", "?")}, "i-2 i-3", ""},
		"all have been replaced":        {s3, []reference.Host{host("a", "i-7"), host("b", "i-8"), host("c", "i-9")}, "", ""},
		"one is replaced":               {s3, []reference.Host{before[0], host("b", "?"), before[2]}, "", "of b are"},
		"one leaves":                    {s3, before[:2], "", "of c are"},
		"one leaves, and that is meant": {force(s3), before[:2], "", "data of c are put aside"},
		"one leaves, and is gone":       {force(s3), before[:2], "i-3", ""},
		"the source is replaced":        {force(one), []reference.Host{host("a", "?"), before[1], before[2]}, "", "of a are"},
	} {
		var diags diag.Diagnostics
		checkRestoredMachines(test.restore, before, test.now, func(id string) bool { return id != "" && strings.Contains(test.gone, id) }, &diags)
		if (test.want == "") != (len(diags) == 0) || len(diags) > 0 && !strings.Contains(diags[0].Detail(), test.want) {
			t.Errorf("%s: got %v, wanted %q", name, diags, test.want)
		}
	}
}

// TestCheckQuorum covers plans that delete machines before their members can be replaced.
func TestCheckQuorum(t *testing.T) {
	t.Parallel()
	members := func(ids ...string) []reference.Host {
		var out []reference.Host
		for i, id := range ids {
			h := reference.Host{Name: types.StringValue(fmt.Sprintf("controller-%d", i)), InstanceID: types.StringValue(id)}
			switch id {
			case "":
				h.InstanceID = types.StringNull()
			case "?":
				h.InstanceID = types.StringUnknown()
			}
			if id, state, ok := strings.Cut(id, " "); ok {
				h.InstanceID, h.PowerState = types.StringValue(id), types.StringValue(state)
			}
			out = append(out, h)
		}
		return out
	}
	renamed := func(hosts []reference.Host) []reference.Host {
		for i := range hosts {
			hosts[i].Name = types.StringValue(fmt.Sprintf("etcd-%d", i))
		}
		return hosts
	}
	for _, test := range []struct {
		name        string
		before, now []reference.Host
		gone        string // ids of instances that are gone
		want        string // part of the error or warning
		severity    diag.Severity
	}{
		{"nothing happens", members("a", "b", "c"), members("a", "b", "c"), "", "", 0},
		{"one is replaced", members("a", "b", "c"), members("a", "?", "c"), "", "", 0},
		{"one has been replaced", members("a", "b", "c"), members("a", "d", "c"), "", "", 0},
		{"two are replaced", members("a", "b", "c"), members("?", "b", "?"), "", "controller-0, controller-2 would", diag.SeverityError},
		{"two of five are replaced", members("a", "b", "c", "d", "e"), members("?", "b", "?", "d", "e"), "", "", 0},
		{"five become three, one of them new", members("a", "b", "c", "d", "e"), members("?", "b", "c"), "", "controller-0, controller-3, controller-4", diag.SeverityError},
		{"three become five", members("a", "b", "c"), members("a", "b", "c", "?", "?"), "", "", 0},
		{"five become three", members("a", "b", "c", "d", "e"), members("a", "b", "c"), "", "", 0},
		{"three become one", members("a", "b", "c"), members("a"), "", "controller-1, controller-2 leave", diag.SeverityWarning},
		{"machines of one's own", members("", "", ""), members("", "", ""), "", "", 0},
		{"the only one becomes another", members("a"), []reference.Host{{Name: types.StringValue("other"), InstanceID: types.StringValue("b")}}, "", "None of the present members (controller-0)", diag.SeverityError},
		{"all leave for others", members("a", "b", "c"), renamed(members("d", "e", "f")), "", "Exchange one member an apply", diag.SeverityError},
		{"the only one is joined by two others", members("a"), members("a", "b", "c"), "", "", 0},
		{"of three the second one stays", members("a", "b", "c"), members("a", "b", "c")[1:2], "", "controller-0, controller-2 leave", diag.SeverityWarning},
		{"the only one is replaced", members("a"), members("?"), "", "data would be lost", diag.SeverityError},
		{"two are gone", members("a", "b", "c"), members("?", "?", "c"), "ab", "machines of controller-0, controller-1 are gone", diag.SeverityWarning},
		{"one is gone, another replaced", members("a", "b", "c"), members("?", "?", "c"), "a", "controller-0, controller-1 would", diag.SeverityError},
		{"two have been replaced", members("a", "b", "c"), members("d", "e", "c"), "", "machines of controller-0, controller-1 are gone", diag.SeverityWarning},
		{"all are gone", members("a", "b", "c"), members("?", "?", "?"), "abc", "restore_from", diag.SeverityWarning},
		{"one is stopped", members("a", "b", "c"), members("a", "b", "c stopped"), "", "", 0},
		{"one is stopped, another replaced", members("a", "b", "c stopped"), members("a", "?", "c stopped"), "",
			"controller-1 would be deleted before any new member can join. Of 3 members 1 would be left running, since controller-2 is stopped, and a quorum is 2.\n\nStart controller-2 first", diag.SeverityError},
		{"one stops, another is replaced", members("a", "b", "c"), members("a", "?", "c stopped"), "", "since controller-2 is stopped", diag.SeverityError},
		{"one is started, another replaced", members("a", "b", "c stopped"), members("a", "?", "c running"), "", "", 0},
		{"the stopped one is replaced", members("a", "b", "c stopped"), members("a", "b", "?"), "", "", 0},
		{"one of five is stopped, another replaced", members("a", "b", "c", "d", "e stopped"), members("?", "b", "c", "d", "e stopped"), "", "", 0},
		{"one is stopped, and two are replaced", members("a", "b", "c stopped"), members("?", "?", "c stopped"), "", "data would be lost", diag.SeverityError},
		{"one is stopped, another gone", members("a", "b", "c stopped"), members("a", "?", "c stopped"), "b", "Of 3 members 1 would be left running, since controller-2 is stopped", diag.SeverityWarning},
		{"one is stopped, another has been replaced", members("a", "b", "c stopped"), members("a", "d", "c stopped"), "", "once they run", diag.SeverityWarning},
		{"one is stopped, and another leaves", members("a", "b", "c stopped"), []reference.Host{members("a")[0], members("", "", "c stopped")[2]}, "", "controller-1 leave", diag.SeverityWarning},
		{"paused, and one is replaced", members("a paused", "b paused", "c paused"), members("a paused", "?", "c paused"), "", "", 0},
	} {
		var diags diag.Diagnostics
		checkQuorum(path.Root("hosts"), test.before, test.now, func(id string) bool { return strings.Contains(test.gone, id) }, &diags)
		if test.want == "" && len(diags) == 0 {
			continue
		}
		if len(diags) != 1 || diags[0].Severity() != test.severity || !strings.Contains(diags[0].Detail(), test.want) {
			t.Errorf("%s: got %v, wanted %q", test.name, diags, test.want)
		}
	}
}
