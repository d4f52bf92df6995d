package fleet

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

var errTransient, errRefused = errors.New("no leader"), errors.New("refused")

// scripted is a server that gives its answers one after the other, and the last one forever: "ok",
// "busy" (at once), "refused" (at once), "hangs", or how long an answer takes.
func scripted(name string, answers ...string) Question[string] {
	var asked int
	return Question[string]{name, func(ctx context.Context) (string, error) {
		a := answers[min(asked, len(answers)-1)]
		asked++
		switch a {
		case "ok":
			return name, nil
		case "busy":
			return "", fmt.Errorf("%s: %w", name, errTransient)
		case "refused":
			return "", fmt.Errorf("%s: %w", name, errRefused)
		case "hangs":
			time.Sleep(time.Hour) // ignores its context, too
			return "", errRefused
		}
		d, err := time.ParseDuration(a)
		if err != nil {
			panic(err)
		}
		time.Sleep(d)
		return name, nil
	}}
}

func TestInTurn(t *testing.T) {
	for _, tt := range []struct {
		name      string
		questions []Question[string]
		want      string // who answers, or what the error holds
		after     time.Duration
	}{
		{"the first answers", []Question[string]{scripted("a", "ok"), scripted("b", "ok")}, "a", 0},
		{"the first refuses", []Question[string]{scripted("a", "refused"), scripted("b", "ok")}, "b", 0},
		{"the first hangs", []Question[string]{scripted("a", "hangs"), scripted("b", "ok")}, "b", 2 * time.Second},
		{"the first is slow, the second slower", []Question[string]{scripted("a", "3s"), scripted("b", "3s")}, "a", 3 * time.Second},
		{"two hang", []Question[string]{scripted("a", "hangs"), scripted("b", "hangs"), scripted("c", "ok")}, "c", 4 * time.Second},
		{"one hangs, one refuses", []Question[string]{scripted("a", "hangs"), scripted("b", "refused"), scripted("c", "ok")}, "c", 2 * time.Second},
		{"all refuse", []Question[string]{scripted("a", "refused"), scripted("b", "refused")}, "a: refused\nb: refused", 0},
		{"the same is said once", []Question[string]{scripted("a", "refused"), scripted("a", "refused")}, "a: refused", 0},
		{"an election", []Question[string]{scripted("a", "busy", "busy", "ok"), scripted("b", "busy")}, "a", 2 * time.Second},
		{"no quorum", []Question[string]{scripted("a", "busy"), scripted("b", "busy")}, "a: no leader\nb: no leader", 15 * time.Second},
		{"all hang", []Question[string]{scripted("a", "hangs"), scripted("b", "hangs")},
			"a gave no answer: time is up\nb gave no answer: time is up", 15 * time.Second},
		{"one hangs, one refuses, no more", []Question[string]{scripted("a", "hangs"), scripted("b", "refused")},
			"a gave no answer: time is up\nb: refused", 15 * time.Second},
		{"nobody to ask", nil, "no machine to ask", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), 15*time.Second, errors.New("time is up"))
				defer cancel()
				defer time.Sleep(2 * time.Hour) // until the questions that hang have ended
				start := time.Now()
				got, err := AskInTurn(ctx, 2*time.Second, func(err error) bool { return errors.Is(err, errTransient) }, tt.questions)
				if err != nil {
					got = err.Error()
				}
				if after := time.Since(start); got != tt.want || after < tt.after || after > tt.after+UnitPoll {
					t.Errorf("%q after %s, want %q after %s", got, after, tt.want, tt.after)
				}
			})
		})
	}
}
