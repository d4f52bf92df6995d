package component

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Args are command-line flags of one program, without leading dashes: flag ->
// values. As extra arguments, one value replaces the flag's default, several
// repeat the flag, and an empty list removes it.
type Args map[string][]string

// SingleArgs makes Args of flags with one value each.
func SingleArgs(m map[string]string) Args {
	if m == nil {
		return nil
	}
	out := Args{}
	for k, v := range m {
		out[k] = []string{v}
	}
	return out
}

var flagName = regexp.MustCompile(`^[a-z0-9]+([-.][a-z0-9]+)*$`)

// with returns a with the extra arguments merged over it.
func (a Args) with(extra Args) (Args, error) {
	out := maps.Clone(a)
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		if !flagName.MatchString(name) {
			return nil, fmt.Errorf("extra argument %q is not a flag name (write it without leading dashes)", name)
		}
		for _, v := range extra[name] {
			if strings.ContainsAny(v, "\n\r\x00") {
				return nil, fmt.Errorf("extra argument %s has a line break in its value", name)
			}
		}
		if len(extra[name]) == 0 {
			delete(out, name)
			continue
		}
		out[name] = extra[name]
	}
	return out, nil
}

// commandLine renders a program and its flags, sorted by name, as the value of
// systemd's ExecStart, one flag per line.
func (a Args) commandLine(program string) string {
	words := []string{program}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		for _, v := range a[name] {
			words = append(words, quoteWord("--"+name+"="+v))
		}
	}
	return strings.Join(words, " \\\n  ")
}

// quoteWord makes one word of a systemd command line: specifiers and variables
// lose their meaning (systemd.service(5), "Command lines").
func quoteWord(s string) string {
	s = strings.NewReplacer(`%`, `%%`, `$`, `$$`).Replace(s)
	if !strings.ContainsAny(s, " \t\"'\\;") {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

func values(v ...string) []string { return v }

// and returns a with all of b.
func (a Args) and(b Args) Args {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}
