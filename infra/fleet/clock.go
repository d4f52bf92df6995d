package fleet

import (
	"fmt"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// ClockLead returns how far the machine's clock is ahead of ours, negative for behind. clock is its
// answer to a question sent after before and answered before now. It is 0 if the answer is
// consistent with equal clocks.
func ClockLead(clock, before, now time.Time) time.Duration {
	switch {
	case clock.IsZero():
		return 0
	case clock.Before(before):
		return min(clock.Add(time.Second).Sub(before), 0) // clock is in whole seconds
	case clock.After(now):
		return clock.Sub(now)
	}
	return 0
}

// ClockWords says how far a machine's clock is ahead of ours, negative for behind, and what the
// consequence is.
func ClockWords(ahead time.Duration) string {
	side := "ahead of"
	if ahead < 0 {
		side = "behind"
	}
	words := fmt.Sprintf("its clock is %s %s this computer's", ahead.Abs().Round(time.Second), side)
	switch {
	case ahead <= -pki.Backdate:
		words += ": a certificate made now is not yet valid there"
	case ahead >= pki.DefaultValidity:
		words += ": a certificate made now has expired there"
	}
	return words
}

// CheckClock returns an error if the machine's clock would make it reject new certificates.
func (t Target) CheckClock(ahead time.Duration) error {
	if -pki.Backdate < ahead && ahead < pki.DefaultValidity {
		return nil
	}
	return &StepError{Machine: t.Name(), Step: "compare the clocks", Err: fmt.Errorf("%s; nothing has been changed", ClockWords(ahead)),
		Next: "see which of the two is wrong, date --utc here against\n" + t.SSH("timedatectl") +
			"\nset it right (EC2 offers the time at 169.254.169.123) and apply again"}
}
