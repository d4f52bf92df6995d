package component

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// LoadBalancerSpec describes the load balancer in front of the API servers.
type LoadBalancerSpec struct {
	Cluster     Cluster // only Name and PKI are used
	Backends    []Node
	Port        int    // zero means 6443
	StatsSocket string // empty means HAProxyStatsSocket
	// CheckInterval is how often HAProxy asks each API server whether it is ready; zero means
	// DefaultCheckInterval. Connecting, with the TLS handshake, may take as long, and the answer twice
	// as long, or five seconds.
	CheckInterval time.Duration
	// VirtualIP moves between Machines, of which the first has it first; zero means that there is none.
	VirtualIP netip.Addr
	// FormerIPs are on the machine that has VirtualIP too, for clients that do not know VirtualIP yet.
	FormerIPs []netip.Addr
	RouterID  int    // of VRRP; zero means DefaultRouterID
	Machines  []Node // of the load balancer
	// AllowedCIDRs are the networks that may reach the port; nil means that everybody may.
	AllowedCIDRs []netip.Prefix
	Extra        []desired.ExtraFile
}

// The interval of checks: its default, and its bounds. With a shorter interval HAProxy would treat an API server as
// down that is held while etcd's leadership moves (package fleet). With a longer interval an API server that is
// stopping would have to serve for longer than systemd waits for it.
const (
	DefaultCheckInterval = time.Second
	MinCheckInterval     = time.Second
	MaxCheckInterval     = 8 * time.Second
)

// EffectiveCheckInterval returns the interval, or its default.
func (s LoadBalancerSpec) EffectiveCheckInterval() time.Duration {
	return cmp.Or(s.CheckInterval, DefaultCheckInterval)
}

// HealthCheckName is the name in the API servers' certificates that HAProxy's checks ask for.
const HealthCheckName = "kubernetes"

// noticeChecks is after how many intervals HAProxy has noticed that an API server is stopping, which answers checks at
// once: the wait for a check, and two slow ones.
const noticeChecks = 3

// answerTimeout is how long an API server may take to answer a check, at least. One that gets no answer of etcd says
// after four seconds that it is not ready (--etcd-healthcheck-timeout and --etcd-readycheck-timeout, one after the
// other), and is drained then. Without an answer HAProxy would cut its connections, and the ones of all API servers at
// once while etcd stalls.
const answerTimeout = 5 * time.Second

// Notice is the time within which HAProxy notices that an API server is not ready, in whole seconds.
func (s LoadBalancerSpec) Notice() time.Duration {
	return (noticeChecks*s.EffectiveCheckInterval() + time.Second - 1).Truncate(time.Second)
}

// checkChecks reports an interval that HAProxy's checks cannot have.
func (s LoadBalancerSpec) checkChecks(errs *invalid.Fields) {
	switch every := s.EffectiveCheckInterval(); {
	case every < MinCheckInterval:
		errs.Say("check_interval", "Interval too short", "%s: checks are at least %s apart.", every, MinCheckInterval)
	case every > MaxCheckInterval:
		errs.Say("check_interval", "Interval too long", "%s: checks are at most %s apart. A stopping API server serves on for three intervals, and systemd ends it after 90 seconds.", every, MaxCheckInterval)
	case every%time.Millisecond != 0:
		errs.Say("check_interval", "Interval too exact", "%s: HAProxy counts in milliseconds.", every)
	}
}

// haproxyTime writes a duration as HAProxy reads it.
func haproxyTime(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}

// ListenPort is the port on which HAProxy listens.
func (s LoadBalancerSpec) ListenPort() int { return cmp.Or(s.Port, APIServerPort) }

var loadBalancerPackages = []string{"haproxy"}

// LoadBalancer returns what the load balancer's machine must look like: the distribution's HAProxy
// with this project's configuration. The error is about the specification.
func LoadBalancer(spec LoadBalancerSpec, n Node) (Machine, error) {
	err := errors.Join(n.validate("").Err(), requireCAs(spec.Cluster.PKI, pki.KubernetesCA))
	if len(spec.Backends) == 0 {
		err = errors.Join(err, errors.New("no API servers to balance"))
	} else {
		err = errors.Join(err, validateMembers("controllers", spec.Backends, spec.Backends[0]))
	}
	if spec.Port < 0 || spec.Port > 65535 {
		err = errors.Join(err, fmt.Errorf("port %d is out of range", spec.Port))
	}
	if strings.ContainsAny(spec.StatsSocket, " \t\n\"'\\#") {
		err = errors.Join(err, fmt.Errorf("stats socket %q is not a plain path", spec.StatsSocket))
	}
	if err != nil {
		return Machine{}, fmt.Errorf("load balancer %s: %w", n.Name, err)
	}
	spec.Port = spec.ListenPort()
	if spec.StatsSocket == "" {
		spec.StatsSocket = HAProxyStatsSocket
	}
	m := Machine{State: desired.State{
		// The package starts HAProxy with Debian's configuration, which listens on no port;
		// host.Apply restarts it with this one. A package whose service opened ports with its
		// default configuration would have to be kept from starting it.
		Packages: slices.Clone(loadBalancerPackages),
		Files: []desired.File{
			caFile(HAProxyCAPath, spec.Cluster.PKI.ServerBundle(pki.KubernetesCA)),
			desired.File{Path: HAProxyConfig, Mode: 0o644, Content: []byte(haproxyConfig(spec))}.Readable(),
		},
		Units: []desired.Unit{{
			Name: HAProxyUnit, Enabled: true, Active: true,
			// A reload passes the listening sockets to a new process; connections stay with the old
			// one.
			ReloadOn: []string{HAProxyConfig, HAProxyCAPath},
		}},
	}}
	if spec.VirtualIP.IsValid() {
		spec.addVirtualAddress(&m, n)
	} else {
		m.State.Retired = append(m.State.Retired, retiredVirtualAddress())
	}
	balancerFirewall(spec.Port).addTo(&m, spec.AllowedCIDRs, netip.Prefix{})
	return m.with(spec.Cluster, spec.Extra), nil
}

