package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"golang.org/x/crypto/ssh"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/tunnel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// defaultUser is the login user of Debian's images.
const defaultUser = "admin"

// agentBudget is how long an SSH agent may take to list its keys.
const agentBudget = 5 * time.Second

func configureSSH(ctx context.Context, d *session.Session, env environment, watch func(machine, command string, ended bool), m providerModel, diags *diag.Diagnostics) {
	s, _ := tf.Object[sshModel](ctx, m.SSH, diags)
	bastion, _ := tf.Object[bastionModel](ctx, s.Bastion, diags)
	d.SSHUnknown = !tf.AllKnown(m.SSH)
	d.SSH.User = s.User.ValueString()
	if d.SSH.User == "" {
		d.SSH.User = defaultUser
	}

	if key, from := readPrivateKey(d, env, s, diags); len(key) > 0 {
		signer, err := ssh.ParsePrivateKey(key)
		if err != nil {
			diags.AddAttributeError(from, "Unusable SSH private key", keyProblem(err))
		} else {
			d.SSH.Signers = append(d.SSH.Signers, signer)
		}
	}
	if !d.SSHUnknown {
		configureAgent(ctx, d, env, s, diags)
	}
	if !s.Bastion.IsNull() && !d.SSHUnknown {
		b := &remote.Host{
			Name:    "bastion",
			Address: bastion.Address.ValueString(),
			Port:    int(bastion.Port.ValueInt64()),
			User:    bastion.User.ValueString(),
		}
		diags.Append(bastion.HostKeys.ElementsAs(ctx, &b.HostKeys, false)...)
		if b.User == "" {
			b.User = d.SSH.User
		}
		d.SSH.Bastion = b
	}
	var tunnels *remote.Tunnels
	if connect, _ := tf.Object[instanceConnectModel](ctx, s.InstanceConnect, diags); !s.InstanceConnect.IsNull() && !d.SSHUnknown {
		d.SSH.Tunnels = true
		tunnels = tunnel.New(tunnel.Config{
			EndpointID: connect.EndpointID.ValueString(), Duration: tf.Duration(connect.MaxTunnelDuration, 0),
			Client: func() (*infraaws.Client, error) { return d.AWS(context.WithoutCancel(ctx)) },
		})
	}
	d.Pool = remote.NewPool(remote.Config{
		Tunnels:        tunnels,
		Timing:         d.Timing,
		Environment:    d.Proxy.Environment(),
		Signers:        d.SSH.Signers,
		Agent:          d.SSH.Agent,
		ConnectTimeout: tf.Duration(s.ConnectTimeout, patience.Of(patience.With(ctx, d.Patience), remote.DefaultConnectTimeout)),
		Watch:          watch,
	})
}

// configureAgent chooses the key of the SSH agent, if the agent is to be used.
func configureAgent(ctx context.Context, d *session.Session, env environment, s sshModel, diags *diag.Diagnostics) {
	at := path.Root("ssh")
	named := s.AgentKey.ValueString()
	asked, where := s.Agent.ValueBool(), at.AtName("agent")
	if named != "" && !asked {
		asked, where = true, at.AtName("agent_key")
	}
	if named != "" && !s.Agent.IsNull() && !s.Agent.ValueBool() {
		diags.AddAttributeError(where, "A key of an agent that is not used", "ssh.agent is false. Remove ssh.agent_key, or remove ssh.agent.")
		return
	}
	if !asked && (!s.Agent.IsNull() || len(d.SSH.Signers) > 0) {
		return
	}
	d.SSH.Agent = remote.Agent{Socket: env.Getenv("SSH_AUTH_SOCK"), Key: env.first(s.AgentKey, "K8S_SSH_AGENT_KEY")}
	if d.SSH.Agent.Socket == "" {
		if asked {
			diags.AddAttributeError(where, "No SSH agent", "SSH_AUTH_SOCK is not set in the environment of Terraform. Start an agent, or set ssh.private_key instead.")
		}
		return
	}
	budget := patience.Of(patience.With(ctx, d.Patience), agentBudget)
	ctx, cancel := context.WithTimeoutCause(ctx, budget, fmt.Errorf("no answer within %s", budget))
	defer cancel()
	key, err := d.SSH.Agent.Choose(ctx)
	switch {
	case err == nil:
		// It stays the same one if the agent gets further keys meanwhile.
		d.SSH.Agent.Key, d.SSH.AgentKey = key.Fingerprint, key.Authorized()
	case !asked:
		d.SSH.AgentErr = err
	case session.MustChoose(err):
		diags.AddAttributeError(at.AtName("agent_key"), session.NoAgentKey, session.ErrorText(err))
	default:
		diags.AddAttributeError(where, "Cannot use the SSH agent", err.Error()+
			".\n\nSSH_AUTH_SOCK must be the socket of an agent that runs and holds the key. Add the key with ssh-add, or set ssh.private_key instead.")
	}
}

// readPrivateKey returns the key and the argument that it comes from.
func readPrivateKey(d *session.Session, env environment, s sshModel, diags *diag.Diagnostics) ([]byte, path.Path) {
	at := path.Root("ssh")
	if s.PrivateKey.IsUnknown() || s.PrivateKeyFile.IsUnknown() {
		return nil, at
	}
	file := s.PrivateKeyFile.ValueString()
	if file == "" {
		if key := env.first(s.PrivateKey, "K8S_SSH_PRIVATE_KEY"); key != "" {
			return keyText(key), at.AtName("private_key")
		}
		file = env.Getenv("K8S_SSH_PRIVATE_KEY_FILE")
	}
	if file == "" {
		return nil, at
	}
	key, err := env.ReadFile(env.path(file))
	if err != nil {
		diags.AddAttributeError(at.AtName("private_key_file"), "Cannot read the SSH private key", err.Error())
		return nil, at
	}
	return keyText(string(key)), at.AtName("private_key_file")
}
