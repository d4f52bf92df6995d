package pki

import (
	"fmt"
	"regexp"
	"time"
)

// Bounds of the validity of an authority's certificate. With less than a day nothing of a cluster
// lives until the next apply. A duration holds no more than 292 years, a certificate dates until
// the year 9999.
const (
	MinCAValidity = 24 * time.Hour
	MaxCAValidity = 2_500_000 * time.Hour
)

// manyHours are durations that are well-formed and too long for time.ParseDuration.
var manyHours = regexp.MustCompile(`^\+?[0-9]+(\.[0-9]*)?h`)

// ParseCAValidity reads the validity of authorities' certificates, such as "87600h". The error says
// what is wrong with it.
func ParseCAValidity(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil && manyHours.MatchString(s), d > MaxCAValidity:
		return 0, fmt.Errorf("%s is too long: at most %s (%d years)", s, hours(MaxCAValidity), MaxCAValidity/(365*24*time.Hour))
	case err != nil:
		return 0, fmt.Errorf("%q is not a duration such as 87600h", s)
	case d < MinCAValidity:
		return 0, fmt.Errorf("%s is too short: at least %s", s, hours(MinCAValidity))
	}
	return d, nil
}

func hours(d time.Duration) string { return fmt.Sprintf("%dh", d/time.Hour) }
