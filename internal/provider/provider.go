// Package provider is the Terraform side of the project: the provider's own schema, its configuration, and the
// list of what it serves. Resources are in the packages below it, by family. None of them makes decisions about
// clusters; whatever a Go program would also need belongs in infra.
package provider

import (
	"context"
	"os"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-jsontypes/jsontypes"
	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/functions"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

var (
	_ provider.Provider                       = (*Provider)(nil)
	_ provider.ProviderWithEphemeralResources = (*Provider)(nil)
	_ provider.ProviderWithActions            = (*Provider)(nil)
	_ provider.ProviderWithFunctions          = (*Provider)(nil)
	_ provider.ProviderWithListResources      = (*Provider)(nil)
)

// Provider is the provider k8s-from-scratch/k8s. Its exported fields are for tests, which set them before it is
// configured.
type Provider struct {
	version string
	// Environment is what the provider reads from its surroundings.
	Environment environment
	// Now is the clock by which certificates are issued and checked.
	Now func() time.Time
	// Shell connects to a machine; nil means by the connection pool.
	Shell func(remote.Host) awsmachine.Shell
	// Duty finds out what a machine does for its cluster; nil means by package maintenance.
	Duty session.FindDuty
	// Bake returns what does the work on a machine that becomes an image, in place of the given site; nil means the site.
	Bake session.Bake
	// Sessions are what it has given to its resources, one for each time that it was configured.
	Sessions []*session.Session

	watch   func(machine, command string, ended bool)
	timings timings
}

// New returns the provider. Close it when it stops serving.
func New(version string) *Provider { return NewAt(version, time.Now) }

// NewAt is New with the caller's clock, by which certificates are issued and checked.
func NewAt(version string, now func() time.Time) *Provider {
	return &Provider{version: version, Now: now, Environment: environment{Getenv: os.Getenv, ReadFile: os.ReadFile}}
}

// NewWatched is New for tests of interruptions: watch is told of every command that changes
// something on a machine, before it starts and after it has ended.
func NewWatched(version string, watch func(machine, command string, ended bool)) *Provider {
	p := New(version)
	p.watch = watch
	return p
}

// Close ends the provider's SSH connections.
func (p *Provider) Close() error { return closeAll(p.Sessions) }

// Metadata implements provider.Provider.
func (p *Provider) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName = "k8s"
	resp.Version = p.version
}

// Resources implements provider.Provider.
func (p *Provider) Resources(context.Context) []func() resource.Resource { return resources() }

// DataSources implements provider.Provider.
func (p *Provider) DataSources(context.Context) []func() datasource.DataSource { return dataSources() }

// EphemeralResources implements provider.ProviderWithEphemeralResources.
func (p *Provider) EphemeralResources(context.Context) []func() ephemeral.EphemeralResource {
	return ephemeralResources()
}

// Actions implements provider.ProviderWithActions.
func (p *Provider) Actions(context.Context) []func() action.Action { return actions() }

// ListResources implements provider.ProviderWithListResources.
func (p *Provider) ListResources(context.Context) []func() list.ListResource { return lists() }

// Functions implements provider.ProviderWithFunctions.
func (p *Provider) Functions(context.Context) []func() function.Function { return functions.All() }

type providerModel struct {
	Region             types.String `tfsdk:"region"`
	Profile            types.String `tfsdk:"profile"`
	AccessKey          types.String `tfsdk:"access_key"`
	SecretKey          types.String `tfsdk:"secret_key"`
	Token              types.String `tfsdk:"token"`
	MaxRetries         types.Int64  `tfsdk:"max_retries"`
	RetryMode          types.String `tfsdk:"retry_mode"`
	DefaultTags        types.Map    `tfsdk:"default_tags"`
	ArtifactMirror     types.String `tfsdk:"artifact_mirror"`
	ArtifactChecksums  types.String `tfsdk:"artifact_checksums"`
	MachineProxy       types.Object `tfsdk:"machine_proxy"`
	MachineAuthorities types.String `tfsdk:"machine_authorities"`
	AssumeRole         types.Object `tfsdk:"assume_role"`
	WebIdentity        types.Object `tfsdk:"assume_role_with_web_identity"`
	ConfigFiles        types.List   `tfsdk:"shared_config_files"`
	CredentialsFiles   types.List   `tfsdk:"shared_credentials_files"`
	AllowedAccounts    types.Set    `tfsdk:"allowed_account_ids"`
	ForbiddenAccounts  types.Set    `tfsdk:"forbidden_account_ids"`
	Endpoints          types.Object `tfsdk:"endpoints"`
	SSH                types.Object `tfsdk:"ssh"`
	Patience           types.Number `tfsdk:"patience"`
}

type webIdentityModel struct {
	RoleARN     types.String         `tfsdk:"role_arn"`
	SessionName types.String         `tfsdk:"session_name"`
	Token       types.String         `tfsdk:"web_identity_token"`
	TokenFile   types.String         `tfsdk:"web_identity_token_file"`
	Policy      jsontypes.Normalized `tfsdk:"policy"`
	PolicyARNs  types.Set            `tfsdk:"policy_arns"`
	Duration    timetypes.GoDuration `tfsdk:"duration"`
}

