package provider

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"golang.org/x/crypto/ssh"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// rootPath is path.MatchRoot with a shorter name.
func rootPath(name string) path.Expression { return path.MatchRoot(name) }

// stringCheck validates one string with a function that says what is wrong.
type stringCheck struct {
	description string
	check       func(string) error
}

func (v stringCheck) Description(context.Context) string         { return v.description }
func (v stringCheck) MarkdownDescription(context.Context) string { return v.description }

func (v stringCheck) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if err := v.check(req.ConfigValue.ValueString()); err != nil {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid value: must be "+v.description, err.Error())
	}
}

// canonicalCIDR accepts IPv4 networks without host bits, with a prefix length
// between shortest and longest.
func canonicalCIDR(shortest, longest int) validator.String {
	description := "an IPv4 network in CIDR notation without host bits"
	if shortest > 0 || longest < 32 {
		description += fmt.Sprintf(", /%d to /%d", shortest, longest)
	}
	return stringCheck{description, func(s string) error {
		p, err := netip.ParsePrefix(s)
		switch {
		case err != nil:
			return fmt.Errorf("%q is not a network in CIDR notation, such as 10.240.0.0/24", s)
		case !p.Addr().Is4():
			return fmt.Errorf("%s is an IPv6 network; only IPv4 is supported", s)
		case p != p.Masked():
			return fmt.Errorf("%s has host bits set; the network is %s", s, p.Masked())
		case p.Bits() < shortest || p.Bits() > longest:
			return fmt.Errorf("%s has a prefix length of /%d; it must lie between /%d and /%d", s, p.Bits(), shortest, longest)
		}
		return nil
	}}
}

// ipv4 accepts an IPv4 address.
func ipv4() validator.String {
	return stringCheck{"an IPv4 address", func(s string) error {
		if a, err := netip.ParseAddr(s); err != nil || !a.Is4() {
			return fmt.Errorf("%q is not an IPv4 address, such as 10.240.0.10", s)
		}
		return nil
	}}
}

