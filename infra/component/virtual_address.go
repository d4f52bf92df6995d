package component

import (
	"cmp"
	_ "embed"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

//go:embed virtual_address.bash
var virtualAddressScript []byte

// DefaultRouterID is the default number of the virtual address's VRRP router.
const DefaultRouterID = 51

const (
	virtualAddressScriptPath = "/usr/local/sbin/k8s-virtual-address"
	virtualAddressRun        = "k8s-virtual-address" // below /run
	// haproxyAlivePort is a port on loopback on which HAProxy says that it works.
	haproxyAlivePort = 8405
)

// virtualAddressPackages are keepalived, whose own service does not start without a configuration of its own,
// and ip, which the script calls.
var virtualAddressPackages = []string{"iproute2", "keepalived"}

// aliveFrontend answers whether HAProxy works. It does not ask whether there are API servers: without any, the
// address must stay where it is.
var aliveFrontend = []string{
	"mode http",
	"no log",
	fmt.Sprintf("bind 127.0.0.1:%d", haproxyAlivePort),
	"monitor-uri /alive",
}

// retiredVirtualAddress ends a keepalived that earlier settings have started. It takes the address off the
// interface when it stops.
func retiredVirtualAddress() desired.Retired {
	return desired.Retired{Unit: VirtualAddressUnit, Paths: []string{unitPath(VirtualAddressUnit), VirtualAddressConfig, virtualAddressScriptPath}}
}

// addVirtualAddress adds keepalived, which moves the virtual address to another machine when this one or its
// HAProxy is gone. All machines begin as backups and none takes the address back, so that it moves as rarely as
// possible.
func (s LoadBalancerSpec) addVirtualAddress(m *Machine, n Node) {
	option := unit.NewUnitOption
	const run = "/run/" + virtualAddressRun
	config := run + "/keepalived.conf"
	m.State.Packages = slices.Concat(m.State.Packages, virtualAddressPackages)
	m.State.Files = append(m.State.Files,
		desired.File{Path: virtualAddressScriptPath, Mode: 0o755, Content: virtualAddressScript},
		desired.File{Path: VirtualAddressConfig, Mode: 0o644, Content: s.keepalivedConfig(n)}.Readable(),
		unitFile(VirtualAddressUnit, []*unit.UnitOption{
			option("Unit", "Description", "Virtual address of the Kubernetes API"),
			option("Unit", "Documentation", "https://www.keepalived.org/manpage.html"),
			option("Unit", "After", "network-online.target "+HAProxyUnit),
			option("Unit", "Wants", "network-online.target"),
			option("Unit", "StartLimitIntervalSec", "0"),
			option("Service", "Type", typeExec),
			option("Service", "RuntimeDirectory", virtualAddressRun),
			option("Service", "ExecStartPre", strings.Join([]string{virtualAddressScriptPath, "configure", n.PrivateIP.String(), VirtualAddressConfig, config}, " ")),
			option("Service", "ExecStart", "/usr/sbin/keepalived --dont-fork --log-console --vrrp --use-file="+config+
				" --pid="+run+"/keepalived.pid --vrrp_pid="+run+"/vrrp.pid"),
			option("Service", "Restart", "always"),
			option("Service", "RestartSec", "1"),
			option("Install", "WantedBy", "multi-user.target"),
		}))
	u := running(VirtualAddressUnit, virtualAddressScriptPath, VirtualAddressConfig)
	u.Undoes = true // keepalived takes the address off the interface when it ends
	m.State.Units = append(m.State.Units, u)
}

// keepalivedConfig returns the template of keepalived's configuration on a machine (keepalived.conf(5)). The
// machines announce themselves to one another's addresses, not by multicast, which not every network carries.
func (s LoadBalancerSpec) keepalivedConfig(n Node) []byte {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("global_defs {\n    enable_script_security\n    script_user root\n    vrrp_garp_master_refresh 30\n}\n")
	line("vrrp_script haproxy {\n    script \"%s check %d\"\n    interval 1\n    timeout 2\n    fall 2\n    rise 2\n}\n", virtualAddressScriptPath, haproxyAlivePort)
	line("vrrp_instance kubernetes {\n    state BACKUP\n    nopreempt\n    interface @INTERFACE@")
	line("    virtual_router_id %d\n    priority %d\n    advert_int 1", s.VirtualRouterID(), 200-s.rank(n))
	if len(s.Machines) > 1 {
		line("    unicast_src_ip %s\n    unicast_peer {", n.PrivateIP)
		for _, other := range s.Machines {
			if other.PrivateIP != n.PrivateIP {
				line("        %s", other.PrivateIP)
			}
		}
		line("    }")
	}
	line("    virtual_ipaddress {\n        %s/32 dev @INTERFACE@\n    }", s.VirtualIP)
	if len(s.FormerIPs) > 0 {
		// Announcements have room for few addresses, and name these not at all.
		line("    virtual_ipaddress_excluded {")
		for _, ip := range s.FormerIPs {
			line("        %s/32 dev @INTERFACE@", ip)
		}
		line("    }")
	}
	line("    track_script {\n        haproxy\n    }\n}")
	return []byte(b.String())
}

// rank returns the place of a machine among those of the load balancer, from 0 on.
func (s LoadBalancerSpec) rank(n Node) int {
	return max(0, slices.IndexFunc(s.Machines, func(m Node) bool { return m.Name == n.Name }))
}

// VirtualRouterID is the number by which routers of VRRP know each other.
func (s LoadBalancerSpec) VirtualRouterID() int { return cmp.Or(s.RouterID, DefaultRouterID) }

var (
	virtualIPLine = regexp.MustCompile(`(?m)^\s*(\S+)/32 dev @INTERFACE@$`)
	routerIDLine  = regexp.MustCompile(`(?m)^\s*virtual_router_id (\d+)$`)
)

// readVirtualAddress sets the virtual addresses found on a machine.
func (s *LoadBalancerSpec) readVirtualAddress(f Found) {
	config := f.Files[VirtualAddressConfig]
	var found []netip.Addr
	for _, m := range virtualIPLine.FindAllSubmatch(config, -1) {
		if ip, err := netip.ParseAddr(string(m[1])); err == nil {
			found = append(found, ip)
		}
	}
	if len(found) > 0 && !s.VirtualIP.IsValid() {
		s.VirtualIP = found[0]
	}
	if len(found) > 1 && s.FormerIPs == nil {
		s.FormerIPs = found[1:]
	}
	if m := routerIDLine.FindSubmatch(config); m != nil && s.RouterID == 0 {
		s.RouterID, _ = strconv.Atoi(string(m[1]))
	}
	s.RouterID = s.VirtualRouterID()
}
