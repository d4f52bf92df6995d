package harness

import (
	"strings"
	"testing"
)

// Flat is what Terraform printed as one line, without the frames it draws.
func Flat(text string) string {
	return strings.Join(strings.Fields(strings.NewReplacer("│", " ", "╷", " ", "╵", " ").Replace(text)), " ")
}

// Says wants a text to have all of the words, however Terraform has broken its
// lines.
func Says(t *testing.T, text string, words ...string) {
	t.Helper()
	flat := Flat(text)
	for _, w := range words {
		if !strings.Contains(flat, w) {
			t.Errorf("it does not say %q:\n%s", w, text)
		}
	}
}

// Refused wants a plan or an apply to have failed with all of the words.
func Refused(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("it was not refused; wanted %q", words)
		return
	}
	Says(t, err.Error(), words...)
}
