package version

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The names of releases that run together, see [Problems].
const (
	ControlPlane    = "control_plane"
	Workers         = "workers"
	Etcd            = "etcd"
	Containerd      = "containerd"
	ControlPlaneNow = "control_plane_now" // that runs before an upgrade
	EtcdNow         = "etcd_now"
)

var setNames = []string{ControlPlane, Workers, Etcd, Containerd, ControlPlaneNow, EtcdNow}

// Problems returns a sentence for each release of a set that is not supported, for workers that may not run
// with the control plane, and for an upgrade that cannot be made in one step. It fails on an unknown name.
func Problems(set map[string]Version) ([]string, error) {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if !slices.Contains(setNames, name) {
			return nil, fmt.Errorf("%q: want %s", name, strings.Join(setNames, ", "))
		}
	}
	problems := []string{}
	add := func(name string, err error) {
		if err != nil {
			problems = append(problems, name+": "+err.Error()+".")
		}
	}
	one := func(name string, check func(Version) error) {
		if v, ok := set[name]; ok {
			add(name, check(v))
		}
	}
	two := func(name, other string, check func(other, v Version) error) {
		v, ok := set[name]
		o, also := set[other]
		if ok && also {
			add(name, check(o, v))
		}
	}
	one(ControlPlane, CheckSupported)
	two(ControlPlane, ControlPlaneNow, CheckUpgrade)
	one(Workers, CheckSupported)
	two(Workers, ControlPlane, CheckKubeletSkew)
	one(Etcd, CheckEtcd)
	two(Etcd, EtcdNow, CheckEtcdUpgrade)
	one(Containerd, CheckContainerd)
	return problems, nil
}
