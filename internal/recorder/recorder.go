package recorder

import (
	"context"
	"sync"
	"time"
)

// Registers are what a record is made of, numbered from 0.
type Registers interface {
	Read(ctx context.Context, key int) (int, error)
	Write(ctx context.Context, key, value int) error
}

// Pace is how often a record asks.
type Pace struct {
	Registers   int
	Write, Read time.Duration // between two operations of the one writer and the one reader of a register
	Timeout     time.Duration // of one operation
}

// Usual is the pace for a cluster: 20 registers with 75 operations a second in all.
var Usual = Pace{Registers: 20, Write: 800 * time.Millisecond, Read: 400 * time.Millisecond, Timeout: 5 * time.Second}

// checkLimit is how long the check of one register may take. It takes milliseconds.
const checkLimit = 20 * time.Second

// Recorder makes a record. Every register has one writer, whose values ascend, and one reader.
type Recorder struct {
	registers Registers
	pace      Pace
	began     time.Time
	stop      chan struct{}
	wg        sync.WaitGroup

	mu  sync.Mutex
	ops []Op
}

// Start begins a record. All registers must be 0.
func Start(ctx context.Context, registers Registers, pace Pace) *Recorder {
	r := &Recorder{registers: registers, pace: pace, began: time.Now(), stop: make(chan struct{})}
	for key := range pace.Registers {
		value := 0
		r.loop(ctx, key, pace.Write, func(ctx context.Context) Op {
			value++ // also after a failure: the last write may still happen
			return Op{Write: true, Value: value, Err: registers.Write(ctx, key, value)}
		})
		r.loop(ctx, key, pace.Read, func(ctx context.Context) Op {
			value, err := registers.Read(ctx, key)
			return Op{Value: value, Err: err}
		})
	}
	return r
}

// loop repeats an operation on a register until the record ends. The clients begin at different times.
func (r *Recorder) loop(ctx context.Context, key int, every time.Duration, do func(context.Context) Op) {
	r.wg.Go(func() {
		next := time.Now().Add(every * time.Duration(key) / time.Duration(r.pace.Registers))
		for {
			select {
			case <-r.stop:
				return
			case <-ctx.Done():
				return
			case <-time.After(time.Until(next)):
			}
			call := time.Since(r.began)
			limited, cancel := context.WithTimeout(ctx, r.pace.Timeout)
			op := do(limited)
			cancel()
			op.Key, op.Call, op.Return = key, call, time.Since(r.began)
			r.mu.Lock()
			r.ops = append(r.ops, op)
			r.mu.Unlock()
			if next = next.Add(every); time.Until(next) < 0 {
				next = time.Now() // what was missed is not made up for
			}
		}
	})
}

// End ends the record, reads every register once more, and returns what it shows and the record
// itself. A register that cannot be read within patience counts as unread.
func (r *Recorder) End(ctx context.Context, patience time.Duration) (Result, []Op) {
	close(r.stop)
	r.wg.Wait()
	end := time.Since(r.began)
	deadline := time.Now().Add(patience)
	final := map[int]int{}
	for key := range r.pace.Registers {
		for {
			limited, cancel := context.WithTimeout(ctx, r.pace.Timeout)
			value, err := r.registers.Read(limited, key)
			cancel()
			if err == nil {
				final[key] = value
				break
			}
			if time.Now().After(deadline) || ctx.Err() != nil {
				break
			}
			time.Sleep(r.pace.Read)
		}
	}
	return Check(r.ops, r.pace.Registers, final, end, checkLimit), r.ops
}
