package remote

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// serveAgent serves an SSH agent and returns its socket.
func serveAgent(t *testing.T, a agent.Agent) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _ = agent.ServeAgent(a, c) }()
		}
	}()
	return socket
}

// hold adds a new key to the agent.
func hold(t *testing.T, a agent.Agent, key any, err error, comment string) ssh.PublicKey {
	t.Helper()
	if err == nil {
		err = a.Add(agent.AddedKey{PrivateKey: key, Comment: comment})
	}
	if err != nil {
		t.Fatal(err)
	}
	return signer(t, key, nil).PublicKey()
}

func holdEd25519(t *testing.T, a agent.Agent, comment string) ssh.PublicKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return hold(t, a, key, err, comment)
}

// TestAgentOneKey checks that only the chosen key is offered, although the machine would end the
// connection after more.
func TestAgentOneKey(t *testing.T) {
	keyring := agent.NewKeyring()
	for range 7 {
		holdEd25519(t, keyring, "other")
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	rsaPublic := hold(t, keyring, rsaKey, err, "old")
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ecPublic := hold(t, keyring, ecKey, err, "new")
	socket := serveAgent(t, keyring)
	for name, public := range map[string]ssh.PublicKey{"old": rsaPublic, "new": ecPublic} {
		s := newServer(t, newSigner(t), public, func(c *ssh.ServerConfig) { c.MaxAuthTries = 1 })
		for _, key := range []string{name, ssh.FingerprintSHA256(public), string(ssh.MarshalAuthorizedKey(public))} {
			bastion, inner := s.host("bastion"), s.host("m-0")
			inner.Bastion = &bastion
			if err := newPool(t, Config{Agent: Agent{socket, key}}).Machine(inner).Ping(t.Context()); err != nil {
				t.Errorf("with %s: %v", key, err)
			}
		}
	}
	s := newServer(t, newSigner(t), newSigner(t).PublicKey())
	err = newPool(t, Config{Agent: Agent{socket, "old"}}).Machine(s.host("m-0")).Ping(t.Context())
	var auth *AuthError
	if !errors.As(err, &auth) || len(auth.Offered) != 1 || auth.Offered[0] != ssh.FingerprintSHA256(rsaPublic) {
		t.Errorf("the machine has another key: %v", err)
	}
	// The machine does not answer because of a bastion for which no key can be chosen.
	bastion, inner := s.host("bastion"), s.host("m-0")
	inner.Bastion = &bastion
	var choice *AgentKeyError
	if err := newPool(t, Config{Agent: Agent{Socket: socket}}).Machine(inner).WaitReady(t.Context(), 0); !errors.As(err, &choice) || len(choice.Keys) != 9 {
		t.Errorf("no key is chosen: %v", err)
	}
	if err := newPool(t, Config{Agent: Agent{Socket: socket + "-gone"}}).Machine(s.host("m-0")).Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "SSH agent") {
		t.Errorf("without an agent: %v", err)
	}
}

