package provider

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/bake"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// environment is what the provider reads from its surroundings.
type environment struct {
	Getenv   func(string) string
	ReadFile func(string) ([]byte, error)
}

// first returns the argument if it is set, else the first environment variable that is.
func (e environment) first(v types.String, names ...string) string {
	if s := v.ValueString(); s != "" {
		return s
	}
	for _, n := range names {
		if s := e.Getenv(n); s != "" {
			return s
		}
	}
	return ""
}

// path returns a path, which may begin with ~.
func (e environment) path(s string) string { return file.AtHome(s, e.Getenv("HOME")) }

// awsFiles returns the paths of an argument, or that of the environment if it begins with ~, which the SDK does not
// take.
func (e environment) awsFiles(given types.List, variable string) []string {
	all := tf.Strings(given.Elements())
	if s := e.Getenv(variable); len(all) == 0 && strings.HasPrefix(s, "~") {
		all = []string{s}
	}
	for i, s := range all {
		all[i] = e.path(s)
	}
	return all
}

func closeAll(all []*session.Session) error {
	var errs []error
	for _, d := range all {
		errs = append(errs, d.Pool.Close())
	}
	return errors.Join(errs...)
}

// Configure implements provider.Provider. It reads the environment and asks the SSH agent for its
// keys, but connects to no machine. It calls AWS only to compare the account with allowed_account_ids
// and forbidden_account_ids.
func (p *Provider) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var m providerModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	d := &session.Session{Timing: p.timings.recorder, Now: p.Now, Rand: rand.Reader, DefaultTags: m.DefaultTags, Successions: new(session.Successions)}
	configurePatience(d, p.Environment, m, &resp.Diagnostics)
	configureAWS(ctx, d, p.Environment, p.version, m, &resp.Diagnostics)
	configureEgress(ctx, d, m, &resp.Diagnostics) // before SSH, which takes its variables
	configureSSH(ctx, d, p.Environment, p.watch, m, &resp.Diagnostics)
	configureArtifacts(d, p.Environment, m, &resp.Diagnostics)
	d.Shell, d.Duty, d.Prepare = p.Shell, p.Duty, func(context.Context, remote.Host) {}
	if d.Duty == nil {
		d.Duty = func(ctx context.Context, t fleet.Target) (*maintenance.Duty, error) {
			return maintenance.Find(ctx, d.Fleet(ctx), t)
		}
	}
	if d.Bake = p.Bake; d.Bake == nil {
		d.Bake = func(s bake.Site) bake.Work { return s }
	}
	d.Works = maintenance.Works(d.Duty)
	if d.Shell == nil {
		d.Shell = func(h remote.Host) awsmachine.Shell { return d.Pool.Machine(h) }
		d.Prepare = func(ctx context.Context, h remote.Host) { d.Pool.Machine(h).Prepare(ctx) }
	}
	if !resp.Diagnostics.HasError() {
		checkAccount(ctx, d, m, &resp.Diagnostics)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	p.Sessions = append(p.Sessions, d)
	resp.ResourceData, resp.DataSourceData, resp.EphemeralResourceData, resp.ActionData, resp.ListResourceData = d, d, d, d, d
}

func configureAWS(ctx context.Context, d *session.Session, env environment, version string, m providerModel, diags *diag.Diagnostics) {
	role, _ := tf.Object[assumeRoleModel](ctx, m.AssumeRole, diags)
	web, _ := tf.Object[webIdentityModel](ctx, m.WebIdentity, diags)
	endpoints, _ := tf.Object[endpointsModel](ctx, m.Endpoints, diags)
	d.AWSUnknown = m.unknownForAWS()
	cfg := infraaws.Config{
		Region:       m.Region.ValueString(),
		Profile:      m.Profile.ValueString(),
		AccessKey:    m.AccessKey.ValueString(),
		SecretKey:    m.SecretKey.ValueString(),
		SessionToken: m.Token.ValueString(),
		MaxRetries:   int(m.MaxRetries.ValueInt64()),
		RetryMode:    m.RetryMode.ValueString(),
		DefaultTags:  tf.StringMap(m.DefaultTags),
		Endpoints: infraaws.Endpoints{EC2: endpoints.EC2.ValueString(), InstanceConnect: endpoints.InstanceConnect.ValueString(), ELB: endpoints.ELBV2.ValueString(),
			IAM: endpoints.IAM.ValueString(), S3: endpoints.S3.ValueString(), SSM: endpoints.SSM.ValueString(), STS: endpoints.STS.ValueString()},
		UserAgent: "terraform-provider-k8s-" + version,

		Refused: logRefusal,
		Timing:  d.Timing,

		SharedConfigFiles:      env.awsFiles(m.ConfigFiles, "AWS_CONFIG_FILE"),
		SharedCredentialsFiles: env.awsFiles(m.CredentialsFiles, "AWS_SHARED_CREDENTIALS_FILE"),
	}
	if web.RoleARN.ValueString() != "" {
		cfg.WebIdentity = &infraaws.WebIdentity{
			RoleARN:     web.RoleARN.ValueString(),
			SessionName: web.SessionName.ValueString(),
			Token:       web.Token.ValueString(),
			TokenFile:   env.path(web.TokenFile.ValueString()),
			Policy:      web.Policy.ValueString(),
			PolicyARNs:  tf.Strings(web.PolicyARNs.Elements()),
			Duration:    tf.Duration(web.Duration, 0),
		}
	}
	cfg.AssumeRole = role.config()
	ctx = context.WithoutCancel(ctx) // the client outlives the request that configures it
	d.LoadAWS = sync.OnceValues(func() (*infraaws.Client, error) { return infraaws.New(ctx, cfg) })
}

