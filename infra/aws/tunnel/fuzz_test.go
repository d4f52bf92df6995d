package tunnel

import (
	"bytes"
	"io"
	"net/http"
	"testing"
)

// FuzzRefusal checks the reader of the answer of an endpoint that opens no tunnel.
func FuzzRefusal(f *testing.F) {
	f.Add(403, []byte(`{"ErrorCode":"AccessDenied","Message":"no"}`))
	f.Add(500, []byte("<html>"))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if err := refusal(&http.Response{StatusCode: status, Body: io.NopCloser(bytes.NewReader(body))}); err == nil || err.Error() == "" {
			t.Error("a refusal is no error")
		}
	})
}
