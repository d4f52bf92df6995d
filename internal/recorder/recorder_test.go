package recorder

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// memory are registers in memory with a defect.
type memory struct {
	mu     sync.Mutex
	asked  int
	values map[int]int
	old    map[int]int // what stale reads get
	lies   bool        // acknowledges writes that it does not make
	stale  bool
	away   bool // fails, but makes every other write
}

func (m *memory) Read(_ context.Context, key int) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	switch {
	case m.away:
		return 0, errors.New("away")
	case m.stale:
		return m.old[key], nil
	default:
		return m.values[key], nil
	}
}

func (m *memory) Write(_ context.Context, key, value int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	if m.away {
		if value%2 == 0 {
			m.values[key] = value
		}
		return errors.New("away")
	}
	if !m.lies {
		m.old[key], m.values[key] = m.values[key], value
	}
	return nil
}

func (m *memory) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// serves waits for operations, at least for a time.
func (m *memory) serves(operations int, least time.Duration) {
	end := 0
	m.set(func() { end = m.asked + operations })
	for more := true; more; m.set(func() { more = m.asked < end }) {
		time.Sleep(least)
	}
}

// TestRecorder records registers with and without defects.
func TestRecorder(t *testing.T) {
	pace := Pace{Registers: 4, Write: 2 * time.Millisecond, Read: time.Millisecond, Timeout: time.Second}
	for name, c := range map[string]struct {
		begin, end func(*memory)
		lost       bool
		wrong      bool
		errors     bool
	}{
		"sound": {begin: func(*memory) {}, end: func(*memory) {}},
		"away":  {begin: func(m *memory) { m.away = true }, end: func(m *memory) { m.away = false }, errors: true},
		"lies":  {begin: func(m *memory) { m.lies = true }, end: func(*memory) {}, lost: true, wrong: true},
		"stale": {begin: func(m *memory) { m.stale = true }, end: func(m *memory) { m.stale = false }, wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := &memory{values: map[int]int{}, old: map[int]int{}}
			r := Start(t.Context(), m, pace)
			m.serves(200, 100*time.Millisecond)
			m.set(func() { c.begin(m) })
			m.serves(200, 200*time.Millisecond)
			m.set(func() { c.end(m) })
			m.serves(200, 100*time.Millisecond)
			result, ops := r.End(t.Context(), time.Second)
			if (result.Lost > 0) != c.lost || (len(result.Wrong) > 0) != c.wrong || (result.Errors > 0) != c.errors || len(result.Unread)+len(result.Undecided) > 0 {
				t.Errorf("%s", result)
			}
			if result.Operations < 100 || len(ops) != result.Operations {
				t.Errorf("only %d operations", result.Operations)
			}
			if c.errors && (result.Gap < 150*time.Millisecond || len(Reasons(ops)) != 1) {
				t.Errorf("longest gap %s, reasons %q", result.Gap, Reasons(ops))
			}
		})
	}
}

// TestUnread ends a record of registers that stay away.
func TestUnread(t *testing.T) {
	m := &memory{values: map[int]int{}, old: map[int]int{}, away: true}
	r := Start(t.Context(), m, Pace{Registers: 2, Write: time.Millisecond, Read: time.Millisecond, Timeout: time.Second})
	time.Sleep(20 * time.Millisecond)
	if result, _ := r.End(t.Context(), 20*time.Millisecond); len(result.Unread) != 2 || result.Whole() || result.Lost != 0 {
		t.Errorf("%s", result)
	}
}