// unknownForAWS returns the arguments without whose values AWS is not asked, since another account, region or server
// might answer, as far as they are not known yet.
func (m providerModel) unknownForAWS() []string {
	var out []string
	for name, v := range map[string]attr.Value{
		"region": m.Region, "profile": m.Profile, "access_key": m.AccessKey, "secret_key": m.SecretKey, "token": m.Token,
		"assume_role": m.AssumeRole, "assume_role_with_web_identity": m.WebIdentity, "endpoints": m.Endpoints,
		"shared_config_files": m.ConfigFiles, "shared_credentials_files": m.CredentialsFiles,
		"allowed_account_ids": m.AllowedAccounts, "forbidden_account_ids": m.ForbiddenAccounts,
	} {
		if !tf.AllKnown(v) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// logRefusal logs a call that AWS refused, also when a retry makes it good.
func logRefusal(ctx context.Context, r infraaws.Refusal) {
	fields := map[string]any{"service": r.Service, "action": r.Action, "code": r.Code}
	if r.Encoded != "" {
		fields["encoded"] = r.Encoded
	}
	tflog.Debug(ctx, infraaws.RefusalMessage, fields)
}

// checkAccount compares the account of the credentials with those that are allowed.
func checkAccount(ctx context.Context, d *session.Session, m providerModel, diags *diag.Diagnostics) {
	allowed, forbidden := tf.Strings(m.AllowedAccounts.Elements()), tf.Strings(m.ForbiddenAccounts.Elements())
	if len(d.AWSUnknown) > 0 || len(allowed)+len(forbidden) == 0 {
		return
	}
	at := path.Root("allowed_account_ids")
	if len(forbidden) > 0 {
		at = path.Root("forbidden_account_ids")
	}
	client, err := d.LoadAWS()
	var account, arn string
	if err == nil {
		account, arn, err = d.Identity(ctx, client)
	}
	switch {
	case err != nil:
		diags.AddAttributeError(at, "Cannot find out the AWS account", session.ErrorText(err))
	case len(allowed) > 0 && !slices.Contains(allowed, account):
		diags.AddAttributeError(at, "AWS account not allowed", fmt.Sprintf("The credentials (%s) are for account %s, which is not one of %s. Nothing was read or changed.", arn, account, strings.Join(allowed, ", ")))
	case slices.Contains(forbidden, account):
		diags.AddAttributeError(at, "AWS account forbidden", fmt.Sprintf("The credentials (%s) are for account %s. Nothing was read or changed.", arn, account))
	}
}

func configureArtifacts(d *session.Session, env environment, m providerModel, diags *diag.Diagnostics) {
	var sums io.Reader
	d.ChecksumsUnknown = m.ArtifactChecksums.IsUnknown()
	if text := env.first(m.ArtifactChecksums, "K8S_ARTIFACT_CHECKSUMS"); text != "" && !d.ChecksumsUnknown {
		content := []byte(text)
		if !looksLikeChecksums(text) {
			var err error
			if content, err = env.ReadFile(env.path(text)); err != nil {
				diags.AddAttributeError(path.Root("artifact_checksums"), "Cannot read the checksums",
					"The value is neither lines of `<sha256>  <name>` nor the path of a file: "+err.Error())
				return
			}
		}
		sums = bytes.NewReader(content)
	}
	mirror := env.first(m.ArtifactMirror, "K8S_ARTIFACT_MIRROR")
	if u, err := url.Parse(mirror); err == nil && u.Scheme == "http" && sums == nil && !d.ChecksumsUnknown {
		diags.AddAttributeError(path.Root("artifact_mirror"), "Unencrypted artifact mirror without checksums",
			mirror+" is not encrypted: an attacker on the network can change a file and its checksum together.\n\n"+
				"Set artifact_checksums, or use an https:// mirror.")
		return
	}
	if err := artifact.CheckMirror(mirror); err != nil {
		diags.AddAttributeError(path.Root("artifact_mirror"), "Unusable artifact mirror", err.Error())
		return
	}
	client := &http.Client{Timeout: 30 * time.Second}
	catalog, err := artifact.NewCatalog(mirror, sums, client)
	if d.ChecksumsUnknown {
		catalog, err = artifact.NewUnpinned(client)
	}
	if err != nil {
		diags.AddAttributeError(path.Root("artifact_checksums"), "Unusable checksums", err.Error())
		return
	}
	d.Catalog = catalog
}

// looksLikeChecksums reports whether a value is the text of a SHA256SUMS file, and not the path of
// one.
func looksLikeChecksums(s string) bool {
	first, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	sum, _, found := strings.Cut(first, " ")
	return found && len(sum) == 64 || strings.Contains(s, "\n") || strings.HasPrefix(s, "#")
}
