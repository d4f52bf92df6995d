package machine

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// lateKey is a machine whose sshd shows an earlier key until the request to use its own has come a
// number of times.
type lateKey struct {
	shows string // fingerprint, until then
	after int
	told  int
}

// expecting is a lateKey for a client that accepts the earlier key, or does not.
type expecting struct {
	*lateKey
	before string // "" for no key
}

func (s expecting) WaitReady(context.Context, time.Duration) error {
	if s.told < s.after && s.shows != s.before {
		return &remote.HostKeyError{Machine: "worker-0", Wanted: []string{"own"}, Got: []string{s.shows}}
	}
	return nil
}

func (s expecting) Run(_ context.Context, cmd remote.Command) (remote.Output, error) {
	if !strings.Contains(cmd.Script, "try-reload-or-restart") {
		return remote.Output{}, errors.New("an unexpected script")
	}
	s.told++
	return remote.Output{}, nil
}

// sshd may still show the earlier key while something else restarts it. An unknown key is an error.
func TestSwitchTo(t *testing.T) {
	keys, err := newLaunchKeys(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	launch := keys["ecdsa"]
	public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(launch.authorized))
	if err != nil {
		t.Fatal(err)
	}
	before := public.Type() + " " + ssh.FingerprintSHA256(public)
	for name, tc := range map[string]struct {
		machine lateKey
		told    int
		fails   bool
	}{
		"at once":       {lateKey{before, 1, 0}, 1, false},
		"later":         {lateKey{before, 4, 0}, 4, false},
		"never":         {lateKey{before, 1000, 0}, switchAttempts, true},
		"somebody else": {lateKey{"ssh-ed25519 SHA256:stranger", 2, 0}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				connect := func(_ Machine, keys []string) Shell {
					if slices.Contains(keys, launch.authorized) {
						return expecting{&tc.machine, before}
					}
					return expecting{&tc.machine, ""}
				}
				err := switchTo(t.Context(), healthyEC2("i-1"), Machine{ID: "i-1"}, "ssh-ed25519 AAAA own", []string{launch.authorized}, connect)
				if (err != nil) != tc.fails || tc.machine.told != tc.told {
					t.Errorf("told %d times, then %v; want %d times", tc.machine.told, err, tc.told)
				}
				var mismatch *remote.HostKeyError
				if tc.fails && !errors.As(err, &mismatch) {
					t.Errorf("the error does not say what the machine showed: %v", err)
				}
			})
		})
	}
}

// TestNewLaunchKeys: a machine gets a key of each type that an sshd may offer, always of the same length.
func TestNewLaunchKeys(t *testing.T) {
	length := 0
	for range 50 {
		keys, err := newLaunchKeys(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for typ, want := range map[string]string{"ed25519": ssh.KeyAlgoED25519, "ecdsa": ssh.KeyAlgoECDSA256} {
			k := keys[typ]
			signer, err := ssh.ParsePrivateKey([]byte(k.pem))
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))); got != k.authorized || signer.PublicKey().Type() != want {
				t.Errorf("public half %q, wanted %q", k.authorized, got)
			}
			n += len(k.pem) + len(k.authorized)
		}
		if length == 0 {
			length = n
		}
		if n != length || len(keys.authorized()) != len(keys) {
			t.Fatalf("%d bytes, and %d before; public keys %q", n, length, keys.authorized())
		}
	}
}
