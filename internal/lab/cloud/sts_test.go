package cloud_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"
)

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

	assume := func(arn string) (*awssts.AssumeRoleOutput, error) {
		return l.sts.AssumeRole(ctx, &awssts.AssumeRoleInput{RoleArn: &arn, RoleSessionName: aws.String("test"), DurationSeconds: aws.Int32(900)})
	}
	_, err := assume("arn:aws:iam::123456789012:role/deploy")
	refused(t, err, "AccessDenied") // the role does not exist
	if _, err := l.cloud.Identities().PutRole("deploy", []string{everything}, ""); err != nil {
		t.Fatal(err)
	}
	c := must[*awssts.AssumeRoleOutput](t)(assume("arn:aws:iam::123456789012:role/deploy")).Credentials
	assumed := l.with(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken)
	refused(t, describe(assumed), "")
	_, err = assumed.sts.GetSessionToken(ctx, &awssts.GetSessionTokenInput{})
	refused(t, err, "AccessDenied") // only with long-term credentials
	if arn := must[string](t)(whoami(assumed)); arn != "arn:aws:sts::123456789012:assumed-role/deploy/test" {
		t.Errorf("the role is %s", arn)
	}
	refused(t, describe(l.with(*c.AccessKeyId, *c.SecretAccessKey, "forged")), "AuthFailure")
	// Sessions are kept over a restart of the daemon, in a private file.
	l.cloud.Close()
	l.open(t)
	assumed = l.with(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken)
	refused(t, describe(assumed), "")
	if info, err := os.Stat(filepath.Join(l.dir, "sts.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the sessions' file: %v, %v", info, err)
	}
	l.clock.advance(16 * time.Minute)
	refused(t, describe(assumed), "RequestExpired")
	refused(t, identity(assumed), "ExpiredToken")
	_, err = assume("arn:aws:iam::999999999999:role/deploy")
	refused(t, err, "AccessDenied")
	_, err = assume("deploy")
	refused(t, err, "ValidationError")

	elsewhere := l.aws.Copy()
	elsewhere.Region = "eu-central-1"
	other := *l
	other.use(elsewhere)
	refused(t, describe(&other), "AuthFailure")

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
