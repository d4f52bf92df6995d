package session

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
	User    string
	Signers []ssh.Signer
	// Agent is the SSH agent with the key to use. AgentKey is this key, AgentErr is why there is
	// none, if the configuration does not require the agent: then it is an error only for a
	// resource that needs SSH.
	Agent    remote.Agent
	AgentKey string // in authorized_keys form
	AgentErr error
	Bastion  *remote.Host
	// Tunnels says that all machines are reached through EC2 Instance Connect Endpoints.
	Tunnels bool
}

// Way returns how a host is reached: at its private address through a tunnel or the bastion, if there is
// one, else as h says. others are further addresses by which the bastion is recognised.
func (d *Session) Way(h remote.Host, private, instance string, others ...string) remote.Host {
	if d.SSH.Tunnels {
		h.Address, h.Instance = private, instance
		return h
	}
	return h.Behind(d.SSH.Bastion, private, others...)
}

// Connect connects to a machine of k8s_machine as its login user.
func (d *Session) Connect(m awsmachine.Machine, hostKeys []string) awsmachine.Shell {
	h := remote.Host{Name: m.Name, Address: m.Address().String(), User: m.User, HostKeys: hostKeys}
	return d.Shell(d.Way(h, m.PrivateIP.String(), m.ID))
}

// AuthorizedKeys returns the public keys that may log in to new machines: that of the private key,
// and the chosen one of the SSH agent.
func (d *Session) AuthorizedKeys() ([]string, error) {
	if d.SSHUnknown {
		return nil, ErrNotYetKnown
	}
	var out []string
	for _, s := range d.SSH.Signers {
		out = append(out, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.PublicKey()))))
	}
	switch {
	case d.SSH.AgentKey != "":
		out = append(out, d.SSH.AgentKey)
	case MustChoose(d.SSH.AgentErr):
		return nil, d.SSH.AgentErr
	case d.SSH.AgentErr != nil:
		return nil, fmt.Errorf("%w: %w", errNoKey, d.SSH.AgentErr)
	}
	if len(out) == 0 {
		return nil, errNoKey
	}
	return out, nil
}

// MustChoose reports whether err says that the SSH agent has keys, and none of them is the one to
// use.
func MustChoose(err error) bool {
	var choice *remote.AgentKeyError
	return errors.As(err, &choice) && len(choice.Keys) > 0
}

const NoAgentKey = "No key of the SSH agent is chosen"

// CheckAgentKey adds an error if a key of the SSH agent has to be chosen first. Whatever needs SSH
// calls it in the plan. Only the first call adds the error, since it is about the provider and not
// about one resource.
func (d *Session) CheckAgentKey(diags *diag.Diagnostics) {
	if MustChoose(d.SSH.AgentErr) && d.FirstWarning("key of the SSH agent") {
		AddError(diags, NoAgentKey, d.SSH.AgentErr)
	}
}

// WarnOfUnknownSSH reports whether machines cannot be asked because the provider's ssh is not known yet. The first
// call warns of that.
func (d *Session) WarnOfUnknownSSH(diags *diag.Diagnostics) bool {
	if d.SSHUnknown && d.FirstWarning("ssh of the provider") {
		diags.AddWarning("The machines are not compared", "The provider's ssh depends on what is known only after the apply. The last known state is kept.")
	}
	return d.SSHUnknown
}
