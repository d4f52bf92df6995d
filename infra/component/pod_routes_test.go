package component

import (
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

var testRoutes = map[netip.Prefix]netip.Addr{
	netip.MustParsePrefix("10.200.1.0/24"): netip.MustParseAddr("10.240.0.21"),
	netip.MustParsePrefix("10.200.0.0/24"): netip.MustParseAddr("10.240.0.20"), // worker0
}

func routedCluster() Cluster {
	c := testCluster()
	c.PodRoutes = maps.Clone(testRoutes)
	return c
}

// TestPodRoutes checks which routes and units a machine gets.
func TestPodRoutes(t *testing.T) {
	ws, cs := workerSpec(t), controlPlaneSpec(t)
	for name, m := range map[string]Machine{"worker": must(t)(Workers(ws)(worker0)), "controller": must(t)(ControlPlane(cs, controllers[0]))} {
		if i := slices.IndexFunc(m.State.Paths(), func(p string) bool { return strings.Contains(p, "pod-routes") }); i >= 0 {
			t.Errorf("a %s has %s without being asked", name, m.State.Paths()[i])
		}
	}
	ws.Cluster, cs.Cluster = routedCluster(), routedCluster()
	w, c := must(t)(Workers(ws)(worker0)), must(t)(ControlPlane(cs, controllers[0]))
	const other, own = "10.200.1.0/24 via 10.240.0.21\n", "10.200.0.0/24 via 10.240.0.20\n"
	if got := fileOf(t, w, nodePodRoutes.list()); got != other {
		t.Errorf("routes of worker-0: %q", got)
	}
	if got := fileOf(t, c, controllerPodRoutes.list()); got != own+other {
		t.Errorf("routes of a controller: %q", got)
	}
	golden(t, "pod-routes.service", []byte(fileOf(t, w, unitPath(nodePodRoutes.unit()))))
	u := unitOf(t, w, nodePodRoutes.unit())
	if !slices.Contains(u.ReloadOn, nodePodRoutes.list()) || u.Check != "/usr/local/sbin/k8s-pod-routes check /etc/kubernetes/k8s-pod-routes 114 0" {
		t.Errorf("unit %+v", u)
	}
	// A controller that is a node has the routes of both roles, so that a role that comes or goes
	// does not remove the routes of the other one.
	node := controllers[0]
	node.PodCIDR = netip.MustParsePrefix("10.200.9.0/24")
	ws.Cluster.PodRoutes[node.PodCIDR] = node.PrivateIP
	cs.Cluster.PodRoutes = ws.Cluster.PodRoutes
	w, c = must(t)(Workers(ws)(node)), must(t)(ControlPlane(cs, node))
	if got := fileOf(t, w, nodePodRoutes.list()); got != own+other {
		t.Errorf("routes of a controller as a node: %q", got)
	}
	if got := fileOf(t, c, controllerPodRoutes.list()); got != own+other {
		t.Errorf("routes of a controller that is a node: %q", got)
	}
	if err := desired.Merge(w.State, c.State).Validate(); err != nil {
		t.Error(err)
	}
	// An empty map leaves the unit, which removes the routes.
	ws.Cluster.PodRoutes = map[netip.Prefix]netip.Addr{}
	if got := fileOf(t, must(t)(Workers(ws)(worker0)), nodePodRoutes.list()); got != "" {
		t.Errorf("routes of an empty map: %q", got)
	}
}

// TestCheckPodRoutes checks that routes that cannot work are reported, on the argument at fault.
func TestCheckPodRoutes(t *testing.T) {
	for name, tt := range map[string]struct{ pods, via, want string }{
		"fine":                 {"10.200.2.0/24", "10.240.0.22", ""},
		"another network":      {"10.201.2.0/24", "10.240.0.22", "is not a part of the cluster's pod_cidr 10.200.0.0/16"},
		"the whole network":    {"10.200.0.0/16", "10.240.0.22", "is not a part of the cluster's pod_cidr 10.200.0.0/16"},
		"by a pod":             {"10.200.2.0/24", "10.200.0.7", "10.200.0.7 is an address of a pod or a service"},
		"by a service":         {"10.200.2.0/24", "10.32.0.7", "10.32.0.7 is an address of a pod or a service"},
		"by a machine outside": {"10.200.2.0/24", "192.0.2.7", "192.0.2.7 is in none of the control plane's node_cidrs"},
		"twice":                {"10.200.1.128/25", "10.240.0.22", "10.200.1.128/25 overlaps 10.200.1.0/24"},
	} {
		t.Run(name, func(t *testing.T) {
			c := routedCluster()
			c.PodRoutes[netip.MustParsePrefix(tt.pods)] = netip.MustParseAddr(tt.via)
			errs := c.CheckNetworks()
			if tt.want == "" {
				if len(errs) > 0 {
					t.Fatal(errs.Err())
				}
				return
			}
			if len(errs) == 0 || errs[0].Field != `pod_routes["`+tt.pods+`"]` || !strings.Contains(errs[0].Err.Error(), tt.want) {
				t.Errorf("got %v", errs.Err())
			}
		})
	}
	spec := workerSpec(t)
	spec.Cluster = routedCluster()
	for name, tt := range map[string]struct {
		node Node
		want string
	}{
		"fine":            {worker0, ""},
		"not listed":      {node("worker-2", "10.240.0.22", "", "10.200.2.0/24"), `has no route to 10.200.2.0/24, the pods of worker-2: add "10.200.2.0/24" = "10.240.0.22"`},
		"another address": {node("worker-1", "10.240.0.22", "", "10.200.1.0/24"), "has a route to 10.200.1.0/24, the pods of worker-1, by 10.240.0.21, but the node's private_ip is 10.240.0.22"},
	} {
		errs := spec.CheckHosts([]Host{{Node: tt.node}})
		if tt.want == "" && len(errs) == 0 {
			continue
		}
		if len(errs) != 1 || tt.want == "" || errs[0].Field != "hosts[0].pod_cidr" || !strings.Contains(errs[0].Err.Error(), tt.want) {
			t.Errorf("%s: got %v", name, errs.Err())
		}
	}
}

// fakeIP keeps routes in the file table, in the form of ip-route(8).
const fakeIP = `#!/bin/sh
set -u
cd "$(dirname "$0")"
shift # -4
case "$1 $2" in
"route show") sed -n "s/ proto $4 metric .*\$/ dev eth0/p" table ;;
"route replace")
	[ "$5" != 192.0.2.99 ] || { echo "Error: Nexthop has invalid gateway." >&2; exit 2; }
	grep -v "^$3 .* metric $9\$" table >table.new
	echo "$3 via $5 proto $7 metric $9" >>table.new
	mv table.new table
	;;
"route del") grep -v "^$3 via $5 proto $7 metric " table >table.new; mv table.new table ;;
*) exit 9 ;;
esac
`

// TestPodRoutesScript runs the script that sets and checks the routes.
func TestPodRoutesScript(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(path(name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	table := func() string {
		t.Helper()
		b, err := os.ReadFile(path("table"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	write("ip", fakeIP)
	write("script", string(podRoutesScript))
	const foreign = "10.9.0.0/24 via 192.0.2.1 proto static metric 0\n10.200.1.0/24 via 192.0.2.21 proto 115 metric 1\n"
	write("table", foreign)
	run := func(action string) (string, error) {
		cmd := exec.CommandContext(t.Context(), path("script"), action, path("list"), "114", "0")
		cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
		out, err := cmd.CombinedOutput()
		return strings.Join(strings.Fields(string(out)), " "), err
	}
	expect := func(what, action, said string, fails bool) {
		t.Helper()
		if got, err := run(action); got != said || fails != (err != nil) {
			t.Errorf("%s: %q, %v; wanted %q", what, got, err, said)
		}
	}
	const a, b = "10.200.1.0/24 via 192.0.2.21\n", "10.200.2.0/24 via 192.0.2.22\n"
	mark := func(line string) string { return strings.TrimSuffix(line, "\n") + " proto 114 metric 0\n" }

	write("list", a+b)
	expect("check before", "check", "no route to 10.200.1.0/24 via 192.0.2.21; no route to 10.200.2.0/24 via 192.0.2.22", true)
	expect("set", "set", "", false)
	if got := table(); got != foreign+mark(a)+mark(b) {
		t.Fatalf("table %q", got)
	}
	expect("check", "check", "", false)

	write("table", foreign+mark(a))
	expect("a missing route", "check", "no route to 10.200.2.0/24 via 192.0.2.22", true)
	write("table", foreign+mark(a)+"10.200.2.0/24 via 192.0.2.23 proto 114 metric 0\n")
	expect("another gateway", "check", "no route to 10.200.2.0/24 via 192.0.2.22; unwanted route to 10.200.2.0/24 via 192.0.2.23", true)
	expect("set over it", "set", "", false)
	expect("check again", "check", "", false)

	write("list", b)
	expect("a node that has left", "check", "unwanted route to 10.200.1.0/24 via 192.0.2.21", true)
	expect("set without it", "set", "", false)
	if got := table(); got != foreign+mark(b) {
		t.Errorf("table %q", got)
	}

	write("list", "10.200.1.0/24 via 192.0.2.99\n"+b)
	expect("a gateway elsewhere", "set", "Error: Nexthop has invalid gateway. cannot set the route to 10.200.1.0/24: is 192.0.2.99 in a network of this machine?", true)
	if got := table(); got != foreign+mark(b) {
		t.Errorf("table %q", got)
	}

	write("list", "")
	expect("an empty list", "check", "unwanted route to 10.200.2.0/24 via 192.0.2.22", true)
	expect("set nothing", "set", "", false)
	if got := table(); got != foreign {
		t.Errorf("table %q", got)
	}
	expect("check nothing", "check", "", false)
	write("list", a)
	expect("set again", "set", "", false)
	expect("unset", "unset", "", false)
	if got := table(); got != foreign {
		t.Errorf("table %q", got)
	}
}
