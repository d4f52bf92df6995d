package harness

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Command is a command line on a page, and what the page says that it prints.
type Command struct {
	Line string
	Want string // empty if the page does not say
}

// Commands returns the commands below a heading of a page, in the order of the page: the lines of its blocks of
// "sh". A block of "text" after them is what the last one prints.
func Commands(t *testing.T, file, heading string) []Command {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	list, err := commands(string(raw), heading)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return list
}

func commands(page, heading string) (list []Command, err error) {
	_, rest, found := strings.Cut(page, "\n"+heading+"\n")
	if !found {
		return nil, fmt.Errorf("no heading %q", heading)
	}
	level, _, _ := strings.Cut(heading, " ")
	rest, _, _ = strings.Cut(rest, "\n"+level+" ")
	for {
		_, after, found := strings.Cut(rest, "```")
		if !found {
			return list, nil
		}
		kind, after, _ := strings.Cut(after, "\n")
		body, after, closed := strings.Cut(after, "```")
		if !closed {
			return nil, fmt.Errorf("a block of %q does not end", kind)
		}
		rest = after
		switch kind {
		case "sh":
			for line := range strings.Lines(strings.ReplaceAll(body, "\\\n", " ")) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
					list = append(list, Command{Line: line})
				}
			}
		case "text":
			if len(list) == 0 || list[len(list)-1].Want != "" {
				return nil, fmt.Errorf("no command prints\n%s", body)
			}
			if literal(body) < 5 {
				return nil, fmt.Errorf("%s: the page says nothing of what it prints, only\n%s", list[len(list)-1].Line, body)
			}
			list[len(list)-1].Want = body
		}
	}
}

const anyText, anyLines = "…", "..."

// literal is how many characters of an expected output are neither space nor wildcard.
func literal(want string) (n int) {
	for _, field := range strings.Fields(strings.ReplaceAll(want, anyText, " ")) {
		if field != anyLines {
			n += len(field)
		}
	}
	return n
}

// Check compares what a command has printed with the page. There, "…" stands for any text within a line, and a line
// "..." for any number of lines. Spaces are compared as one.
func (c Command) Check(printed string) error {
	if c.Want == "" {
		return nil
	}
	var pattern strings.Builder
	for _, line := range strings.Split(oneSpace(c.Want), "\n") {
		if line == anyLines {
			pattern.WriteString(`(?:.*\n)*`)
			continue
		}
		parts := strings.Split(line, anyText)
		for i, p := range parts {
			parts[i] = regexp.QuoteMeta(strings.TrimSpace(p))
		}
		pattern.WriteString(strings.Join(parts, `.*`) + `\n`)
	}
	if !regexp.MustCompile(`\A` + pattern.String() + `\z`).MatchString(oneSpace(printed) + "\n") {
		return fmt.Errorf("%s\nprinted\n%s\nthe page says\n%s", c.Line, printed, c.Want)
	}
	return nil
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
