package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
)

// step is the time between the first and the last line of the provider's log about one step.
type step struct {
	name       string
	start, end time.Duration // since the start of the apply; zero if not seen
}

// milestones are the log messages at which a step starts and ends, in the order in which a cluster
// comes up.
var milestones = []struct{ name, from, to string }{
	{"launch the machines", "machine: launching", "machine: running"},
	{"SSH ready, host key rotated", "machine: running", "machine: ready"},
	{"etcd: install", "etcd: downloading ahead", "restart etcd.service"},
	{"etcd: start, all healthy", "restart etcd.service", "etcd: healthy"},
	{"control plane: install", "control plane: applying", "restart kube-apiserver.service"},
	{"API servers ready", "restart kube-apiserver.service", "API server: ready"},
	{"workers: install", "worker: applying", "restart containerd.service"},
	{"nodes Ready", "restart kubelet.service", "node: Ready"},
	{"CoreDNS available", "addon: applied", "is available"},
}

var logLine = regexp.MustCompile(`^(\S+) \[INFO\]\s+\S+ (.*)$`)

// readSteps reads the steps of one apply from the provider's log.
func readSteps(name string, began time.Time) ([]step, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	steps := make([]step, len(milestones))
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		m := logLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		at, err := time.Parse("2006-01-02T15:04:05.000Z0700", m[1])
		if err != nil || at.Before(began) {
			continue
		}
		for i, ms := range milestones {
			steps[i].name = ms.name
			if strings.Contains(m[2], ms.from) && steps[i].start == 0 {
				steps[i].start = at.Sub(began)
			}
			if strings.Contains(m[2], ms.to) {
				steps[i].end = at.Sub(began)
			}
		}
	}
	return steps, lines.Err()
}

func printSteps(w io.Writer, steps []step) {
	_, _ = fmt.Fprintln(w, "\nWithin the apply, by step              from     to    took")
	for _, s := range steps {
		if s.start > 0 && s.end > 0 {
			_, _ = fmt.Fprintf(w, "  %-32s %5.1fs %5.1fs %6.1fs\n", s.name, s.start.Seconds(), s.end.Seconds(), (s.end - s.start).Seconds())
		}
	}
}
