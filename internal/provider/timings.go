package provider

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/timing"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
)

const (
	// timingsVariable turns on the table of where a run's time goes.
	timingsVariable = "K8S_TIMINGS"
	// timingsFile is where the tables go if the variable is "1". It is a file because Terraform shows
	// what a provider prints only in its own log, and that only with TF_LOG.
	timingsFile = "k8s-timings.txt"
)

// timings is the table of where the time of this process goes.
type timings struct {
	recorder *timing.Recorder // nil if nobody wants to know
	path     string
	began    time.Time
}

// startTimings reads the environment, and notes what the process has used until now.
func startTimings(getenv func(string) string) timings {
	t := timings{path: file.AtHome(getenv(timingsVariable), getenv("HOME")), began: time.Now()}
	switch t.path {
	case "", "0":
		return timings{}
	case "1":
		t.path = timingsFile
	}
	t.recorder = timing.New()
	cpu, _ := usage()
	t.recorder.Add("start initialization", cpu)
	return t
}

// write appends the table to the file, in one write: several processes of the provider may end at
// the same time.
func (t timings) write(version string) error {
	if t.recorder == nil {
		return nil
	}
	f, err := os.OpenFile(t.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("%s: %w", timingsVariable, err)
	}
	cpu, memory := usage()
	_, err = fmt.Fprintf(f, "%s provider %s, process %d: %.2f s, CPU %.2f s, memory %d MiB\n%s%s\n",
		t.began.UTC().Format(time.RFC3339), version, os.Getpid(), time.Since(t.began).Seconds(), cpu.Seconds(), memory>>20, t.recorder.Table(), t.recorder.Path())
	return errors.Join(err, f.Close())
}
