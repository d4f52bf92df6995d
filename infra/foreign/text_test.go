package foreign

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"plain", "a b\n\tc é 世界 🙂 e\u0301 nbsp\u00a0", "a b\n\tc é 世界 🙂 e\u0301 nbsp\u00a0"},
		{"colour", "\x1b[31mred\x1b[0m \x1b[38;5;1mx\x1b[m", "red x"},
		{"clear screen and home", "\x1b[2J\x1b[Hgone?", "gone?"},
		{"CSI in one character", "\u009b2Jx", "x"},
		{"title", "\x1b]0;pwned\x07x \x1b]2;pwned\x1b\\y", "x y"},
		{"hyperlink", "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\", "click"},
		{"clipboard", "\x1b]52;c;ZXZpbA==\x07x", "x"},
		{"device control", "\x1bP+q544e\x1b\\x", "x"},
		{"title without an end hides nothing", "\x1b]0;a\nfatal: b", "0;a\nfatal: b"},
		{"reset and character set", "\x1bcx\x1b(0y", "xy"},
		{"nested", "\x1b\x1b[31m[31mx", `\x1b[31mx`},
		{"escape at the end", "x\x1b", `x\x1b`},
		{"sequence without an end", "x\x1b[31", "x31"},
		{"bell, backspace, delete, NUL", "a\x07\x08\x7f\x00", `a\x07\x08\x7f\x00`},
		{"line written over", "real\rfake\r\nx", "real\nfake\nx"},
		{"direction of writing", "a\u202eb\u2066c\u200fd\u061c", `a\u202eb\u2066c\u200fd\u061c`},
		{"no width", "a\u200bb\ufeff\U000e0041", `a\u200bb\ufeff\U000e0041`},
		{"line separators", "a\u2028b\u0085c", `a\u2028b\u0085c`},
		{"no UTF-8", "a\xff\xc3", "a??"},
		{"secret in colour", "password=\x1b[31mhunter2hunter2\x1b[0m", "password=[redacted]"},
	} {
		if got := Text(tt.in); got != tt.want {
			t.Errorf("%s: %q, wanted %q", tt.name, got, tt.want)
		}
	}
}

func TestTextIsBounded(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]string{
		"lines":          strings.Repeat("one line of many\n", 10_000),
		"one line":       strings.Repeat("é", 1<<20),
		"control":        strings.Repeat("\x1b[31mx\x00", 1<<16),
		"short titles":   strings.Repeat("\u009d", 1<<17),
		"titles":         strings.Repeat("\x1b]", 1<<17),
		"key at the cut": strings.Repeat("x", maxText-textEnd-200) + "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat("s3cret", 10_000),
	} {
		got := Text(s)
		if len(got) > maxText || !utf8.ValidString(got) || strings.Contains(got, "s3cret") {
			t.Errorf("%s: %d bytes, %.200q", name, len(got), got)
		}
		if again := Text(got); again != got {
			t.Errorf("%s: another text the second time: %.200q", name, again)
		}
	}
	if got := Text("begin" + strings.Repeat("x", maxText) + "end"); !strings.HasPrefix(got, "begin") || !strings.HasSuffix(got, "end") || !strings.Contains(got, "bytes are left out]") {
		t.Errorf("%.40q ... %.40q", got, got[len(got)-40:])
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	if got := Line(" a\n\x1b[1mb\x1b[0m\tc ", 10); got != "a b c" {
		t.Errorf("%q", got)
	}
	if got := Line("éééé", 2); got != "éé..." || Line(got, 2) != got {
		t.Errorf("%q", got)
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	if got := Lines("\x1b[31mé\x1b[0mé\r\nabcd\n\n", 2); got != "éé\nab...\n\n" {
		t.Errorf("%q", got)
	}
	key := "-----BEGIN PRIVATE KEY-----\ns3crets3cret\ns3cret\n-----END PRIVATE KEY-----\n"
	if got := Lines(strings.Repeat("x", maxLooked)+"\n"+key+"end", 100); got != strings.Repeat("x", 100)+"...\n[private key redacted]\nend" {
		t.Errorf("%q", got)
	}
	if got := Lines(strings.Repeat("x\n", maxLooked)+"end", 10); !strings.HasSuffix(got, "x\nend") || len(got) > maxText {
		t.Errorf("%d bytes: %.40q", len(got), got)
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"a", "\x1b[31mred\x1b[0m", "\x1b]0;t\x07", "\u202e\u009b1m", "password=hunter2hunter2", "\xff\r\n\r", "-----BEGIN PRIVATE KEY-----\nx"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Text(s)
		if len(got) > maxText || !utf8.ValidString(got) {
			t.Errorf("%d bytes: %q", len(got), got)
		}
		for _, r := range got {
			if r != '\n' && r != '\t' && !unicode.IsGraphic(r) {
				t.Errorf("%q has %U", got, r)
			}
		}
		if again := Text(got); again != got {
			t.Errorf("%q, and the second time %q", got, again)
		}
	})
}

func ExampleText() {
	fmt.Println(Text("request \x1b[31mfailed\x1b[0m: Authorization: Bearer c2VjcmV0LXRva2Vu"))
	// Output: request failed: Authorization: Bearer [redacted]
}
