package component

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
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
