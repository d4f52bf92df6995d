package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
)

const (
	// maxOutput bounds a command's standard output, and its standard error. The largest outputs are
	// observations of a machine and the files that an import reads: less than a megabyte.
	maxOutput = 16 << 20
	// stderrEnd is how much of the end of standard error is kept.
	stderrEnd = 16 << 10
)

// Machine runs commands on one machine and opens connections from it. It is safe for concurrent
// use.
type Machine struct {
	pool *Pool
	host Host

	mu     sync.Mutex
	conn   *connection
	trying *attempt // an attempt to connect that is in progress
	failed *attempt // the last attempt, if it failed
}

func newMachine(p *Pool, h Host) *Machine { return &Machine{pool: p, host: h} }

// Command is a POSIX shell script to run.
type Command struct {
	// Name says what the command changes on the machine, for [Config.Watch]; empty if it changes
	// nothing.
	Name string
	// Script is the script's text. It is sent over standard input, so it may be long and appears
	// neither in the process list nor in sudo's log. It must not contain a NUL byte.
	Script string
	// Stdin is the script's own standard input; secrets are sent here.
	Stdin io.Reader
	// Sudo runs the script as root. Unless the login user is root, it needs passwordless sudo.
	Sudo bool
	// Tee, if set, gets standard output as it arrives, in one goroutine at a time and not after Run
	// has returned. An error of it ends the command.
	Tee io.Writer
}

// Output is a command's output. Only the end of standard error is kept, redacted.
type Output struct {
	Stdout, Stderr []byte
}

// Name returns the machine's name for people.
func (m *Machine) Name() string { return m.host.Name }

// Host returns how the machine is reached.
func (m *Machine) Host() Host { return m.host }

// Run runs one command in one round trip. The error is an [*ExitError] if the command ended with a
// status other than zero, and an [*UnreachableError], [*HostKeyError] or [*AuthError] if the
// machine could not be talked to. If the context ended first, the error wraps the context's error,
// and the command gets a signal to end, as one does that writes too much: the error wraps a
// [*foreign.TooMuchError] then. Output holds what has arrived, also with an error.
//
// A connection that turns out dead before the command is sent is replaced once. A command that may
// have started is never repeated.
func (m *Machine) Run(ctx context.Context, cmd Command) (Output, error) {
	conn, session, err := m.session(ctx)
	if err != nil {
		return Output{}, err
	}
	defer conn.give()
	defer conn.end()
	if cmd.Name != "" && m.pool.cfg.Watch != nil {
		m.pool.cfg.Watch(m.host.Name, cmd.Name, false)
		defer m.pool.cfg.Watch(m.host.Name, cmd.Name, true)
	}
	defer m.pool.cfg.Timing.Start(ctx, "SSH "+cmp.Or(cmd.Name, "look"))()
	return m.run(ctx, conn, session, cmd)
}

