package aws

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/crypto/ssh"
	"sigs.k8s.io/yaml"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// Shell runs commands on a machine whose host key is replaced. [*remote.Machine] is one.
type Shell interface {
	deed.Runner
	WaitReady(ctx context.Context, poll time.Duration) error
}

// Connect returns a machine's Shell for its login user. It must accept only the given host keys.
type Connect func(m Machine, hostKeys []string) Shell

// hostKeyPair is the SSH host key with which a machine is launched. It is in user data, which
// everyone who may describe the instance can read. That is why the machine replaces it at the first
// connection.
type hostKeyPair struct {
	authorized string // "ssh-ed25519 AAAA..."
	pem        string
}

func newHostKey(rand io.Reader) (hostKeyPair, error) {
	public, private, err := ed25519.GenerateKey(rand)
	if err != nil {
		return hostKeyPair{}, fmt.Errorf("make a host key: %w", err)
	}
	sshPublic, err := ssh.NewPublicKey(public)
	if err != nil {
		return hostKeyPair{}, fmt.Errorf("make a host key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return hostKeyPair{}, fmt.Errorf("make a host key: %w", err)
	}
	return hostKeyPair{
		authorized: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(sshPublic))),
		pem:        string(pem.EncodeToMemory(block)),
	}, nil
}

// cloudInit is the part of cloud-init's configuration that is used.
// https://docs.cloud-init.io/en/latest/reference/modules.html
type cloudInit struct {
	Hostname         string            `json:"hostname,omitempty"`
	PreserveHostname bool              `json:"preserve_hostname"`
	DisableRoot      bool              `json:"disable_root"`
	PasswordAuth     bool              `json:"ssh_pwauth"`
	DeleteKeys       bool              `json:"ssh_deletekeys"`
	HostKeys         map[string]string `json:"ssh_keys"`
	Users            []cloudInitUser   `json:"users"`
	BootCommands     [][]string        `json:"bootcmd,omitempty"`
}

type cloudInitUser struct {
	Name           string   `json:"name"`
	Gecos          string   `json:"gecos,omitempty"`
	Groups         []string `json:"groups,omitempty"`
	Shell          string   `json:"shell"`
	Sudo           string   `json:"sudo"`
	LockPassword   bool     `json:"lock_passwd"`
	AuthorizedKeys []string `json:"ssh_authorized_keys"`
}

// MaxUserData is how many bytes of user data EC2 accepts, before base64.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-add-user-data.html
const MaxUserData = 16 << 10

// cloudConfig returns the user data, base64-encoded as RunInstances requires. It is not compressed, so
// that launchKeyOf and people can read it.
func cloudConfig(spec MachineSpec, key hostKeyPair) (string, error) {
	if len(spec.AuthorizedKeys) == 0 {
		return "", errors.New("no SSH public key to authorise on the machine")
	}
	config := cloudInit{
		Hostname:    spec.Name,
		DisableRoot: true,
		DeleteKeys:  true,
		HostKeys:    map[string]string{"ed25519_private": key.pem, "ed25519_public": key.authorized},
		Users: []cloudInitUser{{
			Name: spec.User, Gecos: "Administrator", Groups: []string{"adm", "systemd-journal"}, Shell: "/bin/bash",
			Sudo: "ALL=(ALL) NOPASSWD:ALL", LockPassword: true, AuthorizedKeys: spec.AuthorizedKeys,
		}},
	}
	if spec.BootCommand != "" {
		config.BootCommands = [][]string{{"cloud-init-per", "instance", "k8s-from-scratch", "sh", "-c", spec.BootCommand}}
	}
	data, err := config.userData()
	return base64.StdEncoding.EncodeToString(data), err
}

// UserDataBytes returns how many bytes of user data a machine of the specification is launched with. EC2
// takes [MaxUserData].
func (s MachineSpec) UserDataBytes(rand io.Reader) (int, error) {
	key, err := newHostKey(rand) // all have the same length
	if err != nil {
		return 0, err
	}
	encoded, err := cloudConfig(s, key)
	if err != nil {
		return 0, err
	}
	data, err := base64.StdEncoding.DecodeString(encoded)
	return len(data), err
}

func (c cloudInit) userData() ([]byte, error) {
	body, err := yaml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("write user data: %w", err)
	}
	return append([]byte("#cloud-config\n"), body...), nil
}

