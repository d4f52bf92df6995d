// Package recorder shows whether clients of a cluster lose anything while something happens to it. It
// writes and reads registers all the time, records every operation with its times and outcome, and
// then says how long nobody got an answer, whether acknowledged writes are gone, and whether the
// history is linearizable. [Check] is pure; [ConfigMaps] are registers in a real cluster.
package recorder

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Op is one operation on a register. Every register is 0 at first, and no value is written twice to
// the same one: a client that does not know whether it has written 7 goes on with 8.
type Op struct {
	Key    int
	Write  bool
	Value  int           // written or read
	Call   time.Duration // since the record began
	Return time.Duration
	// Err is why it failed. A read that failed says nothing. A write that failed, with whatever
	// error, may have happened at any time after its call, or never.
	Err error
}

// Result is what a record shows.
type Result struct {
	Operations int
	Errors     int
	Gap        time.Duration // the longest time in which no operation succeeded
	// Lost are acknowledged writes that are newer than what their register has at the end.
	Lost int
	// Undone are acknowledged writes that a later read did not see: the cluster went back, and may have
	// been written to since. OldestUndone is when the oldest of them was acknowledged, since the start
	// of the record.
	Undone       int
	OldestUndone time.Duration
	// Unread are registers that could not be read at the end, so nobody knows what they lost.
	Unread []int
	// Wrong are registers whose history is not linearizable, Undecided those for which the time did
	// not suffice.
	Wrong, Undecided []int
}

// String returns the result as a line of figures.
func (r Result) String() string {
	verdict := "linearizable"
	switch {
	case len(r.Wrong) > 0:
		verdict = fmt.Sprintf("not linearizable: registers %v", r.Wrong)
	case len(r.Undecided) > 0:
		verdict = fmt.Sprintf("not decided whether linearizable: registers %v", r.Undecided)
	}
	lost := fmt.Sprintf("%d acknowledged writes lost", r.Lost)
	if r.Undone > 0 {
		lost += fmt.Sprintf(", %d not seen by a later read", r.Undone)
	}
	if len(r.Unread) > 0 {
		lost += fmt.Sprintf(", %d registers cannot be read", len(r.Unread))
	}
	return fmt.Sprintf("%d operations, %d errors, longest gap %.1fs, %s, %s", r.Operations, r.Errors, r.Gap.Seconds(), lost, verdict)
}

// Whole reports whether nothing was lost and the history is linearizable.
func (r Result) Whole() bool {
	return r.Lost == 0 && len(r.Unread) == 0 && len(r.Wrong) == 0 && len(r.Undecided) == 0
}

// Check judges a record that ended at end. final is what each register has after it; a register that
// could not be read is missing. The check of each register may take limit.
func Check(ops []Op, registers int, final map[int]int, end, limit time.Duration) Result {
	r := Result{Operations: len(ops), Gap: gap(ops, end)}
	for _, op := range ops {
		if op.Err != nil {
			r.Errors++
		} else if last, read := final[op.Key]; read && op.Write && op.Value > last {
			r.Lost++
		}
	}
	for key := range registers {
		var history []Op
		for _, op := range ops {
			if op.Key == key {
				history = append(history, op)
			}
		}
		if last, read := final[key]; read {
			history = append(history, Op{Key: key, Value: last, Call: end, Return: end})
		} else {
			r.Unread = append(r.Unread, key)
		}
		for _, op := range undone(history) {
			if r.Undone++; r.Undone == 1 || op.Return < r.OldestUndone {
				r.OldestUndone = op.Return
			}
		}
		switch linearizable(closed(history), limit) {
		case porcupine.Illegal:
			r.Wrong = append(r.Wrong, key)
		case porcupine.Unknown:
			r.Undecided = append(r.Undecided, key)
		}
	}
	return r
}

// undone returns the acknowledged writes of one register that a later read did not see. The values of
// a register ascend.
func undone(ops []Op) (out []Op) {
	for _, w := range ops {
		if w.Write && w.Err == nil && slices.ContainsFunc(ops, func(r Op) bool { return !r.Write && r.Err == nil && r.Call > w.Return && r.Value < w.Value }) {
			out = append(out, w)
		}
	}
	return out
}

// gap returns the longest time without a successful operation.
func gap(ops []Op, end time.Duration) time.Duration {
	times := []time.Duration{end}
	for _, op := range ops {
		if op.Err == nil {
			times = append(times, op.Return)
		}
	}
	slices.Sort(times)
	var longest, before time.Duration
	for _, at := range times {
		longest, before = max(longest, at-before), at
	}
	return longest
}

// closed returns a history of one register without operations of unknown outcome. It is linearizable
// exactly when the given one is, and porcupine decides it fast. Many writes that stay open to the end
// would take it exponential time. A failed write that nobody has read may as well have never
// happened. One that was read has happened before the first such read returned.
func closed(ops []Op) []Op {
	seen := map[int]time.Duration{} // value -> when the first read of it returned
	for _, op := range ops {
		if at, known := seen[op.Value]; !op.Write && op.Err == nil && (!known || op.Return < at) {
			seen[op.Value] = op.Return
		}
	}
	var out []Op
	for _, op := range ops {
		at, read := seen[op.Value]
		switch {
		case op.Err == nil:
			out = append(out, op)
		case op.Write && read:
			op.Return, op.Err = max(at, op.Call), nil
			out = append(out, op)
		}
	}
	return out
}

// linearizable checks the history of one register.
func linearizable(ops []Op, limit time.Duration) porcupine.CheckResult {
	var history []porcupine.Operation
	for _, op := range ops {
		history = append(history, porcupine.Operation{Input: op, Output: op.Value, Call: int64(op.Call), Return: int64(op.Return)})
	}
	return porcupine.CheckOperationsTimeout(porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, output any) (bool, any) {
			if op := input.(Op); op.Write {
				return true, op.Value
			}
			return state == output, state
		},
	}, history, limit)
}

// Reasons returns the errors of failed operations and how often each occurred, the commonest first.
func Reasons(ops []Op) []string {
	count := map[string]int{}
	for _, op := range ops {
		if op.Err != nil {
			count[op.Err.Error()]++
		}
	}
	reasons := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%d times: %s", count[reason], reason)
	}
	return reasons
}
