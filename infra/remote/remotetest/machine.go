// Package remotetest has a machine for tests: an SSH server in this process that gives scripts to a
// function instead of a shell. What may not enter: what scripts mean.
package remotetest

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// Machine is the machine. It lets everybody in. Nothing listens on its own ports.
type Machine struct {
	Host remote.Host
	// Dial connects the machine to an address. Nil refuses. An [*ssh.OpenChannelError] is the answer as it is.
	Dial func(address string) (net.Conn, error)

	run      func(script string) (stdout string, status int)
	config   *ssh.ServerConfig
	listener net.Listener

	mu   sync.Mutex
	away bool
	open []net.Conn
}

// New serves a machine until the test ends. run gets each script, and returns what it prints and
// its exit status. It may call Leave, in which case nobody hears the answer.
func New(t *testing.T, name string, run func(script string) (stdout string, status int)) *Machine {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	m := &Machine{run: run, config: &ssh.ServerConfig{NoClientAuth: true}}
	m.config.AddHostKey(signer)
	if m.listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	at := m.listener.Addr().(*net.TCPAddr) //nolint:forcetypeassert // it listens on TCP
	m.Host = remote.Host{Name: name, Address: "127.0.0.1", Port: at.Port, User: "root",
		HostKeys: []string{strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))}}
	go m.accept()
	t.Cleanup(func() { m.listener.Close(); m.Leave() })
	return m
}

// Leave breaks all connections and lets nobody in any more, as a machine that is cut off.
func (m *Machine) Leave() { m.set(true) }

// Return ends Leave.
func (m *Machine) Return() { m.set(false) }

func (m *Machine) set(away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = away
	for _, c := range m.open {
		c.Close()
	}
	m.open = nil
}

func (m *Machine) accept() {
	for {
		conn, err := m.listener.Accept()
		if err != nil {
			return
		}
		m.mu.Lock()
		if m.away {
			conn.Close()
		} else {
			m.open = append(m.open, conn)
			go m.serve(conn)
		}
		m.mu.Unlock()
	}
}

func (m *Machine) serve(conn net.Conn) {
	defer conn.Close()
	_, channels, requests, err := ssh.NewServerConn(conn, m.config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for c := range channels {
		if m.Dial != nil && c.ChannelType() == "direct-tcpip" {
			go m.forward(c)
			continue
		}
		if c.ChannelType() != "session" {
			_ = c.Reject(ssh.ConnectionFailed, "Connection refused")
			continue
		}
		go m.session(c)
	}
}

// forward carries a connection that the client opens from the machine.
func (m *Machine) forward(c ssh.NewChannel) {
	var to struct {
		Host   string
		Port   uint32
		Origin string
		From   uint32
	}
	_ = ssh.Unmarshal(c.ExtraData(), &to)
	conn, err := m.Dial(fmt.Sprintf("%s:%d", to.Host, to.Port))
	if err != nil {
		denied := &ssh.OpenChannelError{Reason: ssh.ConnectionFailed, Message: err.Error()}
		_ = errors.As(err, &denied)
		_ = c.Reject(denied.Reason, denied.Message)
		return
	}
	defer conn.Close()
	channel, requests, err := c.Accept()
	if err != nil {
		return
	}
	defer channel.Close()
	go ssh.DiscardRequests(requests)
	go func() { _, _ = io.Copy(conn, channel); conn.Close() }()
	_, _ = io.Copy(channel, conn)
}

func (m *Machine) session(c ssh.NewChannel) {
	channel, requests, err := c.Accept()
	if err != nil {
		return
	}
	defer channel.Close()
	for r := range requests {
		if r.Type != "exec" {
			_ = r.Reply(false, nil)
			continue
		}
		var msg struct{ Command string }
		_ = ssh.Unmarshal(r.Payload, &msg)
		_ = r.Reply(true, nil)
		go ssh.DiscardRequests(requests)
		// The script is the first part of standard input; the command says how long it is.
		var size int
		_, after, _ := strings.Cut(msg.Command, "head -c ")
		_, _ = fmt.Sscanf(after, "%d", &size)
		script, err := io.ReadAll(io.LimitReader(channel, int64(size)))
		if err != nil {
			return
		}
		stdout, status := m.run(string(script))
		_, _ = io.WriteString(channel, stdout)
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(status)})) //nolint:gosec // an exit status
		return
	}
}
