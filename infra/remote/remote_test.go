package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"
)

func newPool(t *testing.T, cfg Config) *Pool {
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, time.Minute)
	p := NewPool(cfg)
	t.Cleanup(func() { p.Close() })
	return p
}

func TestRun(t *testing.T) {
	key := newSigner(t)
	s := newServer(t, newSigner(t), key.PublicKey())
	m := newPool(t, Config{Signers: []ssh.Signer{key}}).Machine(s.host("m-0"))

	var tee bytes.Buffer
	out, err := m.Run(t.Context(), Command{
		Script: "read line; printf 'got %s' \"$line\"; cat >&2; # it's quoted: $HOME \\ \"",
		Stdin:  strings.NewReader("one\ntwo\n"), Tee: &tee,
	})
	if err != nil {
		t.Fatal(err)
	}
	if string(out.Stdout) != "got one" || string(out.Stderr) != "two\n" || tee.String() != "got one" {
		t.Errorf("stdout %q, stderr %q, tee %q", out.Stdout, out.Stderr, tee.String())
	}
	// A script longer than an argument may be, followed by a large upload.
	upload := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	out, err = m.Run(t.Context(), Command{
		Script: strings.Repeat("# "+strings.Repeat("x", 98)+"\n", 4000) + "wc -c", Stdin: bytes.NewReader(upload)})
	if err != nil || strings.TrimSpace(string(out.Stdout)) != "4194304" {
		t.Errorf("upload after a long script: %q, %v", out.Stdout, err)
	}
	for _, c := range s.ran() {
		if strings.Contains(c, "xxx") || strings.Contains(c, "got") {
			t.Errorf("the script is in the command line: %.100s", c)
		}
	}
	if n := s.connections.Load(); n != 1 {
		t.Errorf("%d connections for two commands", n)
	}
}

// TestEnvironment: every script has the variables, whatever is in them.
func TestEnvironment(t *testing.T) {
	key := newSigner(t)
	s := newServer(t, newSigner(t), key.PublicKey())
	m := newPool(t, Config{Signers: []ssh.Signer{key}, Environment: []string{"https_proxy=http://proxy:3128", "odd=it's $HOME=x"}}).Machine(s.host("m-0"))
	out, err := m.Run(t.Context(), Command{Script: `read line; sh -c 'echo "$https_proxy $odd"'; echo "$line"`, Stdin: strings.NewReader("one\n")})
	if err != nil || string(out.Stdout) != "http://proxy:3128 it's $HOME=x\none\n" {
		t.Errorf("stdout %q, %v", out.Stdout, err)
	}
}

func TestRunExitError(t *testing.T) {
	key := newSigner(t)
	s := newServer(t, newSigner(t), key.PublicKey())
	m := newPool(t, Config{Signers: []ssh.Signer{key}}).Machine(s.host("m-0"))
	out, err := m.Run(t.Context(), Command{Script: "echo before; echo 'Authorization: Bearer abcdefghijklm' >&2; exit 7"})
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code != 7 || exit.Machine != "m-0" {
		t.Fatalf("error is %v", err)
	}
	if strings.Contains(err.Error()+string(out.Stderr), "abcdefghijklm") || !strings.Contains(exit.Stderr, "Authorization") {
		t.Errorf("stderr is not redacted: %v", err)
	}
	if string(out.Stdout) != "before\n" {
		t.Errorf("output beside the error: %q", out.Stdout)
	}
}

func TestSudo(t *testing.T) {
	for user, want := range map[string]string{"root": "exec sh -c", "admin": "exec sudo -n sh -c"} {
		m := newMachine(NewPool(Config{}), Host{User: user})
		if got := m.shell(Command{Script: "x", Sudo: true}); !strings.HasPrefix(got, want) {
			t.Errorf("as %s: %s", user, got)
		}
	}
}

