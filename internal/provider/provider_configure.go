package provider

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// defaultUser is the login user of Debian's images.
const defaultUser = "admin"

// errNotYetKnown is returned when a provider argument is needed whose value is known only after
// other resources were applied. It can happen only during a plan.
var errNotYetKnown = errors.New("the provider's configuration is not known yet")

// errNoKey is returned when a machine must be created and there is no SSH key to log in with.
var errNoKey = errors.New("no SSH key: set ssh.private_key, K8S_SSH_PRIVATE_KEY or K8S_SSH_PRIVATE_KEY_FILE, or run an SSH agent")

// environment is what the provider reads from its surroundings.
type environment struct {
	getenv   func(string) string
	readFile func(string) ([]byte, error)
}

// first returns the argument if it is set, else the first environment variable that is.
func (e environment) first(v types.String, names ...string) string {
	if s := v.ValueString(); s != "" {
		return s
	}
	for _, n := range names {
		if s := e.getenv(n); s != "" {
			return s
		}
	}
	return ""
}

// providerData is what every resource gets from the provider. It is safe for concurrent use.
type providerData struct {
	// pool holds the SSH connections of this provider. It is closed at exit.
	pool *remote.Pool
	// shell connects to one machine. It is the pool's, except in tests.
	shell func(remote.Host) infraaws.Shell
	// duty finds out what a machine does for its cluster. It is that of package maintenance, except
	// in tests.
	duty    findDutyFunc
	ssh     sshConfig
	catalog *artifact.Catalog
	now     func() time.Time
	rand    io.Reader

	loadAWS     func() (*infraaws.Client, error) // called once
	awsUnknown  bool                             // an AWS argument is not known yet
	sshUnknown  bool
	defaultTags types.Map // as configured; may be unknown while planning

	// warned holds the machines for which this run has printed a warning.
	warned sync.Map
	// clusters holds, by cluster, which machine may go down next.
	clusters maintenance.Clusters
}

type sshConfig struct {
	user        string
	signers     []ssh.Signer
	agentSocket string
	bastion     *remote.Host
}

// aws returns the AWS client. It is created at its first use, so that a configuration without AWS
// needs no credentials.
func (d *providerData) aws(context.Context) (*infraaws.Client, error) {
	if d.awsUnknown {
		return nil, errNotYetKnown
	}
	return d.loadAWS()
}

// awsForRead is aws for a refresh. ok is false if there is no client. That is an error with the
// given title, unless the configuration is not known yet; then the state stays as it is.
func (d *providerData) awsForRead(ctx context.Context, title string, diags *diag.Diagnostics) (client *infraaws.Client, ok bool) {
	client, err := d.aws(ctx)
	if err != nil && !errors.Is(err, errNotYetKnown) {
		addError(diags, title, err)
	}
	return client, err == nil
}

// store opens the key store that a reference points to.
func (d *providerData) store(ref pki.Ref) (pki.Store, error) {
	switch ref.Store {
	case pki.StoreSSM:
		client, err := d.loadAWS()
		if err != nil {
			return nil, err
		}
		return client.KeyStore(infraaws.KeyStoreConfig{Cluster: ref.Cluster, Prefix: ref.Prefix, KMSKeyID: ref.KMSKeyID, Region: ref.Region}), nil
	case pki.StoreState:
		return ref.MemoryStore(), nil
	default:
		return nil, fmt.Errorf("unknown key store %q", ref.Store)
	}
}

// firstWarning reports whether no warning was printed for this machine yet.
func (d *providerData) firstWarning(machine string) bool {
	_, warned := d.warned.LoadOrStore(machine, true)
	return !warned
}

// connect connects to a machine of k8s_machine as its login user, through the bastion if there is
// one.
func (d *providerData) connect(m infraaws.Machine, hostKeys []string) infraaws.Shell {
	h := remote.Host{Name: m.Name, Address: m.Address().String(), User: m.User, HostKeys: hostKeys}
	if d.ssh.bastion != nil {
		h.Bastion, h.Address = d.ssh.bastion, m.PrivateIP.String()
	}
	return d.shell(h)
}

// authorizedKeys returns the public keys that may log in to new machines.
func (d *providerData) authorizedKeys(ctx context.Context) ([]string, error) {
	if d.sshUnknown {
		return nil, errNotYetKnown
	}
	var out []string
	for _, s := range d.ssh.signers {
		out = append(out, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.PublicKey()))))
	}
	if d.ssh.agentSocket != "" {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", d.ssh.agentSocket)
		if err != nil {
			return nil, fmt.Errorf("reach the SSH agent: %w", err)
		}
		defer conn.Close()
		keys, err := agent.NewClient(conn).List()
		if err != nil {
			return nil, fmt.Errorf("ask the SSH agent for its keys: %w", err)
		}
		for _, k := range keys {
			out = append(out, strings.TrimSpace(k.String()))
		}
	}
	if len(out) == 0 {
		return nil, errNoKey
	}
	return out, nil
}

