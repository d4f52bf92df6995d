package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync/atomic"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	ststypes "github.com/aws/aws-sdk-go-v2/service/sts/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/timing"
)

// defaultMaxRetries is how often a call is retried after throttling or a temporary failure. It is
// the Terraform AWS provider's default.
const defaultMaxRetries = 25

// ErrNoRegion is returned by New when neither the configuration nor the environment names a region.
var ErrNoRegion = errors.New("no AWS region: set region, AWS_REGION or a profile that names one")

// Config says how to reach AWS. Empty fields come from the environment and the shared configuration
// files, as with the AWS CLI: AWS_REGION, AWS_PROFILE, AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL,
// AWS_ENDPOINT_URL_EC2 and so on.
type Config struct {
	Region, Profile string

	AccessKey, SecretKey, SessionToken string

	// SharedConfigFiles and SharedCredentialsFiles replace ~/.aws/config and ~/.aws/credentials.
	SharedConfigFiles, SharedCredentialsFiles []string

	WebIdentity *WebIdentity
	AssumeRole  *AssumeRole // with the credentials found, or with those of WebIdentity
	Endpoints   Endpoints
	DefaultTags map[string]string
	// MaxRetries is the number of retries of one call; zero means 25.
	MaxRetries int
	// RetryMode is "standard" (default) or "adaptive".
	RetryMode string
	// UserAgent is added to every request's User-Agent, as "name/version".
	UserAgent string
	// AnswerLimit is how long AWS may take to begin its answer to one attempt; zero means a minute. The SDK
	// has no limit, so that a lost connection would never end.
	AnswerLimit time.Duration
	// HTTPClient replaces the SDK's own for all services; nil means the SDK's.
	HTTPClient sdk.HTTPClient
	// Timing, if set, counts every attempt of a call, as "EC2 DescribeInstances".
	Timing *timing.Recorder
	// Refused, if set, is called for every attempt of a call that AWS refuses, with the call's
	// context. Calls run in parallel.
	Refused func(context.Context, Refusal)
}

// AssumeRole is the role whose credentials are used instead of the caller's own.
type AssumeRole struct {
	RoleARN, SessionName, ExternalID, Policy string

	SourceIdentity string            // aws:SourceIdentity of the session
	Tags           map[string]string // of the session: aws:PrincipalTag
	TransitiveTags []string          // keys of Tags that a role keeps which is assumed with the session
	// Duration is the lifetime of one set of credentials; zero means 15 minutes.
	Duration time.Duration
}

// WebIdentity is the role whose credentials the bearer of an OpenID Connect token gets.
type WebIdentity struct {
	RoleARN, SessionName, Policy string
	PolicyARNs                   []string
	// Token is the token itself. If it is empty, TokenFile is read whenever credentials are due.
	Token, TokenFile string
	// Duration is the lifetime of one set of credentials; zero means an hour.
	Duration time.Duration
}

// Endpoints replace the URLs of single services.
type Endpoints struct{ EC2, ELB, IAM, InstanceConnect, S3, SSM, STS string }

// Client holds the service clients and what they share. It is safe for concurrent use.
type Client struct {
	EC2    *ec2.Client
	ELB    *elb.Client // Elastic Load Balancing
	IAM    *iam.Client
	S3     *s3.Client
	SSM    *ssm.Client
	STS    *sts.Client
	Quotas *servicequotas.Client
	Region string
	Web    sdk.HTTPClient // for other servers: the same proxies and authorities

	// InstanceConnect is what tunnels need of the configuration.
	InstanceConnect instanceConnect

	defaultTags map[string]string
	retryers    retryers
	offers      Memo[string, []string] // zones by instance type
	subnetZones Memo[string, string]   // by the id of the subnet
	kept        kept

	changes atomic.Int64 // see Changes
}

// Changes counts the begins and ends of calls of this client that may change something in EC2.
func (c *Client) Changes() int64 { return c.changes.Load() }

// retryers are the services' retryers, for calls that wrap them.
type retryers struct{ ec2, elb, ssm sdk.Retryer }

