package harness

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// endWhenInterrupted takes the suite's labs down at the first SIGINT or SIGTERM, and ends the tests. The
// second one ends the process. While the suite starts, the signal ends ctx, which start was given, and
// whoever called start does the rest. The function that it returns says that the suite has started.
func (s *Suite) endWhenInterrupted(cancel context.CancelFunc) (started func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	running := make(chan struct{})
	go func() {
		caught := <-signals
		signal.Reset(os.Interrupt, syscall.SIGTERM)
		signal.Ignore(syscall.SIGPIPE) // whoever reads the output may have ended
		cancel()
		fmt.Fprintf(os.Stderr, "%s: taking the local EC2 in %s down\n", caught, s.stateDir())
		<-running
		regions, _ := filepath.Glob(filepath.Join(s.Dir, "*", "lab")) // the pattern is valid
		for _, lab := range regions {
			other := *s
			other.Dir = filepath.Dir(lab)
			if err := other.stop(); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
		if err := s.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}()
	return func() { close(running) }
}
