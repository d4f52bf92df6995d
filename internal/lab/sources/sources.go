// Package sources finds out where the host gets Debian packages and Go modules from.
//
// It downloads nothing, and knows nothing of what is made of them.
package sources

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"
)

// DebianMirrorEnv names the environment variable with the base URL of the Debian mirror that images
// are built from and that the machines' package archive fetches from. The default is Debian's own
// mirror network. The security archive is expected at the same URL with "-security" appended. The
// host's own sources are not used: they may be another distribution's, or lack a release.
const DebianMirrorEnv = "K8S_LAB_DEBIAN_MIRROR"

const defaultDebianMirror = "http://deb.debian.org/debian"

// DebianMirror returns the base URL of the Debian mirror in use.
func DebianMirror() string { return cmp.Or(os.Getenv(DebianMirrorEnv), defaultDebianMirror) }

// resolveTimeout bounds Addresses. A host that cannot resolve these names cannot reach the sources
// anyway.
const resolveTimeout = 3 * time.Second

// Addresses returns the addresses from which the host gets packages and modules. A lab's network
// must not contain them.
func Addresses(ctx context.Context) []netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	urls := []string{aptMirror("/etc/apt"), DebianMirror()}
	if out, err := exec.CommandContext(ctx, "go", "env", "GOPROXY").Output(); err == nil {
		urls = append(urls, strings.FieldsFunc(string(out), func(r rune) bool { return r == ',' || r == '|' || r == '\n' })...)
	}
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		urls = append(urls, os.Getenv(name))
	}
	var out []netip.Addr
	for _, u := range urls {
		parsed, err := url.Parse(u)
		if err != nil || parsed.Hostname() == "" {
			continue
		}
		found, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", parsed.Hostname())
		if err != nil {
			continue
		}
		for _, a := range found {
			out = append(out, a.Unmap())
		}
	}
	return out
}
