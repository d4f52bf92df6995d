package component

import (
	_ "embed"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

//go:embed pod_routes.sh
var podRoutesScript []byte

// podRoutes is one role's part in the routes to pods: its names on the machine, the number that marks its
// routes in the kernel, and their metric. A controller that is a node has the routes of both roles, so all of
// these differ: when one role comes or goes, the routes of the other stay. The numbers are not in use
// (iproute2, etc/iproute2/rt_protos).
type podRoutes struct {
	name             string
	protocol, metric int
}

var (
	nodePodRoutes       = podRoutes{"k8s-pod-routes", 114, 0}
	controllerPodRoutes = podRoutes{"k8s-controller-pod-routes", 115, 1}
)

func (r podRoutes) unit() string   { return r.name + ".service" }
func (r podRoutes) list() string   { return kubernetes + "/" + r.name }
func (r podRoutes) script() string { return "/usr/local/sbin/" + r.name }
func (r podRoutes) dropIn() string { return "/etc/systemd/networkd.conf.d/" + r.name + ".conf" }

// routesPackages are for ip, which the script calls.
var routesPackages = []string{"iproute2"}

// keepForeignRoutes keeps systemd-networkd from removing routes that it has not made when it starts
// again (networkd.conf(5), ManageForeignRoutes=). Where systemd-networkd does not run, nothing reads it.
const keepForeignRoutes = "[Network]\nManageForeignRoutes=no\n"

// addPodRoutes adds the routes of a worker.
func (w *worker) addPodRoutes() error {
	if w.spec.Cluster.PodRoutes == nil {
		w.m.State.Retired = append(w.m.State.Retired, nodePodRoutes.retired())
		return nil
	}
	w.addPackages(routesPackages...)
	nodePodRoutes.addTo(&w.m, w.spec.Cluster.podRoutesFrom(w.node))
	return nil
}

// addPodRoutes adds the routes of a controller.
func (c *controller) addPodRoutes() error {
	if c.spec.Cluster.PodRoutes == nil {
		c.m.State.Retired = append(c.m.State.Retired, controllerPodRoutes.retired())
		return nil
	}
	c.m.State.Packages = slices.Clone(routesPackages)
	controllerPodRoutes.addTo(&c.m, c.spec.Cluster.podRoutesFrom(c.node))
	return nil
}

// command returns the call of the script for an action.
func (r podRoutes) command(action string) string {
	return fmt.Sprintf("%s %s %s %d %d", r.script(), action, r.list(), r.protocol, r.metric)
}

// retired ends the routes that earlier settings have set.
func (r podRoutes) retired() desired.Retired {
	return desired.Retired{Unit: r.unit(), Paths: []string{unitPath(r.unit()), r.dropIn(), r.list(), r.script()},
		Cleanup: fmt.Sprintf("[ ! -x %s ] || %s", r.script(), r.command("unset"))}
}

// addTo adds a list of routes and the unit that sets them. PartOf: ifupdown, which is
// networking.service, removes them when it restarts.
func (r podRoutes) addTo(m *Machine, list []byte) {
	option, command := unit.NewUnitOption, r.command
	m.State.Files = append(m.State.Files,
		desired.File{Path: r.list(), Mode: 0o644, Content: list}.Readable(),
		desired.File{Path: r.script(), Mode: 0o755, Content: podRoutesScript},
		desired.File{Path: r.dropIn(), Mode: 0o644, Content: []byte(keepForeignRoutes)}.Readable(),
		unitFile(r.unit(), []*unit.UnitOption{
			option("Unit", "Description", "Routes to the pods of other nodes"),
			option("Unit", "Documentation", "man:ip-route(8)"),
			option("Unit", "After", "network-online.target networking.service"),
			option("Unit", "Wants", "network-online.target"),
			option("Unit", "PartOf", "networking.service"),
			option("Unit", "StartLimitIntervalSec", "0"),
			option("Service", "Type", "oneshot"),
			option("Service", "RemainAfterExit", "yes"),
			option("Service", "ExecStart", command("set")),
			option("Service", "ExecReload", command("set")),
			option("Service", "ExecStop", "-"+command("unset")),
			option("Service", "Restart", "on-failure"),
			option("Service", "RestartSec", "5"),
			option("Install", "WantedBy", "multi-user.target"),
		}))
	u := running(r.unit(), r.script())
	u.ReloadOn = []string{r.list()}
	u.Check, u.Undoes = command("check"), true
	m.State.Units = append(m.State.Units, u)
}

// podRoutesFrom returns the routes of a machine, which needs none to itself.
func (c Cluster) podRoutesFrom(n Node) []byte {
	out := []byte{} // not nil, which stands for an unknown content
	for _, pods := range c.routedPods() {
		if via := c.PodRoutes[pods]; via != n.PrivateIP {
			out = fmt.Appendf(out, "%s via %s\n", pods, via)
		}
	}
	return out
}

// routedPods returns the networks of PodRoutes in order.
func (c Cluster) routedPods() []netip.Prefix {
	return slices.SortedFunc(maps.Keys(c.PodRoutes), netip.Prefix.Compare)
}

// readPodRoutes sets the routes found on a controller, unless there are some.
func (c *Cluster) readPodRoutes(f Found) {
	if c.PodRoutes != nil {
		return
	}
	for line := range strings.Lines(string(f.Files[controllerPodRoutes.list()])) {
		network, via, _ := strings.Cut(strings.TrimSpace(line), " via ")
		pods, err := netip.ParsePrefix(network)
		address, err2 := netip.ParseAddr(via)
		if err != nil || err2 != nil {
			continue
		}
		if c.PodRoutes == nil {
			c.PodRoutes = map[netip.Prefix]netip.Addr{}
		}
		c.PodRoutes[pods] = address
	}
}

// checkPodRoutes reports routes that cannot lead to the pods of a node.
func (c Cluster) checkPodRoutes() (errs invalid.Fields) {
	all := c.routedPods()
	for i, pods := range all {
		via, field := c.PodRoutes[pods], fmt.Sprintf("pod_routes[%q]", pods)
		errs.Add(field, "Unusable network", HostPodCIDR.Check(pods))
		if c.PodCIDR.IsValid() && (!c.PodCIDR.Contains(pods.Addr()) || pods.Bits() <= c.PodCIDR.Bits()) {
			errs.Say(field, "Pod network outside the cluster's", "%s is not a part of the cluster's pod_cidr %s.", pods, c.PodCIDR)
		}
		if c.PodCIDR.Contains(via) || c.ServiceCIDR.Contains(via) {
			errs.Say(field, "Unusable address", "%s is an address of a pod or a service: a route leads to the private_ip of a node.", via)
		}
		checkSubnet(&errs, field, Host{Node: Node{Name: "this node", PrivateIP: via}}, c)
		if i > 0 && all[i-1].Overlaps(pods) {
			errs.Say(field, "Overlapping pod networks", "%s overlaps %s: each node has a network of its own.", pods, all[i-1])
		}
	}
	return errs
}

// checkRouted reports a node that the routes do not lead to.
func (c Cluster) checkRouted(f *invalid.Fields, field string, n Node) {
	if len(c.PodRoutes) == 0 || !n.PodCIDR.IsValid() || !n.PrivateIP.IsValid() {
		return
	}
	switch via, ok := c.PodRoutes[n.PodCIDR]; {
	case !ok:
		f.Say(field, "Node without a route to its pods", "pod_routes of the control plane has no route to %s, the pods of %s: add %q = %q.", n.PodCIDR, n.Name, n.PodCIDR, n.PrivateIP)
	case via != n.PrivateIP:
		f.Say(field, "Route to another node", "pod_routes of the control plane has a route to %s, the pods of %s, by %s, but the node's private_ip is %s.", n.PodCIDR, n.Name, via, n.PrivateIP)
	}
}
