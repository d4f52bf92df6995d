package cloud_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"
)

// TestCredentials: each service refuses in its own words whom it does not know, and a signature for another region.
func TestCredentials(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	describe := func(l *lab) error {
		_, err := l.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{})
		return err
	}
	parameter := func(l *lab) error {
		_, err := l.ssm.GetParameter(ctx, &awsssm.GetParameterInput{Name: aws.String("/x")})
		return err
	}
	whoami := func(l *lab) (string, error) {
		out, err := l.sts.GetCallerIdentity(ctx, &awssts.GetCallerIdentityInput{})
		if err != nil {
			return "", err
		}
		return *out.Arn, nil
	}
	identity := func(l *lab) error {
		_, err := whoami(l)
		return err
	}
	stranger, liar := l.with("AKIASTRANGER", testSecret, ""), l.with(testKey, "guessed", "")
	refused(t, describe(l), "")
	refused(t, describe(stranger), "AuthFailure")
	refused(t, describe(liar), "AuthFailure")
	refused(t, parameter(stranger), "UnrecognizedClientException")
	refused(t, parameter(liar), "InvalidSignatureException")
	refused(t, identity(stranger), "InvalidClientTokenId")
	refused(t, identity(liar), "SignatureDoesNotMatch")
	if arn := must[string](t)(whoami(l)); !strings.HasSuffix(arn, ":user/lab") {
		t.Errorf("I am %s", arn)
	}
	refused(t, describe(l.in("eu-central-1")), "AuthFailure")

	unsigned, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url+"?Action=DescribeVpcs&Version=2016-11-15", nil)
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