// session opens a session, on a new connection if the pooled one is dead. The caller gives the connection
// back when the session has ended.
func (m *Machine) session(ctx context.Context) (*connection, *ssh.Session, error) {
	again := true
	for {
		c, reused, err := m.connection(ctx, m.pool.cfg.ConnectTimeout)
		if err != nil {
			return nil, nil, err
		}
		s, shared, err := c.session(ctx)
		if err == nil {
			return c, s, nil
		}
		c.give()
		var denied *ssh.OpenChannelError
		switch {
		case ctx.Err() != nil:
			return nil, nil, fmt.Errorf("machine %s: open an SSH session: %w", m.host.Name, ctx.Err())
		case errors.As(err, &denied) && shared:
			// The machine allows fewer sessions than usual: wait for one of ours to end.
			sleep(ctx, 50*time.Millisecond)
		case errors.As(err, &denied):
			return nil, nil, fmt.Errorf("machine %s: open an SSH session: %w", m.host.Name, err)
		default:
			m.drop(c)
			if !reused || !again {
				return nil, nil, m.pool.unreachable(m.host, err)
			}
			again = false
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// run runs cmd in an open session and closes it.
func (m *Machine) run(ctx context.Context, conn *connection, session *ssh.Session, cmd Command) (Output, error) {
	defer session.Close()
	cmd.Script = exports(m.pool.cfg.Environment) + cmd.Script
	failed := make(chan error, 2)
	fail := func(err error) {
		var much *foreign.TooMuchError
		if errors.As(err, &much) && much.From == "" {
			much.From = "machine " + m.host.Name
		}
		failed <- err
	}
	stdout := &capture{limit: maxOutput, tee: cmd.Tee, ctx: ctx, fail: fail}
	defer stdout.detach() // output after an interruption is dropped
	stderr := &capture{limit: maxOutput, end: stderrEnd, fail: fail}
	session.Stdout, session.Stderr = stdout, stderr
	// Not session.Stdin: Wait would wait for a reader that never ends.
	stdin, err := session.StdinPipe()
	if err != nil {
		return Output{}, fmt.Errorf("machine %s: %w", m.host.Name, err)
	}
	output := func() Output {
		return Output{Stdout: stdout.bytes(), Stderr: []byte(foreign.Text(string(stderr.bytes())))}
	}

	ended := make(chan error, 1)
	go func() {
		if err := session.Start(m.shell(cmd)); err != nil {
			ended <- err
			return
		}
		go func() {
			defer stdin.Close()
			in := io.Reader(strings.NewReader(cmd.Script))
			if cmd.Stdin != nil {
				in = io.MultiReader(in, cmd.Stdin)
			}
			_, _ = io.Copy(stdin, in) // a command may end before it has read everything
		}()
		ended <- session.Wait()
	}()
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = fmt.Errorf("machine %s: command interrupted: %w", m.host.Name, ctx.Err())
		return output(), interrupt(session, err)
	case err = <-failed:
		return output(), interrupt(session, fmt.Errorf("machine %s: command ended: %w", m.host.Name, err))
	}
	if len(failed) > 0 { // it ended at the same time
		return output(), fmt.Errorf("machine %s: %w", m.host.Name, <-failed)
	}

	out := output()
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return out, nil
	case errors.As(err, &exit):
		return out, &ExitError{Machine: m.host.Name, Code: exit.ExitStatus(), Signal: exit.Signal(), Stderr: string(out.Stderr)}
	default:
		m.drop(conn)
		return out, m.pool.unreachable(m.host, fmt.Errorf("connection lost while a command ran: %w", err))
	}
}

// exports returns the commands that set variables, each as NAME=value.
func exports(variables []string) string {
	var b strings.Builder
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		fmt.Fprintf(&b, "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
	}
	return b.String()
}

// interrupt ends a command, and returns why. sudo does not pass the signal on. Closing the session ends
// standard input, and a script ends when it next writes.
func interrupt(session *ssh.Session, why error) error {
	_ = session.Signal(ssh.SIGTERM)
	session.Close()
	return why
}

// shell returns the command line for the machine's login shell. The script is the first part of
// standard input; head reads exactly its bytes from the pipe.
func (m *Machine) shell(cmd Command) string {
	line := fmt.Sprintf(`sh -c 'eval "$(head -c %d)"'`, len(cmd.Script))
	if cmd.Sudo && m.host.User != "root" {
		line = "sudo -n " + line
	}
	return "exec " + line
}

// Dial opens a connection from the machine to addr, resolved on the machine, through the SSH
// connection. The error is an [*ssh.OpenChannelError] if the machine could not connect, in a [*ForwardingError] if
// its sshd may not.
func (m *Machine) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	for again := true; ; again = false {
		c, reused, err := m.connection(ctx, m.pool.cfg.ConnectTimeout)
		if err != nil {
			return nil, err
		}
		end := m.pool.cfg.Timing.Start(ctx, "SSH forward")
		conn, err := c.dial(ctx, network, addr)
		end()
		if err == nil {
			return &deadlineConn{Conn: conn, ended: sync.OnceFunc(c.give)}, nil
		}
		c.give()
		var denied *ssh.OpenChannelError
		if errors.As(err, &denied) && denied.Reason == ssh.Prohibited {
			return nil, &ForwardingError{Machine: m.host.Name, User: m.host.User, Address: addr, Err: denied}
		}
		if ctx.Err() != nil || denied != nil {
			return nil, fmt.Errorf("machine %s: connect to %s: %w", m.host.Name, addr, err)
		}
		m.drop(c)
		if !reused || !again {
			return nil, m.pool.unreachable(m.host, err)
		}
	}
}

// dial opens a connection from the machine. It gives up when the SSH connection is lost: the ssh package may
// wait for ever for an answer on one that ends meanwhile.
func (c *connection) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-c.lost:
			cancel()
		case <-ctx.Done():
		}
	}()
	return c.client.DialContext(ctx, network, addr)
}

// Ping makes sure that there is an authenticated connection on which the machine answers. Its
// errors are those of Run.
func (m *Machine) Ping(ctx context.Context) error {
	_, err := m.Run(ctx, Command{Script: ":"})
	return err
}

// drop forgets a dead connection.
func (m *Machine) drop(c *connection) {
	c.client.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn == c {
		m.conn = nil
	}
}

// disconnect closes the connection, if there is one.
func (m *Machine) disconnect() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != nil {
		m.conn.client.Close()
		m.conn = nil
	}
}

// end ends the use of a session.
func (c *connection) end() {
	c.ended.Add(1)
	<-c.sessions
}

// session opens a session once fewer than maxSessions are in use. The caller ends it. If the session is refused,
// shared says whether another one was in use meanwhile.
func (c *connection) session(ctx context.Context) (s *ssh.Session, shared bool, err error) {
	select {
	case c.sessions <- struct{}{}:
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	before := c.ended.Load()
	type result struct {
		session *ssh.Session
		err     error
	}
	opened := make(chan result, 1)
	go func() {
		s, err := c.client.NewSession()
		opened <- result{s, err}
	}()
	select {
	case r := <-opened:
		if r.err != nil {
			<-c.sessions
			shared = len(c.sessions) > 0 || c.ended.Load() > before
		}
		return r.session, shared, r.err
	case <-ctx.Done():
		go func() {
			if r := <-opened; r.err == nil {
				r.session.Close()
			}
			c.end()
		}()
		return nil, false, ctx.Err()
	}
}