// Traces returns what [LoadBalancerSpec.Read] needs from a machine.
func (LoadBalancerSpec) Traces() Traces {
	return Traces{Files: []string{HAProxyConfig, VirtualAddressConfig, balancerFirewall(0).path()}}
}

var (
	bindLine      = regexp.MustCompile(`(?m)^\s*bind \*:(\d+)$`)
	checkInterval = regexp.MustCompile(` inter (\d+m?s) `)
)

// Read returns the specification with what is found on a load balancer of the fields that it lacks. The
// error is a [NothingFoundError] if the machine is not a load balancer.
func (s LoadBalancerSpec) Read(f Found) (LoadBalancerSpec, error) {
	s.readVirtualAddress(f)
	if s.AllowedCIDRs == nil {
		s.AllowedCIDRs = balancerFirewall(0).allowed(f)
	}
	if m := checkInterval.FindSubmatch(f.Files[HAProxyConfig]); m != nil && s.CheckInterval == 0 {
		if d, err := time.ParseDuration(string(m[1])); err == nil && d != DefaultCheckInterval {
			s.CheckInterval = d
		}
	}
	if s.Port != 0 {
		return s, nil
	}
	if m := bindLine.FindSubmatch(f.Files[HAProxyConfig]); m != nil {
		s.Port, _ = strconv.Atoi(string(m[1]))
	}
	if s.Port == 0 {
		return s, &NothingFoundError{"HAProxy's configuration on the machine is not one of this provider: is this the right host?"}
	}
	return s, nil
}

// haproxyConfig returns the configuration (https://docs.haproxy.org/2.6/configuration.html).
//
// A server's health has three values. With 200 on /readyz it is up. With any other answer the API
// server is stopping or not ready, so it is drained: it gets no new connections and keeps those it
// has (error-status L7OKC puts it in the state NOLB). With no answer, or one without a certificate
// of our CA, three times in a row, it is down and its connections are cut, so that clients of a lost machine notice.
func haproxyConfig(spec LoadBalancerSpec) string {
	every := spec.EffectiveCheckInterval()
	var b strings.Builder
	section := func(head string, lines ...string) {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(head + "\n")
		for _, l := range lines {
			b.WriteString("    " + l + "\n")
		}
	}
	section("global",
		"log /dev/log local0 notice",
		"user haproxy",
		"group haproxy",
		"maxconn 8192",
		"stats socket "+spec.StatsSocket+" mode 600 level admin",
		// The longest that connections of the old process last after a reload or a stop.
		"hard-stop-after 30m",
	)
	section("defaults",
		"mode tcp",
		"log global",
		"option dontlognull",
		"option tcplog",
		// EC2 forgets a connection after 350 seconds without a packet, on instance types of Nitro v6, and Linux begins to
		// send keepalives after two hours.
		"option clitcpka",
		"clitcpka-idle 60s",
		"clitcpka-intvl 15s",
		"clitcpka-cnt 4",
		"option srvtcpka",
		"srvtcpka-idle 60s",
		"srvtcpka-intvl 15s",
		"srvtcpka-cnt 4",
		"option redispatch",
		"retries 3",
		// A check has the shorter of this and of its interval for its connection and TLS handshake.
		"timeout connect "+haproxyTime(max(3*time.Second, every)),
		"timeout check "+haproxyTime(max(answerTimeout, 2*every)),
		// Watches, exec and port-forward may be silent for long; kubelets and client-go ping far
		// more often.
		"timeout client 4h",
		"timeout server 4h",
		"timeout tunnel 4h",
	)
	section("frontend kubernetes",
		fmt.Sprintf("bind *:%d", spec.Port),
		"default_backend kube-apiservers",
	)
	if spec.VirtualIP.IsValid() {
		section("frontend alive", aliveFrontend...)
	}
	lines := []string{
		"balance leastconn",
		"option httpchk",
		"http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host " + HealthCheckName + " hdr Connection close",
		"http-check expect status 200 error-status L7OKC",
		"default-server check check-ssl verify required ca-file " + HAProxyCAPath + " check-sni " + HealthCheckName + " verifyhost " + HealthCheckName +
			" inter " + haproxyTime(every) + " fastinter " + haproxyTime(every/4) + " downinter " + haproxyTime(every/2) +
			" fall 3 rise 1 on-marked-down shutdown-sessions",
	}
	for _, n := range spec.Backends {
		lines = append(lines, fmt.Sprintf("server %s %s", n.Name, netip.AddrPortFrom(n.PrivateIP, APIServerPort)))
	}
	section("backend kube-apiservers", lines...)
	return b.String()
}
