package component

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// Args are command-line flags of one program, without leading dashes: flag -> values. As extra
// arguments, one value replaces the flag's default, several values repeat the flag, and an empty
// list removes it.
type Args map[string][]string

// SingleArgs returns Args with one value per flag.
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

// CheckArgs returns an error for each extra argument that no program can have: an invalid flag
// name, a value with a line break, or a flag that only the provider may set.
func CheckArgs(program string, extra Args) (errs invalid.Fields) {
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		field := ArgField(program, name)
		if !flagName.MatchString(name) {
			errs.Say(field, "Not the name of a flag",
				"a flag is in lower case, such as audit-log-path: write it without leading dashes and without its value.")
		}
		if slices.ContainsFunc(extra[name], func(v string) bool { return strings.ContainsAny(v, "\n\r\x00") }) {
			errs.Say(field, "Unusable value of a flag", "the value has a line break.")
		}
		checkOwned(&errs, program, name, extra)
	}
	return errs
}

// with returns a with the extra arguments of a program merged over it.
func (a Args) with(program string, extra Args) (Args, error) {
	if err := CheckArgs(program, extra).Err(); err != nil {
		return nil, err
	}
	out := maps.Clone(a)
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		if len(extra[name]) == 0 {
			delete(out, name)
			continue
		}
		out[name] = extra[name]
	}
	return out, nil
}

// commandLine renders a program and its flags, sorted by name, as the value of systemd's ExecStart,
// one flag per line.
func (a Args) commandLine(program string) string {
	words := []string{program}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		for _, v := range a[name] {
			words = append(words, quoteWord("--"+name+"="+v))
		}
	}
	return strings.Join(words, " \\\n  ")
}

// quoteWord quotes one word of a systemd command line, including specifiers and variables
// (systemd.service(5), "Command lines").
func quoteWord(s string) string {
	s = strings.NewReplacer(`%`, `%%`, `$`, `$$`).Replace(s)
	if !strings.ContainsAny(s, " \t\"'\\;") {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// last returns a flag's last value, which is the one that counts.
func (a Args) last(name string) string {
	if v := a[name]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

// argsOf returns the flags in the ExecStart of a unit file written by this package; none for any
// other text.
func argsOf(unitFile []byte) Args {
	options, err := unit.DeserializeOptions(bytes.NewReader(unitFile))
	if err != nil {
		return nil
	}
	out := Args{}
	for _, o := range options {
		if o.Section != "Service" || o.Name != "ExecStart" {
			continue
		}
		for _, word := range wordsOf(o.Value) {
			if flag, ok := strings.CutPrefix(word, "--"); ok {
				name, value, _ := strings.Cut(flag, "=")
				out[name] = append(out[name], value)
			}
		}
	}
	return out
}

// wordsOf is the inverse of commandLine and quoteWord.
func wordsOf(line string) []string {
	line = strings.ReplaceAll(line, "\\\n", " ")
	unescape := strings.NewReplacer(`%%`, `%`, `$$`, `$`)
	var out []string
	var word strings.Builder
	quoted, open := false, false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quoted && c == '\\' && i+1 < len(line):
			i++
			word.WriteByte(line[i])
		case c == '"':
			quoted, open = !quoted, true
		case !quoted && (c == ' ' || c == '\t' || c == '\n'):
			if open {
				out = append(out, unescape.Replace(word.String()))
			}
			word.Reset()
			open = false
		default:
			word.WriteByte(c)
			open = true
		}
	}
	if open {
		out = append(out, unescape.Replace(word.String()))
	}
	return out
}

func values(v ...string) []string { return v }

// and returns a with all of b.
func (a Args) and(b Args) Args {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// ArgField is the field of a flag of a program, by their names: kube-apiserver, v.
func ArgField(program, flag string) string {
	return fmt.Sprintf("extra_args.%s[%q]", strings.ReplaceAll(program, "-", "_"), flag)
}
