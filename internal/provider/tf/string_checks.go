package tf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/attr/xattr"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

// StringCheck validates a string with a function that returns what is wrong.
type StringCheck struct {
	description string
	check       func(string) error
}

// Check returns a StringCheck. The description completes the sentence "must be".
func Check(description string, check func(string) error) StringCheck {
	return StringCheck{description, check}
}

// Description implements validator.Describer.
func (v StringCheck) Description(context.Context) string { return v.description }

// MarkdownDescription implements validator.Describer.
func (v StringCheck) MarkdownDescription(context.Context) string { return v.description }

// ValidateString implements validator.String.
func (v StringCheck) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if err := v.check(req.ConfigValue.ValueString()); err != nil {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid value: must be "+v.description, err.Error())
	}
}

// cidr validates IPv4 networks.
type cidr struct {
	StringCheck
}

// CIDR accepts IPv4 networks that have a form: one that describes itself, completing "must be", and
// says what is wrong with a network.
func CIDR(form interface {
	fmt.Stringer
	Check(netip.Prefix) error
}) validator.String {
	return cidr{Check(form.String(), func(s string) error {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return err // not reached: the type has reported it
		}
		return form.Check(p)
	})}
}

// ValidateString implements validator.String. The framework lets the type of an attribute validate
// its value, but not the type of a set's elements.
func (v cidr) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	var form xattr.ValidateAttributeResponse
	cidrtypes.IPv4Prefix{StringValue: req.ConfigValue}.ValidateAttribute(ctx, xattr.ValidateAttributeRequest{Path: req.Path}, &form)
	if resp.Diagnostics.Append(form.Diagnostics...); !resp.Diagnostics.HasError() {
		v.StringCheck.ValidateString(ctx, req, resp)
	}
}

var (
	dns1123     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	unixUser    = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
	dnsHostname = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$`)
)

// DNSLabel accepts a DNS-1123 label of at most max characters, as Kubernetes requires for the names
// of nodes.
func DNSLabel(max int) StringCheck {
	return Check(fmt.Sprintf("a DNS label of at most %d characters", max), func(s string) error {
		if len(s) > max || !dns1123.MatchString(s) {
			return fmt.Errorf("%q must be 1 to %d lower-case letters, digits and hyphens, and begin and end with a letter or digit", s, max)
		}
		return nil
	})
}

// And returns v with a further check, which runs first. description completes the description of v.
func (v StringCheck) And(description string, check func(string) error) StringCheck {
	return Check(v.description+" "+description, func(s string) error {
		if err := check(s); err != nil {
			return err
		}
		return v.check(s)
	})
}

// DNSDomain accepts a DNS domain such as cluster.local.
func DNSDomain() validator.String {
	return Check("a DNS domain", func(s string) error {
		for label := range strings.SplitSeq(s, ".") {
			if len(label) > 63 || !dns1123.MatchString(label) {
				return fmt.Errorf("%q is not a DNS domain, such as cluster.local", s)
			}
		}
		return nil
	})
}

// HostAddress accepts an IP address or DNS name.
func HostAddress() validator.String {
	return Check("an IP address or DNS name", func(s string) error {
		if _, err := netip.ParseAddr(s); err == nil || dnsHostname.MatchString(s) {
			return nil
		}
		return fmt.Errorf("%q is neither an IP address nor a DNS name", s)
	})
}

// IPv4 accepts an IPv4 address. The framework does not let the type of a map's elements validate them.
func IPv4() validator.String {
	return Check("an IPv4 address", func(s string) error {
		if ip, err := netip.ParseAddr(s); err != nil || !ip.Is4() {
			return fmt.Errorf("%q is not an IPv4 address", s)
		}
		return nil
	})
}

// LoginUser accepts the name of a Unix user other than root.
func LoginUser() validator.String {
	return Check("a login name other than root", func(s string) error {
		switch {
		case s == "root":
			return errors.New("root logins are off on the machines; name a user with passwordless sudo")
		case !unixUser.MatchString(s):
			return fmt.Errorf("%q is not a login name", s)
		}
		return nil
	})
}

// PositiveDuration accepts durations longer than zero. The type timetypes.GoDuration reports values
// that are no duration.
func PositiveDuration() validator.String {
	return Check(`a duration such as "90s", "10m" or "720h"`, func(s string) error {
		if d, err := time.ParseDuration(s); err == nil && d <= 0 {
			return fmt.Errorf("%s is not longer than zero", s)
		}
		return nil
	})
}

// HTTPURL accepts an http or https URL.
func HTTPURL() validator.String {
	return Check("an http or https URL", func(s string) error {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("%q is not an http or https URL", s)
		}
		return nil
	})
}

// Port accepts a TCP port.
func Port() validator.Int64 { return int64validator.Between(1, 65535) }
