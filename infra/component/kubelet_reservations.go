package component

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/setting"
)

// kubeletStateFiles are the files in which a kubelet keeps which processors and which memory it has given to
// pods. It does not start with files of another policy, of other reservations or of a machine with other
// processors or memory. Without them it makes new ones
// (pkg/kubelet/cm/cpumanager/policy_static.go and pkg/kubelet/cm/memorymanager/policy_static.go, validateState).
var kubeletStateFiles = []string{kubeletDir + "/cpu_manager_state", kubeletDir + "/memory_manager_state"}

// kubeletStateAtBoot has systemd-tmpfiles remove the state files when the machine boots. No container has been
// started by then, and the machine may have other processors than before.
func kubeletStateAtBoot() desired.File {
	var text strings.Builder
	text.WriteString("# What the kubelet has noted about processors and memory ends with its containers.\n")
	for _, p := range kubeletStateFiles {
		fmt.Fprintf(&text, "r! %s\n", p)
	}
	return desired.File{Path: kubeletTmpfiles, Mode: 0o644, Content: []byte(text.String())}.Readable()
}

// kubeletDefaults are the kubelet's own values of fields whose change needs an empty node
// (pkg/kubelet/apis/config/v1beta1/defaults.go).
var kubeletDefaults = map[string]any{
	"cgroupDriver": "cgroupfs", "cgroupsPerQOS": true, "cpuManagerPolicy": "none", "memoryManagerPolicy": kubeletconfig.NoneMemoryManagerPolicy,
	"podLogsDir": "/var/log/pods", "topologyManagerPolicy": kubeletconfig.NoneTopologyManagerPolicy,
	"topologyManagerScope": kubeletconfig.ContainerTopologyManagerScope, "userNamespaces.idsPerPod": int64(65536),
}

// EmptyNodeFields returns the fields of the kubelets' configuration that differ from the former configuration
// and whose change needs nodes without pods.
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

// NodeTraces are the files that [Found.JudgeNode] needs from a node.
func (WorkerSpec) NodeTraces() Traces {
	return Traces{Files: append([]string{KubeletConfigPath, memInfo, onlineCPUs}, kubeletStateFiles...)}
}

// JudgeNode decides from what was found on a node whether the kubelet can use its wanted configuration while
// pods run there. If not, it returns the reason, and the files in which the kubelet has noted what it has given
// to pods. It returns nothing if there is no kubelet yet. The error says what the kubelet reserves and the
// machine does not have.
func (f Found) JudgeNode(wanted desired.State) (outgrown, noted []string, err error) {
	noted = slices.DeleteFunc(slices.Clone(kubeletStateFiles), func(path string) bool { return f.Files[path] == nil })
	i := slices.IndexFunc(wanted.Files, func(file desired.File) bool { return file.Path == KubeletConfigPath })
	if i < 0 {
		return nil, noted, nil
	}
	now, typed := map[string]any{}, &kubeletconfig.KubeletConfiguration{}
	want := Found{Files: map[string][]byte{KubeletConfigPath: wanted.Files[i].Content}}
	if err := errors.Join(want.yaml(KubeletConfigPath, &now), want.yaml(KubeletConfigPath, typed)); err != nil {
		return nil, noted, err
	}
	if f.Files[KubeletConfigPath] != nil {
		before := map[string]any{}
		if f.yaml(KubeletConfigPath, &before) == nil { // else the kubelet has been started with another text
			outgrown = changedEmptyNodeFields(before, now)
		}
		outgrown = append(outgrown, otherPolicies(f, now, outgrown)...)
	}
	return outgrown, noted, checkCapacity(f, typed)
}

// otherPolicies returns the state files that are about other policies than the wanted ones.
func otherPolicies(f Found, now map[string]any, known []string) (out []string) {
	for i, field := range []string{"cpuManagerPolicy", "memoryManagerPolicy"} {
		var state struct{ PolicyName string }
		text := f.Files[kubeletStateFiles[i]]
		if len(text) == 0 || json.Unmarshal(text, &state) == nil && state.PolicyName == kubeletField(now, field) || slices.Contains(known, field) {
			continue
		}
		out = append(out, fmt.Sprintf("%s has the policy %q", path.Base(kubeletStateFiles[i]), state.PolicyName))
	}
	return out
}