func TestAgentChoose(t *testing.T) {
	none, one, several := agent.NewKeyring(), agent.NewKeyring(), agent.NewKeyring()
	only := holdEd25519(t, one, "")
	a := holdEd25519(t, several, "laptop")
	holdEd25519(t, several, "shared")
	holdEd25519(t, several, "shared\nSHA256:forged")
	holdEd25519(t, several, "shared")
	// ssh-add adds a certificate beside its key, with the same comment.
	_, raw, err := ed25519.GenerateKey(rand.Reader)
	certified := hold(t, several, raw, err, "certified")
	cert := &ssh.Certificate{Key: certified, CertType: ssh.UserCert, ValidBefore: ssh.CertTimeInfinity}
	if err := cert.SignCert(rand.Reader, newSigner(t)); err != nil {
		t.Fatal(err)
	}
	for _, keyring := range []agent.Agent{several, one} {
		if err := keyring.Add(agent.AddedKey{PrivateKey: raw, Certificate: cert, Comment: "certified"}); err != nil {
			t.Fatal(err)
		}
	}
	unusual := listed{{Format: "ssh-unheard-of", Blob: ssh.Marshal(struct{ Type string }{"ssh-unheard-of"}), Comment: "unusual"}, newToken(t).listed[0]}
	fingerprint := ssh.FingerprintSHA256
	for name, tt := range map[string]struct {
		agent agent.Agent
		key   string
		want  string // fingerprint
		says  string
	}{
		"none":                       {none, "", "", "the SSH agent holds no key"},
		"none of the name":           {none, "x", "", "the SSH agent holds no key"},
		"the only key":               {one, "", fingerprint(only), ""},
		"not chosen":                 {several, "", "", "holds 5 keys, and none is chosen:\n  " + fingerprint(a) + " laptop (ssh-ed25519)\n"},
		"a comment that breaks":      {several, "", "", "shared?SHA256:forged (ssh-ed25519)"},
		"by comment":                 {several, "laptop", fingerprint(a), ""},
		"by fingerprint":             {several, fingerprint(a), fingerprint(a), ""},
		"by public key":              {several, string(ssh.MarshalAuthorizedKey(a)), fingerprint(a), ""},
		"by public key with comment": {several, authorized(a) + " other comment\n", fingerprint(a), ""},
		"two of a name":              {several, "shared", "", `2 keys of the SSH agent have the name "shared"`},
		"another name":               {several, "ben@laptop", "", `holds no key with the name "ben@laptop":` + "\n  " + fingerprint(a)},
		"another public key":         {several, authorized(only), "", "holds no key with the name"},
		"a key with a certificate":   {several, "certified", fingerprint(certified), ""},
		"a certificate":              {several, authorized(cert), "", "is a certificate, and machines authorise keys"},
		"only the usable one":        {unusual, "", fingerprint(unusual[1]), ""},
		"an unusual key":             {unusual, "unusual", "", "unusual (ssh-unheard-of) of the SSH agent is of a type that sshd does not accept"},
		"only an unusual key":        {unusual[:1], "", "", "holds no key of a type that sshd accepts:\n  SHA256:"},
	} {
		got, err := Agent{serveAgent(t, tt.agent), tt.key}.Choose(t.Context())
		var choice *AgentKeyError
		switch {
		case tt.says == "":
			if err != nil || got.Fingerprint != tt.want {
				t.Errorf("%s: got %s, %v", name, got, err)
			}
			if !strings.HasPrefix(got.Authorized(), got.Type+" AAAA") || strings.Count(got.Authorized(), " ") != 1 {
				t.Errorf("%s: authorises %q", name, got.Authorized())
			}
		case !errors.As(err, &choice) || !strings.Contains(err.Error(), tt.says):
			t.Errorf("%s: %v", name, err)
		}
	}
}

func authorized(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// TestAgentSilent checks that an agent that does not answer does not hold up the caller.
func TestAgentSilent(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Read(make([]byte, 1)) // it is asked
		}
		cancel(errors.New("no answer"))
	}()
	if _, err := (Agent{Socket: socket}).Choose(ctx); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("got %v", err)
	}
}

// listed is an agent that only lists keys.
type listed []*agent.Key

func (l listed) List() ([]*agent.Key, error)                      { return l, nil }
func (listed) Sign(ssh.PublicKey, []byte) (*ssh.Signature, error) { return nil, errors.New("no") }
func (listed) Add(agent.AddedKey) error                           { return errors.New("no") }
func (listed) Remove(ssh.PublicKey) error                         { return errors.New("no") }
func (listed) RemoveAll() error                                   { return errors.New("no") }
func (listed) Lock([]byte) error                                  { return errors.New("no") }
func (listed) Unlock([]byte) error                                { return errors.New("no") }
func (listed) Signers() ([]ssh.Signer, error)                     { return nil, errors.New("no") }

// token is an agent with a security key, as of OpenSSH's PROTOCOL.u2f.
type token struct {
	listed
	private ed25519.PrivateKey
}

func newToken(t *testing.T) token {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	blob := ssh.Marshal(struct {
		Type, Public string
		Application  string
	}{ssh.KeyAlgoSKED25519, string(public), "ssh:"})
	return token{listed{{Format: ssh.KeyAlgoSKED25519, Blob: blob, Comment: "token"}}, private}
}

func (k token) Sign(_ ssh.PublicKey, data []byte) (*ssh.Signature, error) {
	application, message := sha256.Sum256([]byte("ssh:")), sha256.Sum256(data)
	const flags, counter = 1, "\x00\x00\x00\x07" // touched
	signed := bytes.Join([][]byte{application[:], {flags}, []byte(counter), message[:]}, nil)
	return &ssh.Signature{Format: ssh.KeyAlgoSKED25519, Blob: ed25519.Sign(k.private, signed), Rest: append([]byte{flags}, counter...)}, nil
}

func TestAgentSecurityKey(t *testing.T) {
	k := newToken(t)
	public, err := ssh.ParsePublicKey(k.listed[0].Blob)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, newSigner(t), public)
	m := newPool(t, Config{Agent: Agent{Socket: serveAgent(t, k)}}).Machine(s.host("m-0"))
	if err := m.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
