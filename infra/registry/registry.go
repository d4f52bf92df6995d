// Package registry renders the files in which containerd reads, before every pull, where it finds the images of a
// registry: mirrors, their authorities and their logins
// (https://github.com/containerd/containerd/blob/main/docs/hosts.md).
//
// Everything here is a pure function. What may not enter: I/O, where the files are on a machine, and other packages of
// this repository but invalid and egress.
package registry

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/egress"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// Registries are the mirrors of image registries, by the name that a registry has in the names of images: a host, with a
// port if need be. [Others] stands for all registries that are not named. Mirrors are asked in their order, and the registry
// itself at last.
type Registries map[string][]Mirror

// Others is the name of all registries that are not named.
const Others = "*"

// Mirror is a server that has images of a registry. It may be the registry itself, if that needs an authority or a login.
type Mirror struct {
	// URL is http or https. If it has a path, that is where the API begins; without one, the API is below /v2.
	URL string
	// CA are certificates in PEM that are trusted beside those of the machine. Empty means none.
	CA string
	// User is sent with Password, as Basic authentication, to the server, and to the server from which it lets clients get
	// tokens. Empty means no login.
	User string
	// PasswordVersion changes with the password: by it a machine is known to have another one.
	PasswordVersion int64
	// Password is needed only to write the file. It is empty otherwise, and in no JSON.
	Password string `json:"-"`
}

// MaxMirrors is how many mirrors a registry may have. containerd asks them one by one, and waits up to half a minute for each that is
// away.
const MaxMirrors = 10

// host is what a registry's name may be.
var host = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?$`)

// Check reports what cannot be written. field is the name of the map in the configuration.
func (r Registries) Check(field string) (errs invalid.Fields) {
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(r)) {
		at := fmt.Sprintf("%s[%q]", field, name)
		errs.Add(at, "Unusable registry", checkName(name))
		if other, twice := seen[strings.ToLower(name)]; twice {
			errs.Say(at, "Registry given twice", "%q and %q are the same host. Remove one of the two.", other, name)
		}
		seen[strings.ToLower(name)] = name
		if len(r[name]) > MaxMirrors {
			errs.Say(at+".mirrors", "Too many mirrors", "%d mirrors; a registry may have %d.", len(r[name]), MaxMirrors)
		}
		for i, m := range r[name] {
			m.check(fmt.Sprintf("%s.mirrors[%d]", at, i), r[name][:i], &errs)
		}
	}
	return errs
}

// aliases are names of Docker Hub that images do not have: their registry is docker.io.
var aliases = []string{"index.docker.io", "registry-1.docker.io", "hub.docker.com"}

func checkName(name string) error {
	switch {
	case name == Others:
	case name == "_default":
		return errors.New(`"_default" is the name of containerd's directory: write "*" for all registries that are not named`)
	case !host.MatchString(name):
		return fmt.Errorf(`%q is not a registry: want a host name, with a port if need be, such as registry.example.com:5000, or "*"`, name)
	case slices.Contains(aliases, name):
		return fmt.Errorf("no image has the registry %s: write docker.io, which is the registry of Docker Hub in the names of images", name)
	}
	return nil
}

// check reports what is wrong with a mirror that follows others. An empty URL may not be known yet.
func (m Mirror) check(at string, before []Mirror, errs *invalid.Fields) {
	if m.URL == "" {
		return
	}
	u, err := parse(m.URL)
	errs.Add(at+".url", "Unusable registry mirror", err)
	if err != nil {
		return
	}
	if slices.ContainsFunc(before, func(b Mirror) bool { return trim(b.URL) == trim(m.URL) }) {
		errs.Say(at+".url", "Mirror given twice", "%s is a mirror of this registry already. Remove one of the two.", trim(m.URL))
	}
	if m.CA != "" {
		_, err := egress.Authorities(m.CA)
		errs.Add(at+".ca_pem", "Unusable authority", err)
		if u.Scheme == "http" {
			errs.Say(at+".ca_pem", "Unused authority", "A mirror with http has no certificate. Write https in its url, or remove ca_pem.")
		}
	}
	if m.User == "" {
		return
	}
	if u.Scheme == "http" {
		errs.Say(at+".user", "Readable password", "With http, everybody on the way can read the password. Write https in the url; ca_pem names an authority of your own.")
	}
	if strings.ContainsFunc(m.User, func(r rune) bool { return r == ':' || r < ' ' || r == 0x7f }) {
		errs.Say(at+".user", "Unusable user", "%q has a colon or a control character, which Basic authentication does not allow.", m.User)
	}
}

// parse returns the URL of a mirror. containerd reads only its scheme, host and path.
func parse(at string) (*url.URL, error) {
	u, err := url.Parse(at)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || !host.MatchString(u.Host):
		return nil, errors.New("it is not an http or https URL of a host, such as https://mirror.example.com:5000")
	case u.User != nil:
		return nil, errors.New("containerd does not read a login in a URL. Remove it, and set user and password_wo")
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(at, "#"):
		return nil, errors.New("containerd reads neither a query nor a fragment of a mirror's URL: remove it")
	case strings.Contains(u.EscapedPath(), "'"):
		return nil, errors.New("its path has a quote")
	}
	return u, nil
}

// trim returns a URL without slashes at its end.
func trim(at string) string { return strings.TrimRight(at, "/") }