// tagsAll returns the default tags overridden by a resource's own, or unknown if one of them is
// unknown.
func (d *providerData) tagsAll(own types.Map) types.Map {
	if d.defaultTags.IsUnknown() || !tf.AllKnown(own, d.defaultTags) {
		return types.MapUnknown(types.StringType)
	}
	all := map[string]string{}
	maps.Copy(all, tf.StringMap(d.defaultTags))
	maps.Copy(all, tf.StringMap(own))
	return tf.StringMapValue(all)
}

func closeAll(all []*providerData) error {
	var errs []error
	for _, d := range all {
		errs = append(errs, d.pool.Close())
	}
	return errors.Join(errs...)
}

// base is embedded by every resource, data source and ephemeral resource.
type base struct{ data *providerData }

// Configure implements resource.ResourceWithConfigure.
func (b *base) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	b.configure(req.ProviderData)
}

func (b *base) configure(v any) {
	if d, ok := v.(*providerData); ok {
		b.data = d
	}
}

// Configure implements provider.Provider. It reads the environment, but opens no connection and
// calls no AWS API.
func (p *Provider) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var m providerModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	d := &providerData{now: p.now, rand: rand.Reader, defaultTags: m.DefaultTags}
	d.configureAWS(ctx, p.version, m, &resp.Diagnostics)
	d.configureSSH(ctx, p.environment, m, &resp.Diagnostics)
	d.configureArtifacts(p.environment, m, &resp.Diagnostics)
	d.shell, d.duty = p.shell, p.duty
	if d.duty == nil {
		d.duty = func(ctx context.Context, t fleet.Target) (*maintenance.Duty, error) {
			return maintenance.Find(ctx, d.fleet(ctx), t)
		}
	}
	if d.shell == nil {
		d.shell = func(h remote.Host) infraaws.Shell { return d.pool.Machine(h) }
	}
	if resp.Diagnostics.HasError() {
		return
	}
	p.data = append(p.data, d)
	resp.ResourceData, resp.DataSourceData, resp.EphemeralResourceData = d, d, d
}

func (d *providerData) configureAWS(ctx context.Context, version string, m providerModel, diags *diag.Diagnostics) {
	role, _ := tf.Object[assumeRoleModel](ctx, m.AssumeRole, diags)
	endpoints, _ := tf.Object[endpointsModel](ctx, m.Endpoints, diags)
	for _, v := range []attr.Value{
		m.Region, m.Profile, m.AccessKey, m.SecretKey, m.Token, m.MaxRetries, m.RetryMode, m.DefaultTags, m.AssumeRole, m.Endpoints,
		role.RoleARN, role.SessionName, role.ExternalID, role.Policy, role.Duration, endpoints.EC2, endpoints.SSM, endpoints.STS,
	} {
		d.awsUnknown = d.awsUnknown || v.IsUnknown()
	}
	if !m.AssumeRole.IsNull() && role.RoleARN.IsNull() {
		diags.AddAttributeError(path.Root("assume_role").AtName("role_arn"), "Missing role_arn", "Set role_arn in the block assume_role.")
	}
	cfg := infraaws.Config{
		Region:       m.Region.ValueString(),
		Profile:      m.Profile.ValueString(),
		AccessKey:    m.AccessKey.ValueString(),
		SecretKey:    m.SecretKey.ValueString(),
		SessionToken: m.Token.ValueString(),
		MaxRetries:   int(m.MaxRetries.ValueInt64()),
		RetryMode:    m.RetryMode.ValueString(),
		DefaultTags:  tf.StringMap(m.DefaultTags),
		Endpoints:    infraaws.Endpoints{EC2: endpoints.EC2.ValueString(), SSM: endpoints.SSM.ValueString(), STS: endpoints.STS.ValueString()},
		UserAgent:    "terraform-provider-k8s-" + version,
	}
	if role.RoleARN.ValueString() != "" {
		cfg.AssumeRole = &infraaws.AssumeRole{
			RoleARN:     role.RoleARN.ValueString(),
			SessionName: role.SessionName.ValueString(),
			ExternalID:  role.ExternalID.ValueString(),
			Policy:      role.Policy.ValueString(),
			Duration:    tf.Duration(role.Duration, 0),
		}
	}
	ctx = context.WithoutCancel(ctx) // the client outlives the request that configures it
	d.loadAWS = sync.OnceValues(func() (*infraaws.Client, error) { return infraaws.New(ctx, cfg) })
}

