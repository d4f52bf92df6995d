package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// DefaultMaxRetries is how often a call is retried after throttling or a temporary failure. It is
// the Terraform AWS provider's default.
const DefaultMaxRetries = 25

// ErrNoRegion is returned by New when neither the configuration nor the environment names a region.
var ErrNoRegion = errors.New("no AWS region: set region, AWS_REGION or a profile that names one")

// Config says how to reach AWS. Empty fields come from the environment and the shared configuration
// files, as with the AWS CLI: AWS_REGION, AWS_PROFILE, AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL,
// AWS_ENDPOINT_URL_EC2 and so on.
type Config struct {
	Region, Profile string

	AccessKey, SecretKey, SessionToken string

	AssumeRole  *AssumeRole
	Endpoints   Endpoints
	DefaultTags map[string]string
	// MaxRetries is the number of retries of one call; zero means DefaultMaxRetries.
	MaxRetries int
	// RetryMode is "standard" (default) or "adaptive".
	RetryMode string
	// UserAgent is added to every request's User-Agent, as "name/version".
	UserAgent string
	// HTTPClient replaces the SDK's own for EC2, SSM and STS; nil means the SDK's.
	HTTPClient sdk.HTTPClient
}

// AssumeRole is the role whose credentials are used instead of the caller's own.
type AssumeRole struct {
	RoleARN, SessionName, ExternalID, Policy string
	// Duration is the lifetime of one set of credentials; zero means 15 minutes.
	Duration time.Duration
}

// Endpoints replace the URLs of single services.
type Endpoints struct{ EC2, SSM, STS string }

// Client holds the service clients and what they share. It is safe for concurrent use.
type Client struct {
	EC2    *ec2.Client
	SSM    *ssm.Client
	STS    *sts.Client
	Region string

	defaultTags map[string]string
	retryer     sdk.Retryer
	images      imageCache
}

// New returns a Client. It reads the environment and the shared configuration files but sends
// nothing, so wrong credentials show at the first call.
func New(ctx context.Context, c Config) (*Client, error) {
	opts := []func(*config.LoadOptions) error{
		config.WithRetryer(func() sdk.Retryer { return standardRetryer(c) }),
	}
	if c.Region != "" {
		opts = append(opts, config.WithRegion(c.Region))
	}
	if c.Profile != "" {
		opts = append(opts, config.WithSharedConfigProfile(c.Profile))
	}
	if c.AccessKey != "" || c.SecretKey != "" {
		opts = append(opts, config.WithCredentialsProvider(
			credentials.NewStaticCredentialsProvider(c.AccessKey, c.SecretKey, c.SessionToken)))
	}
	if c.UserAgent != "" {
		opts = append(opts, config.WithAppID(c.UserAgent))
	}
	loaded, err := config.LoadDefaultConfig(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("load the AWS configuration: %w", err)
	}
	if loaded.Region == "" {
		return nil, ErrNoRegion
	}
	if c.HTTPClient != nil {
		loaded.HTTPClient = c.HTTPClient // only now: AWS_CA_BUNDLE applies to the SDK's own client
	}

	loaded.Credentials = marked{loaded.Credentials}
	stsClient := sts.NewFromConfig(loaded, func(o *sts.Options) { o.BaseEndpoint = endpoint(c.Endpoints.STS, o.BaseEndpoint) })
	if r := c.AssumeRole; r != nil && r.RoleARN != "" {
		loaded.Credentials = sdk.NewCredentialsCache(stscreds.NewAssumeRoleProvider(stsClient, r.RoleARN, func(o *stscreds.AssumeRoleOptions) {
			o.RoleSessionName = r.SessionName
			o.Duration = r.Duration
			if r.ExternalID != "" {
				o.ExternalID = &r.ExternalID
			}
			if r.Policy != "" {
				o.Policy = &r.Policy
			}
		}))
		loaded.Credentials = marked{loaded.Credentials}
		stsClient = sts.NewFromConfig(loaded, func(o *sts.Options) { o.BaseEndpoint = endpoint(c.Endpoints.STS, o.BaseEndpoint) })
	}
	return &Client{
		EC2:         ec2.NewFromConfig(loaded, func(o *ec2.Options) { o.BaseEndpoint = endpoint(c.Endpoints.EC2, o.BaseEndpoint) }),
		SSM:         ssm.NewFromConfig(loaded, func(o *ssm.Options) { o.BaseEndpoint = endpoint(c.Endpoints.SSM, o.BaseEndpoint) }),
		STS:         stsClient,
		Region:      loaded.Region,
		defaultTags: maps.Clone(c.DefaultTags),
		retryer:     standardRetryer(c),
	}, nil
}

// marked marks the errors of a provider of credentials, for which the SDK has no type.
type marked struct{ sdk.CredentialsProvider }

func (m marked) Retrieve(ctx context.Context) (sdk.Credentials, error) {
	c, err := m.CredentialsProvider.Retrieve(ctx)
	if err != nil {
		err = &credentialsError{err}
	}
	return c, err
}

// credentialsError reports that there are no credentials, and why.
type credentialsError struct{ error }

func (e *credentialsError) Unwrap() error { return e.error }

// Caller returns the account and the ARN the credentials belong to.
func (c *Client) Caller(ctx context.Context) (account, arn string, err error) {
	out, err := c.STS.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return "", "", fmt.Errorf("ask AWS who the caller is: %w", err)
	}
	return sdk.ToString(out.Account), sdk.ToString(out.Arn), nil
}

func endpoint(own string, fallback *string) *string {
	if own != "" {
		return &own
	}
	return fallback
}

func standardRetryer(c Config) sdk.Retryer {
	attempts := c.MaxRetries + 1
	if c.MaxRetries <= 0 {
		attempts = DefaultMaxRetries + 1
	}
	standard := func(o *retry.StandardOptions) {
		o.MaxAttempts = attempts
		// Lack of capacity or quota is HTTP 500 on some calls, and retries do not help.
		o.Retryables = append([]retry.IsErrorRetryable{notRetryable{codes: map[string]bool{
			"InsufficientInstanceCapacity":      true,
			"InsufficientAddressCapacity":       true,
			"InsufficientFreeAddressesInSubnet": true,
			"InsufficientVolumeCapacity":        true,
		}}}, o.Retryables...)
	}
	if sdk.RetryMode(c.RetryMode) == sdk.RetryModeAdaptive {
		return retry.NewAdaptiveMode(func(o *retry.AdaptiveModeOptions) {
			o.StandardOptions = append(o.StandardOptions, standard)
		})
	}
	return retry.NewStandard(standard)
}

// notRetryable stops retries that the SDK would make for the HTTP status alone.
type notRetryable struct{ codes map[string]bool }

func (n notRetryable) IsErrorRetryable(err error) sdk.Ternary {
	if n.codes[ErrorCode(err)] {
		return sdk.FalseTernary
	}
	return sdk.UnknownTernary
}
