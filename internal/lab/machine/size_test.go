package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/utils/cpuset"
)

func TestChooseCPUs(t *testing.T) {
	for _, c := range []struct {
		name  string
		host  cpuset.CPUSet
		n     int
		taken []cpuset.CPUSet
		want  string
	}{
		{"a free host", cpuset.New(0, 1, 2, 3), 2, nil, "0-1"},
		{"the free ones", cpuset.New(0, 1, 2, 3), 2, []cpuset.CPUSet{cpuset.New(0, 1)}, "2-3"},
		{"the least used ones", cpuset.New(0, 1, 2, 3), 2, []cpuset.CPUSet{cpuset.New(0, 1), cpuset.New(2, 3), cpuset.New(0, 2)}, "1,3"},
		{"machines on CPUs that are offline", cpuset.New(0, 2), 1, []cpuset.CPUSet{cpuset.New(0, 1)}, "2"},
		{"all", cpuset.New(0, 1), 2, []cpuset.CPUSet{cpuset.New(0, 1)}, "0-1"},
		{"more than there are", cpuset.New(0, 1), 8, nil, "0-1"},
	} {
		if got := chooseCPUs(c.host, c.n, c.taken).String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestCheckSize(t *testing.T) {
	for _, c := range []struct {
		vcpus, cores, mib int
		ok                bool
	}{
		{2, 1, 4096, true}, {1, 1, 1, true}, {4, 4, 1, true},
		{0, 0, 4096, false}, {2, 0, 4096, false}, {0, 1, 4096, false}, {3, 2, 4096, false}, {1, 2, 4096, false}, {2, 1, 0, false},
	} {
		err := Spec{VCPUs: c.vcpus, Cores: c.cores, MemoryMiB: c.mib}.checkSize()
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestLimit checks what is written into the groups of each version, which are directories here.
func TestLimit(t *testing.T) {
	v1 := []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "cpuset.cpus", "cpu.cfs_period_us", "cpu.cfs_quota_us"}
	v2 := []string{"memory.max", "memory.swap.max", "cpuset.cpus", "cpu.max"}
	const bytes = "2147483648"
	limits := Spec{VCPUs: 2, Cores: 1, MemoryMiB: 2048}.limits(cpuset.New(4, 5))
	for _, c := range []struct {
		name  string
		files []string
		want  []string
		err   string
	}{
		{"v1", v1, []string{bytes, bytes, "4-5", "100000", "200000"}, ""},
		{"v2", v2, []string{bytes, "0", "4-5", "200000 100000"}, ""},
		{"v1 without swap accounting", []string{"memory.limit_in_bytes"}, []string{bytes}, ""},
		{"no memory controller", []string{"cpuset.cpus"}, []string{"4-5"}, "no control group limits memory"},
	} {
		mount := t.TempDir()
		g := cgroups{in: []hierarchy{{mount: mount}}, path: "group"}
		for _, name := range c.files {
			if err := writeFiles(mount, map[string]string{"group/" + name: ""}); err != nil {
				t.Fatal(err)
			}
		}
		err := g.limit(limits)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.name, err, c.err)
		}
		for i, name := range c.files {
			if got, err := os.ReadFile(filepath.Join(mount, "group", name)); string(got) != c.want[i] {
				t.Errorf("%s: %s = %q (%v), want %q", c.name, name, got, err, c.want[i])
			}
		}
		if entries, err := os.ReadDir(filepath.Join(mount, "group")); len(entries) != len(c.files) {
			t.Errorf("%s: files were added: %v %v", c.name, entries, err)
		}
	}
}

func TestMissingControllers(t *testing.T) {
	v1, v2 := t.TempDir(), t.TempDir()
	if err := errors.Join(
		writeFiles(v1, map[string]string{"memory.limit_in_bytes": "", "cpu.shares": ""}),
		writeFiles(v2, map[string]string{"cgroup.controllers": "cpuset io pids\n"}),
	); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		in   []hierarchy
		want []string
	}{
		{nil, []string{"cpu", "cpuset", "memory"}},
		{[]hierarchy{{mount: v1}}, []string{"cpuset"}},
		{[]hierarchy{{mount: v2, v2: true}}, []string{"cpu", "memory"}},
		{[]hierarchy{{mount: v1}, {mount: v2, v2: true}}, nil},
	} {
		if got := missingControllers(c.in); !slices.Equal(got, c.want) {
			t.Errorf("missing of %v: %v, want %v", c.in, got, c.want)
		}
	}
}

