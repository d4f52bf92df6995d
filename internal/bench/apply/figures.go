package apply

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// The sides.
const (
	sideKubeadm  = "kubeadm"
	sideNothing  = "nothing"
	sideApply    = "apply"
	sideUnstaged = "unstaged"
	sideImage    = "image"
	sideRoles    = "roles"
)

var sideNames = []string{sideKubeadm, sideNothing, sideApply, sideUnstaged, sideImage, sideRoles}

// What is measured.
const (
	whatCluster = "cluster"
	whatWorker  = "one more worker"
)

// measurement is what one side took for one thing in one round.
type measurement struct {
	Side, What string
	Round      int
	Took       time.Duration
	// Processors is the time that this computer's processors were busy, whoever used them.
	Processors time.Duration
}

func (m measurement) String() string {
	return fmt.Sprintf("%-15s  %6.1f s, processors busy for %6.1f s", m.What, m.Took.Seconds(), m.Processors.Seconds())
}

// figures are all measurements.
type figures []measurement

// clocks says what each side's clock includes.
var clocks = map[string]string{
	sideKubeadm: `kubeadm   from the start of kubeadm init on the first controller until five nodes are Ready and both
          replicas of CoreDNS are available: init, then the joins of two controllers and two workers
          at the same time. Not included: machines, packages, HAProxy, containerd, kubelet and kubeadm
          on them, and their images, which are all in place.
`,
	sideNothing: `nothing   as kubeadm, with all of that in the time: network, six machines and their boot, packages, files and
          images. They are copied from this computer, and no checksum is verified.
`,
	sideApply: `apply     a whole terraform apply of examples/ha-cluster: network, six machines and their boot,
          every package and download, etcd, control plane, HAProxy, two workers Ready, and both
          replicas of CoreDNS available. Kubelets run on the two workers only. Not included: terraform
          init. Downloads come from this computer. Then an apply with workers = 3.
`,
	sideUnstaged: `unstaged  as apply, with stage = null for all machines.
`,
	sideImage: `image     as apply, with machines of an image that has all packages, programs and container images.
`,
	sideRoles: `roles     as image, with network, machines and their boot before the clock starts. No other worker.
`,
}

// text returns the report: a line for each measurement, the medians, their ratios to the first side, and
// what was measured.
func (f figures) text(sides []string, computer string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for _, m := range f {
		line("round %d  %-8s %s", m.Round, m.Side, m)
	}
	for _, what := range []string{whatCluster, whatWorker} {
		var first measurement
		for n, side := range sides {
			m, ok := f.middle(side, what)
			if !ok {
				continue
			}
			line("median   %-8s %s", side, m)
			if n == 0 {
				first = m
			}
			if n > 0 && first.Took > 0 {
				line("ratio    %s / %s: time %.2f, processors %.2f", side, sides[0],
					m.Took.Seconds()/first.Took.Seconds(), m.Processors.Seconds()/first.Processors.Seconds())
			}
		}
	}
	line("\n%s\n\nWhat each clock includes", computer)
	for _, side := range sides {
		for text := range strings.Lines(clocks[side]) {
			b.WriteString("  " + text)
		}
	}
	return b.String()
}

// middle returns the medians of both values, each by itself.
func (f figures) middle(side, what string) (m measurement, ok bool) {
	var took, processors []time.Duration
	for _, one := range f {
		if one.Side == side && one.What == what {
			took, processors = append(took, one.Took), append(processors, one.Processors)
		}
	}
	if len(took) == 0 {
		return m, false
	}
	return measurement{Side: side, What: what, Took: median(took), Processors: median(processors)}, true
}

// median returns the middle value, or the mean of the two in the middle.
func median(of []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// processorTime returns how long this computer's processors have been busy with work of its own since it booted.
func processorTime() time.Duration {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	stat, err := fs.Stat()
	if err != nil {
		return 0
	}
	c := stat.CPUTotal // User has what guests take
	return time.Duration((c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ) * float64(time.Second))
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
