package machine

import (
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
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

// HostKeyTagError says that the tag of an instance has another SSH host key than the pinned one. Whoever may write
// tags could otherwise lead the next connection, and the keys that it carries, to a machine of their own.
type HostKeyTagError struct {
	Machine, ID string
	Tag, Pinned string // keys in authorized_keys form
}

func (e *HostKeyTagError) Error() string {
	return fmt.Sprintf("the tag %s of machine %s (%s) has the SSH host key %s, and the state has %s", aws.TagHostKey, e.Machine, e.ID, fingerprint(e.Tag), fingerprint(e.Pinned))
}

// fingerprint returns the fingerprint of a key in authorized_keys form, or what is there if it is none.
func fingerprint(key string) string {
	k, _, _, _, err := ssh.ParseAuthorizedKey([]byte(key))
	if err != nil {
		return strconv.Quote(key)
	}
	return k.Type() + " " + ssh.FingerprintSHA256(k)
}

// sshPoll is the shortest pause between attempts to reach a booting machine.
const sshPoll = 100 * time.Millisecond

// replaceHostKey makes sure that the machine uses a host key that only it knows, and returns its
// public key. The key is written to the machine's tags before the machine uses it, so that after an
// interruption at any point the machine can be recognised by the tag or by the first key.
func replaceHostKey(ctx context.Context, c *aws.Client, spec Spec, m Machine, launchKey string, connect Connect) (string, error) {
	if launchKey == "" {
		first, err := launchedWith(ctx, c, m.ID)
		if err != nil && m.HostKey == "" {
			return "", err
		}
		launchKey = first.hostKey
	}
	pinned := slices.DeleteFunc([]string{m.HostKey, launchKey}, func(s string) bool { return s == "" })
	if len(pinned) == 0 {
		return "", errors.New("neither its tags nor its user data say which SSH host key it has; terminate it and run apply again")
	}
	m.Name, m.User = spec.Name, spec.User
	first := connect(m, pinned)
	if err := awaitShell(ctx, c, m.ID, first); err != nil {
		return "", fmt.Errorf("wait for SSH: %w", err)
	}
	key, err := deed.PrepareHostKey(ctx, first, launchKey)
	if err != nil {
		return "", fmt.Errorf("make its own SSH host key: %w", err)
	}
	if _, _, _, _, err := ssh.ParseAuthorizedKey([]byte(key)); err != nil || key == launchKey {
		return "", fmt.Errorf("make its own SSH host key: it answered %q", foreign.Text(key))
	}
	if key != m.HostKey {
		if _, err := c.EC2.CreateTags(ctx, &ec2.CreateTagsInput{
			Resources: []string{m.ID}, Tags: aws.EC2Tags(map[string]string{aws.TagHostKey: key}),
		}, c.RetryUntilKnown()); err != nil {
			return "", fmt.Errorf("record its SSH host key: %w", err)
		}
	}
	if err := switchTo(ctx, c, m, key, pinned, connect); err != nil {
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
func switchTo(ctx context.Context, c *aws.Client, m Machine, key string, before []string, connect Connect) error {
	either, own := connect(m, append(slices.Clone(before), key)), connect(m, []string{key})
	for attempt := 1; ; attempt++ {
		// This opens a new connection, and for a moment nothing may listen.
		err := awaitShell(ctx, c, m.ID, either)
		if err == nil {
			err = deed.SwitchHostKey(ctx, either)
		}
		if err != nil {
			return fmt.Errorf("switch to its own SSH host key: %w", err)
		}
		err = awaitShell(ctx, c, m.ID, own)
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
