package remote

import (
	"fmt"
	"strings"
)

// UnreachableError says that the machine could not be reached, or that the connection broke before
// the command ended. It says nothing about whether the machine still exists.
type UnreachableError struct {
	Machine string
	Address string // host:port
	Through string // name of the bastion through which it is reached, empty if there is none
	Tunnel  string // name of the tunnels through which it is reached, empty if there are none
	Err     error  // the last condition seen; an UnreachableError too if it is the bastion's
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("machine %s (%s) is unreachable: %v", e.Machine, e.Address, e.Err)
}

// Unwrap returns the last condition seen.
func (e *UnreachableError) Unwrap() error { return e.Err }

// ForwardingError says that the sshd of a machine forwards no connections, because its configuration forbids
// it: AllowTcpForwarding, DisableForwarding or PermitOpen. A [WayError] around it says that the machine is a bastion.
type ForwardingError struct {
	Machine string
	User    string // who logs in there
	Address string // host:port, as the machine would have resolved it
	Err     error  // the refusal, an [*ssh.OpenChannelError]
}

func (e *ForwardingError) Error() string {
	return fmt.Sprintf("the SSH server of %s forwards no connection to %s for %s: its configuration forbids it (AllowTcpForwarding)", e.Machine, e.Address, e.User)
}

// Unwrap returns the refusal.
func (e *ForwardingError) Unwrap() error { return e.Err }

// HostKeyError says that the machine showed a host key that is not pinned, or that no key is
// pinned. Retrying never helps.
type HostKeyError struct {
	Machine string
	Address string
	Wanted  []string // SHA256 fingerprints with key type; empty if none is pinned
	Got     []string // the keys the machine showed; empty if it has no key of a pinned type
}

func (e *HostKeyError) Error() string {
	where := fmt.Sprintf("machine %s (%s)", e.Machine, e.Address)
	switch {
	case len(e.Wanted) == 0:
		return where + ": no SSH host key is pinned, refusing to connect"
	case len(e.Got) == 0:
		return fmt.Sprintf("%s: SSH host key mismatch: it has no host key of a pinned type (pinned %s)",
			where, strings.Join(e.Wanted, ", "))
	default:
		return fmt.Sprintf("%s: SSH host key mismatch: it showed %s, pinned %s; either the machine was "+
			"reinstalled or something else answers at its address",
			where, strings.Join(e.Got, ", "), strings.Join(e.Wanted, ", "))
	}
}

// AuthError says that the machine, with a pinned host key, accepted none of our keys.
type AuthError struct {
	Machine string
	Address string
	User    string
	Offered []string // SHA256 fingerprints of the keys offered
	Err     error
}

func (e *AuthError) Error() string {
	offered := "no key was configured"
	if len(e.Offered) > 0 {
		offered = "keys offered: " + strings.Join(e.Offered, ", ")
	}
	return fmt.Sprintf("machine %s (%s): SSH login as %q refused (%s): %v",
		e.Machine, e.Address, e.User, offered, e.Err)
}

// Unwrap returns the error of the SSH handshake.
func (e *AuthError) Unwrap() error { return e.Err }

// ExitError says that a command ended with a status other than zero.
type ExitError struct {
	Machine string
	Code    int    // exit status; 128 plus the signal's number when killed
	Signal  string // "KILL", "TERM", ...; empty when it exited by itself
	Stderr  string // the end of standard error, redacted
}

func (e *ExitError) Error() string {
	how := fmt.Sprintf("exited with status %d", e.Code)
	if e.Signal != "" {
		how = "was killed by SIG" + e.Signal
	}
	if s := strings.TrimSpace(e.Stderr); s != "" {
		how += ": " + s
	}
	return fmt.Sprintf("machine %s: command %s", e.Machine, how)
}
