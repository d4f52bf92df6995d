// Package fuzz runs the fuzz targets of this repository, for `make soak`. A target is found by its name,
// so a new one belongs to a part at once.
package fuzz

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	// root is the root of the repository.
	root = "../.."
	// Each part may have this many targets. Two run side by side, each for ten minutes, and a part may take 90.
	perPart = 16
	parts   = 2
	abreast = 2
)

// target is a function for `go test -fuzz`.
type target struct{ dir, name string }

var declared = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(\w+ \*testing\.F\)`)

// targets returns all targets, in a fixed order.
func targets(t *testing.T) (out []target) {
	t.Helper()
	for _, below := range []string{"infra", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, below), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			code, err := os.ReadFile(path)
			for _, found := range declared.FindAllSubmatch(code, -1) {
				dir, _ := filepath.Rel(root, filepath.Dir(path))
				out = append(out, target{dir, string(found[1])})
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestEveryTargetHasAPart fails when there are more targets than the parts can run.
func TestEveryTargetHasAPart(t *testing.T) {
	all := targets(t)
	if len(all) == 0 || len(all) > parts*perPart {
		t.Errorf("there are %d fuzz targets, and %d parts of `make soak` with %d each: add a part (internal/soak/parts.go)", len(all), parts, perPart)
	}
	if i := slices.IndexFunc(all, func(x target) bool { return x.name == "FuzzParseObservation" && x.dir == "infra/host" }); i < 0 {
		t.Errorf("FuzzParseObservation is not among %v", all)
	}
}

// TestFuzz runs the targets of one part, K8S_FUZZ_PART, each for K8S_FUZZ_TIME and on one processor.
func TestFuzz(t *testing.T) {
	var part int
	each, err := time.ParseDuration(os.Getenv("K8S_FUZZ_TIME"))
	if _, scan := fmt.Sscan(os.Getenv("K8S_FUZZ_PART"), &part); err != nil || scan != nil {
		t.Skip("it takes K8S_FUZZ_TIME for each target: make soak runs it")
	}
	n, slots := 0, make(chan struct{}, abreast)
	for i, x := range targets(t) {
		if i%parts != part-1 {
			continue
		}
		n++
		t.Run(x.dir+"/"+x.name, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			cmd := exec.CommandContext(t.Context(), "go", "test", "-run", "^$", "-fuzz", "^"+x.name+"$", "-fuzztime", each.String(), "-parallel", "1", "./"+x.dir)
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out[max(0, len(out)-8<<10):])
			}
			lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
			t.Logf("%s", lines[max(0, len(lines)-3)])
		})
	}
	t.Logf("figures: %d fuzz targets, each for %s on one processor", n, each)
}
