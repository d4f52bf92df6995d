package roles

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/etcdcluster"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

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
		{"the user's own machines", members("", "", ""), members("", "", ""), "", "", 0},
		{"the only one becomes another", members("a"), []reference.Host{{Name: types.StringValue("other"), InstanceID: types.StringValue("b")}}, "", "None of the present members (controller-0)", diag.SeverityError},
		{"all leave for others", members("a", "b", "c"), renamed(members("d", "e", "f")), "", "Exchange one member in each apply", diag.SeverityError},
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