func TestSameMachineForEqualHosts(t *testing.T) {
	p := newPool(t, Config{})
	a := Host{Name: "a", HostKeys: []string{"k"}, Bastion: &Host{Name: "b"}}
	b := Host{Name: "a", Port: 22, HostKeys: []string{"k"}, Bastion: &Host{Name: "b"}}
	if p.Machine(a) != p.Machine(b) {
		t.Error("equal hosts gave two machines")
	}
	b.HostKeys = []string{"other"}
	if p.Machine(a) == p.Machine(b) {
		t.Error("another pinned key gave the same machine")
	}
}

func TestHostKeys(t *testing.T) {
	key := newSigner(t)
	ed, ec, rs := newSigner(t), newECDSASigner(t), newRSASigner(t)
	for _, tt := range []struct {
		name   string
		server ssh.Signer
		pinned []string
		ok     bool
		got    string // fingerprint that must be in the error
	}{
		{"ed25519", ed, []string{authorizedKey(ed)}, true, ""},
		{"ecdsa", ec, []string{authorizedKey(ec) + " a comment"}, true, ""},
		{"rsa", rs, []string{authorizedKey(rs)}, true, ""},
		{"one of several", ec, []string{authorizedKey(ed), authorizedKey(rs), authorizedKey(ec)}, true, ""},
		{"another key of the type", ed, []string{authorizedKey(newSigner(t))}, false, ssh.FingerprintSHA256(ed.PublicKey())},
		{"no key of the type", ed, []string{authorizedKey(ec)}, false, ""},
		{"none pinned", ed, nil, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, tt.server, key.PublicKey())
			h := s.host("m-0")
			h.HostKeys = tt.pinned
			var dials atomic.Int32
			m := newPool(t, Config{Signers: []ssh.Signer{key}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				dials.Add(1)
				return new(net.Dialer).DialContext(ctx, network, address)
			}}).Machine(h)
			_, err := m.Run(t.Context(), Command{Script: ":"})
			if tt.ok {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var mismatch *HostKeyError
			if !errors.As(err, &mismatch) || mismatch.Machine != "m-0" || len(mismatch.Wanted) != len(tt.pinned) {
				t.Fatalf("error is %v", err)
			}
			if !strings.Contains(err.Error(), tt.got) {
				t.Errorf("error %v does not show %s", err, tt.got)
			}
			if err := m.WaitReady(t.Context(), 0); !errors.As(err, &mismatch) || dials.Load() > 10 { // some may get no answer
				t.Errorf("WaitReady: %v after %d connections", err, dials.Load())
			}
			if len(s.ran()) > 0 || s.connections.Load() > 0 {
				t.Error("got through to the wrong machine")
			}
		})
	}
}

func TestAuthError(t *testing.T) {
	s := newServer(t, newSigner(t), newSigner(t).PublicKey())
	ours := newSigner(t)
	for name, cfg := range map[string]Config{"wrong key": {Signers: []ssh.Signer{ours}}, "no key": {}} {
		_, err := newPool(t, cfg).Machine(s.host("m-0")).Run(t.Context(), Command{Script: ":"})
		var auth *AuthError
		if !errors.As(err, &auth) || auth.User != "root" {
			t.Errorf("%s: error is %v", name, err)
		}
		if name == "wrong key" && !strings.Contains(err.Error(), ssh.FingerprintSHA256(ours.PublicKey())) {
			t.Errorf("error does not name the key offered: %v", err)
		}
	}
}

func TestUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := Host{Name: "m-0", Address: "192.0.2.1", User: "root", HostKeys: []string{authorizedKey(newSigner(t))}}
		var dials atomic.Int32
		m := newPool(t, Config{ConnectTimeout: 200 * time.Millisecond, Dial: func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			conn, _ := net.Pipe() // accepts and does not answer
			return conn, nil
		}}).Machine(h)
		start := time.Now()
		var wg sync.WaitGroup
		for range 10 { // many attempts at once take no longer than one
			wg.Go(func() {
				_, err := m.Run(t.Context(), Command{Script: ":"})
				var unreachable *UnreachableError
				if !errors.As(err, &unreachable) || unreachable.Address != h.addr() || !strings.Contains(err.Error(), "no answer within 200ms") {
					t.Errorf("error is %v", err)
				}
			})
		}
		wg.Wait()
		if d := time.Since(start); d != 200*time.Millisecond || dials.Load() != 1 {
			t.Errorf("took %s and %d connections", d, dials.Load())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		err := newPool(t, Config{Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, syscall.ECONNREFUSED
		}}).Machine(h).WaitReady(ctx, 20*time.Millisecond)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("WaitReady does not name the last condition: %v", err)
		}
	})
}

func TestWaitReady(t *testing.T) {
	key := newSigner(t)
	s := newServer(t, newSigner(t), key.PublicKey())
	s.refuse.Store(3) // as before cloud-init has created the user
	m := newPool(t, Config{Signers: []ssh.Signer{key}}).Machine(s.host("m-0"))
	if err := m.WaitReady(t.Context(), 10*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if n := s.refuse.Load(); n >= 0 {
		t.Errorf("ready although %d logins were still to be refused", n+1)
	}
}

func TestReconnect(t *testing.T) {
	key := newSigner(t)
	s := newServer(t, newSigner(t), key.PublicKey())
	m := newPool(t, Config{Signers: []ssh.Signer{key}}).Machine(s.host("m-0"))
	for range 3 {
		if err := m.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.breakConnections()
	}
	if n := s.connections.Load(); n != 3 {
		t.Errorf("%d connections, want 3", n)
	}
}

// TestPrepare checks that a connection that was opened ahead is the one that is used, and that a
// failure ahead counts only for those who were waiting.
func TestPrepare(t *testing.T) {
	key := newSigner(t)
	s := newServer(t, newSigner(t), key.PublicKey())
	m := newPool(t, Config{Signers: []ssh.Signer{key}}).Machine(s.host("m-0"))
	for range 3 {
		m.Prepare(t.Context())
	}
	for range 2 {
		if err := m.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.connections.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}

	var dials atomic.Int32
	var down atomic.Bool
	down.Store(true)
	dialed, answer := make(chan struct{}, 1), make(chan struct{})
	m = newPool(t, Config{Signers: []ssh.Signer{key}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		if !down.Load() {
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		dialed <- struct{}{}
		<-answer
		return nil, errors.New("it is down")
	}}).Machine(s.host("m-0"))
	m.Prepare(t.Context())
	<-dialed
	down.Store(false)
	close(answer)
	if m.mu.Lock(); m.trying != nil {
		a := m.trying
		m.mu.Unlock()
		<-a.done
	} else {
		m.mu.Unlock()
	}
	if err := m.Ping(RememberUnreachable(t.Context(), time.Hour)); err != nil {
		t.Errorf("a failure for which nobody waited is remembered: %v", err)
	}

	down.Store(true)
	answer = make(chan struct{})
	s.breakConnections()
	m = newPool(t, Config{Signers: []ssh.Signer{key}, Dial: m.pool.cfg.Dial}).Machine(s.host("m-0"))
	m.Prepare(t.Context())
	<-dialed
	waiting := make(chan error)
	go func() { waiting <- m.Ping(t.Context()) }()
	for joined := false; !joined; time.Sleep(time.Millisecond) {
		m.mu.Lock()
		joined = !m.trying.ahead
		m.mu.Unlock()
	}
	close(answer)
	before := dials.Load()
	if err := <-waiting; err == nil {
		t.Error("no error")
	}
	if err := m.Ping(RememberUnreachable(t.Context(), time.Hour)); err == nil || dials.Load() != before {
		t.Errorf("a failure for which one waited is not remembered: %v", err)
	}

	// A machine that is known to be unreachable is not connected to ahead, nor is one behind it,
	// and what is known of it stays.
	bastion, behind := s.host("m-0"), s.host("m-1")
	behind.Bastion = &bastion
	m.Prepare(t.Context())
	m.pool.Machine(behind).Prepare(t.Context())
	for range 50 { // what runs in the background has had its turn
		time.Sleep(time.Millisecond)
	}
	if err := m.Ping(RememberUnreachable(t.Context(), time.Hour)); err == nil || dials.Load() != before {
		t.Errorf("%d dials, %v", dials.Load()-before, err)
	}
}

// TestLostWhileRunning checks that a command that may have run is not repeated.
func TestLostWhileRunning(t *testing.T) {
	key := newSigner(t)
	s := newServer(t, newSigner(t), key.PublicKey())
	m := newPool(t, Config{Signers: []ssh.Signer{key}}).Machine(s.host("m-0"))
	started := &signalWriter{seen: make(chan struct{})}
	go func() { <-started.seen; s.breakConnections() }()
	out, err := m.Run(t.Context(), Command{Script: "echo started; exec sleep 600", Tee: started})
	var unreachable *UnreachableError
	if !errors.As(err, &unreachable) || string(out.Stdout) != "started\n" {
		t.Errorf("error is %v beside %q", err, out.Stdout)
	}
	if n := len(s.ran()); n != 1 {
		t.Errorf("the command was sent %d times", n)
	}
	if err := m.Ping(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

type signalWriter struct {
	once sync.Once
	seen chan struct{}
}

func (w *signalWriter) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.seen) })
	return len(p), nil
}

