// Package version knows Kubernetes releases: which minors this project supports, which upgrades are
// possible in one step, and how far the versions of components may differ
// (https://kubernetes.io/releases/version-skew-policy/).
//
// It is pure. What may not enter: downloads, machines, and where releases are published.
package version

import (
	"fmt"
	"regexp"
	"strings"

	goversion "github.com/hashicorp/go-version"
)

// Version is one release: major, minor and patch, without pre-release or build parts. The zero
// Version is not a release; see IsZero.
type Version struct {
	v *goversion.Version
}

// kubeletSkew is how many minors older than its API server a kubelet or kube-proxy may be.
const kubeletSkew = 3

var release = regexp.MustCompile(`^v?(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$`)

// Parse reads "1.36.4" or "v1.36.4". Pre-releases, build metadata, missing parts and leading zeros
// are errors.
func Parse(s string) (Version, error) {
	if !release.MatchString(s) {
		return Version{}, fmt.Errorf("%q is not a release version: want major.minor.patch", s)
	}
	v, err := goversion.NewSemver(strings.TrimPrefix(s, "v"))
	if err != nil {
		return Version{}, fmt.Errorf("version %q: %w", s, err)
	}
	return Version{v: v}, nil
}

// ParseSupported reads a Kubernetes version and requires its minor to be one of Supported.
func ParseSupported(s string) (Version, error) {
	v, err := Parse(s)
	if err != nil {
		return Version{}, err
	}
	return v, CheckSupported(v)
}

// CheckEtcd returns an error unless this project supports the release of etcd: 3.6 and 3.7.
func CheckEtcd(v Version) error {
	var minors []string
	for _, r := range etcdReleases {
		if minors = append(minors, r.minor); r.minor == v.MinorString() {
			return nil
		}
	}
	return fmt.Errorf("etcd %s is not supported: the supported minors of etcd are %s", v, strings.Join(minors, " and "))
}

// CheckContainerd returns an error if a release of containerd cannot read this project's
// configuration: 2.0 and later can
// (https://github.com/containerd/containerd/blob/main/docs/cri/config.md).
func CheckContainerd(v Version) error {
	if v.Major() == 2 {
		return nil
	}
	return fmt.Errorf("containerd %s is not supported: the supported major of containerd is 2", v)
}

// String returns "1.36.4".
func (v Version) String() string {
	if v.v == nil {
		return ""
	}
	return v.v.Core().String()
}

// Tag returns "v1.36.4", the form used in release URLs and by the API.
func (v Version) Tag() string {
	if v.v == nil {
		return ""
	}
	return "v" + v.String()
}

// MinorString returns "1.36".
func (v Version) MinorString() string {
	return fmt.Sprintf("%d.%d", v.Major(), v.Minor())
}

// IsZero reports whether v is the zero Version.
func (v Version) IsZero() bool { return v.v == nil }

// Major returns the first number.
func (v Version) Major() int { return v.segment(0) }

// Minor returns the second number.
func (v Version) Minor() int { return v.segment(1) }

// Patch returns the third number.
func (v Version) Patch() int { return v.segment(2) }

func (v Version) segment(i int) int {
	if v.v == nil {
		return 0
	}
	return v.v.Segments()[i]
}

// Compare returns -1, 0 or 1 as v is older than, the same as, or newer than o. The zero Version is
// older than every release.
func (v Version) Compare(o Version) int {
	switch {
	case v.v == nil && o.v == nil:
		return 0
	case v.v == nil:
		return -1
	case o.v == nil:
		return 1
	}
	return v.v.Compare(o.v)
}

// CheckUpgrade returns an error unless a control plane may go from one version to another in one
// step: any patch of the same minor, or the next minor. Going back a minor is never possible,
// because stored objects may already be in a form that the older API server cannot read.
func CheckUpgrade(from, to Version) error { return checkStep("a control plane", from, to) }

// etcdBefore37 is the first patch of 3.6 whose members may run together with members of 3.7
// (https://etcd.io/docs/v3.7/upgrades/upgrade_3_7/).
const etcdBefore37 = "3.6.11"

// CheckEtcdUpgrade is [CheckUpgrade] for etcd, with the same rules: a member rejects data written
// by a later minor and reads those of the minor before (https://etcd.io/docs/latest/upgrades/). The
// step to 3.7 needs 3.6.11 or later.
func CheckEtcdUpgrade(from, to Version) error {
	if err := checkStep("etcd", from, to); err != nil {
		return err
	}
	first, err := Parse(etcdBefore37)
	if err != nil {
		return err
	}
	if to.MinorString() == "3.7" && from.Compare(first) < 0 {
		return fmt.Errorf("cannot go from %s to %s in one step: members of 3.7 need the others to be %s or later, go to 3.6.16 first", from, to, etcdBefore37)
	}
	return nil
}

func checkStep(who string, from, to Version) error {
	switch {
	case from.Major() != to.Major():
		return fmt.Errorf("cannot go from %s to %s: the major version differs", from, to)
	case to.Minor() < from.Minor():
		return fmt.Errorf("cannot go from %s back to %s: the minor version of %s cannot be lowered", from, to, who)
	case to.Minor() > from.Minor()+1:
		return fmt.Errorf("cannot go from %s to %s in one step: %s moves one minor version at a time, go to %d.%d first",
			from, to, who, from.Major(), from.Minor()+1)
	}
	return nil
}

// CheckKubeletSkew returns an error unless a kubelet or kube-proxy may run with an API server: it
// may be up to three minors older, and never newer.
func CheckKubeletSkew(apiserver, kubelet Version) error {
	return checkSkew("kubelet", kubelet, apiserver, kubeletSkew)
}

func checkSkew(who string, v, apiserver Version, allowed int) error {
	switch {
	case v.Major() != apiserver.Major():
		return fmt.Errorf("%s %s and API server %s differ in their major version", who, v, apiserver)
	case v.Minor() > apiserver.Minor():
		return fmt.Errorf("%s %s is newer than the API server %s: upgrade the control plane first", who, v, apiserver)
	case apiserver.Minor()-v.Minor() > allowed:
		return fmt.Errorf("%s %s is %d minor versions behind the API server %s: at most %d allowed",
			who, v, apiserver.Minor()-v.Minor(), apiserver, allowed)
	}
	return nil
}
