package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain lets the test binary be the program of go test -exec, as the command is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "exec" {
		fmt.Fprintln(os.Stderr, run(context.Background(), os.Args[1:], io.Discard))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// tiny is a repository with a program of two packages, a test that runs it, and a third package that
// nothing executes.
var tiny = map[string]string{
	"go.mod":  "module example.com/tiny\n\ngo 1.26\n",
	"main.go": "package main\n\nimport (\n\t\"example.com/tiny/lib\"\n\t\"example.com/tiny/mark\"\n)\n\nfunc main() { println(lib.Used() + mark.End) }\n",
	"lib/used.go": "package lib\n\nimport _ \"embed\"\n\n//go:embed words.txt\nvar words string\n\n" +
		"// Used is called.\nfunc Used() string { return words + name }\n\n// Spare is not.\nfunc Spare() int {\n\treturn 1\n}\n\n" +
		"func nothing() {}\n\nvar table = map[bool]func(){false: func() {}, true: nothing}\n\nfunc init() { table[len(words) > 0]() }\n",
	"lib/idle.go":                  "package lib\n\nconst name = \"tiny\"\n\n// Idle is not called.\nfunc Idle() int { return 1 }\n",
	"lib/words.txt":                "hello ",
	"mark/mark.go":                 "package mark\n\n// End is used.\nconst End = \"\"\n\n// Idle is not called.\nfunc Idle() int { return 1 }\n",
	"other/other.go":               "package other\n\nfunc Other() int { return 1 }\n",
	"examples/a/main.tf":           "a = 1\n",
	"examples/iam/policy.json":     "{}\n",
	"script.sh":                    "true\n",
	"README.md":                    "tiny\n",
	"internal/e2e/x/testdata/data": "data\n",
	"internal/soak/runs/keep":      "",
	"docs/guides/keep":             "",
	guideTemplate:                  "{{parts}}\n\n{{figures \"tiny\"}}\n",
	"internal/e2e/x/x_test.go": `package x

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestX(t *testing.T) {
	program := filepath.Join(t.TempDir(), "tiny")
	build := exec.Command("go", "build", "-buildvcs=false", "-cover", "-coverpkg=./...", "-o", program, ".")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(program).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadDir("../../../examples/a"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile("../../../examples/a/main.tf"); err != nil {
		t.Fatal(err)
	}
	t.Logf("figures: greeting: %s", out[:len(out)-1])
	if os.Getenv("TINY_FAILS") != "" {
		t.Error("it fails")
	}
}
`,
}

func put(t *testing.T, root, name, text string) {
	t.Helper()
	name = filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestCovers runs a part of a tiny repository, and changes one file after another.
func TestCovers(t *testing.T) {
	root := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", root).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, text := range tiny {
		put(t, root, name, text)
	}
	var out strings.Builder
	p := part{name: "tiny", shows: "a greeting", table: "figures", reads: []string{"script.sh"}, steps: []step{{packages: []string{"x"}, env: []string{"CGO_ENABLED=0"}}}}
	s := soak{root: root, parts: []part{p}, out: &out}
	if err := s.keep(t.Context(), p); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	why := func() string {
		t.Helper()
		_, why, err := s.state(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return why["tiny"]
	}
	if got := why(); got != "" {
		t.Fatalf("right after the run: %s", got)
	}
	for _, test := range []struct{ name, file, from, to, want string }{
		{"a function that ran", "lib/used.go", "words + name", "name + words", "changed: lib"},
		{"a comment", "lib/used.go", "Used is called", "Used is called by main", ""},
		{"another comment", "lib/used.go", "string { return", "string { /* again */ return", ""},
		{"layout", "lib/used.go", "{ return words + name }", "{  return words +\n\t\tname }", ""},
		{"a directive", "lib/used.go", "// Used", "//go:noinline\n// Used", "changed: lib"},
		{"a function that did not run", "lib/idle.go", "return 1", "return 2", ""},
		{"one beside a function that ran", "lib/used.go", "return 1", "return 2", ""},
		{"its result", "lib/used.go", "Spare() int", "Spare() any", "changed: lib"},
		{"an empty function that ran", "lib/used.go", "nothing() {}", "nothing() { print() }", "changed: lib"},
		{"a function of a variable", "lib/used.go", "func() {},", "func() { print() },", "changed: lib"},
		{"a constant beside it", "lib/idle.go", "\"tiny\"", "\"small\"", "changed: lib"},
		{"a new function", "lib/idle.go", "// Idle", "func init() {}\n\n// Idle", "changed: lib"},
		{"an embedded file", "lib/words.txt", "hello", "good morning", "changed: lib"},
		{"the program", "main.go", "println(", "print(", "changed: ."},
		{"a constant of a package that executes nothing", "mark/mark.go", "\"\"", "\"!\"", "changed: mark"},
		{"its function", "mark/mark.go", "return 1", "return 2", ""},
		{"a package that nothing executes", "other/other.go", "return 1", "return 2", ""},
		{"the test", "internal/e2e/x/x_test.go", "it fails", "it failed", "changed: internal/e2e/x"},
		{"its data", "internal/e2e/x/testdata/data", "data", "other data", "changed: internal/e2e/x"},
		{"a file that the test opened", "examples/a/main.tf", "1", "2", "changed: examples/a/main.tf"},
		{"a new file in a directory that it listed", "examples/a/other.tf", "", "b = 1\n", "changed: examples/a/"},
		{"policies", "examples/iam/policy.json", "{}", "[]", "changed: examples/iam/policy.json"},
		{"what the part says that it reads", "script.sh", "true", "false", "changed: script.sh"},
		{"versions of modules", "go.mod", "1.26", "1.25", "changed: go.mod"},
		{"another file", "README.md", "tiny", "small", ""},
	} {
		text, there := tiny[test.file]
		if there == (test.from == "") || there && strings.Count(text, test.from) < 1 {
			t.Fatalf("%s: %s does not have %q", test.name, test.file, test.from)
		}
		put(t, root, test.file, strings.Replace(text, test.from, test.to, 1))
		if got := why(); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
		put(t, root, test.file, text)
		if !there {
			if err := os.Remove(filepath.Join(root, test.file)); err != nil {
				t.Fatal(err)
			}
		}
		if got := why(); got != "" {
			t.Fatalf("%s, undone: %s", test.name, got)
		}
	}
	testFailedRun(t, s, p, why)
}

// testFailedRun checks that a run that fails makes the part due, and leaves the figures.
func testFailedRun(t *testing.T, s soak, p part, why func() string) {
	t.Helper()
	read := func() string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(s.root, guide))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	before := read()
	for _, want := range []string{"| `tiny` | a greeting | [below](#figures), `soak tiny: 1 of 1 packages passed, ", "\n| greeting | hello tiny |\n"} {
		if !strings.Contains(before, want) {
			t.Errorf("%q is missing in\n%s", want, before)
		}
	}
	t.Setenv("TINY_FAILS", "1")
	if err := s.keep(t.Context(), p); err == nil {
		t.Error("the part passed")
	}
	if got := why(); !strings.HasPrefix(got, "failed on ") {
		t.Errorf("after a failure: %q", got)
	}
	if after := read(); after != before {
		t.Errorf("the guide was\n%s\nand is\n%s", before, after)
	}
}
