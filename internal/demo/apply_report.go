package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

// event is one line of Terraform's machine-readable output
// (developer.hashicorp.com/terraform/internals/machine-readable-ui).
type event struct {
	Type      string    `json:"type"`
	Message   string    `json:"@message"`
	Level     string    `json:"@level"`
	Timestamp time.Time `json:"@timestamp"`
	Hook      struct {
		Resource struct {
			Addr string `json:"addr"`
			Type string `json:"resource_type"`
		} `json:"resource"`
		Action string `json:"action"`
	} `json:"hook"`
	Diagnostic struct {
		Severity string `json:"severity"`
		Summary  string `json:"summary"`
		Detail   string `json:"detail"`
		Address  string `json:"address"`
	} `json:"diagnostic"`
}

// span is the time between the first start and the last end of the resources of one type.
type span struct {
	kind       string
	start, end time.Time
}

type applyReport struct {
	began time.Time
	spans map[string]*span
}

// apply runs terraform apply, prints a line for everything that starts or ends, and writes the
// whole output to a log.
func apply(ctx context.Context, ws *workspace.Workspace, logFile string, report *progress.Reporter) (*applyReport, error) {
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := ws.Command(ctx, "apply", "-auto-approve", "-json")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r := &applyReport{began: time.Now(), spans: map[string]*span{}}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var failures []string
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		_, _ = fmt.Fprintln(log, lines.Text())
		var e event
		if !decode(lines.Bytes(), &e) {
			continue
		}
		if text := r.take(e); text != "" {
			report.Line(fmt.Sprintf("    %5.1fs  %s", e.Timestamp.Sub(r.began).Seconds(), text))
		}
		if e.Type == "diagnostic" && e.Diagnostic.Severity == "error" {
			failures = append(failures, strings.TrimSpace(e.Diagnostic.Address+": "+e.Diagnostic.Summary+"\n"+e.Diagnostic.Detail))
		}
	}
	if err := cmd.Wait(); err != nil {
		return r, fmt.Errorf("%w\n%s%s\nThe whole output is in %s", err, strings.Join(failures, "\n"), stderr.String(), logFile)
	}
	return r, nil
}

// take records one event and returns the line to print for it, if any.
func (r *applyReport) take(e event) string {
	addr := e.Hook.Resource.Addr
	switch e.Type {
	case "apply_start":
		s := r.spans[e.Hook.Resource.Type]
		if s == nil {
			s = &span{kind: e.Hook.Resource.Type, start: e.Timestamp}
			r.spans[s.kind] = s
		}
		return fmt.Sprintf("%s: %s", addr, e.Hook.Action)
	case "apply_complete":
		if s := r.spans[e.Hook.Resource.Type]; s != nil {
			s.end = e.Timestamp
		}
		return addr + ": done"
	case "apply_errored":
		return addr + ": failed"
	case "diagnostic":
		if e.Diagnostic.Severity == "warning" {
			return "warning: " + e.Diagnostic.Summary
		}
	case "change_summary":
		return e.Message
	}
	return ""
}

func (r *applyReport) print(w io.Writer) {
	spans := make([]*span, 0, len(r.spans))
	for _, s := range r.spans {
		spans = append(spans, s)
	}
	sort.Slice(spans, func(i, j int) bool { return spans[i].start.Before(spans[j].start) })
	if len(spans) == 0 {
		_, _ = fmt.Fprintln(w, "Nothing had to be changed.")
		return
	}
	_, _ = fmt.Fprintln(w, "Within the apply, by resource          from     to    took")
	for _, s := range spans {
		_, _ = fmt.Fprintf(w, "  %-32s %5.1fs %5.1fs %6.1fs\n", s.kind, s.start.Sub(r.began).Seconds(), s.end.Sub(r.began).Seconds(), s.end.Sub(s.start).Seconds())
	}
}
