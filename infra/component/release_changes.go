package component

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// Settings that a program no longer accepts are not listed here: the rehearsal before a roll finds them, and an
// installation fails with the program's message. Listed are changes that no program reports in time.

const (
	featureGates  = "feature-gates"
	runtimeConfig = "runtime-config"
)

// removedAPIs are versions of API groups, by the first minor of Kubernetes that does not serve them
// (k8s.io/api scheduling of 1.35, 1.36 and 1.37).
var removedAPIs = map[string]int{"scheduling.k8s.io/v1alpha1": 36, "scheduling.k8s.io/v1alpha2": 37}

// CheckServedAPIs returns an error for versions of API groups that a command line of the API servers enables, and
// which release v does not serve. Objects stored in such a version could no longer be deleted after an upgrade, so it
// does not help to remove the version together with it.
func CheckServedAPIs(v version.Version, args Args) error {
	var errs []error
	for _, list := range args[runtimeConfig] {
		for item := range strings.SplitSeq(list, ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(item), "=")
			if minor := removedAPIs[name]; minor > 0 && v.Minor() >= minor {
				errs = append(errs, fmt.Errorf("kube-apiserver %s does not start with --%s=%s, which was removed in 1.%d: delete its objects while the API servers still serve it, remove the setting in a separate "+
					"apply, and then upgrade", v, runtimeConfig, item, minor))
			}
		}
	}
	return errors.Join(errs...)
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
// release does not have yet. The zero release has everything.
func checkFields(program string, v version.Version, config map[string]any) error {
	var errs []error
	for _, since := range allNewFields {
		if since.program != program || v.IsZero() || v.Minor() >= since.minor {
			continue
		}
		for _, name := range since.names {
			if holdsField(config, name) {
				errs = append(errs, fmt.Errorf("%s %s does not know %s, which is new in 1.%d; remove it, or choose a newer version", program, v, name, since.minor))
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
		out = append(out, fmt.Sprintf("memoryThrottlingFactor had no effect until 1.36 unless the feature gate MemoryQoS was on. It is on in kubelet %s by default: on machines with cgroup v2, the kernel then "+
			"slows down (memory.high) containers that come near their memory limit, or without a limit near the memory of the node.", now))
	case !factor && gate:
		out = append(out, fmt.Sprintf("The feature gate MemoryQoS slowed containers down (memory.high) at nine tenths of their memory limit until 1.36. "+
			"Kubelet %s does so only where memoryThrottlingFactor is set.", now))
	}
	return out
}
