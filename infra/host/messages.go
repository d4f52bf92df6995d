package host

import (
	"errors"
	"regexp"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// Messages of programs on a machine that carry information available nowhere else.
// apply_packages.sh parses what apt-get and dpkg print about locks.

// portTaken finds the ports in messages of programs that cannot listen: "listen tcp 0.0.0.0:6443:
// bind: address already in use" (Go) and "cannot bind socket (Address already in use)
// [0.0.0.0:6443]" (HAProxy).
var portTaken = regexp.MustCompile(`(?i):(\d{1,5}): bind: address already in use|address already in use\) \[[^\]]*:(\d{1,5})\]`)

// diskFull matches ENOSPC and EDQUOT as strerror(3) and Go print them.
var diskFull = regexp.MustCompile(`(?i)no space left on device|disk quota exceeded`)

// Said returns the output of the program on a machine whose failure err reports. It is empty if err
// is not a program's, or if its output is not known.
func Said(err error) string {
	var apply *ApplyError
	if errors.As(err, &apply) {
		return apply.Said
	}
	var exit *remote.ExitError
	if errors.As(err, &exit) {
		return exit.Stderr
	}
	return ""
}

// withoutHint removes from systemctl's message the hint to the journal, which the error quotes
// anyway.
func withoutHint(said string) string {
	said, _, _ = strings.Cut(said, "\nSee \"systemctl status ")
	return said
}

// unfetchedURL finds in apt-get's output the first file that could not be fetched over HTTP. It
// skips mirror+file:, which Debian's EC2 images use and which is no URL for another client.
func unfetchedURL(said string) string {
	_, after, _ := strings.Cut(said, "Failed to fetch ")
	url, _, _ := strings.Cut(after, " ")
	if !strings.HasPrefix(url, "http") {
		return ""
	}
	return url
}