// New returns a Client. It reads the environment and the shared configuration files but sends
// nothing, so wrong credentials show at the first call.
func New(ctx context.Context, c Config) (*Client, error) {
	opts := []func(*config.LoadOptions) error{
		config.WithRetryer(func() sdk.Retryer { return newRetryer(c) }),
		config.WithCredentialsCacheOptions(renewEarly),
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			t.ResponseHeaderTimeout = cmp.Or(c.AnswerLimit, time.Minute)
		})),
	}
	if c.Region != "" {
		opts = append(opts, config.WithRegion(c.Region))
	}
	if c.Profile != "" {
		opts = append(opts, config.WithSharedConfigProfile(c.Profile))
	}
	if len(c.SharedConfigFiles) > 0 {
		opts = append(opts, config.WithSharedConfigFiles(c.SharedConfigFiles))
	}
	if len(c.SharedCredentialsFiles) > 0 {
		opts = append(opts, config.WithSharedCredentialsFiles(c.SharedCredentialsFiles))
	}
	if c.AccessKey != "" || c.SecretKey != "" {
		opts = append(opts, config.WithCredentialsProvider(
			credentials.NewStaticCredentialsProvider(c.AccessKey, c.SecretKey, c.SessionToken)))
	}
	if c.UserAgent != "" {
		opts = append(opts, config.WithAppID(c.UserAgent))
	}
	loaded, err := config.LoadDefaultConfig(ctx, opts...)
	if missing, mfa := (config.SharedConfigProfileNotExistError{}), (config.AssumeRoleTokenProviderNotSetError{}); errors.As(err, &missing) || errors.As(err, &mfa) {
		return nil, &credentialsError{origin{profile: profileOf(c.Profile), files: filesOf(c)}, err}
	}
	if err != nil {
		return nil, fmt.Errorf("load the AWS configuration: %w", err)
	}
	if loaded.Region == "" {
		return nil, ErrNoRegion
	}
	if c.HTTPClient != nil {
		loaded.HTTPClient = c.HTTPClient // only now: AWS_CA_BUNDLE applies to the SDK's own client
	}
	loaded.HTTPClient = bounded{loaded.HTTPClient}
	if c.Timing != nil {
		loaded.APIOptions = append(loaded.APIOptions, countCalls(c.Timing))
	}
	if c.Refused != nil {
		loaded.APIOptions = append(loaded.APIOptions, reportRefusals(c.Refused))
	}

	loaded.Credentials = marked{loaded.Credentials, originOf(loaded, c.Profile)}
	newSTS := func(more ...func(*sts.Options)) *sts.Client {
		return sts.NewFromConfig(loaded, append(more, func(o *sts.Options) {
			o.BaseEndpoint = endpoint(c.Endpoints.STS, o.BaseEndpoint)
			o.APIOptions = append(o.APIOptions, nameDenied("sts"))
		})...)
	}
	stsClient := newSTS()
	if w := c.WebIdentity; w != nil && w.RoleARN != "" {
		loaded.Credentials = cached(stscreds.NewWebIdentityRoleProvider(newSTS(fewAttempts), w.RoleARN, w, func(o *stscreds.WebIdentityRoleOptions) {
			o.RoleSessionName, o.Duration = w.SessionName, w.Duration
			if w.Policy != "" {
				o.Policy = &w.Policy
			}
			for _, arn := range w.PolicyARNs {
				o.PolicyARNs = append(o.PolicyARNs, ststypes.PolicyDescriptorType{Arn: &arn})
			}
		}))
		stsClient = newSTS()
	}
	if r := c.AssumeRole; r != nil && r.RoleARN != "" {
		loaded.Credentials = cached(stscreds.NewAssumeRoleProvider(stsClient, r.RoleARN, func(o *stscreds.AssumeRoleOptions) {
			o.RoleSessionName = r.SessionName
			o.Duration = r.Duration
			if r.ExternalID != "" {
				o.ExternalID = &r.ExternalID
			}
			if r.Policy != "" {
				o.Policy = &r.Policy
			}
			if r.SourceIdentity != "" {
				o.SourceIdentity = &r.SourceIdentity
			}
			for _, key := range slices.Sorted(maps.Keys(r.Tags)) {
				o.Tags = append(o.Tags, ststypes.Tag{Key: &key, Value: sdk.String(r.Tags[key])})
			}
			o.TransitiveTagKeys = r.TransitiveTags
		}))
		stsClient = newSTS()
	}
	retryers := retryers{newRetryer(c), newRetryer(c), newRetryer(c)}
	newEC2 := func(more ...func(*middleware.Stack) error) *ec2.Client {
		return ec2.NewFromConfig(loaded, func(o *ec2.Options) {
			o.BaseEndpoint, o.Retryer = endpoint(c.Endpoints.EC2, o.BaseEndpoint), retryers.ec2
			o.APIOptions = append(append(o.APIOptions, nameDenied("ec2")), more...)
		})
	}
	plain := newEC2()
	client := &Client{
		ELB: elb.NewFromConfig(loaded, func(o *elb.Options) {
			o.BaseEndpoint, o.Retryer = endpoint(c.Endpoints.ELB, o.BaseEndpoint), retryers.elb
			o.APIOptions = append(o.APIOptions, nameDenied("elasticloadbalancing"))
		}),
		IAM: iam.NewFromConfig(loaded, func(o *iam.Options) {
			o.BaseEndpoint, o.Retryer = endpoint(c.Endpoints.IAM, o.BaseEndpoint), newRetryer(c)
			o.APIOptions = append(o.APIOptions, nameDenied("iam"))
		}),
		S3: s3.NewFromConfig(loaded, func(o *s3.Options) {
			o.BaseEndpoint, o.Retryer = endpoint(c.Endpoints.S3, o.BaseEndpoint), newRetryer(c)
			// S3 need not know a digest of an object: somebody else may have written it.
			o.DisableLogOutputChecksumValidationSkipped = true
			// An endpoint of one's own need not have a name for each bucket.
			o.UsePathStyle = o.BaseEndpoint != nil
			o.APIOptions = append(o.APIOptions, nameDenied("s3"))
		}),
		SSM: ssm.NewFromConfig(loaded, func(o *ssm.Options) {
			o.BaseEndpoint, o.Retryer = endpoint(c.Endpoints.SSM, o.BaseEndpoint), retryers.ssm
			o.APIOptions = append(o.APIOptions, nameDenied("ssm"), newSSMPacer().pace)
		}),
		Quotas: servicequotas.NewFromConfig(loaded, func(o *servicequotas.Options) {
			o.APIOptions = append(o.APIOptions, nameDenied("servicequotas"))
		}),
		STS:         stsClient,
		Region:      loaded.Region,
		Web:         loaded.HTTPClient,
		defaultTags: maps.Clone(c.DefaultTags),
		retryers:    retryers,
	}
	client.EC2 = newEC2(newEC2Pacer().pace, nameMissing(func(ctx context.Context, id string) error { return look(ctx, plain, id) }),
		noteChanges(func() { client.changes.Add(1) }))
	if client.InstanceConnect, err = newInstanceConnect(c.Endpoints.InstanceConnect, loaded); err != nil {
		return nil, err
	}
	return client, nil
}