// launchKeyOf returns the public key of the first host key from an instance's user data; empty if
// there is none.
func (c *Client) launchKeyOf(ctx context.Context, id string) (string, error) {
	out, err := c.EC2.DescribeInstanceAttribute(ctx, &ec2.DescribeInstanceAttributeInput{
		InstanceId: &id, Attribute: types.InstanceAttributeNameUserData,
	}, c.retryUntilKnown())
	if err != nil {
		return "", fmt.Errorf("read its user data: %w", err)
	}
	if out.UserData == nil {
		return "", nil
	}
	var parsed cloudInit
	body, err := base64.StdEncoding.DecodeString(sdk.ToString(out.UserData.Value))
	if err == nil {
		err = yaml.Unmarshal(body, &parsed)
	}
	if err != nil {
		return "", fmt.Errorf("read its user data, which was not written by this provider: %w", err)
	}
	return strings.TrimSpace(parsed.HostKeys["ed25519_public"]), nil
}

// sshPoll is the shortest pause between attempts to reach a booting machine.
const sshPoll = 100 * time.Millisecond

// replaceHostKey makes sure that the machine uses a host key that only it knows, and returns its
// public key. The key is written to the machine's tags before the machine uses it, so that after an
// interruption at any point the machine can be recognised by the tag or by the first key.
func (c *Client) replaceHostKey(ctx context.Context, spec MachineSpec, m Machine, launchKey string, connect Connect) (string, error) {
	if launchKey == "" {
		var err error
		if launchKey, err = c.launchKeyOf(ctx, m.ID); err != nil && m.HostKey == "" {
			return "", err
		}
	}
	pinned := slices.DeleteFunc([]string{m.HostKey, launchKey}, func(s string) bool { return s == "" })
	if len(pinned) == 0 {
		return "", errors.New("neither its tags nor its user data say which SSH host key it has; terminate it and run apply again")
	}
	m.Name, m.User = spec.Name, spec.User
	first := connect(m, pinned)
	if err := c.awaitSSH(ctx, m.ID, first); err != nil {
		return "", fmt.Errorf("wait for SSH: %w", err)
	}
	key, err := deed.PrepareHostKey(ctx, first, launchKey)
	if err != nil {
		return "", fmt.Errorf("make its own SSH host key: %w", err)
	}
	if _, _, _, _, err := ssh.ParseAuthorizedKey([]byte(key)); err != nil || key == launchKey {
		return "", fmt.Errorf("make its own SSH host key: it answered %q", remote.Redact(key))
	}
	if key != m.HostKey {
		if _, err := c.EC2.CreateTags(ctx, &ec2.CreateTagsInput{
			Resources: []string{m.ID}, Tags: ec2Tags(map[string]string{TagHostKey: key}),
		}, c.retryUntilKnown()); err != nil {
			return "", fmt.Errorf("record its SSH host key: %w", err)
		}
	}
	if err := c.switchTo(ctx, m, key, pinned, connect); err != nil {
		return "", err
	}
	return key, nil
}

const (
	// switchAttempts and switchPause give sshd about ten seconds to use the new key.
	switchAttempts = 20
	switchPause    = 500 * time.Millisecond
)

// switchTo makes the machine use its own key, and returns once it does. sshd rereads its keys some
// time after the request, and cloud-init restarts it during boot. While the machine shows one of
// the keys in before, the request is repeated.
func (c *Client) switchTo(ctx context.Context, m Machine, key string, before []string, connect Connect) error {
	either, own := connect(m, append(slices.Clone(before), key)), connect(m, []string{key})
	for attempt := 1; ; attempt++ {
		// This opens a new connection, and for a moment nothing may listen.
		err := c.awaitSSH(ctx, m.ID, either)
		if err == nil {
			err = deed.SwitchHostKey(ctx, either)
		}
		if err != nil {
			return fmt.Errorf("switch to its own SSH host key: %w", err)
		}
		err = c.awaitSSH(ctx, m.ID, own)
		if err == nil {
			return nil
		}
		if attempt == switchAttempts || !showedKey(err, before) {
			return fmt.Errorf("reach it with its own SSH host key: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("reach it with its own SSH host key: %w (%w)", context.Cause(ctx), err)
		case <-time.After(switchPause):
		}
	}
}

// showedKey reports whether a connection failed because the machine showed one of the keys.
func showedKey(err error, keys []string) bool {
	var mismatch *remote.HostKeyError
	if !errors.As(err, &mismatch) {
		return false
	}
	return slices.ContainsFunc(keys, func(key string) bool {
		public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(key))
		return err == nil && slices.Contains(mismatch.Got, public.Type()+" "+ssh.FingerprintSHA256(public))
	})
}
