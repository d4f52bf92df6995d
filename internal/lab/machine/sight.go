package machine

import (
	"fmt"
	"math/big"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// A sight is what a machine sees of its processors and memory, as far as that does not change while
// it runs. lxcfs shows the rest.
type sight struct {
	cpus            cpuset.CPUSet
	cores           int // all have the same number of threads
	memoryKiB       uint64
	vulnerabilities map[string]string // of the processor, by name, as the host's kernel reports them
}

// visibleCPUs returns the CPUs that a machine with n CPUs sees when it runs on cpus: the same CPUs,
// with the kernel's numbers, so that they agree with sched_getaffinity(2). A machine with more CPUs
// than the host sees the numbers from 0.
func visibleCPUs(cpus cpuset.CPUSet, n int) cpuset.CPUSet {
	if cpus.Size() >= n {
		return cpus
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return cpuset.New(all...)
}

// files returns the files that stand for /proc/cpuinfo, /sys/devices/system/cpu and
// /sys/devices/system/node, by path below the machine's root. cpuinfo is the host's.
//
// They are what lscpu, systemd and the kubelet read (cadvisor: machine, utils/sysfs). All CPUs are
// on one socket and one memory node. The second thread of a core comes after the first ones of all
// cores, as on EC2.
func (s sight) files(cpuinfo string) map[string]string {
	const cpuDir, nodeDir = "sys/devices/system/cpu/", "sys/devices/system/node/"
	list := s.cpus.String() + "\n"
	files := map[string]string{
		"proc/cpuinfo":           s.cpuinfo(cpuinfo),
		cpuDir + "online":        list,
		cpuDir + "possible":      list,
		cpuDir + "present":       list,
		cpuDir + "offline":       "\n",
		cpuDir + "isolated":      "\n",
		cpuDir + "kernel_max":    strconv.Itoa(slices.Max(s.cpus.List())) + "\n",
		nodeDir + "has_cpu":      "0\n",
		nodeDir + "has_memory":   "0\n",
		nodeDir + "online":       "0\n",
		nodeDir + "possible":     "0\n",
		nodeDir + "node0/cpumap": mask(s.cpus),

		nodeDir + "node0/cpulist":  list,
		nodeDir + "node0/distance": "10\n",
		nodeDir + "node0/meminfo":  fmt.Sprintf("Node 0 MemTotal:       %8d kB\n", s.memoryKiB),
	}
	for name, content := range s.vulnerabilities {
		files[cpuDir+"vulnerabilities/"+name] = content
	}
	for i, cpu := range s.cpus.List() {
		threads := s.threads(i % s.cores)
		for name, content := range map[string]string{
			"core_id":              strconv.Itoa(i%s.cores) + "\n",
			"physical_package_id":  "0\n",
			"die_id":               "0\n",
			"thread_siblings":      mask(threads),
			"thread_siblings_list": threads.String() + "\n",
			"core_cpus":            mask(threads),
			"core_cpus_list":       threads.String() + "\n",
			"core_siblings":        mask(s.cpus),
			"core_siblings_list":   list,
			"package_cpus":         mask(s.cpus),
			"package_cpus_list":    list,
		} {
			for _, dir := range []string{cpuDir, nodeDir + "node0/"} {
				files[fmt.Sprintf("%scpu%d/topology/%s", dir, cpu, name)] = content
			}
		}
	}
	return files
}

// threads are the CPUs of one core.
func (s sight) threads(core int) cpuset.CPUSet {
	var threads []int
	for i, cpu := range s.cpus.List() {
		if i%s.cores == core {
			threads = append(threads, cpu)
		}
	}
	return cpuset.New(threads...)
}

// mask writes CPUs as the kernel does (cpumap_print_to_pagebuf): hexadecimal, in groups of 32 bits.
func mask(cpus cpuset.CPUSet) string {
	bits := new(big.Int)
	for _, cpu := range cpus.UnsortedList() {
		bits.SetBit(bits, cpu, 1)
	}
	word, low := new(big.Int), big.NewInt(0xffffffff)
	groups := []string{}
	for bits.BitLen() > 32 {
		groups = append(groups, fmt.Sprintf("%08x", word.And(bits, low)))
		bits.Rsh(bits, 32)
	}
	groups = append(groups, fmt.Sprintf("%x", bits))
	slices.Reverse(groups)
	return strings.Join(groups, ",") + "\n"
}

// processorLine is a line of /proc/cpuinfo: the name of a field, the separator, and the value.
var processorLine = regexp.MustCompile(`(?m)^([^\t:]+)(\s*:[ ]?)(.*)$`)

// cpuinfo returns the machine's /proc/cpuinfo, made from the host's (proc_cpuinfo(5)). A CPU that
// the host does not have looks like the host's first CPU.
func (s sight) cpuinfo(host string) string {
	var first string
	sections := map[string]string{} // by number of the processor
	for section := range strings.SplitSeq(strings.TrimRight(host, "\n"), "\n\n") {
		for _, line := range processorLine.FindAllStringSubmatch(section, -1) {
			if line[1] == "processor" {
				sections[line[3]] = section
			}
		}
		if first == "" {
			first = section
		}
	}
	var b strings.Builder
	for i, cpu := range s.cpus.List() {
		section, ok := sections[strconv.Itoa(cpu)]
		if !ok {
			section = first
		}
		own := map[string]int{
			"processor": cpu, "physical id": 0, "siblings": s.cpus.Size(), "cpu cores": s.cores,
			"core id": i % s.cores, "apicid": i, "initial apicid": i,
		}
		b.WriteString(processorLine.ReplaceAllStringFunc(section, func(line string) string {
			field := processorLine.FindStringSubmatch(line)
			if value, ok := own[field[1]]; ok {
				return field[1] + field[2] + strconv.Itoa(value)
			}
			return line
		}))
		b.WriteString("\n\n")
	}
	return b.String()
}

// show writes what the machine will see to its disk, from where nspawn and lxcfs bring it into the
// machine.
func (d disk) show(s sight, cpuinfo string) error {
	if err := os.RemoveAll(d.path("kernel")); err != nil {
		return err
	}
	if err := os.MkdirAll(d.path("lxcfs"), 0o755); err != nil {
		return err
	}
	return writeFiles(d.path("kernel"), s.files(cpuinfo))
}
