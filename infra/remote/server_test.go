package remote

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"
)

// server is an SSH server that runs commands with this machine's shell.
type server struct {
	t        *testing.T
	listener net.Listener
	cfg      *ssh.ServerConfig
	hostKey  ssh.Signer

	maxSessions atomic.Int32 // refuses more sessions at a time; 0 = no limit
	sessions    atomic.Int32 // open now
	peak        atomic.Int32 // most open at a time
	connections atomic.Int32 // accepted so far, authenticated
	prohibits   atomic.Bool  // forwards nothing, as with AllowTcpForwarding no
	deaf        atomic.Bool  // does not answer global requests (keepalives)
	refuse      atomic.Int32 // logins still to refuse

	mu       sync.Mutex
	open     []net.Conn
	commands []string
}

func newSigner(t *testing.T) ssh.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return signer(t, key, err)
}

func newECDSASigner(t *testing.T) ssh.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return signer(t, key, err)
}

func newRSASigner(t *testing.T) ssh.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	return signer(t, key, err)
}

func signer(t *testing.T, key any, err error) ssh.Signer {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newServer serves on a loopback port until the test ends.
func newServer(t *testing.T, hostKey ssh.Signer, user ssh.PublicKey, options ...func(*ssh.ServerConfig)) *server {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, listener: l, hostKey: hostKey}
	s.cfg = &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if s.refuse.Add(-1) >= 0 || string(key.Marshal()) != string(user.Marshal()) {
				return nil, errors.New("not authorized")
			}
			return nil, nil
		},
	}
	s.cfg.AddHostKey(hostKey)
	for _, o := range options {
		o(s.cfg)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.open = append(s.open, conn)
			s.mu.Unlock()
			go s.serve(conn)
		}
	}()
	t.Cleanup(func() { l.Close(); s.breakConnections() })
	return s
}

// breakConnections closes every connection, as a machine that restarts does.
func (s *server) breakConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.open {
		c.Close()
	}
	s.open = nil
}

func (s *server) ran() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.commands...)
}

// host describes the server as a machine with its key pinned.
func (s *server) host(name string) Host {
	addr := s.listener.Addr().(*net.TCPAddr)
	return Host{Name: name, Address: "127.0.0.1", Port: addr.Port, User: "root", HostKeys: []string{authorizedKey(s.hostKey)}}
}

func authorizedKey(s ssh.Signer) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.PublicKey())))
}

func (s *server) serve(conn net.Conn) {
	defer conn.Close()
	sc, chans, reqs, err := ssh.NewServerConn(conn, s.cfg)
	if err != nil {
		return
	}
	defer sc.Close()
	s.connections.Add(1)
	go func() {
		for r := range reqs {
			if r.WantReply && !s.deaf.Load() {
				_ = r.Reply(false, nil)
			}
		}
	}()
	for c := range chans {
		switch c.ChannelType() {
		case "session":
			if limit := s.maxSessions.Load(); limit > 0 && s.sessions.Load() >= limit {
				_ = c.Reject(ssh.ConnectionFailed, "open failed")
				continue
			}
			n := s.sessions.Add(1)
			for p := s.peak.Load(); n > p && !s.peak.CompareAndSwap(p, n); p = s.peak.Load() {
			}
			go s.session(c)
		case "direct-tcpip":
			go s.forward(c)
		default:
			_ = c.Reject(ssh.UnknownChannelType, "no")
		}
	}
}

func (s *server) session(c ssh.NewChannel) {
	ch, reqs, err := c.Accept()
	if err != nil {
		s.sessions.Add(-1)
		return
	}
	defer ch.Close()
	defer s.sessions.Add(-1) // before the client may open another one
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for r := range reqs {
		if r.Type != "exec" {
			_ = r.Reply(false, nil)
			continue
		}
		var msg struct{ Command string }
		_ = ssh.Unmarshal(r.Payload, &msg)
		s.mu.Lock()
		s.commands = append(s.commands, msg.Command)
		s.mu.Unlock()
		_ = r.Reply(true, nil)
		go func() { // a signal, or the end of the channel
			defer cancel()
			for r := range reqs {
				if r.Type == "signal" {
					return
				}
			}
		}()
		cmd := exec.CommandContext(ctx, "sh", "-c", msg.Command)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, ch, ch.Stderr()
		in, err := cmd.StdinPipe()
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(in, ch); in.Close() }()
		status := struct{ Status uint32 }{}
		if err := cmd.Run(); err != nil {
			status.Status = 255
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.ExitCode() >= 0 {
				status.Status = uint32(exit.ExitCode())
			}
		}
		_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(status))
		return
	}
}

func (s *server) forward(c ssh.NewChannel) {
	if s.prohibits.Load() {
		_ = c.Reject(ssh.Prohibited, "open failed")
		return
	}
	var to struct {
		Addr       string
		Port       uint32
		OriginAddr string
		OriginPort uint32
	}
	if err := ssh.Unmarshal(c.ExtraData(), &to); err != nil {
		_ = c.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	conn, err := (&net.Dialer{}).DialContext(s.t.Context(), "tcp", net.JoinHostPort(to.Addr, strconv.Itoa(int(to.Port))))
	if err != nil {
		_ = c.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	ch, reqs, err := c.Accept()
	if err != nil {
		conn.Close()
		return
	}
	go ssh.DiscardRequests(reqs)
	go func() { _, _ = io.Copy(conn, ch); conn.Close() }()
	_, _ = io.Copy(ch, conn)
	ch.Close()
}
