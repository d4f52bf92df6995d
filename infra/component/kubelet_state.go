package component

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// KubeletStateFiles are the files in which a kubelet keeps which processors and which memory it has given to
// pods. It does not start with files of another policy, of other reservations or of a machine with other
// processors or memory. Without them it makes new ones
// (pkg/kubelet/cm/cpumanager/policy_static.go and pkg/kubelet/cm/memorymanager/policy_static.go, validateState).
var KubeletStateFiles = []string{kubeletDir + "/cpu_manager_state", kubeletDir + "/memory_manager_state"}

// kubeletStateAtBoot has systemd-tmpfiles remove the state files when the machine boots. No container has been
// started by then, and the machine may have other processors than before.
func kubeletStateAtBoot() desired.File {
	var text strings.Builder
	text.WriteString("# What the kubelet has noted about processors and memory ends with its containers.\n")
	for _, p := range KubeletStateFiles {
		fmt.Fprintf(&text, "r! %s\n", p)
	}
	return desired.File{Path: kubeletTmpfiles, Mode: 0o644, Content: []byte(text.String())}
}

// Fields of a kubelet's configuration whose change needs a node without pods. Running pods have been placed
// by the former values, and the kubelet may not start with what is left of them.
var (
	emptyNodeFields = []string{
		"cgroupDriver", "cgroupRoot", "cgroupsPerQOS", "cpuManagerPolicy", "memoryManagerPolicy", "podLogsDir",
		"topologyManagerPolicy", "topologyManagerPolicyOptions", "topologyManagerScope", "userNamespaces.idsPerPod",
	}
	// pinnedFields are such fields while processors or memory are given to single pods.
	pinnedFields = []string{"cpuManagerPolicyOptions", "evictionHard", "kubeReserved", "reservedMemory", "reservedSystemCPUs", "systemReserved"}
)

// kubeletDefaults are the kubelet's own values of fields whose change needs an empty node
// (pkg/kubelet/apis/config/v1beta1/defaults.go).
var kubeletDefaults = map[string]any{
	"cgroupDriver": "cgroupfs", "cgroupsPerQOS": true, "cpuManagerPolicy": "none", "memoryManagerPolicy": kubeletconfig.NoneMemoryManagerPolicy,
	"podLogsDir": "/var/log/pods", "topologyManagerPolicy": kubeletconfig.NoneTopologyManagerPolicy,
	"topologyManagerScope": kubeletconfig.ContainerTopologyManagerScope, "userNamespaces.idsPerPod": int64(65536),
}

// EmptyNodeFields returns the fields of the kubelets' configuration that differ from the former one, and whose
// change needs nodes without pods.
func (s WorkerSpec) EmptyNodeFields(former WorkerSpec) []string {
	before, _, err := former.kubeletConfig()
	if err != nil {
		return nil // reported by KubeletSpec.check
	}
	now, _, err := s.kubeletConfig()
	if err != nil {
		return nil
	}
	return changedEmptyNodeFields(before, now)
}

// NodeTraces are the files that [JudgeNode] needs from a node.
var NodeTraces = append([]string{KubeletConfigPath, memInfo, onlineCPUs}, KubeletStateFiles...)

// JudgeNode returns why a kubelet cannot take over its wanted configuration while pods run on its node, by what
// was found there. It returns nothing where there is no kubelet yet. The error says what the kubelet reserves
// and the machine does not have.
func JudgeNode(f Found, wanted desired.State) (outgrown []string, err error) {
	i := slices.IndexFunc(wanted.Files, func(file desired.File) bool { return file.Path == KubeletConfigPath })
	if i < 0 {
		return nil, nil
	}
	now, typed := map[string]any{}, &kubeletconfig.KubeletConfiguration{}
	want := Found{Files: map[string][]byte{KubeletConfigPath: wanted.Files[i].Content}}
	if err := errors.Join(want.yaml(KubeletConfigPath, &now), want.yaml(KubeletConfigPath, typed)); err != nil {
		return nil, err
	}
	if f.Files[KubeletConfigPath] != nil {
		before := map[string]any{}
		if f.yaml(KubeletConfigPath, &before) == nil { // else the kubelet has been started with another text
			outgrown = changedEmptyNodeFields(before, now)
		}
		outgrown = append(outgrown, otherPolicies(f, now, outgrown)...)
	}
	return outgrown, checkCapacity(f, typed)
}

// otherPolicies returns the state files that are about other policies than the wanted ones.
func otherPolicies(f Found, now map[string]any, known []string) (out []string) {
	for i, field := range []string{"cpuManagerPolicy", "memoryManagerPolicy"} {
		var state struct{ PolicyName string }
		text := f.Files[KubeletStateFiles[i]]
		if len(text) == 0 || json.Unmarshal(text, &state) == nil && state.PolicyName == kubeletField(now, field) || slices.Contains(known, field) {
			continue
		}
		out = append(out, fmt.Sprintf("%s has the policy %q", path.Base(KubeletStateFiles[i]), state.PolicyName))
	}
	return out
}

func changedEmptyNodeFields(before, now map[string]any) []string {
	fields := slices.Clone(emptyNodeFields)
	if pins(before) || pins(now) {
		fields = append(fields, pinnedFields...)
	}
	return slices.DeleteFunc(fields, func(field string) bool { return sameSetting(kubeletField(before, field), kubeletField(now, field)) })
}

// pins reports whether a kubelet gives processors or memory to single pods.
func pins(config map[string]any) bool {
	return kubeletField(config, "cpuManagerPolicy") != kubeletDefaults["cpuManagerPolicy"] ||
		kubeletField(config, "memoryManagerPolicy") != kubeletDefaults["memoryManagerPolicy"]
}

// kubeletField returns the value that counts for a kubelet.
func kubeletField(config map[string]any, field string) any {
	name, below, nested := strings.Cut(field, ".")
	value, set := config[name], config[name] != nil
	if members, ok := value.(map[string]any); nested {
		value, set = members[below], ok && members[below] != nil
	}
	if fallback := kubeletDefaults[field]; !set || value == "" {
		return fallback
	}
	return value
}

// sameSetting compares values as decoded from YAML or made of a typed configuration. Quantities may be spelt
// in several ways.
func sameSetting(a, b any) bool {
	if x, ok := a.(map[string]any); ok {
		y, ok := b.(map[string]any)
		return ok && maps.EqualFunc(x, y, sameSetting)
	}
	if x, ok := a.([]any); ok {
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, sameSetting)
	}
	x, err1 := resource.ParseQuantity(fmt.Sprint(a))
	y, err2 := resource.ParseQuantity(fmt.Sprint(b))
	return reflect.DeepEqual(a, b) || err1 == nil && err2 == nil && x.Cmp(y) == 0
}
