package sts_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

// TestSessions follows a session of a role from its beginning over a restart to its end.
func TestSessions(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	describe := func(l *cloudtest.Lab) error {
		_, err := l.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{})
		return err
	}
	whoami := func(l *cloudtest.Lab) (string, error) {
		out, err := l.STS.GetCallerIdentity(ctx, &awssts.GetCallerIdentityInput{})
		if err != nil {
			return "", err
		}
		return *out.Arn, nil
	}
	assume := func(arn string) (*awssts.AssumeRoleOutput, error) {
		return l.STS.AssumeRole(ctx, &awssts.AssumeRoleInput{RoleArn: &arn, RoleSessionName: aws.String("test"), DurationSeconds: aws.Int32(900)})
	}
	_, err := assume("arn:aws:iam::123456789012:role/deploy")
	cloudtest.Refused(t, err, "AccessDenied") // the role does not exist
	if _, err := l.Account.Identities().PutRole("deploy", iam.Entity{Policies: []string{cloudtest.Everything}}, ""); err != nil {
		t.Fatal(err)
	}
	c := cloudtest.Must[*awssts.AssumeRoleOutput](t)(assume("arn:aws:iam::123456789012:role/deploy")).Credentials
	assumed := l.With(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken)
	cloudtest.Refused(t, describe(assumed), "")
	_, err = assumed.STS.GetSessionToken(ctx, &awssts.GetSessionTokenInput{})
	cloudtest.Refused(t, err, "AccessDenied") // only with long-term credentials
	if arn := cloudtest.Must[string](t)(whoami(assumed)); arn != "arn:aws:sts::123456789012:assumed-role/deploy/test" {
		t.Errorf("the role is %s", arn)
	}
	cloudtest.Refused(t, describe(l.With(*c.AccessKeyId, *c.SecretAccessKey, "forged")), "AuthFailure")
	// Sessions are kept over a restart of the daemon, in a private file.
	l.Account.Close()
	l.Open(t)
	assumed = l.With(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken)
	cloudtest.Refused(t, describe(assumed), "")
	if info, err := os.Stat(filepath.Join(l.Dir, "sts.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the sessions' file: %v, %v", info, err)
	}
	l.Clock.Advance(16 * time.Minute)
	cloudtest.Refused(t, describe(assumed), "RequestExpired")
	_, err = whoami(assumed)
	cloudtest.Refused(t, err, "ExpiredToken")
	_, err = assume("arn:aws:iam::999999999999:role/deploy")
	cloudtest.Refused(t, err, "AccessDenied")
	_, err = assume("deploy")
	cloudtest.Refused(t, err, "ValidationError")
}
