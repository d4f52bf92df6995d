package rollout

import (
	"fmt"
	"slices"
	"strings"
)

// stopped adds to the error that ended a roll-out which machines it has not
// come to: those of the steps left that had no part in the steps taken.
func stopped(err error, taken, left []Step) error {
	if err == nil {
		return nil
	}
	var spared []string
	for _, s := range left {
		if s.Action.disturbs() && !slices.Contains(names(taken), s.Machine) && !slices.Contains(spared, s.Machine) {
			spared = append(spared, s.Machine)
		}
	}
	if len(spared) == 0 {
		return err
	}
	return fmt.Errorf("%w\nthe roll ended there; not touched: %s. Apply again when the cause is removed: it goes on where it ended",
		err, strings.Join(spared, ", "))
}
