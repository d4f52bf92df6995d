package lines

import (
	"regexp"
	"strings"
)

// hidden stands for words that are not shown.
const hidden = "(hidden)"

// name is what may stand before "=" or ":" in a line of a configuration.
var name = regexp.MustCompile(`^-{0,2}[A-Za-z][A-Za-z0-9_./-]{0,60}$`)

// Mask returns a found text in which every word is hidden that might be a secret: it is in no line of the wanted text,
// is no name before "=" or ":", and not plain, such as a number. Somebody may have written any text into the file, and an
// apply that failed has written values there of which the state knows nothing.
func Mask(found, wanted string, plain func(word string) bool) string {
	known := map[string]bool{"=": true, ":": true, "#": true, "-": true, `\`: true}
	for _, word := range strings.Fields(wanted) {
		known[word] = true
	}
	lines := strings.Split(found, "\n")
	for n, line := range lines {
		words := strings.Fields(line)
		for i, word := range words {
			switch {
			case known[word] || plain(word):
			case i+1 < len(words) && words[i+1] == "=" && name.MatchString(word):
			default:
				words[i] = maskWord(word, plain)
			}
		}
		if masked := strings.Join(words, " "); masked != strings.Join(strings.Fields(line), " ") {
			lines[n] = line[:len(line)-len(strings.TrimLeft(line, " \t"))] + masked
		}
	}
	return strings.Join(lines, "\n")
}

// maskWord hides a word, or what is behind the name in it.
func maskWord(word string, plain func(word string) bool) string {
	at := strings.IndexAny(word, "=:")
	if at < 0 || !name.MatchString(word[:at]) {
		return hidden
	}
	value := word[at+1:]
	switch {
	case value == "" && word[at] == ':' || value != "" && plain(strings.Trim(value, `"'`)):
		return word
	case strings.Trim(value, "=") == "":
		return hidden // the end of a text in Base64
	}
	return word[:at+1] + hidden
}
