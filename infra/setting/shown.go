package setting

import (
	"regexp"
	"slices"
)

// shown are settings whose values have a grammar without room for a secret: names of modes, levels, plugins, features
// and cipher suites, sizes, networks and addresses. All others may hold a URL with a password, a token, or any text.
var shown = map[string]map[Kind][]string{
	"kube-apiserver": {Flag: {
		"audit-log-format", "audit-log-mode", "audit-webhook-mode", "authorization-mode", "disable-admission-plugins",
		"enable-admission-plugins", "endpoint-reconciler-type", "feature-gates", "kubelet-preferred-address-types", "logging-format",
		"runtime-config", "service-node-port-range",
		"show-hidden-metrics-for-version", "storage-backend", "storage-media-type", "tls-cipher-suites", "tls-curve-preferences", "tls-min-version",
	}},
	"kube-controller-manager": {Flag: {
		"cidr-allocator-type", "controllers", "feature-gates", "logging-format", "tls-cipher-suites", "tls-curve-preferences", "tls-min-version",
	}},
	"kube-scheduler": {
		Flag:  {"feature-gates", "logging-format", "tls-cipher-suites", "tls-min-version"},
		Field: {"leaderElection.resourceLock"},
	},
	"kubelet": {
		Flag: {"feature-gates", "logging-format"},
		Field: {
			"authorization.mode", "cgroupDriver", "clusterDNS", "containerLogMaxSize", "cpuCFSQuotaPeriod", "cpuManagerPolicy", "enforceNodeAllocatable",
			"evictionHard", "evictionMinimumReclaim", "evictionSoft", "evictionSoftGracePeriod", "hairpinMode", "kubeReserved", "logging.format",
			"memoryManagerPolicy", "memorySwap.swapBehavior", "reservedSystemCPUs", "systemReserved", "tlsCipherSuites", "tlsMinVersion",
			"topologyManagerPolicy", "topologyManagerScope",
		},
	},
	"kube-proxy": {
		Flag:  {"feature-gates", "logging-format"},
		Field: {"clusterCIDR", "detectLocalMode", "healthzBindAddress", "ipvs.scheduler", "logging.format", "metricsBindAddress", "mode", "nodePortAddresses"},
	},
	"containerd": {Field: {
		"debug.level", "disabled_plugins", "plugins.io.containerd.cri.v1.images.snapshotter",
		"plugins.io.containerd.cri.v1.runtime.containerd.default_runtime_name",
	}},
	"etcd": {Flag: {
		"auto-compaction-mode", "auto-compaction-retention", "cipher-suites", "log-format", "log-level", "logger", "metrics", "tls-max-version", "tls-min-version",
	}},
}

// Shown reports whether every value of a flag or a field may be shown, also as a part of what is below a field.
func Shown(program string, kind Kind, name string) bool {
	return slices.Contains(shown[program][kind], name) || kind == Field && slices.ContainsFunc(shown[program][kind], func(above string) bool {
		return len(name) > len(above) && name[:len(above)] == above && name[len(above)] == '.'
	})
}

// plain are switches, numbers, durations and quantities: too short to be a secret.
var plain = regexp.MustCompile(`^(?i:true|false|-?[0-9]{1,11}(\.[0-9]{1,3})?[a-z%]{0,2}|([0-9]{1,4}[hms]){2,3})$`)

// Plain reports whether a value cannot be a secret: a switch, a number of at most eleven digits, a duration or a quantity.
func Plain(value string) bool { return plain.MatchString(value) }
