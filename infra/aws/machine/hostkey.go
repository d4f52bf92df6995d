package machine

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
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

// launchKeys are the SSH host keys with which a machine is launched, by type. They are in user data, which
// everyone who may describe the instance can read. That is why the machine replaces them at the first
// connection.
type launchKeys map[string]launchKey

// launchKey is one key. Its private half has the same length whenever it is made.
type launchKey struct {
	authorized string // "ssh-ed25519 AAAA..."
	pem        string
}

// hostKeyTypes are the types of a machine's host keys, as cloud-init and the names of their files have them.
// The first one that its sshd offers is used: an sshd under the rules of FIPS offers no ed25519.
var hostKeyTypes = []string{"ed25519", "ecdsa"}

func newLaunchKeys(rand io.Reader) (launchKeys, error) {
	out := launchKeys{}
	add := func(typ string, public crypto.PublicKey, block *pem.Block) error {
		key, err := ssh.NewPublicKey(public)
		if err == nil {
			out[typ] = launchKey{authorized: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), pem: string(pem.EncodeToMemory(block))}
		}
		return err
	}
	public, edwards, err := ed25519.GenerateKey(rand)
	if err != nil {
		return nil, fmt.Errorf("make a host key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(edwards, "")
	if err == nil {
		err = add("ed25519", public, block)
	}
	if err != nil {
		return nil, fmt.Errorf("make a host key: %w", err)
	}
	nist, err := ecdsa.GenerateKey(elliptic.P256(), rand)
	if err != nil {
		return nil, fmt.Errorf("make a host key: %w", err)
	}
	// Half as long as OpenSSH's own form, and always of the same length: user data must be short.
	der, err := x509.MarshalECPrivateKey(nist)
	if err == nil {
		err = add("ecdsa", nist.Public(), &pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	}
	if err != nil {
		return nil, fmt.Errorf("make a host key: %w", err)
	}
	return out, nil
}

// authorized returns the public keys in authorized_keys form.
func (k launchKeys) authorized() (out []string) {
	for _, typ := range hostKeyTypes {
		out = append(out, k[typ].authorized)
	}
	return out
}

// cloudInit returns the keys as cloud-init takes them, in ssh_keys.
func (k launchKeys) cloudInit() map[string]string {
	out := map[string]string{}
	for typ, key := range k {
		out[typ+"_private"], out[typ+"_public"] = key.pem, key.authorized
	}
	return out
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

// HostKeyDoubt says that nothing but the tag of an instance says which SSH host key it has, or that something says otherwise.
type HostKeyDoubt struct {
	Machine, ID string
	Tag         string // key in authorized_keys form
	// Given is the fingerprint that the caller knows, and Printed the last one on the machine's console; empty if there is none.
	Given, Printed string
}

func (e *HostKeyDoubt) Error() string {
	said := fmt.Sprintf("the tag %s of machine %s (%s) has the SSH host key %s, and ", aws.TagHostKey, e.Machine, e.ID, fingerprint(e.Tag))
	switch {
	case e.Given != "":
		return said + "the import says " + e.Given
	case e.Printed != "":
		return said + "the machine has printed " + e.Printed + " on its console"
	}
	return said + "the machine has not printed it on its console"
}

// printed finds what print-host-key.service of a machine prints at each boot: see [deed.SwitchHostKey].
var printed = regexp.MustCompile(`k8s-from-scratch: the SSH host key is (SHA256:[0-9A-Za-z+/]{43})`)

// checkHostKey returns a HostKeyDoubt unless something that only the machine or the caller can have said confirms the key in
// the machine's tags.
func checkHostKey(ctx context.Context, c *aws.Client, m Machine, given string) error {
	doubt := &HostKeyDoubt{Machine: m.Name, ID: m.ID, Tag: m.HostKey, Given: given}
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(m.HostKey))
	if err != nil {
		return doubt
	}
	if given == "" {
		console, err := consoleOf(ctx, c, m.ID)
		if err != nil {
			return fmt.Errorf("instance %s: read its console: %w", m.ID, err)
		}
		if all := printed.FindAllSubmatch(console, -1); all != nil {
			doubt.Printed = string(all[len(all)-1][1])
		}
	}
	if cmp.Or(given, doubt.Printed) != ssh.FingerprintSHA256(key) {
		return doubt
	}
	return nil
}

// consoleOf returns the end of what an instance has printed, 64 KiB at most. Types without Nitro only have what they printed
// shortly after the last boot.
func consoleOf(ctx context.Context, c *aws.Client, id string) ([]byte, error) {
	in := &ec2.GetConsoleOutputInput{InstanceId: &id, Latest: sdk.Bool(true)}
	out, err := c.EC2.GetConsoleOutput(ctx, in)
	if aws.IsCode(err, "UnsupportedOperation") {
		in.Latest = nil
		out, err = c.EC2.GetConsoleOutput(ctx, in)
	}
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(sdk.ToString(out.Output))
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
func replaceHostKey(ctx context.Context, c *aws.Client, spec Spec, m Machine, launch []string, connect Connect) (string, error) {
	if len(launch) == 0 {
		first, err := launchedWith(ctx, c, m.ID)
		if err != nil && m.HostKey == "" {
			return "", err
		}
		launch = first.hostKeys
	}
	pinned := slices.DeleteFunc(append([]string{m.HostKey}, launch...), func(s string) bool { return s == "" })
	if len(pinned) == 0 {
		return "", errors.New("neither its tags nor its user data say which SSH host key it has; terminate it and run apply again")
	}
	m.Name, m.User = spec.Name, spec.User
	first := connect(m, pinned)
	if err := awaitShell(ctx, c, m.ID, first); err != nil {
		return "", fmt.Errorf("wait for SSH: %w", err)
	}
	key, err := deed.PrepareHostKey(ctx, first, launch)
	if err != nil {
		return "", fmt.Errorf("make its own SSH host key: %w", err)
	}
	if _, _, _, _, err := ssh.ParseAuthorizedKey([]byte(key)); err != nil || slices.Contains(launch, key) {
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
			err = deed.SwitchHostKey(ctx, either, key)
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
