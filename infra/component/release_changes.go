package component

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// removedFlags are flags that a program no longer accepts, by the first minor without them. Names
// may contain * (path.Match).
type removedFlags struct {
	program      string
	major, minor int
	names        []string
	why          string
	advice       string
}

var allGoneFlags = []removedFlags{
	// kubernetes cmd/kubelet/app/options/globalflags_linux.go of 1.36
	{artifact.Kubelet, 1, 37, []string{
		"application-metrics-count-limit", "boot-id-file", "container-hints", "containerd", "containerd-namespace", "enable-load-reader",
		"event-storage-age-limit", "event-storage-event-limit", "global-housekeeping-interval", "log-cadvisor-usage", "machine-id-file",
		"storage-driver-buffer-duration", "storage-driver-db", "storage-driver-host", "storage-driver-password", "storage-driver-secure",
		"storage-driver-table", "storage-driver-user",
	}, "it was a flag of cAdvisor that the kubelet had by mistake", "take it out"},
	// kubernetes CHANGELOG-1.37.md
	{artifact.KubeControllerManager, 1, 37, []string{"concurrent-service-syncs"}, "the service controller has left the program for the cloud controller managers", "take it out"},
	// etcd server/embed/config.go and server/etcdmain/config.go of 3.6 and 3.7
	{artifact.Etcd, 3, 7, []string{"experimental-*"}, "the experiment is over",
		"use the flag without experimental- or, where there is none, a gate in feature-gates"},
	{artifact.Etcd, 3, 7, []string{"discovery", "discovery-proxy"}, "the discovery service of etcd 2 is gone", "take it out"},
}

// removedValues are values that a flag no longer accepts, by the first minor of Kubernetes whose
// programs reject them.
type removedValues struct {
	flag   string
	minor  int
	names  []string
	advice string
}

const featureGates = "feature-gates"

var allGoneValues = []removedValues{
	// kubernetes pkg/features/kube_features.go and k8s.io/apiserver pkg/features/kube_features.go
	// of 1.35, 1.36 and 1.37
	{featureGates, 36, []string{
		"CSIMigrationPortworx", "HonorPVReclaimPolicy", "InPlacePodVerticalScalingAllocatedStatus", "InTreePluginPortworxUnregister", "MemoryManager",
		"ServiceTrafficDistribution", "StructuredAuthorizationConfiguration", "TopologyAwareHints", "WatchFromStorageWithoutResourceVersion",
	}, goneGate},
	{featureGates, 37, []string{
		"APIServerTracing", "AnonymousAuthConfigurableEndpoints", "AnyVolumeDataSource", "AuthorizeNodeWithSelectors", "AuthorizeWithSelectors", "BtreeWatchCache",
		"ConsistentListFromCache", "GangScheduling", "JobBackoffLimitPerIndex", "JobPodReplacementPolicy", "JobSuccessPolicy", "LogarithmicScaleDown",
		"OrderedNamespaceDeletion", "PodLifecycleSleepAction", "PodLifecycleSleepActionAllowZero", "PreventStaticPodAPIReferences", "RelaxedDNSSearchValidation",
		"ResilientWatchCacheInitialization", "RetryGenerateName", "SchedulerQueueingHints", "SidecarContainers", "StreamingCollectionEncodingToJSON",
		"StreamingCollectionEncodingToProtobuf", "StructuredAuthenticationConfiguration", "WorkloadAwarePreemption",
	}, goneGate},
	// k8s.io/api scheduling of 1.35, 1.36 and 1.37
	{runtimeConfig, 36, []string{"scheduling.k8s.io/v1alpha1"}, goneAPI},
	{runtimeConfig, 37, []string{"scheduling.k8s.io/v1alpha2"}, goneAPI},
	// kubernetes cmd/kube-controller-manager/app/core.go of 1.36 and 1.37
	{"controllers", 37, []string{
		"service-lb-controller", "service", "node-route-controller", "route", "cloud-node-lifecycle-controller", "cloud-node-lifecycle",
	}, "take it out: it has left the program for the cloud controller managers"},
}

const (
	runtimeConfig = "runtime-config"
	goneGate      = "take it out: what it was for is always on, or is gone"
	goneAPI       = "delete its objects while the API servers still serve it, take it out in a separate apply, and then upgrade"
)

// checkArgs reports the errors of [CheckFlags] on their flags.
func checkArgs(f *invalid.Fields, program string, v version.Version, args Args) {
	for _, name := range slices.Sorted(maps.Keys(args)) {
		f.Add(ArgField(program, name), "Not in this release", CheckFlags(program, v, Args{name: args[name]}))
	}
}

// checkConfig reports a configuration object that a program would reject: one that it cannot
// decode, or with fields that its release does not have.
func checkConfig(f *invalid.Fields, field, program string, v version.Version, config map[string]any, decode func() error) {
	if len(config) == 0 {
		return
	}
	const problem = "Unusable configuration"
	err := decode()
	if wrong := (wrongTypes)(nil); errors.As(err, &wrong) {
		for _, e := range wrong {
			f.Say(field, problem, "%s.%w", field, e)
		}
		err = nil
	}
	f.Add(field, problem, errors.Join(err, checkFields(program, v, config)))
	checkOwnedFields(f, field, program, config)
}

