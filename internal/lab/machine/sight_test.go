package machine

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
)

// hostCPUInfo is the beginning of each processor's section on a host with four processors.
const hostCPUInfo = `processor	: 0
model name	: Intel(R) Xeon(R) Processor
physical id	: 0
siblings	: 4
core id		: 0
cpu cores	: 4
apicid		: 0
initial apicid	: 0
flags		: fpu vme
power management:

processor	: 3
model name	: Intel(R) Xeon(R) Processor @ 3
physical id	: 1
siblings	: 4
core id		: 3
cpu cores	: 4
apicid		: 6
initial apicid	: 6
flags		: fpu vme
power management:

`

func TestSight(t *testing.T) {
	s := sight{cpus: cpuset.New(3, 9), cores: 1, memoryKiB: 614400, vulnerabilities: map[string]string{"l1tf": "Not affected\n"}}
	got := s.files(hostCPUInfo)
	want := map[string]string{
		"proc/cpuinfo": `processor	: 3
model name	: Intel(R) Xeon(R) Processor @ 3
physical id	: 0
siblings	: 2
core id		: 0
cpu cores	: 1
apicid		: 0
initial apicid	: 0
flags		: fpu vme
power management:

processor	: 9
model name	: Intel(R) Xeon(R) Processor
physical id	: 0
siblings	: 2
core id		: 0
cpu cores	: 1
apicid		: 1
initial apicid	: 1
flags		: fpu vme
power management:

`,
		"sys/devices/system/cpu/online":                             "3,9\n",
		"sys/devices/system/cpu/possible":                           "3,9\n",
		"sys/devices/system/cpu/present":                            "3,9\n",
		"sys/devices/system/cpu/offline":                            "\n",
		"sys/devices/system/cpu/kernel_max":                         "9\n",
		"sys/devices/system/cpu/vulnerabilities/l1tf":               "Not affected\n",
		"sys/devices/system/cpu/cpu3/topology/core_id":              "0\n",
		"sys/devices/system/cpu/cpu9/topology/core_id":              "0\n",
		"sys/devices/system/cpu/cpu9/topology/thread_siblings_list": "3,9\n",
		"sys/devices/system/cpu/cpu9/topology/thread_siblings":      "208\n",
		"sys/devices/system/node/node0/cpu9/topology/core_id":       "0\n",
		"sys/devices/system/node/node0/cpulist":                     "3,9\n",
		"sys/devices/system/node/node0/cpumap":                      "208\n",
		"sys/devices/system/node/node0/meminfo":                     "Node 0 MemTotal:         614400 kB\n",
		"sys/devices/system/node/online":                            "0\n",
	}
	for name, content := range want {
		if got[name] != content {
			t.Errorf("%s = %q, want %q", name, got[name], content)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		for _, other := range []string{"cpu0", "cpu1", "cpu2"} {
			if strings.Contains(name, "/"+other+"/") {
				t.Errorf("%s is of a processor that the machine does not have", name)
			}
		}
	}
}

func TestSightOfThreads(t *testing.T) {
	s := sight{cpus: cpuset.New(0, 1, 2, 3), cores: 2, memoryKiB: 1}
	files := s.files(hostCPUInfo)
	for cpu, want := range map[string][2]string{"cpu0": {"0\n", "0,2\n"}, "cpu1": {"1\n", "1,3\n"}, "cpu2": {"0\n", "0,2\n"}, "cpu3": {"1\n", "1,3\n"}} {
		dir := "sys/devices/system/cpu/" + cpu + "/topology/"
		if got := [2]string{files[dir+"core_id"], files[dir+"core_cpus_list"]}; got != want {
			t.Errorf("%s is on core and with threads %q, want %q", cpu, got, want)
		}
	}
}

func TestVisibleCPUs(t *testing.T) {
	for _, c := range []struct {
		cpus cpuset.CPUSet
		n    int
		want string
	}{
		{cpuset.New(2, 5), 2, "2,5"},
		{cpuset.New(2, 5), 4, "0-3"},
		{cpuset.New(7), 1, "7"},
	} {
		if got := visibleCPUs(c.cpus, c.n).String(); got != c.want {
			t.Errorf("%d processors on %v: %s, want %s", c.n, c.cpus, got, c.want)
		}
	}
}

func TestMask(t *testing.T) {
	for want, cpus := range map[string]cpuset.CPUSet{
		"0\n": cpuset.New(), "3\n": cpuset.New(0, 1), "80000000\n": cpuset.New(31), "1,00000000\n": cpuset.New(32),
		"1,00000000,80000002\n": cpuset.New(1, 31, 64),
	} {
		if got := mask(cpus); got != want {
			t.Errorf("mask of %v = %q, want %q", cpus, got, want)
		}
	}
}

// TestShow checks that the files of an earlier size are gone.
func TestShow(t *testing.T) {
	d := disk(t.TempDir())
	for _, cpus := range []cpuset.CPUSet{cpuset.New(0, 1), cpuset.New(1)} {
		if err := d.show(sight{cpus: cpus, cores: 1, memoryKiB: 1}, hostCPUInfo); err != nil {
			t.Fatal(err)
		}
	}
	found, err := filepath.Glob(d.path("kernel/sys/devices/system/*/cpu*")) // cpu/cpu1
	if err != nil || len(found) != 1 || filepath.Base(found[0]) != "cpu1" {
		t.Errorf("the processors are %v (%v)", found, err)
	}
	if _, err := os.Stat(d.path("lxcfs")); err != nil {
		t.Error(err)
	}
}
