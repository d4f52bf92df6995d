package cloud_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"
)

// TestSessions follows a session of a role from its beginning over a restart to its end.
func TestSessions(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	describe := func(l *lab) error {
		_, err := l.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{})
		return err
	}
	whoami := func(l *lab) (string, error) {
		out, err := l.sts.GetCallerIdentity(ctx, &awssts.GetCallerIdentityInput{})
		if err != nil {
			return "", err
		}
		return *out.Arn, nil
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
	_, err = whoami(assumed)
	refused(t, err, "ExpiredToken")
	_, err = assume("arn:aws:iam::999999999999:role/deploy")
	refused(t, err, "AccessDenied")
	_, err = assume("deploy")
	refused(t, err, "ValidationError")
}
