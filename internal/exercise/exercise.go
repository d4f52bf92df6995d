// Package exercise reads pages with commands and what these print, and compares it with what they have printed. It
// runs nothing: package session does.
package exercise

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// Page is a page of exercises.
type Page struct {
	Title  string
	Blocks []Block
}

// Block is a script on a page, and what the page says that it prints.
type Block struct {
	File    string // the page
	Line    int    // of the script's first line
	Section string
	Script  string
	Want    string // empty if the script prints nothing
	Long    bool   // it takes minutes, or what is before it in its section does
}

const (
	// Silent is the line below a script that prints nothing.
	Silent = "It prints nothing."
	// LongMark is the line before the rest of a section that only K8S_E2E_LONG=1 runs.
	LongMark = "<!-- takes minutes: only make soak runs the rest of this section -->"
	// LongPage is the line of a page that only K8S_E2E_LONG=1 runs.
	LongPage = "<!-- takes minutes: only make soak runs this page -->"
	// Reset is the last section of a page.
	Reset = "Reset"
)

// needed are the lines that tell a learner what a page takes.
var needed = []string{"- **Takes**: ", "- **Needs**: ", "- **Changes**: "}

// Parse reads a page. Each error names the page and a line.
//
// A fence "sh" is a script. Below it is either a fence "text", which has what the script prints, or the line
// "It prints nothing." Other fences are errors, indented ones and "~~~" too, so that no command remains untested. The
// page says what it takes, what it needs and what it changes, and its last section resets the changes.
func Parse(file, text string) (Page, error) {
	var (
		page    Page
		section string
		long    bool
		whole   bool   // the whole page takes minutes
		open    *Block // the script that lacks its output
		has     = map[string]bool{}
		lines   = strings.Split(text, "\n")
	)
	fail := func(line int, format string, args ...any) (Page, error) {
		return Page{}, fmt.Errorf("%s:%d: %s", file, line, fmt.Sprintf(format, args...))
	}
	const unsaid = `the page does not say what this script prints: a fence "text" or the line %q follows`
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		kind, fence := strings.CutPrefix(line, "```")
		switch {
		case fence:
			body, end := fenced(lines, i+1)
			if end < 0 {
				return fail(i+1, "the fence does not end")
			}
			b := Block{File: file, Line: i + 2, Section: section, Script: body, Long: long}
			switch {
			case kind == "sh" && open != nil:
				return fail(open.Line, unsaid, Silent)
			case kind == "sh":
				open = &b
			case kind == "text" && open == nil:
				return fail(i+1, "no script prints this")
			case kind == "text" && !Says(body):
				return fail(i+1, "the page says nothing of what the script prints: there are only wildcards")
			case kind == "text":
				open.Want = body
				page.Blocks, open = append(page.Blocks, *open), nil
			default:
				return fail(i+1, `a fence %q: only "sh" and "text" are tested`, kind)
			}
			i = end
		case line == Silent && open != nil:
			page.Blocks, open = append(page.Blocks, *open), nil
		case strings.HasPrefix(line, "#") && open != nil:
			return fail(open.Line, unsaid, Silent)
		case strings.HasPrefix(line, "# ") && page.Title == "":
			page.Title = line[2:]
		case strings.HasPrefix(line, "## "):
			section, long = line[3:], whole
		case line == LongMark:
			long = true
		case line == LongPage:
			long, whole = true, true
		case otherFence.MatchString(line):
			return fail(i+1, "only a fence \"```\" at the beginning of its line is tested")
		default:
			for _, n := range needed {
				has[n] = has[n] || strings.HasPrefix(line, n)
			}
		}
	}
	switch {
	case open != nil:
		return fail(open.Line, unsaid, Silent)
	case page.Title == "":
		return fail(1, "the page has no title")
	case len(page.Blocks) == 0:
		return fail(1, "the page has no script")
	case section != Reset:
		return fail(len(lines), "the last section is %q, wanted %q", section, Reset)
	}
	for _, n := range needed {
		if !has[n] {
			return fail(1, "the page has no line %q", strings.TrimSpace(n))
		}
	}
	return page, nil
}

// otherFence is a line that begins a fence in Markdown, but not for Parse: it is indented, in a list or a quotation, or
// has tildes.
var otherFence = regexp.MustCompile("^(?:[-+*>]|[0-9]+[.)]|\\s)*(?:```|~~~)")

// fenced returns the lines of a fence, and the index of its end or -1.
func fenced(lines []string, from int) (string, int) {
	for i := from; i < len(lines); i++ {
		if lines[i] == "```" {
			return strings.Join(lines[from:i], "\n") + "\n", i
		}
	}
	return "", -1
}

// AnyText stands for any text within a line of an expected output, a line AnyLines for any number of lines.
const AnyText, AnyLines = "…", "..."

// Says reports whether an expected output is more than wildcards: at least two letters or digits.
func Says(want string) bool {
	n := 0
	for _, r := range want {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			n++
		}
	}
	return n >= 2
}

// Check compares what the script has printed with the page.
func (b Block) Check(printed string) error {
	if Match(b.Want, printed) {
		return nil
	}
	want := b.Want
	if want == "" {
		want = "nothing\n"
	}
	return fmt.Errorf("%s:%d: this does not print what the page says:\n%s\nprinted:\n%s\nthe page says:\n%s", b.File, b.Line, b.Script, printed, want)
}

// aside is a line that kubectl may print beside its output when what it waited for has come, and it ends its watch
// (k8s.io/client-go/tools/cache/reflector.go).
var aside = regexp.MustCompile(`(?m)^[IW]\d{4} [\d:.]+ +\d+ reflector\.go:\d+\] .*\n?`)

// failure begins a line in which a program reports an error.
var failure = regexp.MustCompile(`(?mi)^error\b`)

// Match compares what was printed with an expected output. Spaces are compared as one; empty lines and what kubectl says
// about the end of a watch do not count. AnyLines does not stand for an error.
func Match(want, printed string) bool {
	want, printed = oneSpace(want), oneSpace(aside.ReplaceAllString(printed, ""))
	if len(failure.FindAllString(want, -1)) != len(failure.FindAllString(printed, -1)) {
		return false
	}
	if want == "" || printed == "" {
		return want == printed
	}
	var pattern strings.Builder
	for _, line := range strings.Split(want, "\n") {
		if line == AnyLines {
			pattern.WriteString(`(?:.*\n)*`)
			continue
		}
		parts := strings.Split(line, AnyText)
		for i, p := range parts {
			parts[i] = regexp.QuoteMeta(strings.TrimSpace(p))
		}
		pattern.WriteString(strings.Join(parts, `.*`) + `\n`)
	}
	return regexp.MustCompile(`\A` + pattern.String() + `\z`).MatchString(printed + "\n")
}

// oneSpace writes each run of spaces as one, without those at the ends of lines and without empty lines.
func oneSpace(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 0 {
			lines = append(lines, strings.Join(fields, " "))
		}
	}
	return strings.Join(lines, "\n")
}

// link is a page in the table of an index.
var link = regexp.MustCompile(`(?m)^\| \[[^]]+\]\(([a-z0-9-]+\.md)\) \|`)

// Index returns the pages in the table of an index, in its order.
func Index(text string) (files []string) {
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		files = append(files, m[1])
	}
	return files
}
