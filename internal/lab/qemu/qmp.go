package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// replyTimeout bounds the wait for one answer of QEMU, which takes milliseconds on an idle host.
const replyTimeout = 20 * time.Second

// monitor is a connection to a virtual machine's monitor. QEMU serves one at a time, so it is
// closed soon.
type monitor struct {
	conn net.Conn
	in   *bufio.Reader
}

// An Error is QEMU's answer to a command that failed.
type Error struct {
	Command string
	Class   string `json:"class"`
	Desc    string `json:"desc"`
}

func (e *Error) Error() string { return fmt.Sprintf("QEMU, %s: %s", e.Command, e.Desc) }

// open connects to the virtual machine that was started in dir.
func open(ctx context.Context, dir string) (*monitor, error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	// The path of a socket has 107 bytes at most, and the path of dir may be longer.
	at, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join("/proc/self/fd", fmt.Sprint(at.Fd()), socket))
	if err != nil {
		return nil, fmt.Errorf("QEMU's monitor: %w", err)
	}
	m := &monitor{conn: conn, in: bufio.NewReader(conn)}
	_ = conn.SetDeadline(time.Now().Add(replyTimeout))
	if _, err := m.in.ReadBytes('\n'); err != nil { // the greeting
		_ = conn.Close()
		return nil, fmt.Errorf("QEMU's monitor: %w", err)
	}
	if err := m.do("qmp_capabilities", nil, nil); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return m, nil
}

func (m *monitor) close() { _ = m.conn.Close() }

// do runs a command, and decodes what it returns into answer unless that is nil. An *Error says
// that QEMU refused it.
func (m *monitor) do(command string, arguments map[string]any, answer any) error {
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	_ = m.conn.SetDeadline(time.Now().Add(replyTimeout))
	if _, err := m.conn.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("QEMU, %s: %w", command, err)
	}
	for {
		line, err := m.in.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("QEMU, %s: %w", command, err)
		}
		var reply struct {
			Return json.RawMessage `json:"return"`
			Error  *Error          `json:"error"`
		}
		if err := json.Unmarshal(line, &reply); err != nil {
			return fmt.Errorf("QEMU, %s: %w", command, err)
		}
		switch {
		case reply.Error != nil:
			reply.Error.Command = command
			return reply.Error
		case reply.Return == nil: // an event
		case answer == nil:
			return nil
		default:
			return json.Unmarshal(reply.Return, answer)
		}
	}
}
