// Package egress says through which HTTP proxy machines reach what is outside of their cluster, and what is a list of
// authorities that they may trust there.
//
// It is pure. What may not enter: how a program or a command gets the variables.
package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// Proxy is how machines reach what is outside of their cluster. The zero value is no proxy.
type Proxy struct {
	HTTP    string   // URL of the proxy for http:// URLs; empty for none
	HTTPS   string   // URL of the proxy for https:// URLs; empty for none
	NoProxy []string // hosts, domains and networks that are reached without it, beside the machine itself and EC2's metadata
}

// always is reached without a proxy: the machine itself, and the metadata of EC2 at both of its addresses.
var always = []string{"localhost", "127.0.0.1", "::1", "169.254.169.254", "fd00:ec2::254"}

// domain is a host or a domain, which may begin with a dot, and a port.
var domain = regexp.MustCompile(`^\.?([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*(:[0-9]{1,5})?$`)

// IsZero reports whether there is no proxy.
func (p Proxy) IsZero() bool { return p.HTTP == "" && p.HTTPS == "" }

// Check reports what programs would not understand, by the fields http, https and no_proxy[i].
func (p Proxy) Check() (errs invalid.Fields) {
	if p.IsZero() {
		errs.Say("", "No proxy", "Set http, https or both.")
	}
	for _, u := range []struct{ field, text string }{{"http", p.HTTP}, {"https", p.HTTPS}} {
		if u.text != "" {
			checkURL(&errs, u.field, u.text)
		}
	}
	for i, s := range p.NoProxy {
		_, err := netip.ParsePrefix(s)
		if err != nil {
			var a netip.Addr
			if a, err = netip.ParseAddr(s); a.Zone() != "" {
				err = errors.New("a zone is that of one machine")
			}
		}
		if _, port, found := strings.Cut(s, ":"); err != nil && (!domain.MatchString(s) || found && !isPort(port)) {
			errs.Say(fmt.Sprintf("no_proxy[%d]", i), "Unusable exception", "%q is neither a host such as registry.example.com, a domain such as .example.com, an address, nor a network such as 10.0.0.0/8.", s)
		}
	}
	return errs
}

func checkURL(errs *invalid.Fields, field, text string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		errs.Say(field, "Unusable proxy", "Want the URL of an HTTP proxy, such as http://proxy.example.com:3128.")
	case u.User != nil:
		errs.Say(field, "A proxy with a password", "The URL has a user name. Everybody on a machine may read the settings of its units, so the password would be no secret there. "+
			"Let the proxy know the machines by their addresses.")
	case !isPort(u.Port()):
		errs.Say(field, "Unusable proxy", "The URL has no port from 1 to 65535. Without one programs differ in the port that they take: write it, such as http://proxy.example.com:3128.")
	case strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "":
		errs.Say(field, "Unusable proxy", "The URL of a proxy has no path: write %s://%s.", u.Scheme, u.Host)
	case strings.ContainsAny(text, `%"'\$ `):
		errs.Say(field, "Unusable proxy", `The URL must not contain a space or any of %%"'\$.`)
	}
}

func isPort(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n > 0 && n < 1<<16
}

// Environment returns the variables, each as NAME=value, by which curl, apt, dnf and programs in Go find the proxy: all of
// them read the names in lower case. near is what is reached without the proxy as well. Without a proxy there are none.
func (p Proxy) Environment(near ...string) []string {
	if p.IsZero() {
		return nil
	}
	exceptions := slices.Concat(always, near, p.NoProxy)
	slices.Sort(exceptions)
	var out []string
	for _, v := range []struct{ name, value string }{{"http_proxy", p.HTTP}, {"https_proxy", p.HTTPS}, {"no_proxy", strings.Join(slices.Compact(exceptions), ",")}} {
		if v.value != "" {
			out = append(out, v.name+"="+v.value)
		}
	}
	return out
}
