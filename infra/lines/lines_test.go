package lines

import (
	"strings"
	"testing"
)

func TestDiffering(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("x\n", 30)
	for _, test := range []struct{ name, found, wanted, want string }{
		{"equal", "a\nb\n", "a\nb\n", ""},
		{"last line break", "a\nb", "a\nb\n", ""},
		{"other", "a\nx\nc\n", "a\nb\nc\n", "found:  x\nwanted: b"},
		{"more", "a\nx\nb\n", "a\nb\n", "not wanted: x"},
		{"fewer", "a\n", "a\nb\n", "missing: b"},
		{"empty", "", "a\n", "found:  \nwanted: a"},
		{"spaces", "a\n  b\n", "a\nb\n", "found:  \"  b\"\nwanted: \"b\""},
		{"two places", "1\na\nx\nc\n", "a\nb\nc\nd\n", "not wanted: 1\nfound:  x\nwanted: b\nmissing: d"},
		{"long", "a\n" + strings.Repeat("é", 50), "a\n", "not wanted: " + strings.Repeat("é", 20) + "..."},
		{"long and late", strings.Repeat("a", 30) + " b=1 c", strings.Repeat("a", 30) + " b=2 c", "found:  ...aa b=1 c\nwanted: ...aa b=2 c"},
		{"many", many + "z\n", "z\n", "not wanted: x\nnot wanted: x\nnot wanted: x\nand 27 more lines"},
	} {
		if got := Differing(test.found, test.wanted, 4, 20); got != test.want {
			t.Errorf("%s: %q, wanted %q", test.name, got, test.want)
		}
	}
}

func TestCommon(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ a, b, want string }{
		{"", "", ""}, {"abc", "abc", "abc"}, {"abc", "xyz", ""}, {"abcde", "xbxdx", "bd"}, {"aaab", "ab", "ab"}, {"xaby", "aby", "aby"}, {"kitten", "sitting", "ittn"},
	} {
		var got []byte
		last := [2]int{-1, -1}
		for _, p := range Common(len(test.a), len(test.b), func(i, j int) bool { return test.a[i] == test.b[j] }) {
			if p[0] <= last[0] || p[1] <= last[1] || test.a[p[0]] != test.b[p[1]] {
				t.Fatalf("%s and %s: %v after %v", test.a, test.b, p, last)
			}
			got, last = append(got, test.a[p[0]]), p
		}
		if string(got) != test.want {
			t.Errorf("%s and %s: %s, wanted %s", test.a, test.b, got, test.want)
		}
	}
}