type endpointsModel struct {
	EC2             types.String `tfsdk:"ec2"`
	InstanceConnect types.String `tfsdk:"ec2_instance_connect"`
	ELBV2           types.String `tfsdk:"elbv2"`
	IAM             types.String `tfsdk:"iam"`
	S3              types.String `tfsdk:"s3"`
	SSM             types.String `tfsdk:"ssm"`
	STS             types.String `tfsdk:"sts"`
}

type sshModel struct {
	PrivateKey      types.String         `tfsdk:"private_key"`
	PrivateKeyFile  types.String         `tfsdk:"private_key_file"`
	Agent           types.Bool           `tfsdk:"agent"`
	AgentKey        types.String         `tfsdk:"agent_key"`
	User            types.String         `tfsdk:"user"`
	ConnectTimeout  timetypes.GoDuration `tfsdk:"connect_timeout"`
	Bastion         types.Object         `tfsdk:"bastion"`
	InstanceConnect types.Object         `tfsdk:"instance_connect"`
}

type instanceConnectModel struct {
	EndpointID        types.String         `tfsdk:"endpoint_id"`
	MaxTunnelDuration timetypes.GoDuration `tfsdk:"max_tunnel_duration"`
}

type bastionModel struct {
	Address  types.String `tfsdk:"address"`
	Port     types.Int64  `tfsdk:"port"`
	User     types.String `tfsdk:"user"`
	HostKeys types.List   `tfsdk:"host_keys"`
}

