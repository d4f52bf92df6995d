package aws

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
)

// endless is an AWS that never stops answering. It counts what is read.
type endless struct{ read int64 }

func (e *endless) Do(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(io.MultiReader(strings.NewReader("<DescribeVpcsResponse><requestId>"), e)), Request: r, Header: http.Header{}}, nil
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	e.read += int64(len(p))
	return len(p), nil
}

// TestEndlessAnswer: an answer without an end is an error that names the host and the limit.
func TestEndlessAnswer(t *testing.T) {
	t.Parallel()
	cloud := &endless{}
	c, err := New(t.Context(), Config{Region: "eu-central-1", AccessKey: "a", SecretKey: "b", HTTPClient: cloud, MaxRetries: 1, SharedConfigFiles: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.EC2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{})
	var much *foreign.TooMuchError
	if !errors.As(err, &much) || !strings.Contains(err.Error(), "AWS (ec2.eu-central-1.amazonaws.com) sent more than 64 MiB") {
		t.Errorf("%.300v", err)
	}
	if cloud.read > 3*maxAnswer { // a second attempt
		t.Errorf("%d bytes were read", cloud.read)
	}
}