func changedEmptyNodeFields(before, now map[string]any) []string {
	known := setting.Of(artifact.Kubelet)
	fields := known.Names(setting.Field, setting.EmptyNode)
	if pins(before) || pins(now) {
		fields = append(fields, known.Names(setting.Field, setting.Pinned)...)
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

// A kubelet's reservations and eviction thresholds are strings in its configuration. It parses them
// only after containerd has answered, too late for a rehearsal. So they are parsed here, by its
// rules (pkg/kubelet/eviction/helpers.go, cmd/kubelet/app/server.go).
var (
	evictionSignals = []string{
		"allocatableMemory.available", "containerfs.available", "containerfs.inodesFree", "imagefs.available", "imagefs.inodesFree",
		"memory.available", "nodefs.available", "nodefs.inodesFree", "pid.available",
	}
	reservedResources = []string{"cpu", "ephemeral-storage", "memory", "pid"}
)

func checkReservations(c *kubeletconfig.KubeletConfiguration) error {
	errs := []error{
		checkEach("kubeReserved", "resource", c.KubeReserved, reservedResources, checkReserved),
		checkEach("systemReserved", "resource", c.SystemReserved, reservedResources, checkReserved),
		checkEach("evictionHard", "signal", c.EvictionHard, evictionSignals, checkThreshold),
		checkEach("evictionSoft", "signal", c.EvictionSoft, evictionSignals, checkThreshold),
		checkEach("evictionMinimumReclaim", "signal", c.EvictionMinimumReclaim, evictionSignals, checkReclaim),
		checkEach("evictionSoftGracePeriod", "signal", c.EvictionSoftGracePeriod, evictionSignals, checkGrace),
	}
	for _, signal := range slices.Sorted(maps.Keys(c.EvictionSoft)) {
		if _, ok := c.EvictionSoftGracePeriod[signal]; !ok && !slices.Contains(ignored, c.EvictionSoft[signal]) {
			errs = append(errs, fmt.Errorf("evictionSoft: %s needs an evictionSoftGracePeriod", signal))
		}
	}
	return errors.Join(errs...)
}

// checkEach checks the keys and the values of one field.
func checkEach(field, what string, given map[string]string, known []string, check func(string) error) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(given)) {
		err := check(given[key])
		switch {
		case !slices.Contains(known, key):
			errs = append(errs, fmt.Errorf("%s: no %s %q: want one of %s", field, what, key, strings.Join(known, ", ")))
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %s: %w", field, key, err))
		}
	}
	return errors.Join(errs...)
}

func checkReserved(v string) error {
	q, err := resource.ParseQuantity(v)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a quantity such as 500m or 1Gi", v)
	case q.Sign() < 0:
		return fmt.Errorf("%s is negative", v)
	}
	return nil
}

// ignored are thresholds that the kubelet ignores.
var ignored = []string{"0%", "100%"}

func checkThreshold(v string) error {
	if slices.Contains(ignored, v) {
		return nil
	}
	if p, ok := percentage(v); ok && p >= 0 && p <= 100 {
		return nil
	}
	if q, err := resource.ParseQuantity(v); err == nil && q.Sign() > 0 {
		return nil
	}
	return fmt.Errorf("%q is neither a quantity such as 500Mi nor a percentage such as 10%%", v)
}

func checkReclaim(v string) error {
	if p, ok := percentage(v); ok && p > 0 {
		return nil
	}
	if checkReserved(v) == nil {
		return nil
	}
	return fmt.Errorf("%q is neither a quantity such as 500Mi nor a percentage such as 10%%", v)
}

func percentage(v string) (float64, bool) {
	if !strings.HasSuffix(v, "%") {
		return 0, false
	}
	p, err := strconv.ParseFloat(strings.TrimRight(v, "%"), 32)
	return p, err == nil
}

func checkGrace(v string) error {
	if d, err := time.ParseDuration(v); err != nil || d < 0 {
		return fmt.Errorf("%q is not a duration such as 1m30s", v)
	}
	return nil
}

// Files of a machine that say what it has. MemTotal and the processors that are online are what the kubelet
// takes for the capacity of its node.
const (
	memInfo    = "/proc/meminfo"
	onlineCPUs = "/sys/devices/system/cpu/online"
)

// reservation is what a kubelet takes from pods of one resource, and the fields that say so.
type reservation struct {
	amount resource.Quantity
	fields []string
}

// add adds an amount unless it is empty or no quantity, which checkReservations reports.
func (r *reservation) add(field, amount string) {
	if q, err := resource.ParseQuantity(amount); amount != "" && err == nil {
		r.amount.Add(q)
		r.fields = append(r.fields, field+" "+amount)
	}
}

