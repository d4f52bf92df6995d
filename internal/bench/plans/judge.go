package plans

import (
	"errors"
	"fmt"
	"slices"
)

// tolerance is by how much a figure may grow faster than the number of machines. What is measured in
// seconds depends on what else the computer does.
const (
	tolerance     = 1.1
	timeTolerance = 1.4
)

// The most that a plan with this number of workers may cost.
const (
	large       = 200
	largeCPU    = 10  // milliseconds for each machine
	largeMemory = 250 // MiB
	pages       = 10  // EC2 calls in addition to the smallest cluster's, for further pages
)

// column is a figure by name.
type column struct {
	name      string
	value     func(figures) float64
	tolerance float64
}

var columns = []column{
	{"wall time", func(f figures) float64 { return f.Wall.Seconds() }, timeTolerance},
	{"processor time", func(f figures) float64 { return f.CPU.Seconds() }, timeTolerance},
	{"memory", func(f figures) float64 { return float64(f.Memory) }, tolerance},
	{"round trips", func(f figures) float64 { return float64(f.Trips) }, tolerance},
	{"handshakes", func(f figures) float64 { return float64(f.Shakes) }, tolerance},
	{"tunnels", func(f figures) float64 { return float64(f.Tunnels) }, tolerance},
	{"bytes", func(f figures) float64 { return float64(f.Bytes) }, tolerance},
	{"SSM calls", func(f figures) float64 { return float64(f.SSM) }, tolerance},
	{"STS calls", func(f figures) float64 { return float64(f.STS) }, tolerance},
}

// judge returns an error with the figures that, from 50 workers on, grow faster than the number of
// machines, and with the plans that call EC2 more often for more machines, not counting further
// pages.
func judge(all []figures) error {
	var errs []error
	for i, f := range all {
		if most := all[0].EC2 + pages; f.EC2 > most {
			errs = append(errs, fmt.Errorf("EC2 calls, %s plan: %d with %d workers and %d with %d, wanted at most %d", f.Plan, all[0].EC2, all[0].Workers, f.EC2, f.Workers, most))
		}
		j := slices.IndexFunc(all[:i], func(b figures) bool { return b.Plan == f.Plan && b.Workers >= 50 })
		if j < 0 {
			continue
		}
		before := all[j]
		growth := float64(f.Machines) / float64(before.Machines)
		for _, c := range columns {
			a, b := c.value(before), c.value(f)
			if b > a*growth*c.tolerance {
				errs = append(errs, fmt.Errorf("%s, %s plan: %.4g with %d workers and %.4g with %d, which is worse than linear", c.name, f.Plan, a, before.Workers, b, f.Workers))
			}
		}
	}
	return errors.Join(errs...)
}

// aims says which aims are reached with 200 workers.
func aims(all []figures) []string {
	var lines []string
	aim := func(plan string, reached bool, format string, args ...any) {
		word := "missed"
		if reached {
			word = "reached"
		}
		lines = append(lines, fmt.Sprintf("%s plan, %s: ", plan, word)+fmt.Sprintf(format, args...))
	}
	for _, f := range all {
		if f.Workers < large {
			continue
		}
		per := float64(f.CPU.Microseconds()) / 1000 / float64(f.Machines)
		aim(f.Plan, per <= largeCPU, "%.1f ms of the provider's processor time for each machine; the aim is %d", per, largeCPU)
		aim(f.Plan, f.Memory>>20 <= largeMemory, "%d MB; the aim is %d", f.Memory>>20, largeMemory)
	}
	return lines
}