func TestCancelEndsTheCommand(t *testing.T) {
	key := newSigner(t)
	s := newServer(t, newSigner(t), key.PublicKey())
	m := newPool(t, Config{Signers: []ssh.Signer{key}}).Machine(s.host("m-0"))
	ctx, cancel := context.WithCancel(t.Context())
	started := &signalWriter{seen: make(chan struct{})}
	go func() { <-started.seen; cancel() }()
	start := time.Now()
	_, err := m.Run(ctx, Command{Script: "echo; exec sleep 600", Tee: started})
	if !errors.Is(err, context.Canceled) || time.Since(start) > time.Minute {
		t.Errorf("error %v after %s", err, time.Since(start))
	}
	for deadline := time.Now().Add(time.Minute); s.sessions.Load() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the command goes on on the machine")
		}
	}
	if err := m.Ping(t.Context()); err != nil || s.connections.Load() != 1 {
		t.Errorf("the connection should have survived: %v, %d connections", err, s.connections.Load())
	}
}

func TestSessionLimits(t *testing.T) {
	key := newSigner(t)
	for _, limit := range []int32{0, 3} { // OpenSSH's default, and a machine that allows fewer
		s := newServer(t, newSigner(t), key.PublicKey())
		s.maxSessions.Store(limit)
		m := newPool(t, Config{Signers: []ssh.Signer{key}}).Machine(s.host("m-0"))
		var wg sync.WaitGroup
		for range 25 {
			wg.Go(func() {
				if _, err := m.Run(t.Context(), Command{Script: "sleep 0.02"}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := s.connections.Load(); n != 1 {
			t.Errorf("%d connections for 25 commands", n)
		}
		if p := s.peak.Load(); p > maxSessions {
			t.Errorf("%d sessions at a time", p)
		}
	}
}

func TestBastion(t *testing.T) {
	key := newSigner(t)
	bastion := newServer(t, newSigner(t), key.PublicKey())
	inner := newServer(t, newSigner(t), key.PublicKey())
	p := newPool(t, Config{Signers: []ssh.Signer{key}})
	b := bastion.host("bastion")
	h := inner.host("m-0")
	h.Bastion = &b
	out, err := p.Machine(h).Run(t.Context(), Command{Script: "echo hello"})
	if err != nil || string(out.Stdout) != "hello\n" {
		t.Fatalf("%q, %v", out.Stdout, err)
	}
	if len(bastion.ran()) != 0 || bastion.connections.Load() != 1 {
		t.Error("the bastion is only for passing through")
	}
	// The bastion's own key is pinned, too.
	other := newServer(t, newSigner(t), key.PublicKey()).host("bastion")
	other.Port = b.Port
	h.Bastion = &other
	var mismatch *HostKeyError
	if err := p.Machine(h).WaitReady(t.Context(), 0); !errors.As(err, &mismatch) || mismatch.Machine != "bastion" {
		t.Errorf("wrong bastion: %v", err)
	}
	// The machine behind a working bastion does not answer.
	h = Host{Name: "m-1", Address: "127.0.0.1", Port: 1, User: "root", HostKeys: h.HostKeys, Bastion: &b}
	var unreachable *UnreachableError
	if err := p.Machine(h).Ping(t.Context()); !errors.As(err, &unreachable) || unreachable.Machine != "m-1" {
		t.Errorf("nothing behind the bastion: %v", err)
	}
	// The bastion lets everybody log in, and forwards nothing. Waiting does not help.
	bastion.prohibits.Store(true)
	var forwarding *ForwardingError
	if err := p.Machine(h).WaitReady(t.Context(), 0); !errors.As(err, &forwarding) || forwarding.Machine != "bastion" {
		t.Errorf("a bastion that forwards nothing: %v", err)
	}
	h.Bastion = &h
	if err := p.Machine(h).Ping(t.Context()); err == nil {
		t.Error("a machine that is its own bastion")
	}
}

func TestDial(t *testing.T) {
	key := newSigner(t)
	s := newServer(t, newSigner(t), key.PublicKey())
	m := newPool(t, Config{Signers: []ssh.Signer{key}}).Machine(s.host("m-0"))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
		}
		_, _ = io.WriteString(w, "hello")
	}))
	defer web.Close()
	client := http.Client{Transport: &http.Transport{DialContext: m.Dial}}
	for range 2 { // the second time over a new connection
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != "hello" {
			t.Errorf("body %q", body)
		}
		s.breakConnections()
		client.CloseIdleConnections()
	}
	conn, err := m.Dial(t.Context(), "tcp", web.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read past its deadline: %v", err)
	}
	var denied *ssh.OpenChannelError
	if _, err = m.Dial(t.Context(), "tcp", "127.0.0.1:1"); !errors.As(err, &denied) {
		t.Errorf("nobody listens: %v", err)
	}
	var forwarding *ForwardingError
	if errors.As(err, &forwarding) {
		t.Errorf("nobody listens, and the setting of sshd is blamed: %v", err)
	}
	s.prohibits.Store(true)
	_, err = m.Dial(t.Context(), "tcp", "127.0.0.1:2379")
	if !errors.As(err, &forwarding) || forwarding.Machine != "m-0" || forwarding.Address != "127.0.0.1:2379" || !errors.As(err, &denied) {
		t.Errorf("AllowTcpForwarding no: %v", err)
	}
}

// TestDeadPeer checks that keepalive notices a lost machine.
func TestDeadPeer(t *testing.T) {
	key := newSigner(t)
	s := newServer(t, newSigner(t), key.PublicKey())
	p := newPool(t, Config{Signers: []ssh.Signer{key}})
	p.keepaliveEvery, p.keepaliveGrace = 20*time.Millisecond, 100*time.Millisecond
	m := p.Machine(s.host("m-0"))
	s.deaf.Store(true)
	start := time.Now()
	_, err := m.Run(t.Context(), Command{Script: "exec sleep 600"})
	var unreachable *UnreachableError
	if !errors.As(err, &unreachable) || time.Since(start) > time.Minute {
		t.Errorf("error %v after %s", err, time.Since(start))
	}
}

func TestClosedPool(t *testing.T) {
	key := newSigner(t)
	s := newServer(t, newSigner(t), key.PublicKey())
	p := NewPool(Config{Signers: []ssh.Signer{key}})
	m := p.Machine(s.host("m-0"))
	if err := m.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if err := m.Ping(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
}
