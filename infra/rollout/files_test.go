package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func texts(list ...string) (out []entry) {
	for _, text := range list {
		e := entry{there: text != "-", text: strings.ReplaceAll(text, " ", "\n"), short: "sha256:" + text}
		out = append(out, e)
	}
	return out
}

func TestListed(t *testing.T) {
	t.Parallel()
	names := []string{"m-0", "m-1", "m-2"}
	many := func(n int) string {
		return strings.TrimSuffix(strings.Repeat(fmt.Sprintf("line-%d ", n), maxTexts/7/3+1), " ")
	}
	for _, test := range []struct {
		name string
		all  []entry
		want []string
	}{
		{"equal", texts("a b", "a b", "a b"), []string{"a", "b"}},
		{"one differs", texts("a b c", "a x c", "a b c"), []string{"a", "[all but m-1] b", "[m-1] x", "c"}},
		{"each differs", texts("a x0 c", "a x1 c", "a x2 c"), []string{"a", "[m-0] x0", "[m-1] x1", "[m-2] x2", "c"}},
		{"one more", texts("a c", "a c", "a b c"), []string{"a", "[m-2] b", "c"}},
		{"one fewer", texts("a b c", "a c", "a b c"), []string{"a", "[all but m-1] b", "c"}},
		{"first has fewer", texts("b", "a b", "a b"), []string{"[all but m-0] a", "b"}},
		{"only one has it", texts("-", "a b", "-"), []string{"[m-1] a", "[m-1] b"}},
		{"digests", []entry{{true, "", "sha256:1"}, {true, "", "sha256:2"}, {true, "", "sha256:1"}}, []string{"[all but m-1] sha256:1", "[m-1] sha256:2"}},
		{"one is too large", []entry{{true, "a", "sha256:1"}, {true, "", "sha256:2"}, {true, "a", "sha256:1"}}, []string{"[all but m-1] sha256:1", "[m-1] sha256:2"}},
		{"all are too large", []entry{{true, many(1), "sha256:1"}, {true, many(2), "sha256:2"}, {true, many(3), "sha256:3"}}, []string{"[m-0] sha256:1", "[m-1] sha256:2", "[m-2] sha256:3"}},
		{"not known", []entry{{true, "", "sha256:1"}, {true, "", ""}, {}}, nil},
	} {
		if got := listed(names, test.all); !slices.Equal(got, test.want) || (got == nil) != (test.want == nil) {
			t.Errorf("%s: %.300q, wanted %q", test.name, got, test.want)
		}
	}
	if got := listed(names[:1], texts("a b")); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("one machine: %q", got)
	}
}

// TestListedStays changes one machine of many: only the line that differs changes.
func TestListedStays(t *testing.T) {
	t.Parallel()
	var names, own []string
	for n := range 50 {
		names, own = append(names, fmt.Sprintf("worker-%d", n)), append(own, fmt.Sprintf("first --node-ip=10.0.0.%d middle last", n))
	}
	before := listed(names, texts(own...))
	if len(before) != 53 || before[0] != "first" || before[50] != "[worker-49] --node-ip=10.0.0.49" {
		t.Fatalf("%q", before)
	}
	own[7] = "first --node-ip=10.0.0.7 middle other"
	after := listed(names, texts(own...))
	if want := append(slices.Clone(before[:52]), "[all but worker-7] last", "[worker-7] other"); !slices.Equal(after, want) {
		t.Errorf("%q", after)
	}
	// Another machine adds its own line, and moves none.
	more := listed(append(names, "worker-50"), append(texts(own...), texts("first --node-ip=10.0.0.50 middle last")...))
	if want := slices.Insert(slices.Clone(after), 51, "[worker-50] --node-ip=10.0.0.50"); !slices.Equal(more, want) {
		t.Errorf("%q", more)
	}
}
