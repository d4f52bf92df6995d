package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

const (
	logLines   = 10              // lines of a container's log that an error quotes
	logColumns = 200             // runes of one such line
	logBytes   = int64(64 << 10) // bytes of a log that are read at most
	logBudget  = 5 * time.Second // time limit for reading it
)

// PodError says that a pod does not come up, however long one waits.
type PodError struct {
	// For is what the pod belongs to and the status of that: "Deployment default/web: 0 of 2
	// updated replicas are available".
	For string
	Trouble
	// More is how many other pods are in trouble.
	More int
	// Log holds the last lines of the container's log, Unread why it could not be read. Both are
	// empty if the container has not run.
	Log    []string
	Unread error
}

func (e *PodError) Error() string {
	var b strings.Builder
	if e.For != "" {
		b.WriteString(e.For + ": ")
	}
	b.WriteString(e.String())
	if e.More > 0 {
		fmt.Fprintf(&b, " (and %d more)", e.More)
	}
	switch {
	case e.Unread != nil:
		fmt.Fprintf(&b, "\nits log could not be read: %v", e.Unread)
	case len(e.Log) > 0:
		b.WriteString("\nlast lines of the log of " + e.Container + ":\n" + strings.Join(e.Log, "\n"))
	case e.Ran:
		b.WriteString("\nits log is empty")
	}
	return b.String()
}

// podError makes a PodError with the end of the container's log. It reads the log on a context of
// its own, because the wait's may have ended.
func (c *Client) podError(ctx context.Context, of string, t Trouble, more int) *PodError {
	e := &PodError{For: of, Trouble: t, More: more}
	if !t.Ran {
		return e
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience.Of(ctx, logBudget))
	defer cancel()
	e.Log, e.Unread = c.logTail(ctx, t)
	return e
}

// logTail reads the last lines that a container printed before it ended. If it has been restarted
// since and printed nothing yet, they come from the log of the run before.
func (c *Client) logTail(ctx context.Context, t Trouble) ([]string, error) {
	tail, err := c.logOf(ctx, t, false)
	if t.Reason == crashLoopBackOff && (err != nil || len(tail) == 0) {
		if earlier, err := c.logOf(ctx, t, true); err == nil {
			return earlier, nil
		}
	}
	return tail, err
}

func (c *Client) logOf(ctx context.Context, t Trouble, previous bool) ([]string, error) {
	lines, limit := int64(logLines), logBytes
	raw, err := c.typed.CoreV1().Pods(t.Namespace).GetLogs(t.Pod, &corev1.PodLogOptions{
		Container: t.Container, TailLines: &lines, LimitBytes: &limit, Previous: previous}).DoRaw(ctx)
	if err == nil && isRemoved(raw) {
		err = errors.New(strings.TrimSpace(string(raw)))
	}
	if err != nil {
		return nil, err
	}
	return logEnd(string(raw)), nil
}

// logEnd returns the last lines of a log that are not blank, fit to be shown.
func logEnd(raw string) []string {
	var out []string
	for line := range strings.Lines(foreign.Lines(raw, logColumns)) {
		if line = strings.TrimRight(line, " \t\n"); line != "" {
			out = append(out, line)
		}
	}
	return out[max(0, len(out)-logLines):]
}
