package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// endToEnd are the packages below internal/e2e that have tests.
func endToEnd(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../e2e/*/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests found: %v", err)
	}
	var out []string
	for _, f := range files {
		out = append(out, filepath.Base(filepath.Dir(f)))
	}
	return slices.Compact(slices.Sorted(slices.Values(out)))
}

// TestParts checks that part names are unique, that their packages exist, and that the parts under
// load run every end-to-end package once, except the drills, the topologies, the exercises and those on virtual machines,
// which are parts of their own.
func TestParts(t *testing.T) {
	names := map[string]bool{}
	var loaded []string
	all := endToEnd(t)
	for _, p := range parts {
		if names[p.name] || p.name == "" || p.shows == "" || strings.ContainsAny(p.name, " \t") {
			t.Errorf("part %q needs a name of its own and a line about it", p.name)
		}
		names[p.name] = true
		for _, s := range p.steps {
			if _, err := regexp.Compile(s.only); err != nil {
				t.Errorf("part %s: %v", p.name, err)
			}
			for _, pkg := range s.packages {
				if !slices.Contains([]string{"../provider", "../lab/machine", "../fuzz", "../../infra/host"}, pkg) && !slices.Contains(all, pkg) {
					t.Errorf("part %s: there are no tests in internal/e2e/%s", p.name, pkg)
				}
			}
			for _, name := range p.reads {
				if _, err := os.Stat("../../" + name); err != nil {
					t.Errorf("part %s: %v", p.name, err)
				}
			}
			if p.load {
				loaded = append(loaded, s.packages...)
			}
		}
	}
	want := slices.DeleteFunc(slices.Clone(all), func(pkg string) bool {
		return slices.Contains([]string{"drills", "topologies", "exercises", "virtual", "nested", "variants"}, pkg)
	})
	if slices.Sort(loaded); !slices.Equal(loaded, want) {
		t.Errorf("under load run %v, want %v", loaded, want)
	}
}

// TestGuide checks that the guide is what the records give, and that its table has exactly one row for
// each part.
func TestGuide(t *testing.T) {
	guide, err := os.ReadFile("../../" + guide)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := soak{root: "../..", parts: parts}.render()
	if err != nil {
		t.Fatal(err)
	}
	if string(rendered) != string(guide) {
		t.Error("the guide is not what its template and the records give: make docs")
	}
	var got, want []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(string(guide), -1) {
		got = append(got, m[1])
	}
	for _, p := range parts {
		want = append(want, p.name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the guide has %v, want %v", got, want)
	}
}

// TestFigures reads output of go test -v that arrives in pieces.
func TestFigures(t *testing.T) {
	const output = "=== RUN   TestKilled\n    kill_test.go:71: figures: 50 kills, 50 converged\n--- PASS: TestKilled (1.00s)\nPASS\n" +
		"ok  \texample.com/a\t1.0s\n    other.go:1: not figures: none\n--- FAIL: TestX\nFAIL\nFAIL\texample.com/b\t2.0s\nFAIL\n"
	for _, size := range []int{1, 7, len(output)} {
		var f figures
		for b := range slices.Chunk([]byte(output), size) {
			if n, err := f.Write(b); n != len(b) || err != nil {
				t.Fatal(n, err)
			}
		}
		got := part{name: "kills"}.summary(f.said, f.packages(), 4120*time.Second, errors.New("exit status 1"))
		if want := "soak kills: 50 kills, 50 converged, 1 of 2 packages passed, 4120 s, FAILED"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestListAndUnknown needs neither root nor a lab.
func TestListAndUnknown(t *testing.T) {
	t.Chdir("../..")
	var out strings.Builder
	if err := run(t.Context(), []string{""}, &out); err != nil || strings.Count(out.String(), "\n") != len(parts) {
		t.Errorf("%v:\n%s", err, out.String())
	}
	if err := run(t.Context(), []string{"nonsense"}, &out); err == nil || !strings.Contains(err.Error(), "make soak lists them") {
		t.Errorf("error = %v", err)
	}
	if err := run(t.Context(), []string{"due", "three"}, &out); err == nil || !strings.Contains(err.Error(), "such as 3h") {
		t.Errorf("error = %v", err)
	}
}
