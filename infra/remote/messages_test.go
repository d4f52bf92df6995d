package remote

import (
	"testing"

	"golang.org/x/crypto/ssh"
)

func TestNothingListens(t *testing.T) {
	for _, tt := range []struct {
		denied ssh.OpenChannelError
		want   bool
	}{
		{ssh.OpenChannelError{Reason: ssh.ConnectionFailed, Message: "Connection refused"}, true},
		{ssh.OpenChannelError{Reason: ssh.ConnectionFailed, Message: "Connection timed out"}, false},
		{ssh.OpenChannelError{Reason: ssh.ConnectionFailed, Message: "No route to host"}, false},
		{ssh.OpenChannelError{Reason: ssh.Prohibited, Message: "open refused"}, false},
	} {
		if got := NothingListens(&tt.denied); got != tt.want {
			t.Errorf("%v: %t", &tt.denied, got)
		}
	}
}
