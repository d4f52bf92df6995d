package exercise

import (
	"slices"
	"strings"
	"testing"
)

const head = "# Leases\n\n- **Takes**: a minute\n- **Needs**: a cluster\n- **Changes**: nothing\n\n"

const sample = head + "## Look\n\nWords.\n\n```sh\ncat <<END |\n# not a heading\nEND\n  sort\n```\n\nIt prints a line:\n\n```text\n# not a …\n```\n\n" +
	"## Wait\n\n" + LongMark + "\n\n```sh\nsleep 300\n```\n\nIt prints nothing.\n\n## Reset\n\n```sh\ntrue\n```\n\nIt prints nothing.\n"

func TestParse(t *testing.T) {
	p, err := Parse("leases.md", sample)
	if err != nil {
		t.Fatal(err)
	}
	want := []Block{
		{File: "leases.md", Line: 12, Section: "Look", Script: "cat <<END |\n# not a heading\nEND\n  sort\n", Want: "# not a …\n"},
		{File: "leases.md", Line: 29, Section: "Wait", Script: "sleep 300\n", Long: true},
		{File: "leases.md", Line: 37, Section: "Reset", Script: "true\n"},
	}
	if p.Title != "Leases" || !slices.Equal(p.Blocks, want) {
		t.Errorf("%q\n%#v\nwanted\n%#v", p.Title, p.Blocks, want)
	}
}

func TestLongPage(t *testing.T) {
	p, err := Parse("leases.md", strings.Replace(sample, "## Look", LongPage+"\n\n## Look", 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range p.Blocks {
		if !b.Long {
			t.Errorf("line %d is not long", b.Line)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	const reset = "## Reset\n\n```sh\ntrue\n```\n\nIt prints nothing.\n"
	for name, c := range map[string]struct{ page, want string }{
		"no output at the end":         {head + "## Reset\n\n```sh\ntrue\n```\n", "leases.md:10: the page does not say"},
		"no output before a script":    {head + "## A\n\n```sh\ntrue\n```\n\n```sh\nfalse\n```\n\n" + reset, "leases.md:10: the page does not say"},
		"no output before a heading":   {head + "## A\n\n```sh\ntrue\n```\n\n" + reset, "leases.md:10: the page does not say"},
		"only wildcards":               {head + "## A\n\n```sh\ntrue\n```\n\n```text\n...\n… …\n...\n```\n\n" + reset, "leases.md:13: the page says nothing"},
		"wildcards and punctuation":    {head + "## A\n\n```sh\ntrue\n```\n\n```text\n… | …\n```\n\n" + reset, "leases.md:13: the page says nothing"},
		"an empty fence":               {head + "## A\n\n```sh\ntrue\n```\n\n```text\n```\n\n" + reset, "leases.md:13: the page says nothing"},
		"output of no script":          {head + "## A\n\n```text\nwords\n```\n\n" + reset, "leases.md:9: no script"},
		"two outputs":                  {head + "## A\n\n```sh\ntrue\n```\n\n```text\nab\n```\n\n```text\nab\n```\n" + reset, "leases.md:17: no script"},
		"another language":             {head + "## A\n\n```bash\ntrue\n```\n\n" + reset, `leases.md:9: a fence "bash"`},
		"an indented fence":            {head + "## A\n\n1. Words.\n   ```sh\n   true\n   ```\n\n" + reset, "leases.md:10: only a fence"},
		"a fence in a list":            {head + "## A\n\n- ```sh\n  true\n  ```\n\n" + reset, "leases.md:9: only a fence"},
		"a fence of tildes":            {head + "## A\n\n~~~sh\ntrue\n~~~\n\n" + reset, "leases.md:9: only a fence"},
		"a fence without an end":       {head + "## A\n\n```sh\ntrue\n", "leases.md:9: the fence does not end"},
		"no reset":                     {head + "## A\n\n```sh\ntrue\n```\n\nIt prints nothing.\n", `leases.md:14: the last section is "A"`},
		"no title":                     {"\n" + reset, "leases.md:1: the page has no title"},
		"no script":                    {head + "## Reset\n", "leases.md:1: the page has no script"},
		"a page without what it takes": {"# Leases\n\n- **Needs**: a\n- **Changes**: b\n\n" + reset, `leases.md:1: the page has no line "- **Takes**:"`},
	} {
		if _, err := Parse("leases.md", c.page); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, wanted %s", name, err, c.want)
		}
	}
}

func TestCheck(t *testing.T) {
	b := Block{File: "leases.md", Line: 7, Script: "kubectl get leases\n", Want: "NAME   HOLDER   AGE\nscheduler   controller-…_…   …\n...\nlast line\n"}
	for _, good := range []string{
		"NAME HOLDER AGE\nscheduler controller-1_ab 5s\nlast line\n",
		"NAME  HOLDER AGE\nscheduler   controller-0_cd-e 5m ago\nb 1\n\nc 2\nlast   line",
	} {
		if err := b.Check(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "NAME HOLDER AGE\nlast line\n", "NAME HOLDER AGE\nscheduler controller-1 5s\nlast line\n",
		"NAME HOLDER AGE\nscheduler controller-1_ab 5s\nlast line\nmore\n", "NAME HOLDER AGE\nscheduler controller-1_ab 5s\nError from server (NotFound)\nlast line\n", "x\nNAME HOLDER AGE\nscheduler controller-1_ab 5s\nlast line\n"} {
		if err := b.Check(bad); err == nil || !strings.HasPrefix(err.Error(), "leases.md:7: ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	silent := Block{File: "leases.md", Line: 9}
	if err := silent.Check("\n"); err != nil {
		t.Error(err)
	}
	if err := silent.Check("Error from server\n"); err == nil || !strings.Contains(err.Error(), "the page says:\nnothing") {
		t.Error("a script that should print nothing may print an error:", err)
	}
	ended := `I1129 21:40:35.142516   27120 reflector.go:664] "Warning: watch ended with error" err="context canceled"` + "\n"
	if !Match("pod/a created\n", "pod/a created\n"+ended) || Match("pod/a created\n", "pod/a created\nW"+ended) {
		t.Error("the end of a watch counts, or another line does not")
	}
	if Match("some.thing\n", "some thing\n") || Match("a [b]\n", "a b\n") {
		t.Error("a page's text is a pattern")
	}
}

func TestIndex(t *testing.T) {
	got := Index("| page | takes |\n|---|---|\n| [Loops](loops.md) | 1 |\n| [etcd](etcd.md) | see [other](other.md) |\n\nThe page [more](more.md)\n")
	if !slices.Equal(got, []string{"loops.md", "etcd.md"}) {
		t.Errorf("%q", got)
	}
}
