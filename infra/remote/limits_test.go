package remote

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestEndlessOutput runs commands that write for ever. They are ended, and the error names the machine
// and the limit.
func TestEndlessOutput(t *testing.T) {
	t.Parallel()
	key := newSigner(t)
	s := newServer(t, newSigner(t), key.PublicKey())
	m := newPool(t, Config{Signers: []ssh.Signer{key}}).Machine(s.host("m-0"))
	for name, script := range map[string]string{
		"standard output": "yes",
		"standard error":  "yes >&2",
		"both, one line":  "tr '\\0' x </dev/zero & tr '\\0' x </dev/zero >&2",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		var teed atomic.Int64
		out, err := m.Run(ctx, Command{Script: script, Tee: writerFunc(func(p []byte) (int, error) {
			teed.Add(int64(len(p)))
			return len(p), nil
		})})
		cancel()
		var much *foreign.TooMuchError
		if !errors.As(err, &much) || much.Limit != maxOutput || !strings.Contains(err.Error(), "machine m-0 sent more than 16 MiB") {
			t.Errorf("%s: %v", name, err)
		}
		if len(out.Stdout) > maxOutput || len(out.Stderr) > stderrEnd || teed.Load() > maxOutput {
			t.Errorf("%s: %d and %d bytes are kept, and Tee got %d", name, len(out.Stdout), len(out.Stderr), teed.Load())
		}
	}
	for deadline := time.Now().Add(2 * time.Minute); s.sessions.Load() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a command goes on on the machine")
		}
	}
	if err := m.Ping(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if out, err := m.Run(t.Context(), Command{Script: "head -c 16777216 /dev/zero"}); err != nil || len(out.Stdout) != maxOutput {
		t.Errorf("as much as is allowed: %d bytes, %v", len(out.Stdout), err)
	}
}

// TestTeeEndsTheCommand: an error of Tee, or a panic in the goroutine of the ssh package, is an
// error of the command.
func TestTeeEndsTheCommand(t *testing.T) {
	t.Parallel()
	key := newSigner(t)
	s := newServer(t, newSigner(t), key.PublicKey())
	m := newPool(t, Config{Signers: []ssh.Signer{key}}).Machine(s.host("m-0"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	unread := errors.New("cannot read this")
	if _, err := m.Run(ctx, Command{Script: "echo; exec sleep 60", Tee: writerFunc(func([]byte) (int, error) { return 0, unread })}); !errors.Is(err, unread) {
		t.Error(err)
	}
	var panicked *parallel.PanicError
	if _, err := m.Run(ctx, Command{Script: "echo; exec sleep 60", Tee: writerFunc(func([]byte) (int, error) { panic("bug") })}); !errors.As(err, &panicked) {
		t.Error(err)
	}
	if err := m.Ping(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestErrorShowsNoControl: what a program on a machine says cannot control the terminal of the operator.
func TestErrorShowsNoControl(t *testing.T) {
	t.Parallel()
	key := newSigner(t)
	s := newServer(t, newSigner(t), key.PublicKey())
	m := newPool(t, Config{Signers: []ssh.Signer{key}}).Machine(s.host("m-0"))
	_, err := m.Run(t.Context(), Command{Script: `printf '\033[2Jgone \033]0;title\007and \342\200\256back' >&2; exit 3`})
	if want := `machine m-0: command exited with status 3: gone and \u202eback`; err == nil || err.Error() != want {
		t.Errorf("%q, wanted %q", err, want)
	}
}