var (
	dns1123     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	unixUser    = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
	dnsHostname = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$`)
)

// dnsLabel accepts a DNS-1123 label of at most max characters, as Kubernetes
// wants of the names of nodes and clusters.
func dnsLabel(max int) stringCheck {
	return stringCheck{fmt.Sprintf("a DNS label of at most %d characters", max), func(s string) error {
		if len(s) > max || !dns1123.MatchString(s) {
			return fmt.Errorf("%q must be 1 to %d lower-case letters, digits and hyphens, and begin and end with a letter or digit", s, max)
		}
		return nil
	}}
}

// clusterName accepts the name of a cluster. It becomes part of tag keys and
// parameter names.
func clusterName() validator.String {
	label := dnsLabel(40)
	return stringCheck{label.description + " that does not begin with sg-", func(s string) error {
		if strings.HasPrefix(s, "sg-") {
			return fmt.Errorf("%q begins with sg-, which EC2 keeps for the ids of security groups: it would refuse the groups' names", s)
		}
		return label.check(s)
	}}
}

// machineName accepts the name of a machine, which is its hostname and node name.
func machineName() validator.String { return dnsLabel(63) }

// dnsDomain accepts a DNS domain such as cluster.local.
func dnsDomain() validator.String {
	return stringCheck{"a DNS domain", func(s string) error {
		for label := range strings.SplitSeq(s, ".") {
			if len(label) > 63 || !dns1123.MatchString(label) {
				return fmt.Errorf("%q is not a DNS domain, such as cluster.local", s)
			}
		}
		return nil
	}}
}

// hostAddress accepts an IP address or DNS name.
func hostAddress() validator.String {
	return stringCheck{"an IP address or DNS name", func(s string) error {
		if _, err := netip.ParseAddr(s); err == nil || dnsHostname.MatchString(s) {
			return nil
		}
		return fmt.Errorf("%q is neither an IP address nor a DNS name", s)
	}}
}

func loginUser() validator.String {
	return stringCheck{"a login name other than root", func(s string) error {
		switch {
		case s == "root":
			return errors.New("root logins are off on the machines; name a user with passwordless sudo")
		case !unixUser.MatchString(s):
			return fmt.Errorf("%q is not a login name", s)
		}
		return nil
	}}
}

// goDuration accepts positive durations as Go writes them: "90s", "10m", "720h".
func goDuration() validator.String {
	return stringCheck{`a duration such as "90s", "10m" or "720h"`, func(s string) error {
		d, err := time.ParseDuration(s)
		switch {
		case err != nil:
			return fmt.Errorf("%q is not a duration; write a number with its unit: s, m or h", s)
		case d <= 0:
			return fmt.Errorf("%s is not longer than nothing", s)
		}
		return nil
	}}
}

// kubernetesVersion accepts a Kubernetes release that the provider can build.
func kubernetesVersion() validator.String {
	return stringCheck{"a supported Kubernetes version (" + strings.Join(version.Supported(), ", ") + ")", func(s string) error {
		_, err := version.ParseSupported(s)
		return err
	}}
}

// etcdVersion accepts a release of etcd that the provider can build.
func etcdVersion() validator.String {
	return stringCheck{"a supported etcd version (3.6, 3.7)", checkedVersion(version.CheckEtcd)}
}

// containerdVersion accepts a release of containerd that the provider can configure.
func containerdVersion() validator.String {
	return stringCheck{"a release of containerd 2", checkedVersion(version.CheckContainerd)}
}

// releaseVersion accepts the version of anything else: "1.5.2".
func releaseVersion() validator.String {
	return stringCheck{"a release version such as 1.5.2", checkedVersion(func(version.Version) error { return nil })}
}

func checkedVersion(check func(version.Version) error) func(string) error {
	return func(s string) error {
		v, err := version.Parse(s)
		if err != nil {
			return err
		}
		return check(v)
	}
}

// hostKey accepts an SSH public key in authorized_keys form.
func hostKey() validator.String {
	return stringCheck{"an SSH host key such as `ssh-ed25519 AAAA...`", func(s string) error {
		if _, _, _, _, err := ssh.ParseAuthorizedKey([]byte(s)); err != nil {
			return fmt.Errorf("not an SSH public key: %w; take a line of /etc/ssh/ssh_host_ed25519_key.pub", err)
		}
		return nil
	}}
}

func privateKey() validator.String {
	return stringCheck{"an SSH private key without a passphrase", func(s string) error {
		if _, err := ssh.ParsePrivateKey([]byte(strings.TrimSpace(s) + "\n")); err != nil {
			return errors.New(keyProblem(err))
		}
		return nil
	}}
}

// keyProblem says what is wrong with a private key without repeating any of it.
func keyProblem(err error) string {
	var passphrase *ssh.PassphraseMissingError
	if errors.As(err, &passphrase) {
		return "The key is protected by a passphrase: use an agent (ssh.agent), or a key without one."
	}
	return "It is not a private key in PEM or OpenSSH format. A line break lost or indented on the way (for example in an environment variable) is a common reason."
}

func httpURL() validator.String {
	return stringCheck{"an http or https URL", func(s string) error {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("%q is not an http or https URL", s)
		}
		return nil
	}}
}

func portNumber() validator.Int64 { return int64validator.Between(1, 65535) }

func atLeastOne() validator.Int64 { return int64validator.AtLeast(1) }

// tagValidators hold EC2's limits, and keep users from the library's own tags.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html
func tagValidators() []validator.Map {
	return []validator.Map{
		mapvalidator.SizeAtMost(40),
		mapvalidator.KeysAre(stringvalidator.LengthBetween(1, 128), stringCheck{"a tag key that the provider does not use itself", func(s string) error {
			if infraaws.ReservedTag(s) {
				return fmt.Errorf("the provider sets %q itself", s)
			}
			return nil
		}}),
		mapvalidator.ValueStringsAre(stringvalidator.LengthAtMost(256)),
	}
}

var amiID = regexp.MustCompile(`^ami-[0-9a-f]{8,17}$`)

func amiReference() validator.String {
	return stringCheck{"an AMI id or resolve:ssm:<parameter>", func(s string) error {
		if amiID.MatchString(s) || strings.HasPrefix(s, "resolve:ssm:/") {
			return nil
		}
		return fmt.Errorf("%q is neither an AMI id, such as ami-0123456789abcdef0, nor resolve:ssm:/some/parameter", s)
	}}
}

var parameterName = regexp.MustCompile(`^(/[a-zA-Z0-9_.-]+)+/$`)

// parameterPrefix accepts a path of SSM parameters.
func parameterPrefix() validator.String {
	return stringCheck{"a parameter path such as /k8s/demo/pki/", func(s string) error {
		switch {
		case !parameterName.MatchString(s):
			return fmt.Errorf("%q must begin and end with a slash, and hold letters, digits and _.- between slashes", s)
		case strings.HasPrefix(s, "/aws") || strings.HasPrefix(s, "/ssm"):
			return errors.New("names that begin with aws or ssm are kept by AWS")
		}
		return nil
	}}
}
