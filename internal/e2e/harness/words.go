package harness

import (
	"strings"
	"testing"
)

// Flat returns Terraform's output as one line, without the frames that it draws.
func Flat(text string) string {
	return strings.Join(strings.Fields(strings.NewReplacer("│", " ", "╷", " ", "╵", " ").Replace(text)), " ")
}

// Says checks that a text contains all of the words, wherever Terraform has broken lines.
func Says(t *testing.T, text string, words ...string) {
	t.Helper()
	flat := Flat(text)
	for _, w := range words {
		if !strings.Contains(flat, w) {
			t.Errorf("it does not say %q:\n%s", w, text)
		}
	}
}

// Refused checks that a plan or an apply has failed with all of the words.
func Refused(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("it was not refused; wanted %q", words)
		return
	}
	Says(t, err.Error(), words...)
}
