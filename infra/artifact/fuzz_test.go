package artifact

import (
	"bytes"
	"testing"
)

// FuzzChecksums checks the readers of files of checksums.
func FuzzChecksums(f *testing.F) {
	f.Add([]byte("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  a/b\n"), "b")
	f.Add([]byte("9F86D081884C7D659A2FEAA0C55AD015A3BF4F1B2B0B822CD15D6C15B0F00A08"), "")
	f.Fuzz(func(t *testing.T, text []byte, name string) {
		if sum := publishedDigest(text, name); sum != "" && !digest.MatchString(sum) {
			t.Errorf("%q is no digest", sum)
		}
		_, _ = parseChecksums(bytes.NewReader(text))
	})
}
