// Package progress shows a person which jobs run. On a terminal each job has one live line.
// Elsewhere a line is printed when a job begins, and one every 30 seconds. The outcome is one line
// in both cases.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"
)

const (
	// interval is how often a line says that a job is still running, without a terminal.
	interval = 30 * time.Second
	// refresh is how often the live lines are drawn.
	refresh = 250 * time.Millisecond
)

// Reporter reports the jobs of one program, which may run in parallel. A nil Reporter reports
// nothing.
type Reporter struct {
	terminal *os.File // nil if there is none

	mu    sync.Mutex
	write func(string)
	live  *mpb.Progress // while jobs run on a terminal
	jobs  int           // of live
}

// New returns a Reporter that writes to w: live lines if w is a terminal.
func New(w io.Writer) *Reporter {
	r := To(func(s string) { _, _ = fmt.Fprintln(w, s) })
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		// A terminal that does not report its size cannot show live lines.
		if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 && height > 0 {
			r.terminal = f
		}
	}
	return r
}

// To returns a Reporter that calls write for every line, without a newline at its end. Calls do not
// overlap.
func To(write func(string)) *Reporter { return &Reporter{write: write} }

// Line prints a line that does not belong to a job.
func (r *Reporter) Line(s string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live != nil {
		if _, err := fmt.Fprintln(r.live, s); err == nil { // above the live lines
			return
		}
	}
	r.write(s)
}

// Job reports that a job has begun, how long it has been running, and its outcome. detail, if not
// nil, returns how far the job is; it must not call the Reporter. Call the returned function once,
// with the outcome.
func (r *Reporter) Job(title string, detail func() string) (end func(error)) {
	if r == nil {
		return func(error) {}
	}
	began := time.Now()
	if r.terminal == nil {
		r.Line(title)
	}
	stop := r.show(title, began, detail)
	return func(err error) {
		stop()
		outcome := "done in "
		if err != nil {
			outcome = "failed after "
		}
		r.Line(title + ": " + outcome + since(began))
	}
}

// Quiet is Job without lines for the beginning and the outcome.
func (r *Reporter) Quiet(title string) (end func()) {
	if r == nil {
		return func() {}
	}
	return r.show(title, time.Now(), nil)
}

// show reports on a job until the returned function is called.
func (r *Reporter) show(title string, began time.Time, detail func() string) (stop func()) {
	now := func() string {
		s := since(began)
		if detail != nil {
			if d := detail(); d != "" {
				s += ", " + d
			}
		}
		return s
	}
	if stop := r.draw(func() string { return now() + ": " + title }); stop != nil { // the time comes first because a terminal may be narrow
		return stop
	}
	done := make(chan struct{})
	var told sync.WaitGroup
	told.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				r.Line(title + ": " + now())
			}
		}
	})
	return func() {
		close(done)
		told.Wait()
	}
}

// draw shows a live line on the terminal until the returned function is called. It returns nil if
// there is no terminal, or if nothing can be drawn on it any more.
func (r *Reporter) draw(now func() string) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.terminal == nil {
		return nil
	}
	if r.live == nil {
		r.live = mpb.New(mpb.WithOutput(r.terminal), mpb.WithRefreshRate(refresh))
	}
	line, err := r.live.Add(1, mpb.NopStyle().Build(), mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return now() })))
	if err != nil {
		return nil
	}
	r.jobs++
	return func() {
		line.Abort(true)
		line.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.jobs--; r.jobs == 0 {
			r.live.Shutdown()
			r.live = nil
		}
	}
}

func since(began time.Time) string { return time.Since(began).Round(time.Second).String() }
