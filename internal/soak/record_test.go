package main

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"
)

// digests answers as tree.digest does, with the word of the key as its content.
func digests(words map[string]string) digester {
	return func(key string, tests bool, ran *big.Int) string {
		return fmt.Sprintf("%s,%t,%v", words[key], tests, ran)
	}
}

func TestDue(t *testing.T) {
	p := part{name: "p", steps: []step{{packages: []string{"x"}}}}
	words := map[string]string{"a": "1", "b": "2", "c": "3", "d": "4", "internal/e2e/x": "5", "go.mod": "6"}
	ran := record{Date: "2026-01-01"}
	ran.cover(p, map[string]*big.Int{"a": big.NewInt(64), "b": nil, "c": nil, "d": nil, "internal/e2e/x": nil, "go.mod": nil}, digests(words), digests(words))
	for key, want := range map[string]string{"a": "1,false,64 12", "b": "2,false,<nil>", "internal/e2e/x": "5,true,<nil>"} {
		if got := ran.Covers[key]; got != want {
			t.Errorf("%s is covered as %q, want %q", key, got, want)
		}
	}
	meanwhile := record{Date: "2026-01-01"}
	meanwhile.cover(p, map[string]*big.Int{"a": nil, "b": nil}, digests(map[string]string{"a": "0", "b": "2"}), digests(words))
	failed := ran
	failed.Failed = "2026-01-02"
	for _, test := range []struct {
		name   string
		part   part
		record record
		now    map[string]string
		want   string
	}{
		{"nothing changed", p, ran, nil, ""},
		{"what is not covered changed", p, ran, map[string]string{"e": "9"}, ""},
		{"one thing changed", p, ran, map[string]string{"b": "9"}, "changed: b"},
		{"a package whose functions did not all run changed", p, ran, map[string]string{"a": "9"}, "changed: a"},
		{"the tests changed", p, ran, map[string]string{"internal/e2e/x": "9"}, "changed: internal/e2e/x"},
		{"something is gone", p, ran, map[string]string{"go.mod": ""}, "changed: go.mod"},
		{"much changed", p, ran, map[string]string{"a": "9", "b": "9", "c": "9", "d": "9", "go.mod": "9"}, "changed: a, b, c and 2 more"},
		{"changed while it ran", p, meanwhile, nil, "changed: a"},
		{"never", p, record{}, nil, "has never passed"},
		{"without coverage", p, record{Date: "2026-01-01"}, nil, "what it covers is not known"},
		{"failed later", p, failed, nil, "failed on 2026-01-02"},
		{"other steps", part{name: "p", steps: []step{{packages: []string{"x"}, only: "Y"}}}, ran, nil, "its steps changed"},
	} {
		now := map[string]string{}
		for _, from := range []map[string]string{words, test.now} {
			for key, word := range from {
				now[key] = word
			}
		}
		if got := due(test.part, test.record, digests(now)); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// TestQueue runs what has never passed first, then the oldest, and only what fits into the time.
func TestQueue(t *testing.T) {
	all := []part{{name: "new"}, {name: "fresh"}, {name: "old"}, {name: "never"}, {name: "fine"}}
	records := map[string]record{
		"new": {Date: "2026-03-03", Seconds: 60}, "fresh": {Date: "2026-02-02", Seconds: 600}, "old": {Date: "2026-01-01", Seconds: 1200}, "fine": {Date: "2025-01-01", Seconds: 1},
	}
	why := map[string]string{"new": "x", "fresh": "x", "old": "x", "never": "x"}
	for _, test := range []struct {
		within time.Duration
		want   string
	}{
		{24 * time.Hour, "never old fresh new"},
		{limit, "never"},
		{limit - time.Second, "old fresh new"},
		{22 * time.Minute, "old"},
		{20 * time.Minute, "fresh new"},
		{time.Minute, ""},
	} {
		var got []string
		left := test.within
		q := queue(all, records, why)
		for i := next(q, records, left); i >= 0; i = next(q, records, left) {
			got = append(got, q[i].name)
			left -= records[q[i].name].needs()
			q = slices.Delete(q, i, i+1)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("in %s: %q, want %q", test.within, got, test.want)
		}
	}
}
