package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// Agent is an SSH agent, of which one key is used. Its other keys are never offered to a machine:
// sshd ends a connection after MaxAuthTries keys, 6 by default (sshd_config(5)).
type Agent struct {
	Socket string // path of the agent's socket; empty: no agent
	// Key names the key: its comment, its fingerprint as "SHA256:...", or its public key in
	// authorized_keys form. If it is empty, the agent must hold exactly one key.
	Key string
}

// AgentKey is a key of an SSH agent.
type AgentKey struct {
	Type        string // "ssh-ed25519"
	Fingerprint string // "SHA256:..."
	Comment     string
	blob        []byte
}

// String returns the key for people, like a line of ssh-add -l.
func (k AgentKey) String() string {
	comment := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, k.Comment)
	return strings.Join(strings.Fields(k.Fingerprint+" "+comment+" ("+k.Type+")"), " ")
}

// Authorized returns the public key in authorized_keys form, without the comment.
func (k AgentKey) Authorized() string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(&agent.Key{Format: k.Type, Blob: k.blob})))
}

// certificate reports whether the key is a user certificate. OpenSSH adds one beside its key.
func (k AgentKey) certificate() bool { return strings.Contains(k.Type, "-cert-v0") }

// usable reports whether sshd accepts the key with its default settings.
func (k AgentKey) usable() bool {
	switch k.Type {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoRSA, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
		ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256:
		return true
	}
	return false
}

// is reports whether the key has the name. Blanks around the name do not count.
func (k AgentKey) is(name string) bool {
	name = strings.TrimSpace(name)
	if public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(name)); err == nil {
		return string(public.Marshal()) == string(k.blob)
	}
	return name == k.Fingerprint || name == strings.TrimSpace(k.Comment)
}

// AgentKeyError says that the key to use cannot be chosen among those of the SSH agent. Retrying
// never helps.
type AgentKeyError struct {
	Wanted   string     // [Agent.Key]
	Keys     []AgentKey // all keys of the agent
	Matching []AgentKey // those that Wanted names; without Wanted, those that could be used
}

func (e *AgentKeyError) Error() string {
	switch {
	case len(e.Keys) == 0:
		return "the SSH agent holds no key"
	case len(e.Matching) > 1 && e.Wanted == "":
		return fmt.Sprintf("the SSH agent holds %d keys, and none is chosen:%s", len(e.Matching), listKeys(e.Matching))
	case len(e.Matching) > 1:
		return fmt.Sprintf("%d keys of the SSH agent have the name %q:%s", len(e.Matching), e.Wanted, listKeys(e.Matching))
	case len(e.Matching) == 1 && e.Matching[0].certificate():
		return fmt.Sprintf("%s of the SSH agent is a certificate, and machines authorise keys", e.Matching[0])
	case len(e.Matching) == 1:
		return fmt.Sprintf("%s of the SSH agent is of a type that sshd does not accept", e.Matching[0])
	case e.Wanted == "":
		return "the SSH agent holds no key of a type that sshd accepts:" + listKeys(e.Keys)
	default:
		return fmt.Sprintf("the SSH agent holds no key with the name %q:%s", e.Wanted, listKeys(e.Keys))
	}
}

func listKeys(keys []AgentKey) string {
	var out strings.Builder
	for _, k := range keys {
		out.WriteString("\n  " + k.String())
	}
	return out.String()
}

// Choose asks the agent for its keys and returns the one to use. The error is an [*AgentKeyError]
// if there is not exactly one.
func (a Agent) Choose(ctx context.Context) (AgentKey, error) {
	client, done, err := a.open(ctx)
	if err != nil {
		return AgentKey{}, err
	}
	defer done()
	key, err := a.choose(client)
	if err != nil && ctx.Err() != nil {
		return AgentKey{}, fmt.Errorf("ask the SSH agent for its keys: %w", context.Cause(ctx))
	}
	return key, err
}

// signer returns what signs with the key to use, until the returned function is called.
func (a Agent) signer(ctx context.Context) (ssh.Signer, func(), error) {
	client, done, err := a.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	key, err := a.choose(client)
	if err != nil {
		done()
		return nil, nil, err
	}
	held, err := client.Signers()
	if err != nil {
		done()
		return nil, nil, fmt.Errorf("ask the SSH agent for its keys: %w", err)
	}
	at := slices.IndexFunc(held, func(s ssh.Signer) bool { return string(s.PublicKey().Marshal()) == string(key.blob) })
	if at < 0 {
		done()
		return nil, nil, errors.New("the SSH agent has just lost the key to use")
	}
	return held[at], done, nil
}

// open connects to the agent until ctx ends or the returned function is called.
func (a Agent) open(ctx context.Context) (agent.ExtendedAgent, func(), error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", a.Socket)
	if err != nil {
		return nil, nil, fmt.Errorf("ask the SSH agent: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	return agent.NewClient(conn), func() { stop(); conn.Close() }, nil
}

func (a Agent) choose(client agent.ExtendedAgent) (AgentKey, error) {
	list, err := client.List()
	if err != nil {
		return AgentKey{}, fmt.Errorf("ask the SSH agent for its keys: %w", err)
	}
	bad := &AgentKeyError{Wanted: a.Key}
	for _, k := range list {
		bad.Keys = append(bad.Keys, AgentKey{Type: k.Format, Fingerprint: ssh.FingerprintSHA256(k), Comment: k.Comment, blob: k.Blob})
	}
	matching := bad.Keys
	if a.Key != "" {
		matching = keep(matching, func(k AgentKey) bool { return k.is(a.Key) })
	}
	// A certificate has the comment of its key.
	bad.Matching = keep(matching, AgentKey.usable)
	if len(bad.Matching) == 1 {
		return bad.Matching[0], nil
	}
	if len(bad.Matching) == 0 && a.Key != "" {
		bad.Matching = matching[:min(len(matching), 1)]
	}
	return AgentKey{}, bad
}

func keep(keys []AgentKey, wanted func(AgentKey) bool) []AgentKey {
	return slices.DeleteFunc(slices.Clone(keys), func(k AgentKey) bool { return !wanted(k) })
}
