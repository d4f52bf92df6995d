package lab

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
)

// resolveTimeout bounds finding out where packages come from: a host that
// cannot tell has none to lose.
const resolveTimeout = 3 * time.Second

// sources returns the addresses of what the host gets packages and modules
// from, which a lab's network must not cover.
func sources(ctx context.Context) []netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	urls := []string{artifact.DebianUpstream("/etc/apt"), machine.DebianMirror()}
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
