// Package foreign reads text from others: machines, pods, AWS, etcd, API servers. Such text may be
// endless, or harmful on a terminal. [ReadAll] and [Reader] limit what is read, and [Text] and
// [Line] make it fit to be shown to people.
//
// What may not enter: who says it, what it means, and other packages of this repository.
package foreign

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxText is how many bytes of a text are shown, and how many of them are of its end, where programs
	// say why they give up.
	maxText = 16 << 10
	textEnd = 4 << 10
	// maxLooked is how many bytes of a text are searched for secrets. A text is cut there before it is
	// searched, and the patterns of secrets match those that are cut at their end, too.
	maxLooked = 256 << 10
)

// Text makes text from machines, pods and servers fit to be shown in errors, warnings, drift and
// logs. It removes the sequences that control a terminal, writes other characters that cannot be
// seen, and those that change the direction of writing, as Go does ("\u202e"), replaces what looks
// like a secret, and leaves out the middle of a text that is too long. Line breaks and tabs stay.
func Text(s string) string {
	if len(s) > maxLooked {
		s = s[:start(s, maxLooked)]
	}
	s = redact(visible(s))
	if len(s) <= maxText {
		return s
	}
	// The mark counts too, so that Text leaves its own result as it is.
	const mark = "\n[%d bytes are left out]\n"
	head, end := start(s, maxText-textEnd-len(mark)-10), start(s, len(s)-textEnd)
	return s[:head] + fmt.Sprintf(mark, end-head) + s[end:]
}

// Line is Text in one line of at most limit characters.
func Line(s string, limit int) string {
	s = strings.Join(strings.Fields(Text(s)), " ")
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit]) + "..."
}

// Lines is Text of the end of a log, with lines of at most limit characters.
func Lines(s string, limit int) string {
	all := strings.Split(s, "\n")
	first, left := len(all), maxLooked
	for ; first > 0; first-- {
		line := &all[first-1]
		if most := 8 * limit; len(*line) > most { // more than is shown of it, however it is written
			*line = (*line)[:start(*line, most)]
		}
		if left -= len(*line) + 1; left < 0 {
			break
		}
	}
	lines := strings.Split(visible(strings.Join(all[first:], "\n")), "\n")
	for i, line := range lines {
		if runes := []rune(line); len(runes) > limit {
			lines[i] = string(runes[:limit]) + "..."
		}
	}
	return Text(strings.Join(lines, "\n"))
}

// start returns the start of the character at i.
func start(s string, i int) int {
	for i > 0 && i < len(s) && !utf8.RuneStart(s[i]) {
		i--
	}
	return i
}

// visible removes or writes out invisible characters. It looks at every character once, and its
// output controls nothing, so nested sequences cannot survive it.
func visible(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteByte('?')
		case r == '\r':
			if !strings.HasPrefix(s[i+1:], "\n") { // alone it would write over the line
				b.WriteByte('\n')
			}
		case r == '\n' || r == '\t' || unicode.IsGraphic(r):
			b.WriteString(s[i : i+size])
		default:
			if n := control(s[i:]); n > 0 {
				size = n
			} else if r < utf8.RuneSelf {
				fmt.Fprintf(&b, `\x%02x`, r)
			} else if r <= 0xffff {
				fmt.Fprintf(&b, `\u%04x`, r)
			} else {
				fmt.Fprintf(&b, `\U%08x`, r)
			}
		}
		i += size
	}
	return b.String()
}

var (
	// sequence matches at its start what controls a terminal (ECMA-48), with its introducer in one byte
	// or two: a control sequence, such as one for a colour; a string, such as a window's title, which must
	// end in its line, or it would hide what follows; and an escape sequence, such as a reset.
	sequence = regexp.MustCompile(`^(?:` +
		`(?:\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]` + `|` +
		`(?:\x1b[\]PX^_]|[\x{90}\x{98}\x{9d}-\x{9f}])[^\n\x07\x1b\x{90}-\x{9f}]*(?:\x07|\x1b\\|\x{9c})` + `|` +
		`\x1b[ -/]*[0-~]` + `)`)
	// looked is how many bytes of a text may belong to a sequence.
	looked = 5 << 10
)

// control returns the length of the sequence at the start of a text, 0 if there is none.
func control(s string) int { return len(sequence.FindString(s[:start(s, min(len(s), looked))])) }
