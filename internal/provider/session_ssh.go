package provider

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"golang.org/x/crypto/ssh"

	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// errNoKey is returned when a machine must be created and there is no SSH key to log in with.
var errNoKey = errors.New("no SSH key: set ssh.private_key, K8S_SSH_PRIVATE_KEY or K8S_SSH_PRIVATE_KEY_FILE, or run an SSH agent")

// sshConfig is how machines are reached.
type sshConfig struct {
	user    string
	signers []ssh.Signer
	// agent is the SSH agent with the key to use. agentKey is this key, agentErr why there is none
	// although the agent was not asked for in the configuration: that is an error only for who
	// needs SSH.
	agent    remote.Agent
	agentKey string // in authorized_keys form
	agentErr error
	bastion  *remote.Host
	// tunnels says that all machines are reached through EC2 Instance Connect Endpoints.
	tunnels bool
}

// way returns how a host is reached: at its private address through a tunnel or the bastion, if there is
// one, else as h says. others are further addresses by which the bastion is recognised.
func (d *providerData) way(h remote.Host, private, instance string, others ...string) remote.Host {
	if d.ssh.tunnels {
		h.Address, h.Instance = private, instance
		return h
	}
	return h.Behind(d.ssh.bastion, private, others...)
}

// connect connects to a machine of k8s_machine as its login user.
func (d *providerData) connect(m awsmachine.Machine, hostKeys []string) awsmachine.Shell {
	h := remote.Host{Name: m.Name, Address: m.Address().String(), User: m.User, HostKeys: hostKeys}
	return d.shell(d.way(h, m.PrivateIP.String(), m.ID))
}

// authorizedKeys returns the public keys that may log in to new machines: that of the private key,
// and the chosen one of the SSH agent.
func (d *providerData) authorizedKeys() ([]string, error) {
	if d.sshUnknown {
		return nil, errNotYetKnown
	}
	var out []string
	for _, s := range d.ssh.signers {
		out = append(out, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.PublicKey()))))
	}
	switch {
	case d.ssh.agentKey != "":
		out = append(out, d.ssh.agentKey)
	case mustChoose(d.ssh.agentErr):
		return nil, d.ssh.agentErr
	case d.ssh.agentErr != nil:
		return nil, fmt.Errorf("%w: %w", errNoKey, d.ssh.agentErr)
	}
	if len(out) == 0 {
		return nil, errNoKey
	}
	return out, nil
}

// mustChoose reports whether err says that the SSH agent has keys, and none of them is the one to
// use.
func mustChoose(err error) bool {
	var choice *remote.AgentKeyError
	return errors.As(err, &choice) && len(choice.Held) > 0
}

const noAgentKey = "No key of the SSH agent is chosen"

// checkAgentKey adds an error if a key of the SSH agent has to be chosen first. Whatever needs SSH
// calls it in the plan. Only the first call adds the error, since it is about the provider and not
// about one resource.
func (d *providerData) checkAgentKey(diags *diag.Diagnostics) {
	if mustChoose(d.ssh.agentErr) && d.firstWarning("key of the SSH agent") {
		addError(diags, noAgentKey, d.ssh.agentErr)
	}
}
