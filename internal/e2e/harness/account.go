package harness

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
)

// AWS returns the configuration of unchanged SDK clients for the lab, for changes outside
// Terraform.
func (s *Suite) AWS() aws.Config {
	return aws.Config{
		Region:       s.env["AWS_REGION"],
		BaseEndpoint: aws.String(s.env["AWS_ENDPOINT_URL"]),
		Credentials:  credentials.NewStaticCredentialsProvider(s.env["AWS_ACCESS_KEY_ID"], s.env["AWS_SECRET_ACCESS_KEY"], ""),
	}
}

// S3 returns a client of the lab's S3.
func (s *Suite) S3() *s3.Client {
	return s3.NewFromConfig(s.AWS(), func(o *s3.Options) { o.UsePathStyle = true })
}

// Parameters returns the SHA-256 of every parameter in the account, by name.
func (s *Suite) Parameters(t *testing.T) map[string]string {
	t.Helper()
	client := ssm.NewFromConfig(s.AWS(), func(o *ssm.Options) {
		o.RetryMaxAttempts = 20 // the faults of a test also affect the test's own calls
	})
	found := map[string]string{}
	pages := ssm.NewGetParametersByPathPaginator(client, &ssm.GetParametersByPathInput{
		Path: aws.String("/"), Recursive: aws.Bool(true), WithDecryption: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range page.Parameters {
			sum := sha256.Sum256([]byte(aws.ToString(p.Value)))
			if found[aws.ToString(p.Name)] = hex.EncodeToString(sum[:]); strings.HasSuffix(aws.ToString(p.Name), "/owner") {
				found[aws.ToString(p.Name)] = "" // a refresh may settle it
			}
		}
	}
	return found
}

// Empty fails the test unless the account is empty.
func (s *Suite) Empty(t *testing.T) {
	t.Helper()
	var left json.RawMessage
	if err := s.Control(t.Context(), "GET", "/_lab/state", nil, &left); err != nil {
		t.Fatal(err)
	}
	var count struct {
		Total *int `json:"total"`
	}
	if err := json.Unmarshal(left, &count); err != nil {
		t.Fatal(err)
	}
	if count.Total == nil || *count.Total != 0 {
		t.Fatalf("left in the account:\n%s", left)
	}
}
