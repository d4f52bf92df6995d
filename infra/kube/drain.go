package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/kubectl/pkg/drain"
)

// evictionRetry is how long to wait before asking again to evict a pod that a
// PodDisruptionBudget protects at the moment. Budgets open when a replacement
// becomes ready, which is a matter of seconds.
const evictionRetry = time.Second

// Drain evicts every pod from a node, as "kubectl drain --ignore-daemonsets
// --delete-emptydir-data --force" does, respecting PodDisruptionBudgets, and
// waits until they are gone. The node should have been cordoned. When timeout
// passes first the error names the pods that are left. progress, when given,
// is told what is evicted.
func (c *Client) Drain(ctx context.Context, node string, timeout time.Duration, progress func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if progress == nil {
		progress = func(string) {}
	}
	var problems lastLines
	helper := &drain.Helper{
		Ctx: ctx, Client: c.typed, Force: true, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true,
		// Negative: every pod's own termination grace period.
		GracePeriodSeconds:   -1,
		Timeout:              timeout,
		EvictErrorRetryDelay: evictionRetry,
		Out:                  lines(progress),
		ErrOut:               &problems,
	}
	list, errs := helper.GetPodsForDeletion(node)
	if len(errs) > 0 {
		return fmt.Errorf("draining node %s: %w", node, errors.Join(errs...))
	}
	if err := helper.DeleteOrEvictPods(list.Pods()); err != nil {
		var left []string
		if rest, errs := c.drainLeft(context.WithoutCancel(ctx), node); len(errs) == 0 {
			left = rest
		}
		return fmt.Errorf("draining node %s: %w (pods left: %s; last: %s)", node, err, strings.Join(left, ", "), problems.last())
	}
	return nil
}

// drainLeft names the pods still to be evicted.
func (c *Client) drainLeft(ctx context.Context, node string) ([]string, []error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	helper := &drain.Helper{Ctx: ctx, Client: c.typed, Force: true, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true}
	list, errs := helper.GetPodsForDeletion(node)
	if len(errs) > 0 {
		return nil, errs
	}
	var out []string
	for _, p := range list.Pods() {
		out = append(out, p.Namespace+"/"+p.Name)
	}
	return out, nil
}

// lines is an io.Writer that passes on every line written to it.
type lines func(string)

func (f lines) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		if s := strings.TrimSpace(string(line)); s != "" {
			f(s)
		}
	}
	return len(p), nil
}

// lastLines is an io.Writer that remembers the last line written to it; the
// drainer writes from one goroutine per pod.
type lastLines struct {
	mu   sync.Mutex
	line string
}

func (l *lastLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := strings.TrimSpace(string(p)); s != "" {
		l.line = s
	}
	return len(p), nil
}

func (l *lastLines) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.line
}
