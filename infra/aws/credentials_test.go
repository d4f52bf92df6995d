package aws

import (
	"crypto/sha1" //nolint:gosec // the AWS CLI names the files of its cache so
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"
)

// TestCredentialsOfPeople: credentials that are missing, have expired or need an answer say what to run.
func TestCredentialsOfPeople(t *testing.T) {
	home := t.TempDir()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "") // it comes back after the test
			os.Unsetenv(name)
		}
	}
	t.Setenv("HOME", home)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(home, ".aws", "config")) // the SDK asks for HOME when the process starts
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(home, ".aws", "credentials"))
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(home, ".aws", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const session = "[sso-session work]\nsso_start_url = https://example.awsapps.com/start\nsso_region = eu-central-1\nsso_registration_scopes = sso:account:access\n"
	sso := func(name string) string {
		return fmt.Sprintf("[%s]\nsso_session = work\nsso_account_id = 123456789012\nsso_role_name = admin\n", name)
	}
	write("config", session+sso("default")+sso("profile dev")+`[profile old]
sso_start_url = https://example.awsapps.com/start
sso_region = eu-central-1
sso_account_id = 123456789012
sso_role_name = admin
[profile through-dev]
role_arn = arn:aws:iam::123456789012:role/x
source_profile = dev
[profile keys]
aws_access_key_id = AKIAEXAMPLE
aws_secret_access_key = secret
[profile mfa]
role_arn = arn:aws:iam::123456789012:role/x
source_profile = keys
mfa_serial = arn:aws:iam::123456789012:mfa/phone
[profile program]
credential_process = false
[profile rubbish]
credential_process = echo no
[profile good]
credential_process = echo '{"Version":1,"AccessKeyId":"AKIAEXAMPLE","SecretAccessKey":"secret"}'
`)
	expired := sha1.Sum([]byte("work")) //nolint:gosec // see above
	write(filepath.Join("sso", "cache", hex.EncodeToString(expired[:])+".json"), `{"accessToken":"x","expiresAt":"2020-01-01T00:00:00Z"}`)
	for _, tt := range []struct {
		name, profile string
		env           map[string]string
		says, advises []string
	}{
		{"a profile that does not exist", "nope", nil, []string{"no AWS credentials: there is no profile nope in ", filepath.Join(home, ".aws", "config")}, []string{"aws configure list-profiles"}},
		{"one of the environment", "", map[string]string{"AWS_PROFILE": "gone"}, []string{"there is no profile gone"}, []string{"AWS_PROFILE"}},
		{"a code of a device", "mfa", nil, []string{"profile mfa needs the code of an MFA device (mfa_serial)"}, []string{`eval "$(aws configure export-credentials --profile mfa --format env)"`, "Set no profile in the provider block"}},
		{"an expired session", "dev", nil, []string{"no AWS credentials: ", "expired"}, []string{"run `aws sso login --profile dev`;"}},
		{"of the environment", "", map[string]string{"AWS_PROFILE": "dev"}, nil, []string{"run `aws sso login --profile dev`;"}},
		{"of the default profile", "", nil, nil, []string{"run `aws sso login`;"}},
		{"without a session", "old", nil, []string{"SSO session"}, []string{"run `aws sso login --profile old`;"}},
		{"a role with an expired session", "through-dev", nil, nil, []string{"run `aws sso login --profile through-dev`;"}},
		{"a program that fails", "program", nil, []string{"exit status 1"}, []string{"credential_process of profile program"}},
		{"a program that prints something else", "rubbish", nil, nil, []string{"credential_process of profile rubbish", "JSON"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			c, err := New(t.Context(), Config{Region: "eu-central-1", Profile: tt.profile, Endpoints: Endpoints{STS: "http://127.0.0.1:1"}, MaxRetries: 1})
			if err == nil {
				_, _, err = c.Caller(t.Context())
			}
			if err == nil || !Unconfigured(err) {
				t.Fatalf("%v", err)
			}
			t.Log(err, "\n", Advice(err))
			for _, want := range tt.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in %s", want, err)
				}
			}
			for _, want := range tt.advises {
				if !strings.Contains(Advice(err), want) {
					t.Errorf("%q is not in %s", want, Advice(err))
				}
			}
			if strings.Contains(Advice(err), "set access_key") || tt.profile != "through-dev" && strings.Contains(err.Error(), "get identity") || strings.Contains(err.Error(), "AssumeRoleTokenProvider") {
				t.Errorf("%s\n%s", err, Advice(err))
			}
		})
	}

	for name, env := range map[string]map[string]string{
		"the session of a device": {"AWS_PROFILE": "mfa", "AWS_ACCESS_KEY_ID": "ASIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "token"},
		"a program":               {"AWS_PROFILE": "good"},
	} {
		t.Run(name, func(t *testing.T) {
			for name, value := range env {
				t.Setenv(name, value)
			}
			c, err := New(t.Context(), Config{Region: "eu-central-1"})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := c.InstanceConnect.Credentials.Retrieve(t.Context()); err != nil || got.SecretAccessKey != "secret" {
				t.Errorf("%v, %v", got.Source, err)
			}
		})
	}
}

// TestAnswersAboutCredentials: the advice follows what was asked for credentials.
func TestAnswersAboutCredentials(t *testing.T) {
	code := func(c string) error { return &smithy.GenericAPIError{Code: c, Message: c} }
	sso := origin{profile: "dev", sources: []sdk.CredentialSource{sdk.CredentialSourceProfileSSO, sdk.CredentialSourceSSO}}
	for _, tt := range []struct {
		err  error
		says string
	}{
		{&credentialsError{sso, code("UnauthorizedException")}, "aws sso login --profile dev"},
		{&credentialsError{sso, code("ForbiddenException")}, "does not give you sso_role_name in sso_account_id of profile dev"},
		{&credentialsError{sso, code("AccessDenied")}, "The role cannot be assumed"},
		{&credentialsError{origin{}, code("AccessDenied")}, "The role cannot be assumed"},
		{&credentialsError{origin{}, code("ExpiredTokenException")}, "The credentials have expired"},
		{&credentialsError{origin{}, code("InvalidIdentityToken")}, "AWS does not accept the web identity token"},
		{code("ExpiredToken"), "The credentials have expired"},
		{code("InvalidToken"), "The credentials have expired"},
		{code("RequestTimeTooSkewed"), "The clock of this computer is wrong"},
		{code("AuthFailure"), "the clock of this computer is right, and that the account uses this region"},
		{code("AuthFailure"), "`aws account enable-region --region-name REGION` enables it"},
		{code("OptInRequired"), "The account has not enabled this region"},
	} {
		wrapped := fmt.Errorf("make it: %w", NameAction(fmt.Errorf("operation error EC2: %w", tt.err), "ec2:CreateVpc"))
		if got := Advice(wrapped); !strings.Contains(got, tt.says) {
			t.Errorf("%v: %q, wanted %q", tt.err, got, tt.says)
		}
		if none := (*credentialsError)(nil); errors.As(tt.err, &none) && strings.Contains(wrapped.Error(), "EC2") {
			t.Errorf("it names what was not asked: %v", wrapped)
		}
	}
}
