// Package timing counts what a run of the provider waits for, and how long: calls to AWS, SSH
// handshakes and round trips, requests to etcd and API servers.
//
// A nil Recorder records nothing, so whoever is measured need not know whether anybody asks. What
// may not enter: anything but names of kinds of calls from the program's own text, and names of machines. Addresses, ids,
// contents and arguments of calls are never given to a Recorder, and so cannot get out of it.
package timing

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Recorder counts. It is safe for concurrent use.
type Recorder struct {
	mu    sync.Mutex
	spans map[string]*span    // by name, and by kind with a space after it
	bytes map[string]*traffic // through the connections of Count, by kind with a space after it
	steps []*step             // of Call, in no order
}

// New returns a Recorder.
func New() *Recorder { return &Recorder{spans: map[string]*span{}, bytes: map[string]*traffic{}} }

// span is what is known of the calls of one name.
type span struct {
	calls   int
	sum     time.Duration // of all calls
	busy    time.Duration // in which at least one was under way
	running int
	since   time.Time // when running became 1
}

type traffic struct{ sent, received atomic.Int64 }

// Start notes the begin of a call and returns a function that notes its end. The kind is the first
// word of a name: "EC2 DescribeInstances". The call is a part of the step that the context belongs to.
func (r *Recorder) Start(ctx context.Context, name string) func() {
	if r == nil {
		return func() {}
	}
	_, over := Begin(ctx, name)
	return r.start(name, over)
}

// start counts a call. The function that it returns also calls over.
func (r *Recorder) start(name string, over func()) func() {
	began := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range []string{name, kindOf(name)} {
		s := r.span(key)
		s.calls++
		if s.running++; s.running == 1 {
			s.since = began
		}
	}
	return sync.OnceFunc(func() {
		r.end(name, began)
		over()
	})
}

func (r *Recorder) end(name string, began time.Time) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range []string{name, kindOf(name)} {
		s := r.span(key)
		s.sum += now.Sub(began)
		if s.running--; s.running == 0 {
			s.busy += now.Sub(s.since)
		}
	}
}

// Add notes a call that took so long.
func (r *Recorder) Add(name string, took time.Duration) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range []string{name, kindOf(name)} {
		s := r.span(key)
		s.calls++
		s.sum += took
		s.busy += took
	}
}

func (r *Recorder) span(key string) *span {
	s := r.spans[key]
	if s == nil {
		s = &span{}
		r.spans[key] = s
	}
	return s
}

// kindOf returns the first word of a name, and a space: no name of a call is that.
func kindOf(name string) string {
	kind, _, _ := strings.Cut(name, " ")
	return kind + " "
}

// Count returns conn, with its bytes counted for a kind.
func (r *Recorder) Count(kind string, conn net.Conn) net.Conn {
	if r == nil || conn == nil {
		return conn
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.bytes[kind+" "]
	if t == nil {
		t = &traffic{}
		r.bytes[kind+" "] = t
	}
	return &counted{conn, t}
}

type counted struct {
	net.Conn
	traffic *traffic
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.traffic.received.Add(int64(n))
	return n, err
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.traffic.sent.Add(int64(n))
	return n, err
}

// Calls returns how many calls of a name there were, or of a kind.
func (r *Recorder) Calls(name string) int {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !strings.Contains(name, " ") {
		name += " "
	}
	if s := r.spans[name]; s != nil {
		return s.calls
	}
	return 0
}

// Table returns a line a kind, each followed by a line for every name: the number of calls, how
// long at least one was under way, the sum of their durations, and KiB sent and received. It is
// empty if nothing was recorded.
func (r *Recorder) Table() string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.spans) == 0 {
		return ""
	}
	now := time.Now()
	var b strings.Builder
	fmt.Fprintf(&b, "%-44s %7s %9s %9s %9s %9s\n", "", "calls", "busy ms", "sum ms", "KiB out", "KiB in")
	keys := slices.SortedFunc(maps.Keys(r.spans), func(x, y string) int {
		return cmp.Or(strings.Compare(kindOf(x), kindOf(y)), strings.Compare(x, y))
	})
	for _, key := range keys {
		s := *r.spans[key]
		if s.running > 0 {
			s.busy += now.Sub(s.since)
		}
		kind, label, _ := strings.Cut(key, " ")
		carried := ""
		if label = "  " + label; strings.HasSuffix(key, " ") {
			label = kind
		}
		if t := r.bytes[key]; t != nil {
			carried = fmt.Sprintf(" %9.1f %9.1f", float64(t.sent.Load())/1024, float64(t.received.Load())/1024)
		}
		fmt.Fprintf(&b, "%-44s %7d %9.1f %9.1f%s\n", label, s.calls, milliseconds(s.busy), milliseconds(s.sum), carried)
	}
	return b.String()
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
