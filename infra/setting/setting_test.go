package setting

import (
	"strings"
	"testing"
)

// TestFiles: every list is as [List.String] writes it, so that an update changes only what has changed.
func TestFiles(t *testing.T) {
	entries, err := files.ReadDir(".")
	if err != nil || len(entries) == 0 {
		t.Fatal(entries, err)
	}
	for _, e := range entries {
		text, err := files.ReadFile(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		l, err := Parse(string(text))
		if err != nil {
			t.Errorf("%s: %v", e.Name(), err)
		}
		if _, body, _ := strings.Cut(string(text), "\n\n"); "\n"+body != l.String() {
			t.Errorf("%s is not as it would be written:\n%s", e.Name(), l)
		}
	}
}

func TestParse(t *testing.T) {
	const text = "\n[flag free]\na b\n\n[flag elsewhere kubelet_config]\nc\n"
	l, err := Parse("# A list.\n" + text)
	if err != nil || l[Flag]["c"] != (Entry{Elsewhere, "kubelet_config"}) || l.String() != text {
		t.Errorf("%v %v", l, err)
	}
	l.Update(Flag, []string{"b", "c", "d"})
	if got := l.String(); got != "\n[flag free]\nb\n\n[flag elsewhere kubelet_config]\nc\n\n[flag unclassified]\nd\n" {
		t.Error(got)
	}
	for _, bad := range []string{"a\n", "[flag free]\na a\n", "[flag fre]\na\n", "[flags free]\na\n", "[flag elsewhere]\na\n", "[flag free x]\na\n"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q is a list", bad)
		}
	}
}
