package host

import (
	"regexp"
	"strings"
)

// What programs on a machine say in words alone, and is read here because
// nothing else tells it. packages.sh reads what apt-get and dpkg say of locks.

// portTaken finds the ports in what programs say when they cannot listen:
// "listen tcp 0.0.0.0:6443: bind: address already in use" (Go) and "cannot
// bind socket (Address already in use) [0.0.0.0:6443]" (HAProxy).
var portTaken = regexp.MustCompile(`(?i):(\d{1,5}): bind: address already in use|address already in use\) \[[^\]]*:(\d{1,5})\]`)

// diskFull is ENOSPC and EDQUOT as strerror(3) and Go word them.
var diskFull = regexp.MustCompile(`(?i)no space left on device|disk quota exceeded`)

// withoutHint is what systemctl says less the hint to the journal, which is
// quoted beside it.
func withoutHint(said string) string {
	said, _, _ = strings.Cut(said, "\nSee \"systemctl status ")
	return said
}

// unfetched finds in what apt-get says the first file that it could not fetch
// over HTTP: not one of mirror+file:, as on Debian's EC2 images, which is no URL
// that anything else can ask for.
func unfetched(said string) string {
	_, after, _ := strings.Cut(said, "Failed to fetch ")
	url, _, _ := strings.Cut(after, " ")
	if !strings.HasPrefix(url, "http") {
		return ""
	}
	return url
}
