package cloud_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// TestCredentials: each service refuses in its own words whom it does not know, and a signature for another region.
func TestCredentials(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	describe := func(l *cloudtest.Lab) error {
		_, err := l.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{})
		return err
	}
	parameter := func(l *cloudtest.Lab) error {
		_, err := l.SSM.GetParameter(ctx, &awsssm.GetParameterInput{Name: aws.String("/x")})
		return err
	}
	whoami := func(l *cloudtest.Lab) (string, error) {
		out, err := l.STS.GetCallerIdentity(ctx, &awssts.GetCallerIdentityInput{})
		if err != nil {
			return "", err
		}
		return *out.Arn, nil
	}
	identity := func(l *cloudtest.Lab) error {
		_, err := whoami(l)
		return err
	}
	stranger, liar := l.With("AKIASTRANGER", cloudtest.SecretAccessKey, ""), l.With(cloudtest.AccessKeyID, "guessed", "")
	cloudtest.Refused(t, describe(l), "")
	cloudtest.Refused(t, describe(stranger), "AuthFailure")
	cloudtest.Refused(t, describe(liar), "AuthFailure")
	cloudtest.Refused(t, parameter(stranger), "UnrecognizedClientException")
	cloudtest.Refused(t, parameter(liar), "InvalidSignatureException")
	cloudtest.Refused(t, identity(stranger), "InvalidClientTokenId")
	cloudtest.Refused(t, identity(liar), "SignatureDoesNotMatch")
	if arn := cloudtest.Must[string](t)(whoami(l)); !strings.HasSuffix(arn, ":user/lab") {
		t.Errorf("I am %s", arn)
	}
	cloudtest.Refused(t, describe(l.In("eu-central-1")), "AuthFailure")

	unsigned, err := http.NewRequestWithContext(ctx, http.MethodGet, l.URL+"?Action=DescribeVpcs&Version=2016-11-15", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(unsigned)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("an unsigned request got %s", resp.Status)
	}
}
