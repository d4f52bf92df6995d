package harness

import (
	"strings"
	"testing"
)

// Refused wants a plan or an apply to have failed with all of the words,
// however Terraform has broken its lines.
func Refused(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("it was not refused; wanted %q", words)
		return
	}
	flat := strings.Join(strings.Fields(strings.ReplaceAll(err.Error(), "│", " ")), " ")
	for _, w := range words {
		if !strings.Contains(flat, w) {
			t.Errorf("the refusal does not say %q:\n%v", w, err)
		}
	}
}
