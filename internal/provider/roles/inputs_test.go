package roles

import "testing"

// TestSameYAML: comments, order and spelling do not count; a field that is given twice does, since
// one reader takes the first value and another one the last.
func TestSameYAML(t *testing.T) {
	const policy = "kind: Policy\nrules:\n- level: Metadata\n"
	for text, want := range map[string]bool{
		policy: true,
		"# all of it\nrules: [{level: Metadata}]\nkind: Policy\n":  true,
		"kind: Policy\nrules:\n- level: None\n":                    false,
		"kind: Policy\nrules:\n- level: None\n  level: Metadata\n": false,
		"rules: []\n" + policy:                                     false,
		"kind: [":                                                  false,
	} {
		if sameYAML(policy, text) != want || sameYAML(text, policy) != want {
			t.Errorf("%q is the same: %t, wanted %t", text, !want, want)
		}
	}
}