// CheckFlags returns an error for flags, and values of flags, that a release of a program, such as
// "kubelet" or "etcd", no longer has.
func CheckFlags(program string, v version.Version, args Args) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if len(args[name]) == 0 {
			continue // the flag is removed
		}
		errs = append(errs, checkFlag(program, v, name), checkValues(program, v, name, args[name]))
	}
	return errors.Join(errs...)
}

func checkFlag(program string, v version.Version, name string) error {
	is := func(pattern string) bool { ok, err := path.Match(pattern, name); return ok && err == nil }
	for _, gone := range allGoneFlags {
		if gone.program == program && v.Major() == gone.major && v.Minor() >= gone.minor && slices.ContainsFunc(gone.names, is) {
			return fmt.Errorf("%s %s does not start with --%s, which is gone since %d.%d: %s; %s", program, v, name, gone.major, gone.minor, gone.why, gone.advice)
		}
	}
	return nil
}

// checkValues checks list values: "a,b", "a=true,kube:b=false", "*,-a".
func checkValues(program string, v version.Version, flag string, lists []string) error {
	var errs []error
	for _, list := range lists {
		for item := range strings.SplitSeq(list, ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(item), "=")
			name = strings.TrimPrefix(strings.TrimPrefix(name, "-"), "kube:")
			if gone, ok := removedValue(program, v, flag, name); ok {
				errs = append(errs, fmt.Errorf("%s %s does not start with --%s=%s, which is gone since 1.%d: %s", program, v, flag, item, gone.minor, gone.advice))
			}
		}
	}
	return errors.Join(errs...)
}

func removedValue(program string, v version.Version, flag, name string) (removedValues, bool) {
	i := slices.IndexFunc(allGoneValues, func(g removedValues) bool {
		return program != artifact.Etcd && g.flag == flag && v.Minor() >= g.minor && slices.Contains(g.names, name)
	})
	if i < 0 {
		return removedValues{}, false
	}
	return allGoneValues[i], true
}

// CheckServedAPIs returns an error for versions of API groups that the present command line of the
// API servers enables and release now does not serve. Objects stored in such a version could no
// longer be deleted, so removing the version together with the upgrade does not help.
func CheckServedAPIs(now version.Version, until Args) error {
	return checkValues(artifact.KubeAPIServer, now, runtimeConfig, until[runtimeConfig])
}

// newFields are fields of a program's configuration file by the first minor that has them.
// Configurations are decoded with the newest types. An older scheduler rejects a field it does not
// know, an older kubelet ignores it.
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

// checkFields returns an error for fields, at any depth of a program's configuration file, that its
// release does not have yet, and for feature gates that it no longer has. The zero release has
// everything.
func checkFields(program string, v version.Version, config map[string]any) error {
	var errs []error
	gates, _ := config["featureGates"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		if gone, ok := removedValue(program, v, featureGates, name); ok {
			errs = append(errs, fmt.Errorf("%s %s does not start with the feature gate %s, which is gone since 1.%d: %s", program, v, name, gone.minor, gone.advice))
		}
	}
	for _, since := range allNewFields {
		if since.program != program || v.IsZero() || v.Minor() >= since.minor {
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

// KubeletChanges returns the user's settings and flags that mean something else to a kubelet of
// release now than to one of release old, one sentence each.
func KubeletChanges(old, now version.Version, config map[string]any, args Args) []string {
	if old.Minor() >= 37 || now.Minor() < 37 {
		return nil
	}
	var out []string
	_, typed, err := overlayKubelet(nil, config)
	if err != nil {
		return nil // reported by KubeletSpec.check
	}
	if typed.EventRecordQPS != nil && *typed.EventRecordQPS == 0 {
		out = append(out, fmt.Sprintf("eventRecordQPS: 0 lets kubelet %s report events without any limit, as its documentation says. "+
			"Until 1.36 it meant five a second, the default of the Kubernetes client. Set the number you want; without the setting it is 50.", now))
	}
	gate, gated := typed.FeatureGates["MemoryQoS"]
	for _, list := range args[featureGates] {
		if strings.Contains(list, "MemoryQoS=") {
			gate, gated = strings.Contains(list, "MemoryQoS=true"), true
		}
	}
	switch factor := typed.MemoryThrottlingFactor != nil; {
	case factor && !gated:
		out = append(out, fmt.Sprintf("memoryThrottlingFactor had no effect until 1.36 unless the feature gate MemoryQoS was on. It is on in kubelet %s by default: on machines "+
			"with cgroup v2, containers are slowed down (memory.high) that come near their memory limit or, without one, near the memory of the node.", now))
	case !factor && gate:
		out = append(out, fmt.Sprintf("The feature gate MemoryQoS slowed containers down (memory.high) at nine tenths of their memory limit until 1.36. "+
			"Kubelet %s does so only where memoryThrottlingFactor is set.", now))
	}
	return out
}
