package artifact

import (
	"sync"
	"time"
)

// progressInterval is how often a long step says that it is still at work.
const progressInterval = 3 * time.Second

// progress serializes lines for a person from steps that run in parallel.
type progress struct {
	mu    sync.Mutex
	print func(string)
}

func (p *progress) line(s string) {
	if p.print == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.print(s)
}

// every prints title, then again with the time passed and what detail says
// until the returned function is called with the step's outcome.
func (p *progress) every(title string, detail func() string) (stop func(error)) {
	start := time.Now()
	p.line(title)
	stopTicking := p.tick(title, start, detail)
	return func(err error) {
		stopTicking()
		if err == nil {
			p.line(title + ": done in " + elapsed(start))
		} else {
			p.line(title + ": failed after " + elapsed(start))
		}
	}
}

// slow is every for a step that is seldom worth a line: it prints nothing
// unless the step takes longer than progressInterval.
func (p *progress) slow(title string) (stop func()) {
	return p.tick(title, time.Now(), func() string { return "" })
}

func (p *progress) tick(title string, start time.Time, detail func() string) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(progressInterval)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				line := title + ": " + elapsed(start)
				if d := detail(); d != "" {
					line += ", " + d
				}
				p.line(line)
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}

func elapsed(since time.Time) string {
	return time.Since(since).Round(time.Second).String()
}
