package aws

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
)

// Where credentials come from, why there are none, and how to get some.

// GetIdentityToken implements stscreds.IdentityTokenRetriever.
func (w *WebIdentity) GetIdentityToken() ([]byte, error) {
	if w.Token != "" {
		return []byte(strings.TrimSpace(w.Token)), nil
	}
	token, err := stscreds.IdentityTokenFile(w.TokenFile).GetIdentityToken()
	if err != nil {
		return nil, fmt.Errorf("web identity token: %w", err)
	}
	return bytes.TrimSpace(token), nil
}

// renewEarly renews temporary credentials a minute before they expire. So a call that was signed
// before does not arrive too late.
func renewEarly(o *sdk.CredentialsCacheOptions) { o.ExpiryWindow = time.Minute }

// cached keeps a role's credentials until they are about to expire.
func cached(p sdk.CredentialsProvider) sdk.CredentialsProvider {
	return marked{sdk.NewCredentialsCache(p, renewEarly), origin{}}
}

// marked marks the errors of a provider of credentials, for which the SDK has no type.
type marked struct {
	sdk.CredentialsProvider
	origin origin
}

func (m marked) Retrieve(ctx context.Context) (sdk.Credentials, error) {
	c, err := m.CredentialsProvider.Retrieve(ctx)
	if err == nil {
		return c, nil
	}
	var inner *credentialsError
	if errors.As(err, &inner) { // those with which a role is to be assumed
		return c, inner
	}
	return c, &credentialsError{m.origin, err}
}

// origin is where credentials come from, as far as a person can change it.
type origin struct {
	profile string   // empty if no profile has a part in it
	files   []string // where profiles were looked for
	sources []sdk.CredentialSource
}

// originOf returns the origin of the credentials that the SDK has chosen.
func originOf(loaded sdk.Config, profile string) origin {
	out := origin{profile: profileOf(profile)}
	if from, ok := loaded.Credentials.(sdk.CredentialProviderSource); ok {
		out.sources = from.ProviderSources()
	}
	return out
}

// filesOf returns the files with profiles.
func filesOf(c Config) []string {
	or := func(given []string, variable, name string) []string {
		if len(given) > 0 {
			return given
		}
		return []string{cmp.Or(os.Getenv(variable), "~/.aws/"+name)}
	}
	return slices.Concat(or(c.SharedConfigFiles, "AWS_CONFIG_FILE", "config"), or(c.SharedCredentialsFiles, "AWS_SHARED_CREDENTIALS_FILE", "credentials"))
}

// profileOf returns the name of the profile that is used, by the configuration or the environment.
func profileOf(profile string) string {
	return cmp.Or(profile, os.Getenv("AWS_PROFILE"), os.Getenv("AWS_DEFAULT_PROFILE"), config.DefaultSharedConfigProfile)
}

func (o origin) has(sources ...sdk.CredentialSource) bool {
	return slices.ContainsFunc(o.sources, func(s sdk.CredentialSource) bool { return slices.Contains(sources, s) })
}

// option returns the option of the AWS CLI for the profile.
func (o origin) option() string {
	if o.profile == config.DefaultSharedConfigProfile {
		return ""
	}
	return " --profile " + o.profile
}

// credentialsError reports that there are no credentials, and why.
type credentialsError struct {
	origin origin
	err    error
}

func (e *credentialsError) Error() string { return "no AWS credentials: " + e.text() }

// text returns the cause, without what the SDK says of its own parts.
func (e *credentialsError) text() string {
	var missing config.SharedConfigProfileNotExistError
	var mfa config.AssumeRoleTokenProviderNotSetError
	switch {
	case errors.As(e.err, &missing):
		return fmt.Sprintf("there is no profile %s in %s", missing.Profile, strings.Join(e.origin.files, " or "))
	case errors.As(e.err, &mfa):
		return fmt.Sprintf("profile %s needs the code of an MFA device (mfa_serial), and the provider cannot ask for it", e.origin.profile)
	}
	if cause := errors.Unwrap(e.err); cause != nil { // what the SDK's cache wraps
		return cause.Error()
	}
	return e.err.Error()
}

func (e *credentialsError) Unwrap() error { return e.err }

// Unconfigured reports whether AWS was not asked, for want of a region or of credentials.
func Unconfigured(err error) bool {
	if errors.Is(err, ErrNoRegion) {
		return true
	}
	// A role that cannot be assumed is an answer of AWS, and has a code.
	unavailable := (*credentialsError)(nil)
	return errors.As(err, &unavailable) && ErrorCode(err) == "" && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

// again is the end of the advice on credentials that have to be renewed.
const again = "; then run this again, and it continues where it stopped."

// adviceOnCredentials says how to get credentials. It is empty if there is advice for the code of
// AWS's answer.
func adviceOnCredentials(err error) string {
	var failed *credentialsError
	if !errors.As(err, &failed) {
		return ""
	}
	from, code := failed.origin, ErrorCode(err)
	var missing config.SharedConfigProfileNotExistError
	var mfa config.AssumeRoleTokenProviderNotSetError
	switch {
	case errors.As(err, &missing):
		return "`aws configure list-profiles` shows the profiles: correct profile or AWS_PROFILE, or name the files that have it with shared_config_files and shared_credentials_files."
	case errors.As(err, &mfa):
		return fmt.Sprintf("Get a session in this shell first: run `eval \"$(aws configure export-credentials%s --format env)\"`, which asks for the code. "+
			"Set no profile in the provider block: it takes the session from the environment then.", from.option())
	case IsCode(err, deniedCodes...):
		return "The role cannot be assumed. Its trust policy must name this caller, and external_id if it asks for one, and allow sts:TagSession and sts:SetSourceIdentity for tags and source_identity; and the caller's own policy must allow all of it. " +
			"`aws sts get-caller-identity` shows who the caller is. Check role_arn, also in the profile."
	case from.has(sdk.CredentialSourceSSO, sdk.CredentialSourceSSOLegacy) && code == "ForbiddenException":
		return fmt.Sprintf("The IAM Identity Center does not give you sso_role_name in sso_account_id of profile %s: `aws configure sso` shows what it gives you.", from.profile)
	case from.has(sdk.CredentialSourceSSO, sdk.CredentialSourceSSOLegacy) && (code == "" || code == "UnauthorizedException" || code == "InvalidGrantException"):
		return fmt.Sprintf("Sign in again: run `aws sso login%s`", from.option()) + again
	case from.has(sdk.CredentialSourceLogin):
		return fmt.Sprintf("Sign in again: run `aws login%s`", from.option()) + again
	case from.has(sdk.CredentialSourceProcess) && code == "":
		return fmt.Sprintf("Run the command that credential_process of profile %s names yourself: it must end without an error and without a question, and print the credentials as JSON.", from.profile)
	case code == "" && Unconfigured(err):
		return "No AWS credentials were found: set access_key and secret_key, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or profile."
	}
	return ""
}
