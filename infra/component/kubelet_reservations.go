package component

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
)

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
			errs = append(errs, fmt.Errorf("memoryManagerPolicy: Static needs reservedMemory of %s in all, as much as the kubelet reserves (%s), and finds %s",
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
