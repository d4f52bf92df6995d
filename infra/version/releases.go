package version

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Release is a minor release of Kubernetes that this project supports.
type Release struct {
	Minor  string // "1.36"
	Newest string // the newest patch that the end-to-end tests have run with: "1.36.4"
	// EndOfLife is the day after which upstream releases no more fixes, at midnight UTC
	// (https://kubernetes.io/releases/1.36/ and the like).
	EndOfLife time.Time
}

// endWarning is how long before its end of life a release causes a warning.
const endWarning = 3 // months

var releases = []Release{
	{"1.35", "1.35.8", day(2027, time.February, 28)},
	{"1.36", "1.36.4", day(2027, time.June, 28)},
	{"1.37", "1.37.1", day(2027, time.October, 28)},
}

// etcdReleases are the newest patches of etcd that the end-to-end tests have run with, by minor,
// the oldest first.
var etcdReleases = []struct{ minor, newest string }{{"3.6", "3.6.16"}, {"3.7", "3.7.3"}}

// NotKnown returns, in a sentence or two, that a release of Kubernetes is later than any that this
// project knows of its minor: it may not exist. It is empty otherwise, and for unsupported minors.
func NotKnown(v Version) string {
	i := releaseIndex(v)
	if i < 0 {
		return ""
	}
	return notKnown("Kubernetes", v, releases[i].Newest)
}

// EtcdNotKnown is [NotKnown] for etcd.
func EtcdNotKnown(v Version) string {
	for _, r := range etcdReleases {
		if r.minor == v.MinorString() {
			return notKnown("etcd", v, r.newest)
		}
	}
	return ""
}

func notKnown(program string, v Version, newest string) string {
	if known, err := Parse(newest); err != nil || v.Compare(known) <= 0 {
		return ""
	}
	return fmt.Sprintf("%s %s is later than %s, the latest %s that this release of the provider knows. It has not been tested with it, and cannot say whether it exists: "+
		"if it does not, the apply ends when nothing can be downloaded, before anything is stopped.", program, v, newest, v.MinorString())
}

func day(year int, month time.Month, d int) time.Time {
	return time.Date(year, month, d, 0, 0, 0, 0, time.UTC)
}

// Releases returns the supported minors of Kubernetes, oldest first.
func Releases() []Release { return slices.Clone(releases) }

// releaseIndex returns the index of the release that v belongs to, -1 if v is not supported.
func releaseIndex(v Version) int {
	return slices.IndexFunc(releases, func(r Release) bool { return r.Minor == v.MinorString() })
}

// Supported returns the supported minors of Kubernetes, oldest first: "1.35", "1.36".
func Supported() []string {
	minors := make([]string, len(releases))
	for i, r := range releases {
		minors[i] = r.Minor
	}
	return minors
}

// CheckSupported returns an error that names the supported minors when v is not one of them.
func CheckSupported(v Version) error {
	if releaseIndex(v) >= 0 {
		return nil
	}
	minors := Supported()
	last := len(minors) - 1
	return fmt.Errorf("version %s is not supported: the supported minors of Kubernetes are %s and %s", v, strings.Join(minors[:last], ", "), minors[last])
}

// EndsSoon returns, in a sentence or two, that v's minor has reached its end of life or will within
// three months, and what to upgrade to. It is empty otherwise, and for unsupported versions.
func EndsSoon(v Version, now time.Time) string {
	i := releaseIndex(v)
	if i < 0 || now.Before(releases[i].EndOfLife.AddDate(0, -endWarning, 0)) {
		return ""
	}
	r := releases[i]
	words := fmt.Sprintf("Kubernetes %s reaches its end of life on %s", r.Minor, r.EndOfLife.Format(time.DateOnly))
	if now.After(r.EndOfLife.AddDate(0, 0, 1)) {
		words = fmt.Sprintf("Kubernetes %s has been at its end of life since %s", r.Minor, r.EndOfLife.Format(time.DateOnly))
	}
	words += fmt.Sprintf(": it gets no fixes afterwards, not even for security holes (https://kubernetes.io/releases/%s/).", r.Minor)
	if i+1 < len(releases) {
		return words + fmt.Sprintf(" Upgrade to %s next.", releases[i+1].Newest)
	}
	return words + " Upgrade to a release of this provider that knows a later release of Kubernetes."
}
