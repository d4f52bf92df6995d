package provider

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"net"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
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

// userData returns the user data with which a machine was launched.
func (c cloud) userData(machine *instance) string {
	c.t.Helper()
	out := answer[*ec2.DescribeInstanceAttributeOutput](c.t)(c.client.EC2.DescribeInstanceAttribute(c.t.Context(), &ec2.DescribeInstanceAttributeInput{
		InstanceId: sdk.String(machine.get("id").(string)), Attribute: types.InstanceAttributeNameUserData}))
	raw, err := base64.StdEncoding.DecodeString(*out.UserData.Value)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(raw)
}

// TestOneKeyOfTheAgent checks that machines authorise one key of the SSH agent: the only one, or
// the chosen one. Another choice changes nothing of what exists.
func TestOneKeyOfTheAgent(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	socket, keys := sshAgent(t, "work", "home", "old")
	c.agent, c.ssh = socket, values{}
	c = c.process(t)
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig()) // it needs no SSH
	said := worker.plan(workerConfig(network))
	mention(t, said.failure(), "No key of the SSH agent is chosen", "holds 3 keys", ssh.FingerprintSHA256(keys[0])+" work (ssh-ed25519)", ssh.FingerprintSHA256(keys[2])+" old",
		"Set ssh.agent_key")
	config := workerConfig(network)
	config["name"], config["private_ip"], config["pod_cidr"] = "worker-1", "10.240.0.21", "10.200.1.0/24"
	if said := c.instance("k8s_machine").plan(config); said.failure() != "" {
		t.Errorf("it is said twice: %s", said.failure())
	}

	c.ssh = values{"agent_key": "home"}
	c = c.process(t)
	network, worker = c.taken(network), c.instance("k8s_machine")
	worker.must(workerConfig(network))
	if data := c.userData(worker); !strings.Contains(data, authorizedLine(keys[1])) || strings.Count(data, "ssh-ed25519") != 2 { // with the host key
		t.Errorf("user data: %s", data)
	}

	c.ssh = values{"agent": true, "agent_key": ssh.FingerprintSHA256(keys[2])}
	c = c.process(t)
	network, worker = c.taken(network), c.taken(worker)
	network.settled(networkConfig())
	worker.settled(workerConfig(network))
	if got := c.provider.data[0].SSH.Agent; got.Key != ssh.FingerprintSHA256(keys[2]) {
		t.Errorf("logs in with %s", got.Key)
	}

	c.agent, keys = sshAgent(t, "only")
	c.ssh = values{}
	c = c.process(t)
	second := c.instance("k8s_machine")
	second.must(config)
	if data := c.userData(second); !strings.Contains(data, authorizedLine(keys[0])) {
		t.Errorf("user data: %s", data)
	}
}

// TestRolesNeedAKey checks that the plan of what is on machines asks for a key, too.
func TestRolesNeedAKey(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	socket, _ := sshAgent(t, "work", "home")
	p := New("test")
	p.environment.getenv = func(name string) string { return map[string]string{"SSH_AUTH_SOCK": socket}[name] }
	c := newCore(t, p, values{"artifact_checksums": downloads})
	mention(t, c.instance("k8s_control_plane").plan(r.controlPlane).failure(), "No key of the SSH agent is chosen", "holds 2 keys")
	if said := c.instance("k8s_worker_pool").plan(r.pool); said.failure() != "" {
		t.Errorf("it is said twice: %s", said.failure())
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
		ssh    values
		socket string
		env    string // K8S_SSH_AGENT_KEY
		on     string // the argument
		says   string
	}{
		{"several keys, none chosen", values{"agent": true}, several, "", "agent_key", "holds 2 keys, and none is chosen"},
		{"several keys, not asked for", values{}, several, "", "", ""},
		{"several keys beside a private key", values{"private_key": sshKey(t)}, several, "", "", ""},
		{"by comment", values{"agent_key": "work"}, several, "", "", ""},
		{"by public key", values{"agent_key": authorizedLine(keys[1]) + "\n"}, several, "", "", ""},
		{"from the environment", values{"agent": true}, several, "work", "", ""},
		{"the argument before the environment", values{"agent_key": "work"}, several, "nobody", "", ""},
		{"another one from the environment", values{"agent": true}, several, "nobody", "agent_key", `no key with the name "nobody"`},
		{"another comment", values{"agent_key": "nobody"}, several, "", "agent_key", "SHA256:"},
		{"an agent without keys", values{"agent": true}, none, "", "agent\")", "ssh-add"},
		{"a key of an agent without keys", values{"agent_key": "work"}, none, "", "agent_key", "ssh-add"},
		{"without keys, not asked for", values{}, none, "", "", ""},
		{"an agent that is gone", values{"agent": true}, none + "-gone", "", "agent\")", "ssh-add"},
		{"one that is gone, not asked for", values{}, none + "-gone", "", "", ""},
		{"no agent at all", values{"agent_key": "work"}, "", "", "agent_key", "SSH_AUTH_SOCK is not set"},
		{"an agent that is not used", values{"agent": false, "agent_key": "work"}, several, "", "agent_key", "ssh.agent is false"},
		{"no name", values{"agent_key": " "}, several, "", "agent_key", "it names no key"},
		{"half a fingerprint", values{"agent_key": "SHA256:abc"}, several, "", "agent_key", "not a SHA256 fingerprint"},
		{"an MD5 fingerprint", values{"agent_key": "MD5:16:27"}, several, "", "agent_key", "SHA256"},
		{"half a public key", values{"agent_key": "ssh-ed25519 AAAAC3"}, several, "", "agent_key", "not an SSH public key"},
		{"a private key", values{"agent_key": sshKey(t)}, several, "", "agent_key", "this is a private key"},
		{"two keys", values{"agent_key": "work\nhome"}, several, "", "agent_key", "several lines"},
		{"not known yet", values{"agent": true, "agent_key": unknown}, several, "", "", ""},
	} {
		p := New("test")
		p.environment.getenv = func(name string) string {
			return map[string]string{"SSH_AUTH_SOCK": test.socket, "K8S_SSH_AGENT_KEY": test.env}[name]
		}
		got := configure(t, p, values{"ssh": test.ssh})
		if test.says == "" && got != "" || !strings.Contains(got, test.on) || !strings.Contains(got, test.says) {
			t.Errorf("%s: got %q, wanted an error on %q with %q", test.name, got, test.on, test.says)
		}
		if strings.Contains(got, "BEGIN") {
			t.Errorf("%s: the error repeats the key", test.name)
		}
	}
}
