package exercise

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const labs = "../../examples/labs"

// anchor is how a heading is linked.
func anchor(heading string) string {
	return strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// readme is the index of the pages and claims.
func readme(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(labs, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestLabs reads every page. The index lists all of them, and each of its claims links to a section with a script.
func TestLabs(t *testing.T) {
	text := readme(t)
	index := Index(text)
	files, err := filepath.Glob(filepath.Join(labs, "*.md"))
	if err != nil || len(files) != len(index)+1 {
		t.Errorf("%d pages are in the table of README.md, of %q %v", len(index), files, err)
	}
	sections := map[string][]string{}
	for _, name := range index {
		raw, err := os.ReadFile(filepath.Join(labs, name))
		if err != nil {
			t.Error(err)
			continue
		}
		page, err := Parse("examples/labs/"+name, string(raw))
		if err != nil {
			t.Error(err)
		}
		for _, b := range page.Blocks {
			sections[name] = append(sections[name], anchor(b.Section))
		}
	}
	claims := regexp.MustCompile(`\(([a-z-]+\.md)#([a-z0-9-]+)\)`).FindAllStringSubmatch(text, -1)
	if len(claims) < 30 {
		t.Errorf("only %d links to sections", len(claims))
	}
	for _, c := range claims {
		if !slices.Contains(sections[c[1]], c[2]) {
			t.Errorf("README.md: %s has no section %q with a script: %q", c[1], c[2], sections[c[1]])
		}
	}
}

// TestClaims: the tests to which the index links for all other claims are there. A link has the name of a function, or
// of a package and a step of its test.
func TestClaims(t *testing.T) {
	text := readme(t)
	links := regexp.MustCompile(`\[([^\]]+)\]\(((?:\.\./)+[^)]+_test\.go)\)`).FindAllStringSubmatch(text, -1)
	if len(links) < 50 {
		t.Errorf("only %d links to tests", len(links))
	}
	for _, l := range links {
		source, err := os.ReadFile(filepath.Join(labs, l[2]))
		if err != nil {
			t.Error(err)
			continue
		}
		wanted := "func " + l[1] + "("
		if _, step, ok := strings.Cut(l[1], ": "); ok {
			wanted = `"` + step + `"`
		}
		if !strings.Contains(string(source), wanted) {
			t.Errorf("README.md: %s has no %s", l[2], wanted)
		}
	}
}
