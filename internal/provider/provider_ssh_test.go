package provider_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// sshAgent serves an SSH agent with a key for each comment. It returns its socket and the public
// keys.
func sshAgent(t *testing.T, comments ...string) (socket string, keys []ssh.PublicKey) {
	t.Helper()
	keyring := agent.NewKeyring()
	for _, comment := range comments {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		if err == nil {
			err = keyring.Add(agent.AddedKey{PrivateKey: private, Comment: comment})
		}
		if err != nil {
			t.Fatal(err)
		}
		public, err := ssh.NewPublicKey(private.Public())
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, public)
	}
	socket = filepath.Join(t.TempDir(), "agent")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); _ = agent.ServeAgent(keyring, conn) }()
		}
	}()
	return socket, keys
}

func authorizedLine(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// TestOneKeyOfTheAgent checks that machines authorise one key of the SSH agent: the only one, or
// the chosen one. Another choice changes nothing of what exists.
func TestOneKeyOfTheAgent(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	socket, keys := sshAgent(t, "work", "home", "old")
	c.Agent, c.SSH, c.More = socket, providertest.Values{}, providertest.Values{"patience": 20}
	c = c.Process(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig()) // it needs no SSH
	said := worker.Plan(providertest.WorkerConfig(network))
	providertest.Mention(t, said.Failure(), "No key of the SSH agent is chosen", "holds 3 keys", ssh.FingerprintSHA256(keys[0])+" work (ssh-ed25519)", ssh.FingerprintSHA256(keys[2])+" old",
		"Set ssh.agent_key")
	config := providertest.WorkerConfig(network)
	config["name"], config["private_ip"], config["pod_cidr"] = "worker-1", "10.240.0.21", "10.200.1.0/24"
	if said := c.Instance("k8s_machine").Plan(config); said.Failure() != "" {
		t.Errorf("it is said twice: %s", said.Failure())
	}

	c.SSH = providertest.Values{"agent_key": "home"}
	c = c.Process(t)
	network, worker = c.Taken(network), c.Instance("k8s_machine")
	worker.Must(providertest.WorkerConfig(network))
	if data := c.UserData(worker); !strings.Contains(data, authorizedLine(keys[1])) || strings.Count(data, "ssh-ed25519") != 2 { // with the host key
		t.Errorf("user data: %s", data)
	}

	c.SSH = providertest.Values{"agent": true, "agent_key": ssh.FingerprintSHA256(keys[2])}
	c = c.Process(t)
	network, worker = c.Taken(network), c.Taken(worker)
	network.Converged(providertest.NetworkConfig())
	worker.Converged(providertest.WorkerConfig(network))
	if got := c.Provider.Sessions[0].SSH.Agent; got.Key != ssh.FingerprintSHA256(keys[2]) {
		t.Errorf("logs in with %s", got.Key)
	}

	c.Agent, keys = sshAgent(t, "only")
	c.SSH = providertest.Values{}
	c = c.Process(t)
	second := c.Instance("k8s_machine")
	second.Must(config)
	if data := c.UserData(second); !strings.Contains(data, authorizedLine(keys[0])) {
		t.Errorf("user data: %s", data)
	}
}

// TestRolesNeedAKey checks that a plan of resources on machines asks for a key too.
func TestRolesNeedAKey(t *testing.T) {
	t.Parallel()
	r := providertest.NewRoles(t)
	socket, _ := sshAgent(t, "work", "home")
	p := provider.New("test")
	p.Environment.Getenv = func(name string) string { return map[string]string{"SSH_AUTH_SOCK": socket}[name] }
	c := providertest.NewCore(t, p, providertest.Values{"artifact_checksums": providertest.Downloads, "patience": 20})
	providertest.Mention(t, c.Instance("k8s_control_plane").Plan(r.ControlPlane).Failure(), "No key of the SSH agent is chosen", "holds 2 keys")
	if said := c.Instance("k8s_worker_pool").Plan(r.Pool); said.Failure() != "" {
		t.Errorf("it is said twice: %s", said.Failure())
	}
}

// TestAgentConfiguration checks that what the configuration asks of the SSH agent, and the agent
// cannot give, is an error on its argument.
func TestAgentConfiguration(t *testing.T) {
	t.Parallel()
	several, keys := sshAgent(t, "work", "home")
	none, _ := sshAgent(t)
	for _, test := range []struct {
		name   string
		ssh    providertest.Values
		socket string
		env    string // K8S_SSH_AGENT_KEY
		on     string // the argument
		says   string
	}{
		{"several keys, none chosen", providertest.Values{"agent": true}, several, "", "agent_key", "holds 2 keys, and none is chosen"},
		{"several keys, not asked for", providertest.Values{}, several, "", "", ""},
		{"several keys beside a private key", providertest.Values{"private_key": providertest.SSHKey(t)}, several, "", "", ""},
		{"by comment", providertest.Values{"agent_key": "work"}, several, "", "", ""},
		{"by public key", providertest.Values{"agent_key": authorizedLine(keys[1]) + "\n"}, several, "", "", ""},
		{"from the environment", providertest.Values{"agent": true}, several, "work", "", ""},
		{"the argument before the environment", providertest.Values{"agent_key": "work"}, several, "nobody", "", ""},
		{"another key from the environment", providertest.Values{"agent": true}, several, "nobody", "agent_key", `no key with the name "nobody"`},
		{"another comment", providertest.Values{"agent_key": "nobody"}, several, "", "agent_key", "SHA256:"},
		{"an agent without keys", providertest.Values{"agent": true}, none, "", "agent\")", "ssh-add"},
		{"a key of an agent without keys", providertest.Values{"agent_key": "work"}, none, "", "agent_key", "ssh-add"},
		{"an agent without keys, not asked for", providertest.Values{}, none, "", "", ""},
		{"an agent that is gone", providertest.Values{"agent": true}, none + "-gone", "", "agent\")", "ssh-add"},
		{"an agent that is gone, not asked for", providertest.Values{}, none + "-gone", "", "", ""},
		{"no agent at all", providertest.Values{"agent_key": "work"}, "", "", "agent_key", "SSH_AUTH_SOCK is not set"},
		{"an agent that is not used", providertest.Values{"agent": false, "agent_key": "work"}, several, "", "agent_key", "ssh.agent is false"},
		{"no name", providertest.Values{"agent_key": " "}, several, "", "agent_key", "it names no key"},
		{"half a fingerprint", providertest.Values{"agent_key": "SHA256:abc"}, several, "", "agent_key", "not a SHA256 fingerprint"},
		{"an MD5 fingerprint", providertest.Values{"agent_key": "MD5:16:27"}, several, "", "agent_key", "SHA256"},
		{"half a public key", providertest.Values{"agent_key": "ssh-ed25519 AAAAC3"}, several, "", "agent_key", "not an SSH public key"},
		{"a private key", providertest.Values{"agent_key": providertest.SSHKey(t)}, several, "", "agent_key", "this is a private key"},
		{"two keys", providertest.Values{"agent_key": "work\nhome"}, several, "", "agent_key", "several lines"},
		{"not known yet", providertest.Values{"agent": true, "agent_key": providertest.Unknown}, several, "", "", ""},
	} {
		p := provider.New("test")
		p.Environment.Getenv = func(name string) string {
			return map[string]string{"SSH_AUTH_SOCK": test.socket, "K8S_SSH_AGENT_KEY": test.env}[name]
		}
		got := configure(t, p, providertest.Values{"ssh": test.ssh, "patience": 20})
		if test.says == "" && got != "" || !strings.Contains(got, test.on) || !strings.Contains(got, test.says) {
			t.Errorf("%s: got %q, wanted an error on %q with %q", test.name, got, test.on, test.says)
		}
		if strings.Contains(got, "BEGIN") {
			t.Errorf("%s: the error repeats the key", test.name)
		}
	}
}
