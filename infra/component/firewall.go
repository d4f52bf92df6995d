package component

import (
	"bytes"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// firewall is the packet filter of one role on its machines, in place of a security group: it drops packets to
// the role's ports from networks that are not allowed. Everything else passes, also SSH and the ports of other
// roles, so that each role of a machine has a filter of its own. Units are those that listen on the ports.
type firewall struct {
	role  string
	ports []int
	units []string
}

// Ports of the programs that their roles do not choose.
const (
	kubeletPort    = 10250
	proxyHealth    = 10256
	managerPort    = 10257
	schedulerPort  = 10259
	firewallPrefix = "/etc/"
)

var (
	etcdFirewall       = firewall{"etcd", []int{EtcdClientPort, EtcdPeerPort}, []string{EtcdUnit}}
	controllerFirewall = firewall{"controller", []int{APIServerPort, managerPort, schedulerPort},
		[]string{APIServerUnit, ControllerManagerUnit, SchedulerUnit}}
	nodeFirewall = firewall{"node", []int{kubeletPort, proxyHealth}, []string{KubeletUnit, KubeProxyUnit}}
)

// EtcdFirewallPath and EtcdFirewallUnit are the rules of a member and the unit that loads them.
var EtcdFirewallPath, EtcdFirewallUnit = etcdFirewall.path(), etcdFirewall.unit()

func balancerFirewall(port int) firewall {
	return firewall{"balancer", []int{port}, []string{HAProxyUnit}}
}

// name is that of the unit, the table and the file.
func (f firewall) name() string { return "k8s-" + f.role + "-firewall" }
func (f firewall) path() string { return firewallPrefix + f.name() + ".nft" }
func (f firewall) unit() string { return f.name() + ".service" }

// firewallRules is loaded with nft -f, which replaces the table at once. Its first line is read back.
var firewallRules = template.Must(template.New("").Parse(`# allowed: {{.Allowed}}
table inet {{.Name}}
delete table inet {{.Name}}
table inet {{.Name}} {
	chain input {
		type filter hook input priority filter; policy accept;
		iif "lo" accept
		tcp dport { {{.Ports}} } meta nfproto ipv6 drop
		tcp dport { {{.Ports}} } ip saddr != { {{.Sources}} } drop
	}
}
`))

// file returns the rules. Pods may reach a role if pods is valid.
func (f firewall) file(allowed []netip.Prefix, pods netip.Prefix) desired.File {
	var ports []string
	for _, p := range f.ports {
		ports = append(ports, strconv.Itoa(p))
	}
	sources := allowed
	if pods.IsValid() {
		sources = append(slices.Clone(allowed), pods)
	}
	var b bytes.Buffer
	// Writing strings to memory cannot fail.
	_ = firewallRules.Execute(&b, map[string]string{"Name": f.name(), "Allowed": strings.Join(inOrder(allowed), ", "), "Ports": strings.Join(ports, ", "),
		"Sources": strings.Join(apart(sources), ", ")})
	return desired.File{Path: f.path(), Mode: 0o644, Content: b.Bytes()}.Readable()
}

// apart returns networks in order without those that lie in another one, which nftables would refuse.
func apart(networks []netip.Prefix) []string {
	sorted := slices.SortedFunc(slices.Values(networks), func(a, b netip.Prefix) int {
		if a.Bits() != b.Bits() {
			return a.Bits() - b.Bits()
		}
		return a.Compare(b)
	})
	var kept []netip.Prefix
	for _, p := range sorted {
		if !slices.ContainsFunc(kept, p.Overlaps) {
			kept = append(kept, p)
		}
	}
	return inOrder(kept)
}

// inOrder returns networks as text, in order.
func inOrder(networks []netip.Prefix) (out []string) {
	for _, p := range slices.SortedFunc(slices.Values(networks), netip.Prefix.Compare) {
		out = append(out, p.String())
	}
	return out
}

// retired ends the rules that earlier settings have loaded.
func (f firewall) retired() desired.Retired {
	return desired.Retired{Unit: f.unit(), Paths: []string{unitPath(f.unit()), f.path()},
		Cleanup: fmt.Sprintf("! %[1]s list table inet %[2]s >/dev/null 2>&1 || %[1]s delete table inet %[2]s", nftProgram, f.name())}
}

// addTo adds the rules and the unit that loads them, and retires both if allowed is nil.
func (f firewall) addTo(m *Machine, allowed []netip.Prefix, pods netip.Prefix) {
	if allowed == nil {
		m.State.Retired = append(m.State.Retired, f.retired())
		return
	}
	m.State.Packages = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(m.State.Packages), "nftables"))))
	u := m.addRules(f.unit(), "Who reaches the ports of "+f.role, "inet "+f.name(), f.file(allowed, pods), f.units...)
	// The kernel lists rules in its own form, so only their number can be compared.
	u.Check = fmt.Sprintf(`[ "$(%s list table inet %s 2>/dev/null | grep -c ' drop$')" = 2 ] || { echo 'nftables lacks rules of table inet %s'; exit 1; }`,
		nftProgram, f.name(), f.name())
	// Before the programs of the role start.
	m.State.Units = slices.Insert(m.State.Units, 0, u)
}

var allowedLine = regexp.MustCompile(`^# allowed: (.+)\n`)

// allowed returns the networks in the file that f writes, nil if there is none.
func (f firewall) allowed(found Found) (out []netip.Prefix) {
	m := allowedLine.FindSubmatch(found.Files[f.path()])
	if m == nil {
		return nil
	}
	for _, s := range strings.Split(string(m[1]), ", ") {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// Admits reports whether a role with these allowed networks lets an address reach its ports. Everybody may if
// allowed is nil.
func Admits(allowed []netip.Prefix, address netip.Addr) bool {
	return allowed == nil || slices.ContainsFunc(allowed, func(p netip.Prefix) bool { return p.Contains(address) })
}

// CheckAllowed reports, on a field, machines that must reach a role's ports but are not allowed to,
// see [Admits].
func CheckAllowed(field string, allowed []netip.Prefix, hosts []Host, what string) (errs invalid.Fields) {
	for _, h := range hosts {
		if h.PrivateIP.IsValid() && !Admits(allowed, h.PrivateIP) {
			errs.Say(field, "Machine shut out", "%s, %s, is in none of the allowed networks: add its network, since %s.", h.Name, h.PrivateIP, what)
		}
	}
	return errs
}
