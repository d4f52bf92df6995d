package provider

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"golang.org/x/crypto/ssh"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/tunnel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// defaultUser is the login user of Debian's images.
const defaultUser = "admin"

// agentBudget is how long an SSH agent may take to list its keys.
const agentBudget = 5 * time.Second

func configureSSH(ctx context.Context, d *providerData, env environment, watch func(machine, command string, ended bool), m providerModel, diags *diag.Diagnostics) {
	s, _ := tf.Object[sshModel](ctx, m.SSH, diags)
	bastion, _ := tf.Object[bastionModel](ctx, s.Bastion, diags)
	d.sshUnknown = !tf.AllKnown(m.SSH)
	d.ssh.user = s.User.ValueString()
	if d.ssh.user == "" {
		d.ssh.user = defaultUser
	}

	if key, from := readPrivateKey(d, env, s, diags); len(key) > 0 {
		signer, err := ssh.ParsePrivateKey(key)
		if err != nil {
			diags.AddAttributeError(from, "Unusable SSH private key", keyProblem(err))
		} else {
			d.ssh.signers = append(d.ssh.signers, signer)
		}
	}
	if !d.sshUnknown {
		configureAgent(ctx, d, env, s, diags)
	}
	if !s.Bastion.IsNull() && !d.sshUnknown {
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
		d.ssh.bastion = b
	}
	var tunnels *remote.Tunnels
	if connect, _ := tf.Object[instanceConnectModel](ctx, s.InstanceConnect, diags); !s.InstanceConnect.IsNull() && !d.sshUnknown {
		d.ssh.tunnels = true
		tunnels = tunnel.New(tunnel.Config{
			EndpointID: connect.EndpointID.ValueString(), Duration: tf.Duration(connect.MaxTunnelDuration, 0),
			Client: func() (*infraaws.Client, error) { return d.aws(context.WithoutCancel(ctx)) },
		})
	}
	d.pool = remote.NewPool(remote.Config{
		Tunnels:        tunnels,
		Timing:         d.timing,
		Signers:        d.ssh.signers,
		Agent:          d.ssh.agent,
		ConnectTimeout: tf.Duration(s.ConnectTimeout, 0),
		Watch:          watch,
	})
}

// configureAgent chooses the key of the SSH agent, if the agent is to be used.
func configureAgent(ctx context.Context, d *providerData, env environment, s sshModel, diags *diag.Diagnostics) {
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
	if !asked && (!s.Agent.IsNull() || len(d.ssh.signers) > 0) {
		return
	}
	d.ssh.agent = remote.Agent{Socket: env.getenv("SSH_AUTH_SOCK"), Key: env.first(s.AgentKey, "K8S_SSH_AGENT_KEY")}
	if d.ssh.agent.Socket == "" {
		if asked {
			diags.AddAttributeError(where, "No SSH agent", "SSH_AUTH_SOCK is not set in the environment of Terraform. Start an agent, or set ssh.private_key instead.")
		}
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, agentBudget, fmt.Errorf("no answer within %s", agentBudget))
	defer cancel()
	key, err := d.ssh.agent.Choose(ctx)
	switch {
	case err == nil:
		// It stays the same one if the agent gets further keys meanwhile.
		d.ssh.agent.Key, d.ssh.agentKey = key.Fingerprint, key.Authorized()
	case !asked:
		d.ssh.agentErr = err
	case mustChoose(err):
		diags.AddAttributeError(at.AtName("agent_key"), noAgentKey, errorText(err))
	default:
		diags.AddAttributeError(where, "Cannot use the SSH agent", err.Error()+
			".\n\nSSH_AUTH_SOCK must be the socket of an agent that runs and holds the key. Add the key with ssh-add, or set ssh.private_key instead.")
	}
}

// readPrivateKey returns the key and the argument that it comes from.
func readPrivateKey(d *providerData, env environment, s sshModel, diags *diag.Diagnostics) ([]byte, path.Path) {
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
