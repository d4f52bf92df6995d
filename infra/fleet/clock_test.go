package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

func TestClocks(t *testing.T) {
	t.Parallel()
	before := time.Date(2026, 11, 20, 20, 0, 0, 500e6, time.UTC)
	now := before.Add(10 * time.Second)
	for _, test := range []struct {
		clock time.Time
		want  time.Duration
	}{
		{time.Time{}, 0},
		{before.Truncate(time.Second), 0}, // whole seconds
		{now, 0},
		{now.Add(time.Minute), time.Minute},
		{before.Add(-time.Hour), time.Second - time.Hour},
	} {
		if got := ClockLead(test.clock, before, now); got != test.want {
			t.Errorf("%s: off by %s, wanted %s", test.clock, got, test.want)
		}
	}
	for _, test := range []struct {
		ahead time.Duration
		want  string // part of the error
	}{
		{0, ""},
		{-pki.Backdate + time.Second, ""},
		{time.Hour, ""},
		{-pki.Backdate, "its clock is 5m0s behind this computer's: a certificate made now is not yet valid there"},
		{pki.DefaultValidity, "a certificate made now has expired there"},
	} {
		err := (Target{}).CheckClock(test.ahead)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, wanted %q", test.ahead, err, test.want)
		}
	}
}