func (r *reservation) String() string { return strings.Join(r.fields, ", ") }

// reservedCPU returns the processors that a kubelet keeps from pods. reservedSystemCPUs replaces the two amounts.
func reservedCPU(c *kubeletconfig.KubeletConfiguration) (r reservation) {
	if c.ReservedSystemCPUs != "" {
		if n, ok := cpusIn(c.ReservedSystemCPUs); ok {
			r.amount, r.fields = *resource.NewQuantity(int64(n), resource.DecimalSI), []string{"reservedSystemCPUs " + c.ReservedSystemCPUs}
		}
		return r
	}
	r.add("kubeReserved", c.KubeReserved["cpu"])
	r.add("systemReserved", c.SystemReserved["cpu"])
	return r
}

// reservedMemory returns the memory that a kubelet keeps from pods on a machine with so much of it.
func reservedMemory(c *kubeletconfig.KubeletConfiguration, capacity resource.Quantity) (r reservation) {
	r.add("kubeReserved", c.KubeReserved["memory"])
	r.add("systemReserved", c.SystemReserved["memory"])
	const field = "evictionHard of memory.available"
	threshold, set := c.EvictionHard["memory.available"]
	if !set && (c.EvictionHard == nil || ptr.Deref(c.MergeDefaultEvictionSettings, false)) {
		threshold = defaultEviction
	}
	if p, ok := percentage(threshold); ok && !slices.Contains(ignored, threshold) {
		threshold = resource.NewQuantity(int64(float64(capacity.Value())*p/100), resource.BinarySI).String()
	}
	r.add(field, threshold)
	return r
}

// defaultEviction is the kubelet's own threshold for memory.available (pkg/kubelet/eviction/defaults_linux.go).
const defaultEviction = "100Mi"

// checkPlacement reports policies that lack what they need in the same configuration. The kubelet finds that
// out after containerd has answered, too late for a rehearsal (pkg/kubelet/cm).
func checkPlacement(c *kubeletconfig.KubeletConfiguration) error {
	var errs []error
	if cpu := reservedCPU(c); c.CPUManagerPolicy == "static" && cpu.amount.Sign() <= 0 {
		errs = append(errs, errors.New("cpuManagerPolicy: static needs a processor that no pod gets: reserve some cpu in kubeReserved or systemReserved"))
	}
	if _, relative := percentage(c.EvictionHard["memory.available"]); c.MemoryManagerPolicy == kubeletconfig.StaticMemoryManagerPolicy && !relative {
		var given resource.Quantity
		for _, r := range c.ReservedMemory {
			given.Add(r.Limits[corev1.ResourceMemory])
		}
		if want := reservedMemory(c, resource.Quantity{}); given.Cmp(want.amount) != 0 {
			errs = append(errs, fmt.Errorf("memoryManagerPolicy: Static needs reservedMemory of %s in all, as much as the kubelet reserves (%s), and it is %s",
				&want.amount, &want, &given))
		}
	}
	return errors.Join(errs...)
}

// checkCapacity reports reservations beyond what a machine has, with which a kubelet does not start.
func checkCapacity(f Found, c *kubeletconfig.KubeletConfiguration) error {
	var errs []error
	compare := func(what string, r reservation, has resource.Quantity) {
		if r.amount.Cmp(has) > 0 {
			errs = append(errs, fmt.Errorf("the kubelet would keep %s of %s from pods (%s), and the machine has %s", &r.amount, what, &r, &has))
		}
	}
	if memory, ok := totalMemory(f.Files[memInfo]); ok {
		compare("memory", reservedMemory(c, memory), memory)
	}
	if n, ok := cpusIn(string(f.Files[onlineCPUs])); ok {
		compare("cpu", reservedCPU(c), *resource.NewQuantity(int64(n), resource.DecimalSI))
	}
	return errors.Join(errs...)
}

// totalMemory reads "MemTotal:        2028784 kB".
func totalMemory(text []byte) (resource.Quantity, bool) {
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			return *resource.NewQuantity(kib*1024, resource.BinarySI), err == nil
		}
	}
	return resource.Quantity{}, false
}

// cpusIn counts the processors in a list such as "0-3,8".
func cpusIn(list string) (n int, ok bool) {
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || last < first {
			return 0, false
		}
		n += last - first + 1
	}
	return n, true
}
