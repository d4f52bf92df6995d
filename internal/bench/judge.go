package main

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

// What a plan may cost with that many workers.
const (
	large          = 200
	largeCPU       = 10 // milliseconds for each machine
	largeMemory    = 250 << 20
	pageOfMachines = 100 // the smallest page in which EC2's calls are asked for machines
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
	{"EC2 calls", func(f figures) float64 { return float64(f.EC2) }, tolerance},
	{"SSM calls", func(f figures) float64 { return float64(f.SSM) }, tolerance},
	{"STS calls", func(f figures) float64 { return float64(f.STS) }, tolerance},
}

// judge returns what is worse than it may be: a figure of the largest cluster that is larger than
// that of the one before by more than the machines are, and the limits of a cluster of 200 workers.
func judge(all []figures) error {
	var errs []error
	for i, f := range all {
		errs = append(errs, limits(f)...)
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

func limits(f figures) []error {
	if f.Workers < large {
		return nil
	}
	var errs []error
	if per := float64(f.CPU.Milliseconds()) / float64(f.Machines); per > largeCPU {
		errs = append(errs, fmt.Errorf("%s plan of %d machines: %.1f ms of the provider's processor time for each, wanted at most %d", f.Plan, f.Machines, per, largeCPU))
	}
	if f.Memory > largeMemory {
		errs = append(errs, fmt.Errorf("%s plan of %d machines: %d MB, wanted at most %d", f.Plan, f.Machines, f.Memory>>20, largeMemory>>20))
	}
	return errs
}
