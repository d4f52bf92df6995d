package aws

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// TestRefusals counts every refused attempt, even if a retry succeeds.
func TestRefusals(t *testing.T) {
	answers := []struct {
		status int
		body   string
	}{
		{503, `<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>m</Message></Error></Errors></Response>`},
		{200, `<DescribeVpcsResponse/>`},
		{400, `<Response><Errors><Error><Code>InvalidVpcID.NotFound</Code><Message>vpc-1 of 123456789012</Message></Error></Errors></Response>`},
		{403, `<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>You are not. Encoded authorization failure message: AbC-_9</Message></Error></Errors></Response>`},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(answers[0].status)
		_, _ = io.WriteString(w, answers[0].body)
		answers = answers[1:]
	}))
	defer server.Close()
	type key struct{}
	var got []Refusal
	client, err := New(t.Context(), Config{
		Region: "eu-central-1", AccessKey: "a", SecretKey: "s", Endpoints: Endpoints{EC2: server.URL},
		Refused: func(ctx context.Context, r Refusal) {
			if ctx.Value(key{}) != "the call's" {
				t.Error("not the context of the call")
			}
			got = append(got, r)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithValue(t.Context(), key{}, "the call's")
	if _, err := client.EC2.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.EC2.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{}); !IsCode(err, "InvalidVpcID.NotFound") {
		t.Fatal(err)
	}
	if _, err := client.EC2.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{}); !IsCode(err, "UnauthorizedOperation") {
		t.Fatal(err)
	}
	want := []Refusal{{"EC2", "DescribeVpcs", "RequestLimitExceeded", ""}, {"EC2", "DescribeVpcs", "InvalidVpcID.NotFound", ""}, {"EC2", "DescribeVpcs", "UnauthorizedOperation", "AbC-_9"}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
