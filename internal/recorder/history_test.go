package recorder

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

var errLost = errors.New("the connection was lost")

func write(value int, call, ret time.Duration) Op {
	return Op{Write: true, Value: value, Call: call, Return: ret}
}

func read(value int, call, ret time.Duration) Op { return Op{Value: value, Call: call, Return: ret} }

func failed(op Op) Op { op.Err = errLost; return op }

// TestCheck tells histories of one register apart.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		ops    []Op
		final  int
		lost   int
		wrong  bool
		errors int
	}{
		"one after the other":             {ops: []Op{write(1, 0, 1), read(1, 2, 3), write(2, 4, 5), read(2, 6, 7)}, final: 2},
		"at the same time, old or new":    {ops: []Op{write(1, 0, 9), read(0, 1, 2), read(1, 3, 4)}, final: 1},
		"at the same time, new, then old": {ops: []Op{write(1, 0, 9), read(1, 1, 2), read(0, 3, 4)}, final: 1, wrong: true},
		"a stale read":                    {ops: []Op{write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)}, final: 2, wrong: true},
		"a read of what nobody wrote":     {ops: []Op{write(1, 0, 1), read(7, 2, 3)}, final: 1, wrong: true},
		"an acknowledged write is gone":   {ops: []Op{write(1, 0, 1), write(2, 2, 3)}, final: 1, lost: 1, wrong: true},
		"three are gone":                  {ops: []Op{write(1, 0, 1), write(2, 2, 3), write(3, 4, 5)}, final: 0, lost: 3, wrong: true},
		"a failed write did not happen":   {ops: []Op{write(1, 0, 1), failed(write(2, 2, 3)), read(1, 4, 5)}, final: 1, errors: 1},
		"a failed write happened":         {ops: []Op{write(1, 0, 1), failed(write(2, 2, 3)), read(2, 4, 5)}, final: 2, errors: 1},
		"a failed write happened late":    {ops: []Op{failed(write(1, 0, 1)), read(0, 2, 3), read(1, 4, 5)}, final: 1, errors: 1},
		"it cannot be undone":             {ops: []Op{failed(write(1, 0, 1)), read(1, 2, 3), read(0, 4, 5)}, final: 1, errors: 1, wrong: true},
		"it was read before it was asked": {ops: []Op{read(1, 0, 1), failed(write(1, 2, 3))}, final: 1, errors: 1, wrong: true},
		"a failed write stays at the end": {ops: []Op{write(1, 0, 1), failed(write(2, 2, 3))}, final: 2, errors: 1},
		"a failed read says nothing":      {ops: []Op{write(1, 0, 1), failed(read(0, 2, 3))}, final: 1, errors: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := Check(c.ops, 1, map[int]int{0: c.final}, 10, time.Second)
			if r.Lost != c.lost || (len(r.Wrong) > 0) != c.wrong || r.Errors != c.errors || len(r.Undecided)+len(r.Unread) > 0 || r.Operations != len(c.ops) {
				t.Errorf("%+v", r)
			}
			if r.Whole() == (c.wrong || c.lost > 0) {
				t.Errorf("whole: %v", r.Whole())
			}
			if said := r.String(); strings.HasSuffix(said, "lost, linearizable") == c.wrong {
				t.Error(said)
			}
		})
	}
}

// TestRegistersApart checks that a wrong register is named, that the others are right, and that one
// that cannot be read is not called whole.
func TestRegistersApart(t *testing.T) {
	stale := []Op{write(1, 0, 1), read(0, 2, 3)}
	for i := range stale {
		stale[i].Key = 2
	}
	r := Check(append(stale, write(1, 0, 1)), 3, map[int]int{0: 1, 2: 1}, 5, time.Second)
	if !slices.Equal(r.Wrong, []int{2}) || !slices.Equal(r.Unread, []int{1}) {
		t.Errorf("%+v", r)
	}
	if want := "3 operations, 0 errors, longest gap 0.0s, 0 acknowledged writes lost, 1 not seen by a later read, 1 registers cannot be read, not linearizable: registers [2]"; r.String() != want {
		t.Errorf("%q, want %q", r, want)
	}
}

// TestGap looks for the longest time without a success, also at the begin and at the end.
func TestGap(t *testing.T) {
	for _, c := range []struct {
		ops  []Op
		end  time.Duration
		want time.Duration
	}{
		{nil, 7, 7},
		{[]Op{read(0, 4, 5)}, 6, 5},
		{[]Op{read(0, 0, 1), read(0, 2, 9), failed(read(0, 3, 5))}, 10, 8},
		{[]Op{read(0, 2, 3), read(0, 0, 1)}, 9, 6},
	} {
		if got := gap(c.ops, c.end); got != c.want {
			t.Errorf("%v until %d: %d, want %d", c.ops, c.end, got, c.want)
		}
	}
}

// TestClosed compares, on random histories, what porcupine says about failed writes that stay open to
// the end with what it says about closed ones.
func TestClosed(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	count := map[porcupine.CheckResult]int{}
	for range 3000 {
		var ops, open []Op
		for value := 1; value <= 4; value++ {
			call := time.Duration(random.IntN(20))
			op := write(value, call, call+time.Duration(random.IntN(8)))
			if random.IntN(2) == 0 {
				ops = append(ops, failed(op))
				op.Return = 1000
				open = append(open, op)
			} else {
				ops, open = append(ops, op), append(open, op)
			}
			call = time.Duration(random.IntN(24))
			op = read(random.IntN(5), call, call+time.Duration(random.IntN(8)))
			ops, open = append(ops, op), append(open, op)
		}
		got, want := linearizable(closed(ops), time.Minute), linearizable(open, time.Minute)
		if got != want {
			t.Fatalf("%s, but with open writes %s:\n%v", got, want, ops)
		}
		count[got]++
	}
	if count[porcupine.Ok] < 100 || count[porcupine.Illegal] < 100 {
		t.Errorf("the histories are too much alike: %v", count)
	}
}

// TestDecides checks a history as long as a drill's, in which the cluster is away for a long time.
func TestDecides(t *testing.T) {
	var ops []Op
	value := 0
	for at := time.Duration(0); at < 3000; at += 3 {
		value++
		if away := at > 1000 && at < 2000; away {
			ops = append(ops, failed(write(value, at, at+2)), failed(read(0, at, at+2)))
			continue
		}
		ops = append(ops, write(value, at, at+2), read(value, at+1, at+3))
	}
	if r := Check(ops, 1, map[int]int{0: value}, 3001, 2*time.Minute); !r.Whole() || r.Errors < 600 {
		t.Errorf("%s", r)
	}
}

// TestUndone goes back to an earlier value, and writes on: the writes in between are undone.
func TestUndone(t *testing.T) {
	at := func(seconds int) time.Duration { return time.Duration(seconds) * time.Second }
	op := func(write bool, value, call int) Op {
		return Op{Write: write, Value: value, Call: at(call), Return: at(call + 1)}
	}
	ops := []Op{op(true, 1, 0), op(true, 2, 2), op(true, 3, 4), failed(op(true, 4, 6)), op(false, 1, 8), op(true, 5, 10), op(false, 5, 12)}
	r := Check(ops, 1, map[int]int{0: 5}, at(20), time.Second)
	if r.Undone != 2 || r.OldestUndone != at(3) || r.Lost != 0 || len(r.Wrong) != 1 {
		t.Errorf("%+v", r)
	}
	if r := Check(ops[:3], 1, map[int]int{0: 3}, at(20), time.Second); r.Undone != 0 || !r.Whole() {
		t.Errorf("nothing was undone: %+v", r)
	}
}
