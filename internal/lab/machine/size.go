package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/utils/cpuset"
)

// cpuPeriod is the period in microseconds in which the kernel accounts the CPU time of a control
// group. It is the kernel's default.
const cpuPeriod = 100_000

// A limit is a file of a control group, and what is written into it.
type limit struct{ file, value string }

// limits returns the limits of a machine of this size that runs on the given CPUs, in the order in
// which they can be written. The limits of cgroup v1 and v2 are in one list, since a group has only
// the files of its own version and controllers. No machine has swap: an EC2 instance has none
// either.
func (s Spec) limits(cpus cpuset.CPUSet) []limit {
	memory := strconv.FormatInt(int64(s.MemoryMiB)<<20, 10)
	period, quota := strconv.Itoa(cpuPeriod), strconv.Itoa(s.VCPUs*cpuPeriod)
	return []limit{
		{"memory.limit_in_bytes", memory},
		{"memory.memsw.limit_in_bytes", memory}, // memory and swap together
		{"memory.max", memory},
		{"memory.swap.max", "0"},
		{"cpuset.cpus", cpus.String()},
		{"cpu.cfs_period_us", period},
		{"cpu.cfs_quota_us", quota},
		{"cpu.max", quota + " " + period},
	}
}

// checkSize refuses a size that no machine can have.
func (s Spec) checkSize() error {
	if s.Cores < 1 || s.VCPUs < s.Cores || s.VCPUs%s.Cores != 0 || s.MemoryMiB < 1 {
		return fmt.Errorf("no machine has %d CPUs on %d cores and %d MiB of memory", s.VCPUs, s.Cores, s.MemoryMiB)
	}
	return nil
}

// limit writes the limits in every hierarchy that has them. It is an error if none limits memory.
func (g cgroups) limit(limits []limit) error {
	bounded := false
	for _, dir := range g.dirs() {
		for _, l := range limits {
			file := filepath.Join(dir, l.file)
			if !exists(file) {
				continue
			}
			if err := os.WriteFile(file, []byte(l.value), 0); err != nil {
				return fmt.Errorf("limit the machine's size: %w", err)
			}
			bounded = bounded || l.file == "memory.max" || l.file == "memory.limit_in_bytes"
		}
	}
	if !bounded {
		return errors.New("limit the machine's size: no control group limits memory")
	}
	return nil
}

// missingControllers lists the controllers that limit a machine's size and that no hierarchy has.
func missingControllers(in []hierarchy) []string {
	return slices.DeleteFunc([]string{"cpu", "cpuset", "memory"}, func(controller string) bool {
		return slices.ContainsFunc(in, func(h hierarchy) bool {
			if h.v2 {
				content, _ := os.ReadFile(filepath.Join(h.mount, "cgroup.controllers"))
				return slices.Contains(strings.Fields(string(content)), controller)
			}
			v1 := map[string]string{"cpu": "cpu.shares", "cpuset": "cpuset.cpus", "memory": "memory.limit_in_bytes"}
			return exists(filepath.Join(h.mount, v1[controller]))
		})
	})
}

// chooseCPUs returns the n CPUs of the host on which the fewest machines run, or all if the host
// has no more. taken are the CPUs of each machine that runs.
func chooseCPUs(host cpuset.CPUSet, n int, taken []cpuset.CPUSet) cpuset.CPUSet {
	if host.Size() <= n {
		return host
	}
	machines := map[int]int{}
	for _, t := range taken {
		for _, cpu := range t.UnsortedList() {
			machines[cpu]++
		}
	}
	cpus := host.List()
	slices.SortStableFunc(cpus, func(a, b int) int { return machines[a] - machines[b] })
	return cpuset.New(cpus[:n]...)
}

// hostCPUs returns the CPUs of the host that are online.
func hostCPUs() (cpuset.CPUSet, error) {
	content, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return cpuset.CPUSet{}, err
	}
	return cpuset.Parse(strings.TrimSpace(string(content)))
}

// takenCPUs returns the CPUs of each machine of each lab on the host.
func takenCPUs(in []hierarchy) []cpuset.CPUSet {
	var taken []cpuset.CPUSet
	for _, h := range in {
		files, _ := filepath.Glob(filepath.Join(h.mount, cgroupParent, "*", "*", limitedGroup, "cpuset.cpus"))
		for _, file := range files {
			content, _ := os.ReadFile(file) // the machine may have ended
			if cpus, err := cpuset.Parse(strings.TrimSpace(string(content))); err == nil {
				taken = append(taken, cpus)
			}
		}
	}
	return taken
}

// limitSize gives a machine that is down the size of s: the limits of its control groups, and what
// it will see of them.
func (m *Manager) limitSize(in *instance, s Spec) error {
	host, err := hostCPUs()
	if err != nil {
		return fmt.Errorf("CPUs of the host: %w", err)
	}
	// One machine after the other, so that each counts the CPUs of the earlier ones.
	m.sizing.Lock()
	cpus := chooseCPUs(host, s.VCPUs, takenCPUs(in.in))
	err = in.limited().limit(in.platform.limits(s, cpus))
	m.sizing.Unlock()
	if err != nil {
		return err
	}
	return in.platform.showSize(in, s, cpus)
}

// showSize prepares what a container will see of its size.
func (containers) showSize(in *instance, s Spec, cpus cpuset.CPUSet) error {
	var memory unix.Sysinfo_t
	if err := unix.Sysinfo(&memory); err != nil {
		return fmt.Errorf("memory of the host: %w", err)
	}
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return err
	}
	return in.disk.show(sight{
		cpus: visibleCPUs(cpus, s.VCPUs), cores: s.Cores,
		// lxcfs shows no more than the host has.
		memoryKiB:       min(uint64(s.MemoryMiB)<<10, memory.Totalram*uint64(memory.Unit)>>10),
		vulnerabilities: vulnerabilities(),
	}, string(cpuinfo))
}

// vulnerabilities returns what the kernel says about the processor's vulnerabilities, by name.
func vulnerabilities() map[string]string {
	found := map[string]string{}
	files, _ := filepath.Glob("/sys/devices/system/cpu/vulnerabilities/*")
	for _, file := range files {
		if content, err := os.ReadFile(file); err == nil {
			found[filepath.Base(file)] = string(content)
		}
	}
	return found
}
