package harness

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/exercise"
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
			if !exercise.Says(body) {
				return nil, fmt.Errorf("%s: the page says nothing of what it prints, only\n%s", list[len(list)-1].Line, body)
			}
			list[len(list)-1].Want = body
		}
	}
}

// Check compares what a command has printed with the page. See exercise.Match.
func (c Command) Check(printed string) error {
	if c.Want == "" {
		return nil
	}
	if !exercise.Match(c.Want, printed) {
		return fmt.Errorf("%s\nprinted\n%s\nthe page says\n%s", c.Line, printed, c.Want)
	}
	return nil
}