func (d *providerData) configureSSH(ctx context.Context, env environment, m providerModel, diags *diag.Diagnostics) {
	s, _ := tf.Object[sshModel](ctx, m.SSH, diags)
	bastion, _ := tf.Object[bastionModel](ctx, s.Bastion, diags)
	for _, v := range []attr.Value{
		m.SSH, s.PrivateKey, s.PrivateKeyFile, s.Agent, s.User, s.ConnectTimeout, s.Bastion,
		bastion.Address, bastion.Port, bastion.User, bastion.HostKeys,
	} {
		d.sshUnknown = d.sshUnknown || v.IsUnknown()
	}
	d.ssh.user = s.User.ValueString()
	if d.ssh.user == "" {
		d.ssh.user = defaultUser
	}

	at := path.Root("ssh")
	if key, from := d.readPrivateKey(env, s, diags); len(key) > 0 {
		signer, err := ssh.ParsePrivateKey(key)
		if err != nil {
			diags.AddAttributeError(from, "Unusable SSH private key", keyProblem(err))
		} else {
			d.ssh.signers = append(d.ssh.signers, signer)
		}
	}
	socket := env.getenv("SSH_AUTH_SOCK")
	switch {
	case s.Agent.ValueBool() && socket == "":
		diags.AddAttributeError(at.AtName("agent"), "No SSH agent", "ssh.agent is true, but SSH_AUTH_SOCK is not set in the environment of Terraform. Start an agent, or set ssh.private_key.")
	case s.Agent.ValueBool(), s.Agent.IsNull() && len(d.ssh.signers) == 0 && !d.sshUnknown:
		d.ssh.agentSocket = socket
	}
	if !s.Bastion.IsNull() && !s.Bastion.IsUnknown() {
		b := &remote.Host{
			Name:    "bastion",
			Address: bastion.Address.ValueString(),
			Port:    int(bastion.Port.ValueInt64()),
			User:    bastion.User.ValueString(),
		}
		diags.Append(bastion.HostKeys.ElementsAs(ctx, &b.HostKeys, false)...)
		if b.User == "" {
			b.User = d.ssh.user
		}
		if bastion.Address.IsNull() || bastion.HostKeys.IsNull() {
			diags.AddAttributeError(at.AtName("bastion"), "Incomplete bastion", "Set address and host_keys in the block ssh.bastion.")
		}
		d.ssh.bastion = b
	}
	d.pool = remote.NewPool(remote.Config{
		Signers:        d.ssh.signers,
		AgentSocket:    d.ssh.agentSocket,
		ConnectTimeout: tf.Duration(s.ConnectTimeout, 0),
	})
}

// readPrivateKey returns the key and the argument that it comes from.
func (d *providerData) readPrivateKey(env environment, s sshModel, diags *diag.Diagnostics) ([]byte, path.Path) {
	at := path.Root("ssh")
	if s.PrivateKey.IsUnknown() || s.PrivateKeyFile.IsUnknown() {
		return nil, at
	}
	file := s.PrivateKeyFile.ValueString()
	if file == "" {
		if key := env.first(s.PrivateKey, "K8S_SSH_PRIVATE_KEY"); key != "" {
			return []byte(strings.TrimSpace(key) + "\n"), at.AtName("private_key")
		}
		file = env.getenv("K8S_SSH_PRIVATE_KEY_FILE")
	}
	if file == "" {
		return nil, at
	}
	key, err := env.readFile(file)
	if err != nil {
		diags.AddAttributeError(at.AtName("private_key_file"), "Cannot read the SSH private key", err.Error())
	}
	return key, at.AtName("private_key_file")
}

func (d *providerData) configureArtifacts(env environment, m providerModel, diags *diag.Diagnostics) {
	var sums io.Reader
	if text := env.first(m.ArtifactChecksums, "K8S_ARTIFACT_CHECKSUMS"); text != "" {
		content := []byte(text)
		if !looksLikeChecksums(text) {
			var err error
			if content, err = env.readFile(text); err != nil {
				diags.AddAttributeError(path.Root("artifact_checksums"), "Cannot read the checksums",
					"The value is neither lines of `<sha256>  <name>` nor the path of a file: "+err.Error())
				return
			}
		}
		sums = bytes.NewReader(content)
	}
	mirror := env.first(m.ArtifactMirror, "K8S_ARTIFACT_MIRROR")
	if u, err := url.Parse(mirror); err == nil && u.Scheme == "http" && sums == nil && !m.ArtifactChecksums.IsUnknown() {
		diags.AddAttributeError(path.Root("artifact_mirror"), "Unencrypted artifact mirror without checksums",
			mirror+" is not encrypted: an attacker on the network can change a file and its checksum together.\n\n"+
				"Set artifact_checksums, or use an https:// mirror.")
		return
	}
	if err := artifact.CheckMirror(mirror); err != nil {
		diags.AddAttributeError(path.Root("artifact_mirror"), "Unusable artifact mirror", err.Error())
		return
	}
	catalog, err := artifact.NewCatalog(mirror, sums, &http.Client{Timeout: 30 * time.Second})
	if err != nil {
		diags.AddAttributeError(path.Root("artifact_checksums"), "Unusable checksums", err.Error())
		return
	}
	d.catalog = catalog
}

// looksLikeChecksums reports whether a value is the text of a SHA256SUMS file, and not the path of
// one.
func looksLikeChecksums(s string) bool {
	first, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	sum, _, found := strings.Cut(first, " ")
	return found && len(sum) == 64 || strings.Contains(s, "\n") || strings.HasPrefix(s, "#")
}
