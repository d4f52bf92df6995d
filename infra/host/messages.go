package host

import (
	"regexp"
	"strings"
)

// Messages of programs on a machine that carry information available nowhere else.
// apply_packages.sh parses what apt-get and dpkg print about locks.

// portTaken finds the ports in messages of programs that cannot listen:
// "listen tcp 0.0.0.0:6443: bind: address already in use" (Go) and "cannot
// bind socket (Address already in use) [0.0.0.0:6443]" (HAProxy).
var portTaken = regexp.MustCompile(`(?i):(\d{1,5}): bind: address already in use|address already in use\) \[[^\]]*:(\d{1,5})\]`)

// diskFull matches ENOSPC and EDQUOT as strerror(3) and Go print them.
var diskFull = regexp.MustCompile(`(?i)no space left on device|disk quota exceeded`)

// withoutHint removes from systemctl's message the hint to the journal, which the
// error quotes anyway.
func withoutHint(said string) string {
	said, _, _ = strings.Cut(said, "\nSee \"systemctl status ")
	return said
}

// unfetchedURL finds in apt-get's output the first file that could not be fetched over
// HTTP. It skips mirror+file:, which Debian's EC2 images use and which is no URL for
// another client.
func unfetchedURL(said string) string {
	_, after, _ := strings.Cut(said, "Failed to fetch ")
	url, _, _ := strings.Cut(after, " ")
	if !strings.HasPrefix(url, "http") {
		return ""
	}
	return url
}
