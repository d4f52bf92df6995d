package component

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// goneFlags are flags that a program does not start with any more, by the first
// minor that has them no more. Names may hold * (path.Match).
type goneFlags struct {
	program      string
	major, minor int
	names        []string
	why          string
}

var allGoneFlags = []goneFlags{
	// kubernetes cmd/kubelet/app/options/globalflags_linux.go of 1.36
	{artifact.Kubelet, 1, 37, []string{
		"application-metrics-count-limit", "boot-id-file", "container-hints", "containerd", "containerd-namespace", "enable-load-reader",
		"event-storage-age-limit", "event-storage-event-limit", "global-housekeeping-interval", "log-cadvisor-usage", "machine-id-file",
		"storage-driver-buffer-duration", "storage-driver-db", "storage-driver-host", "storage-driver-password", "storage-driver-secure",
		"storage-driver-table", "storage-driver-user",
	}, "it was a flag of cAdvisor that the kubelet had by mistake"},
	// kubernetes CHANGELOG-1.37.md
	{artifact.KubeControllerManager, 1, 37, []string{"concurrent-service-syncs"}, "the service controller has left the program for the cloud controller managers"},
	// etcd server/embed/config.go and server/etcdmain/config.go of 3.6 and 3.7
	{artifact.Etcd, 3, 7, []string{"experimental-*"}, "what it did is a flag without experimental- or a feature gate"},
	{artifact.Etcd, 3, 7, []string{"discovery", "discovery-proxy"}, "the discovery service of etcd 2 is gone"},
}

// CheckFlags reports flags that a release of a program, "kubelet" or "etcd" say,
// does not have any more.
func CheckFlags(program string, v version.Version, args Args) error {
	var errs []error
	for _, gone := range allGoneFlags {
		if gone.program != program || v.Major() != gone.major || v.Minor() < gone.minor {
			continue
		}
		for name, values := range args {
			is := func(pattern string) bool { ok, err := path.Match(pattern, name); return ok && err == nil }
			if len(values) > 0 && slices.ContainsFunc(gone.names, is) {
				errs = append(errs, fmt.Errorf("%s %s does not start with --%s, which is gone since %d.%d: %s; take it out", program, v, name, gone.major, gone.minor, gone.why))
			}
		}
	}
	return errors.Join(errs...)
}

// newFields are fields of a program's configuration file by the first minor
// that knows them. The types that [CheckKubeletConfig] and its like decode with
// are the newest, and an older program does not start with a field it does not
// know (https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/).
type newFields struct {
	program string
	minor   int
	names   []string
}

var allNewFields = []newFields{
	// k8s.io/kubelet config/v1beta1/types.go of 1.36 and 1.37
	{artifact.Kubelet, 36, []string{"memoryReservationPolicy", "tlsCurvePreferences"}},
	{artifact.Kubelet, 37, []string{"defaultPodSysctls"}},
	// k8s.io/kube-scheduler config/v1/types.go of 1.36 and 1.37
	{artifact.KubeScheduler, 36, []string{"placementGenerate", "placementScore"}},
	{artifact.KubeScheduler, 37, []string{"podGroupPostFilter"}},
}

// CheckFields reports fields, at any depth of a configuration, that a release
// of the kubelet or of the scheduler does not have yet.
func CheckFields(program string, v version.Version, config map[string]any) error {
	var errs []error
	for _, since := range allNewFields {
		if since.program != program || v.Minor() >= since.minor {
			continue
		}
		for _, name := range since.names {
			if holdsField(config, name) {
				errs = append(errs, fmt.Errorf("%s %s does not know %s, which is new in 1.%d; take it out, or choose a newer version", program, v, name, since.minor))
			}
		}
	}
	return errors.Join(errs...)
}

func holdsField(config any, name string) bool {
	switch c := config.(type) {
	case map[string]any:
		if _, ok := c[name]; ok {
			return true
		}
		return slices.ContainsFunc(slices.Collect(maps.Values(c)), func(v any) bool { return holdsField(v, name) })
	case []any:
		return slices.ContainsFunc(c, func(v any) bool { return holdsField(v, name) })
	}
	return false
}

// KubeletChanges says which of the user's settings and flags mean something else
// to the kubelet of release now than to that of release old.
func KubeletChanges(old, now version.Version, config map[string]any, args Args) []string {
	if old.Minor() >= 37 || now.Minor() < 37 {
		return nil
	}
	var out []string
	_, typed, err := overlayKubelet(nil, config)
	if err != nil {
		return nil // reported by CheckKubeletConfig
	}
	const limit = "Until 1.36 it meant five a second, the default of the Kubernetes client. Set the number you want; without the setting it is 50."
	if typed.EventRecordQPS != nil && *typed.EventRecordQPS == 0 {
		out = append(out, fmt.Sprintf("eventRecordQPS: 0 lets kubelet %s report events without any limit, as its documentation says. %s", now, limit))
	}
	if slices.Equal(args["event-qps"], []string{"0"}) {
		out = append(out, fmt.Sprintf("--event-qps=0 lets kubelet %s report events without any limit, as its documentation says. %s", now, limit))
	}
	if typed.MemoryThrottlingFactor != nil {
		out = append(out, fmt.Sprintf("memoryThrottlingFactor had no effect until 1.36 unless the feature gate MemoryQoS was on. It is on in kubelet %s by default: "+
			"containers that come near their memory limit are slowed down (memory.high) on machines with cgroup v2.", now))
	}
	return out
}