// TestSize checks that a machine sees its size, that it cannot use more, and that a restart gives
// it another one.
func TestSize(t *testing.T) {
	l := newTestLab(t, Releases[0])
	h := l.add("")
	h.VCPUs, h.Cores, h.MemoryMiB = 1, 1, 600
	host, err := hostCPUs()
	if err != nil {
		t.Fatal(err)
	}
	var memory unix.Sysinfo_t
	if err := unix.Sysinfo(&memory); err != nil {
		t.Fatal(err)
	}
	look := map[string]string{
		"processors":    "grep -c ^processor /proc/cpuinfo",
		"cores":         "sed -n 's/^cpu cores[^0-9]*//p' /proc/cpuinfo | sort -u",
		"online":        "getconf _NPROCESSORS_ONLN",
		"CPUs by lscpu": "lscpu | sed -n 's/^CPU(s): *//p'",
		"threads":       "lscpu | sed -n 's/^Thread(s) per core: *//p'",
		"usable CPUs":   "nproc",
		"CPUs of node":  "ls -d /sys/devices/system/node/node0/cpu[0-9]* | wc -l",
		"memory":        "awk '/^MemTotal/ { print $2 }' /proc/meminfo",
		"memory free":   "free -k | awk '/^Mem/ { print $2 }'",
		"swap":          "awk '/^SwapTotal/ { print $2 }' /proc/meminfo; tail -n +2 /proc/swaps",
		"used of it":    "awk '/^MemAvailable/ { print ($2 > 0 && $2 < total) }' total=\"$(awk '/^MemTotal/ { print $2 }' /proc/meminfo)\" /proc/meminfo",
	}
	sees := func(want map[string]string) {
		t.Helper()
		c := l.await(h)
		for name, script := range look {
			if got := must(t, c, script); got != want[name] {
				t.Errorf("%s: %s prints %q, want %q", name, script, got, want[name])
			}
		}
	}

	l.start(h)
	sees(map[string]string{
		"processors": "1", "cores": "1", "online": "1", "CPUs by lscpu": "1", "threads": "1", "usable CPUs": "1", "CPUs of node": "1",
		"memory": "614400", "memory free": "614400", "swap": "0", "used of it": "1",
	})

	t.Run("out of memory", func(t *testing.T) {
		c := l.await(h)
		before := must(t, c, "cat /proc/sys/kernel/random/boot_id; systemctl show -p MainPID --value ssh")
		_, err := run(c, "python3 -c 'bytearray(900 << 20)' || echo status $?; false")
		if err == nil || !strings.Contains(err.Error(), "status 137") {
			t.Errorf("using more memory than the machine has: %v, want that it is killed", err)
		}
		if after := must(t, c, "cat /proc/sys/kernel/random/boot_id; systemctl show -p MainPID --value ssh"); after != before || !l.Running(h.ID) {
			t.Errorf("before %q, afterwards %q, running %v", before, after, l.Running(h.ID))
		}
	})

	t.Run("reboot", func(t *testing.T) {
		if err := l.Reboot(t.Context(), h.ID); err != nil {
			t.Fatal(err)
		}
		if got := must(t, l.await(h), look["memory"]+"; nproc"); got != "614400\n1" {
			t.Errorf("after a reboot the machine sees %q", got)
		}
	})

	t.Run("without the manager", func(t *testing.T) {
		l.Close()
		if got := must(t, l.await(h), look["memory"]); got != "614400" {
			t.Errorf("memory is %q", got)
		}
		if l.Manager, err = NewManager(l.stateDir, Container, []Image{l.img}); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("another size", func(t *testing.T) {
		if err := l.Stop(t.Context(), h.ID); err != nil {
			t.Fatal(err)
		}
		h.VCPUs, h.Cores, h.MemoryMiB = 2*host.Size(), host.Size(), 1<<20 // 1 TiB
		l.start(h)
		total, all := itoa(memory.Totalram*uint64(memory.Unit)>>10), itoa(2*host.Size())
		sees(map[string]string{
			"processors": all, "cores": itoa(host.Size()), "online": all, "CPUs by lscpu": all, "threads": "2", "usable CPUs": itoa(host.Size()),
			"CPUs of node": all, "memory": total, "memory free": total, "swap": "0", "used of it": "1",
		})
	})

	t.Run("lxcfs dies", func(t *testing.T) {
		pid, err := os.ReadFile(l.newInstance(h.ID).disk.path("lxcfs.pid"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := findProcess(atoi(t, strings.TrimSpace(string(pid))))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.signal(unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		l.awaitExit(h.ID)
		console, err := os.ReadFile(l.Console(h.ID))
		if err != nil || !strings.Contains(string(console), "lxcfs ended") {
			t.Errorf("the console does not say why: %v %s", err, console)
		}
	})

	t.Run("no size", func(t *testing.T) {
		h.MemoryMiB = 0
		if err := l.Start(t.Context(), h.Spec); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a machine without memory starts: %v", err)
		}
	})
}

func itoa[T int | uint64](n T) string { return fmt.Sprint(n) }

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
