package kube

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
)

type endless struct{}

func (endless) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(endless{}), Request: r}, nil
}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestEndlessAnswer: an answer without an end is an error that names the server and the limit.
func TestEndlessAnswer(t *testing.T) {
	t.Parallel()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://10.240.0.40:6443/api/v1/nodes", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&bounded{RoundTripper: endless{}}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	var much *foreign.TooMuchError
	if !errors.As(err, &much) || n != maxAnswer || !strings.Contains(err.Error(), "API server 10.240.0.40:6443 sent more than 64 MiB") {
		t.Errorf("%d bytes: %v", n, err)
	}
}
