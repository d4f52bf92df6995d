package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The two sides.
const (
	sideKubeadm = "kubeadm"
	sideApply   = "apply"
)

// measurement is what one side took in one round.
type measurement struct {
	Took time.Duration
	// Processors is the time that this computer's processors were busy, whoever used them.
	Processors time.Duration
}

func (m measurement) String() string {
	return fmt.Sprintf("%6.1f s, processors busy for %6.1f s", m.Took.Seconds(), m.Processors.Seconds())
}

// figures are the measurements of each side, in the order of the rounds.
type figures map[string][]measurement

// clocks says what each side's clock includes.
const clocks = `What each clock includes
  kubeadm  from the start of kubeadm init on the first controller until five nodes are Ready and both
           replicas of CoreDNS are available: init, then the joins of two controllers and two workers
           at the same time. Not included: machines, packages, HAProxy, containerd, kubelet and kubeadm
           on them, and their images, which are all in place.
  apply    a whole terraform apply of examples/ha-cluster: network, six machines and their boot,
           every package and download, etcd, control plane, HAProxy, two workers Ready, and both
           replicas of CoreDNS available. Kubelets run on the two workers only. Not included: terraform
           init. Downloads come from this computer.
`

// text returns the report: a line for each round, the medians, their ratio, and what was measured.
func (f figures) text(computer string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for _, side := range []string{sideKubeadm, sideApply} {
		for n, m := range f[side] {
			line("round %d  %-8s %s", n+1, side, m)
		}
	}
	kubeadm, apply := f[sideKubeadm], f[sideApply]
	for _, side := range []string{sideKubeadm, sideApply} {
		if len(f[side]) > 0 {
			line("median   %-8s %s", side, middle(f[side]))
		}
	}
	if len(kubeadm) > 0 && len(apply) > 0 {
		k, a := middle(kubeadm), middle(apply)
		line("ratio    apply / kubeadm: time %.2f, processors %.2f", a.Took.Seconds()/k.Took.Seconds(), a.Processors.Seconds()/k.Processors.Seconds())
	}
	return b.String() + "\n" + computer + "\n\n" + clocks
}

// middle returns the medians of both values, each by itself. There is at least one measurement.
func middle(of []measurement) measurement {
	var took, processors []time.Duration
	for _, m := range of {
		took, processors = append(took, m.Took), append(processors, m.Processors)
	}
	return measurement{Took: median(took), Processors: median(processors)}
}

// median returns the middle value, or the mean of the two in the middle.
func median(of []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// processorTime returns how long this computer's processors have been busy since it booted.
func processorTime() time.Duration {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	return busy(string(stat))
}

// busy reads the first line of /proc/stat (proc_stat(5)): the time of all processors by what they did,
// in hundredths of a second.
func busy(stat string) time.Duration {
	first, _, _ := strings.Cut(stat, "\n")
	var sum time.Duration
	for n, field := range strings.Fields(first) {
		// user, nice, system, idle, iowait, irq, softirq; what follows is not this computer's work,
		// or is counted in user.
		if n == 0 || n == 4 || n == 5 || n > 7 {
			continue
		}
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0
		}
		sum += time.Duration(ticks) * 10 * time.Millisecond
	}
	return sum
}

// thisComputer describes where the figures come from.
func thisComputer() string {
	model := "unknown processor"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d x %s", time.Now().Format(time.DateOnly), runtime.NumCPU(), model)
}
