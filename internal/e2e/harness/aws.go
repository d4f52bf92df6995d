package harness

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// AWS returns the configuration of unchanged SDK clients that talk to the lab,
// for what a person would do behind Terraform's back.
func (s *Suite) AWS() aws.Config {
	return aws.Config{
		Region:       s.env["AWS_REGION"],
		BaseEndpoint: aws.String(s.env["AWS_ENDPOINT_URL"]),
		Credentials:  credentials.NewStaticCredentialsProvider(s.env["AWS_ACCESS_KEY_ID"], s.env["AWS_SECRET_ACCESS_KEY"], ""),
	}
}
