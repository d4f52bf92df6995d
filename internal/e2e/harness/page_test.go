package harness

import (
	"strings"
	"testing"
)

const testPage = "# Page\n\n## One\n\n```sh\nfirst\n# a comment\nsecond \\\n  more\n```\n\nThen:\n\n```text\nNAME   AGE\na      …\n...\nlast line\n```\n\n```sh\nthird\n```\n\n## Two\n\n```sh\nfourth\n```\n"

func TestCommands(t *testing.T) {
	list, err := commands(testPage, "## One")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range list {
		lines = append(lines, strings.Join(strings.Fields(c.Line), " "))
	}
	if got := strings.Join(lines, "|"); got != "first|second more|third" {
		t.Errorf("commands: %s", got)
	}
	second := list[1]
	for _, good := range []string{"NAME AGE\na 5s\nlast line\n", "NAME  AGE\na   5s ago\nb 1\n\nc 2\nlast   line"} {
		if err := second.Check(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "NAME AGE\nlast line\n", "NAME AGE\na 5s\nlast line\nmore\n", "x\nNAME AGE\na 5s\nlast line\n", "NAME AGE\nb 5s\nlast line\n"} {
		if second.Check(bad) == nil {
			t.Errorf("%q is taken for what the page says", bad)
		}
	}
	for page, want := range map[string]string{
		"\n# A\n```sh\na\n```\n```text\n...\n… …\n```\n": "says nothing",
		"\n# A\n```text\nsome words\n```\n":              "no command",
		"\n# B\n":                                        "no heading",
	} {
		if _, err := commands(page, "# A"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", page, err, want)
		}
	}
}
