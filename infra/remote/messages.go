package remote

import (
	"strings"

	"golang.org/x/crypto/ssh"
)

// What the ssh package and sshd say in words alone, and is read here because nothing else tells it.

// refused tells an answer to authentication from a broken connection.
func refused(err error) bool {
	return strings.Contains(err.Error(), "unable to authenticate") ||
		strings.Contains(err.Error(), "Too many authentication failures")
}

// NothingListens tells whether the machine's sshd could not forward a connection because the other
// side refused it. The reason that SSH gives is the same when no packet arrives there (RFC 4254,
// section 5.1).
func NothingListens(denied *ssh.OpenChannelError) bool {
	return denied.Reason == ssh.ConnectionFailed && strings.Contains(strings.ToLower(denied.Message), "refused")
}
