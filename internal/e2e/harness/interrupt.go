package harness

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// endWhenInterrupted takes the suite's labs down at the first SIGINT or SIGTERM, and ends the tests.
func (s *Suite) endWhenInterrupted() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		caught := <-signals
		signal.Ignore(syscall.SIGPIPE) // whoever reads the output may have ended
		fmt.Fprintf(os.Stderr, "%s: taking the local EC2 down\n", caught)
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
}