// maxAnswer bounds one answer of AWS. The largest ones describe all images of an owner.
const maxAnswer = 64 << 20

// bounded bounds what is read of answers.
type bounded struct{ sdk.HTTPClient }

// Do implements sdk.HTTPClient.
func (b bounded) Do(r *http.Request) (*http.Response, error) {
	answer, err := b.HTTPClient.Do(r)
	if err == nil {
		answer.Body = foreign.Body(answer.Body, maxAnswer, "AWS ("+r.URL.Host+")")
	}
	return answer, err
}

// fewAttempts is for the call with a web identity token: the SDK retries it also when STS does not
// accept the token.
func fewAttempts(o *sts.Options) { o.Retryer = retry.AddWithMaxAttempts(o.Retryer, 4) }

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

// newRetryer returns what decides about retries. All calls of a service share one: in adaptive mode
// it paces them.
func newRetryer(c Config) sdk.Retryer {
	attempts := c.MaxRetries + 1
	if c.MaxRetries <= 0 {
		attempts = defaultMaxRetries + 1
	}
	standard := func(o *retry.StandardOptions) {
		o.MaxAttempts = attempts
		// The SDK's token bucket would end the retries of a whole apply after about a hundred.
		o.RateLimiter = ratelimit.None
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

// tunnelURL is the environment variable of the AWS SDKs for the service's URL.
const tunnelURL = "AWS_ENDPOINT_URL_EC2_INSTANCE_CONNECT"

// instanceConnect is what tunnels need of the configuration.
type instanceConnect struct {
	Credentials sdk.CredentialsProvider
	URL         *url.URL // where all DNS names of endpoints lead to; nil: where they lead to by DNS
}

func newInstanceConnect(own string, loaded sdk.Config) (instanceConnect, error) {
	out := instanceConnect{Credentials: loaded.Credentials}
	at := cmp.Or(own, os.Getenv(tunnelURL), sdk.ToString(loaded.BaseEndpoint))
	if at == "" {
		return out, nil
	}
	parsed, err := url.Parse(at)
	if err != nil {
		return out, fmt.Errorf("URL of EC2 Instance Connect: %w", err)
	}
	out.URL = parsed
	return out, nil
}
