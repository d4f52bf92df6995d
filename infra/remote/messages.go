package remote

import (
	"strings"

	"golang.org/x/crypto/ssh"
)

// Messages of the ssh package and of sshd that carry information available nowhere else.

// refused reports whether authentication was refused, as opposed to a broken connection.
func refused(err error) bool {
	return strings.Contains(err.Error(), "unable to authenticate") ||
		strings.Contains(err.Error(), "Too many authentication failures")
}

// NothingListens reports whether the machine's sshd could not forward a connection because the
// other side refused it. SSH's reason code is the same when no packet arrives there (RFC 4254,
// section 5.1), so the message decides.
func NothingListens(denied *ssh.OpenChannelError) bool {
	return denied.Reason == ssh.ConnectionFailed && strings.Contains(strings.ToLower(denied.Message), "refused")
}