// Schema implements provider.Provider.
func (p *Provider) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Builds Kubernetes clusters from their parts on AWS EC2, or on any machines reachable by SSH, and repairs every difference from the configuration: certificates, systemd " +
			"units, etcd, control plane, load balancer and workers.",
		Attributes: map[string]schema.Attribute{
			"shared_config_files": schema.ListAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Paths of AWS configuration files, read instead of `~/.aws/config`. With several dynamic credentials in Terraform Cloud, the path that " +
					"`tfc_aws_dynamic_credentials` names. Default: `AWS_CONFIG_FILE`.",
				Validators: []validator.List{listvalidator.SizeAtLeast(1), listvalidator.ValueStringsAre(stringvalidator.LengthAtLeast(1))},
			},
			"shared_credentials_files": schema.ListAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Paths of AWS credentials files, read instead of `~/.aws/credentials`. Default: `AWS_SHARED_CREDENTIALS_FILE`.",
				Validators:          []validator.List{listvalidator.SizeAtLeast(1), listvalidator.ValueStringsAre(stringvalidator.LengthAtLeast(1))},
			},
			"allowed_account_ids": schema.SetAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Ids of the AWS accounts in which the provider may work. Under credentials of another account it stops before it reads or writes anything. Default: every account.",
				Validators: []validator.Set{
					setvalidator.SizeAtLeast(1), setvalidator.ValueStringsAre(accountID()), setvalidator.ConflictsWith(path.MatchRoot("forbidden_account_ids")),
				},
			},
			"forbidden_account_ids": schema.SetAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Ids of the AWS accounts in which the provider must not work. Default: none.",
				Validators:          []validator.Set{setvalidator.SizeAtLeast(1), setvalidator.ValueStringsAre(accountID())},
			},
			"assume_role_with_web_identity": schema.SingleNestedAttribute{
				Optional: true,
				MarkdownDescription: "IAM role to assume with an OpenID Connect token, as CI systems and Terraform Cloud give it to a run. Without it, the role and token of `AWS_ROLE_ARN` and " +
					"`AWS_WEB_IDENTITY_TOKEN_FILE` are used if they are set. With `assume_role` as well, that role is assumed with this one. Default: none.",
				Attributes: map[string]schema.Attribute{
					"role_arn":     schema.StringAttribute{Required: true, MarkdownDescription: "ARN of the role."},
					"session_name": schema.StringAttribute{Optional: true, MarkdownDescription: "Session name. Default: one chosen by the AWS SDK."},
					"web_identity_token": schema.StringAttribute{
						Optional: true, Sensitive: true,
						MarkdownDescription: "The token, a JSON Web Token. May be ephemeral. Exactly one of this and `web_identity_token_file` is set.",
						Validators:          []validator.String{stringvalidator.ExactlyOneOf(webIdentity.AtName("web_identity_token"), webIdentity.AtName("web_identity_token_file"))},
					},
					"web_identity_token_file": schema.StringAttribute{
						Optional:            true,
						MarkdownDescription: "Path of a file with the token. It is read again whenever new credentials are due, so that a long apply outlives a token.",
					},
					"policy": schema.StringAttribute{Optional: true, CustomType: jsontypes.NormalizedType{}, MarkdownDescription: "IAM policy (JSON) that restricts the session further. Default: none."},
					"policy_arns": schema.SetAttribute{
						Optional: true, ElementType: types.StringType,
						MarkdownDescription: "ARNs of IAM policies that restrict the session further. Default: none.",
					},
					"duration": schema.StringAttribute{
						Optional: true, CustomType: timetypes.GoDurationType{},
						MarkdownDescription: "Lifetime of the temporary credentials, as a duration such as `1h`. They are renewed before they expire. Default: `1h`.",
						Validators:          []validator.String{tf.PositiveDuration()},
					},
				},
			},
			"region": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "AWS region. Default: `AWS_REGION`, `AWS_DEFAULT_REGION`, or the region of the profile.",
			},
			"profile": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "Profile in the shared AWS configuration files. Default: `AWS_PROFILE`.",
			},
			"access_key": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "AWS access key. Default: `AWS_ACCESS_KEY_ID`, else what the AWS SDK finds.",
				Validators:          []validator.String{stringvalidator.AlsoRequires(path.MatchRoot("secret_key"))},
			},
			"secret_key": schema.StringAttribute{
				Optional: true, Sensitive: true,
				MarkdownDescription: "AWS secret key. May be ephemeral. Default: `AWS_SECRET_ACCESS_KEY`.",
				Validators:          []validator.String{stringvalidator.AlsoRequires(path.MatchRoot("access_key"))},
			},
			"token": schema.StringAttribute{
				Optional: true, Sensitive: true,
				MarkdownDescription: "AWS session token of temporary credentials. May be ephemeral. Default: `AWS_SESSION_TOKEN`.",
			},
			"max_retries": schema.Int64Attribute{
				Optional:            true,
				MarkdownDescription: "How often each AWS call is retried after throttling or a temporary failure. Default: 25.",
				Validators:          []validator.Int64{int64validator.AtLeast(1)},
			},
			"retry_mode": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "Retry mode of the AWS SDK: `standard`, or `adaptive`, which also slows down its calls while AWS throttles. Default: `standard`.",
				Validators:          []validator.String{stringvalidator.OneOf("standard", "adaptive")},
			},
			"default_tags": schema.MapAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Tags for every AWS object that the provider creates. A resource's own `tags` override them. Changed in place. Default: none.",
				Validators:          argument.TagValidators(),
			},
			"artifact_mirror": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Base URL from which the machines download release files instead of from upstream. A file's URL is `<mirror>/<upstream host>/<upstream path>`. An " +
					"`http://` mirror requires `artifact_checksums`. Default: `K8S_ARTIFACT_MIRROR`, else upstream.",
				Validators: []validator.String{tf.HTTPURL()},
			},
			"artifact_checksums": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "SHA-256 checksums of release files in the format of `sha256sum`, with names relative to the mirror's root. The value is the text itself or the path " +
					"of a file. They override the checksums that are built into the provider. Default: `K8S_ARTIFACT_CHECKSUMS`.",
			},
			"machine_proxy":       proxyAttribute(),
			"machine_authorities": authoritiesAttribute(),
			"assume_role":         assumeRoleAttribute(),
			"patience": schema.NumberAttribute{
				Optional:            true,
				MarkdownDescription: "Factor for slow machines and networks: every wait of the provider, and every default of `timeouts`, may take so many times as long. Between 1 and 100. Default: `K8S_PATIENCE`, else 1.",
				Validators:          []validator.Number{patienceFactor{}},
			},
			"endpoints": schema.SingleNestedAttribute{
				Optional: true,
				MarkdownDescription: "URLs of AWS services, for VPC endpoints or a local EC2. Default: the environment variables of the AWS SDK, such as `AWS_ENDPOINT_URL_EC2` and " +
					"`AWS_ENDPOINT_URL`.",
				Attributes: map[string]schema.Attribute{
					"ec2": schema.StringAttribute{Optional: true, MarkdownDescription: "URL of EC2.", Validators: []validator.String{tf.HTTPURL()}},
					"ec2_instance_connect": schema.StringAttribute{
						Optional: true, MarkdownDescription: "URL at which all EC2 Instance Connect Endpoints are reached, instead of by their DNS names. Default: `AWS_ENDPOINT_URL_EC2_INSTANCE_CONNECT`, else `AWS_ENDPOINT_URL`.",
						Validators: []validator.String{tf.HTTPURL()},
					},
					"elbv2": schema.StringAttribute{Optional: true, MarkdownDescription: "URL of Elastic Load Balancing, version 2.", Validators: []validator.String{tf.HTTPURL()}},
					"iam":   schema.StringAttribute{Optional: true, MarkdownDescription: "URL of IAM.", Validators: []validator.String{tf.HTTPURL()}},
					"s3": schema.StringAttribute{
						Optional: true, MarkdownDescription: "URL of S3, where the copies of keys and the documents of issuers are. Buckets are part of the path there, not of the host's name.",
						Validators: []validator.String{tf.HTTPURL()},
					},
					"ssm": schema.StringAttribute{Optional: true, MarkdownDescription: "URL of Systems Manager.", Validators: []validator.String{tf.HTTPURL()}},
					"sts": schema.StringAttribute{Optional: true, MarkdownDescription: "URL of the Security Token Service.", Validators: []validator.String{tf.HTTPURL()}},
				},
			},
			"ssh": sshAttribute(),
		},
	}
}

// webIdentity is the path of assume_role_with_web_identity.
var webIdentity = path.MatchRoot("assume_role_with_web_identity")
