package hosts

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// Counts is what clients have done over SSH since the last Reset.
type Counts struct {
	Handshakes atomic.Int64 // that succeeded
	Commands   atomic.Int64 // round trips: scripts that were run
	Tunnels    atomic.Int64 // connections from a machine to somewhere
	Bytes      atomic.Int64 // in both directions
}

// Reset sets all counts to zero.
func (c *Counts) Reset() {
	c.Handshakes.Store(0)
	c.Commands.Store(0)
	c.Tunnels.Store(0)
	c.Bytes.Store(0)
}

// Server is the SSH server of all machines.
type Server struct {
	Fleet *Fleet
	// Find returns the machine that has an address, nil if none has.
	Find func(netip.Addr) *Host
	// After, if not nil, is called after each command, before the client hears that it has ended.
	After func(*Host)
}

// Serve serves until ctx ends. The address that a client connects to says which machine it means.
func (s *Server) Serve(ctx context.Context, l net.Listener) {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go s.serve(ctx, conn)
	}
}

func (s *Server) serve(ctx context.Context, conn net.Conn) {
	conn = &counted{conn, &s.Fleet.Bytes}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	to, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return
	}
	h := s.Find(to.Addr().Unmap())
	if h == nil {
		return
	}
	config, err := h.config()
	if err != nil {
		return
	}
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	s.Fleet.Handshakes.Add(1)
	go answer(requests)
	for c := range channels {
		switch c.ChannelType() {
		case "session":
			go s.session(ctx, h, c)
		case "direct-tcpip":
			go s.forward(ctx, h, c)
		default:
			_ = c.Reject(ssh.UnknownChannelType, "unknown channel type")
		}
	}
}

// answer answers keepalives as OpenSSH does, with a failure: the request is unknown.
func answer(requests <-chan *ssh.Request) {
	for r := range requests {
		if r.WantReply {
			_ = r.Reply(false, nil)
		}
	}
}

// config reads the machine's host key, as sshd does for each connection.
func (h *Host) config() (*ssh.ServerConfig, error) {
	signer, err := ssh.ParsePrivateKey([]byte(h.Read("etc/ssh/ssh_host_ed25519_key")))
	if err != nil {
		return nil, err
	}
	config := &ssh.ServerConfig{PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		offered := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
		for _, line := range h.LoginKeys {
			if c.User() == h.User && strings.HasPrefix(line+" ", offered+" ") {
				return nil, nil
			}
		}
		return nil, errors.New("not authorised")
	}}
	config.AddHostKey(signer)
	return config, nil
}

func (s *Server) session(ctx context.Context, h *Host, c ssh.NewChannel) {
	channel, requests, err := c.Accept()
	if err != nil {
		return
	}
	defer func() { _ = channel.Close() }()
	for r := range requests {
		if r.Type != "exec" {
			_ = r.Reply(false, nil)
			continue
		}
		var msg struct{ Command string }
		if err := ssh.Unmarshal(r.Payload, &msg); err != nil {
			_ = r.Reply(false, nil)
			return
		}
		s.Fleet.Commands.Add(1)
		_ = r.Reply(true, nil)
		go answer(requests)
		status := struct{ Status uint32 }{h.run(ctx, msg.Command, channel)}
		if s.After != nil {
			s.After(h)
		}
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(status))
		return
	}
}

// run runs a command in the machine's tree and returns its exit status.
func (h *Host) run(ctx context.Context, command string, channel ssh.Channel) uint32 {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin", "HOME=/root", "USER=" + h.User}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: h.Root, Setpgid: true}
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	cmd.WaitDelay = time.Second // for programs that it leaves running
	in, err := cmd.StdinPipe()
	if err != nil {
		return 255
	}
	if err := cmd.Start(); err != nil {
		return 255
	}
	go func() {
		_, _ = io.Copy(in, channel)
		_ = in.Close()
	}()
	_ = cmd.Wait() // the status says how it ended
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return uint32(code) //nolint:gosec // at most 255
	}
	return 255
}

// forward carries a connection from the machine. A connection to its loopback address goes to its
// private address, on which the servers listen too.
func (s *Server) forward(ctx context.Context, h *Host, c ssh.NewChannel) {
	var to struct {
		Host   string
		Port   uint32
		Origin string
		From   uint32
	}
	if err := ssh.Unmarshal(c.ExtraData(), &to); err != nil {
		_ = c.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	if to.Host == "127.0.0.1" || to.Host == "localhost" {
		to.Host = h.Address.String()
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))))
	if err != nil {
		_ = c.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	defer func() { _ = conn.Close() }()
	channel, requests, err := c.Accept()
	if err != nil {
		return
	}
	defer func() { _ = channel.Close() }()
	s.Fleet.Tunnels.Add(1)
	go answer(requests)
	Join(conn, channel)
}

// Join carries bytes between two connections until one of them ends.
func Join(a, b io.ReadWriteCloser) {
	var once sync.Once
	done := make(chan struct{})
	carry := func(to, from io.ReadWriteCloser) {
		_, _ = io.Copy(to, from)
		once.Do(func() { close(done) })
	}
	go carry(a, b)
	go carry(b, a)
	<-done
	_, _ = a.Close(), b.Close()
}

// counted counts the bytes of a connection.
type counted struct {
	net.Conn
	n *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.n.Add(int64(n))
	return n, err
}
