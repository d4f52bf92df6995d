package cloud

import (
	"encoding/json"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// bucketStatement is a statement of a bucket's policy. The object store evaluates it for objects, and this account for what
// the object store does not have.
type bucketStatement struct {
	Effect       string
	Principal    any
	NotPrincipal any
	Action       any
	Resource     any
	Condition    map[string]map[string]any
}

// bucketStatements reads a policy that the object store has accepted, or will refuse.
func bucketStatements(policy []byte) ([]bucketStatement, error) {
	var document struct{ Statement json.RawMessage }
	if err := json.Unmarshal(policy, &document); err != nil {
		return nil, err
	}
	var all []bucketStatement
	if json.Unmarshal(document.Statement, &all) == nil {
		return all, nil
	}
	all = make([]bucketStatement, 1)
	return all, json.Unmarshal(document.Statement, &all[0])
}

// publicPolicy reports whether S3 calls a bucket's policy public: it allows something to everybody, and not only to fixed
// principals, networks or sources. Denials make no difference. What is no JSON is no policy.
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/access-control-block-public-access.html#access-control-block-public-access-policy-status
func publicPolicy(policy []byte) bool {
	if !json.Valid(policy) {
		return false
	}
	all, err := bucketStatements(policy)
	return err != nil || slices.ContainsFunc(all, func(s bucketStatement) bool {
		return s.Effect != "Deny" && (s.NotPrincipal != nil || slices.Contains(texts(s.Principal), "*")) && !s.fixed()
	})
}

// texts returns the texts in a JSON value that is one, or a list of them, or has them as fields.
func texts(value any) (out []string) {
	switch v := value.(type) {
	case string:
		return []string{v}
	case []any:
		for _, one := range v {
			out = append(out, texts(one)...)
		}
	case map[string]any:
		for _, one := range v {
			out = append(out, texts(one)...)
		}
	}
	return out
}

// fixedKeys are condition keys that limit a statement to what somebody owns.
var fixedKeys = []string{
	"aws:principalarn", "aws:principalaccount", "aws:principalorgid", "aws:sourcearn", "aws:sourcevpc", "aws:sourcevpce", "aws:sourceowner", "aws:sourceaccount",
	"aws:userid", "s3:x-amz-server-side-encryption-aws-kms-key-id", "s3:dataaccesspointarn", "s3:dataaccesspointaccount",
}

// fixed reports whether a condition limits the statement to fixed values.
func (s bucketStatement) fixed() bool {
	for operator, keys := range s.Condition {
		operator = strings.TrimPrefix(operator, "ForAnyValue:") // of ForAllValues and IfExists, a request without the key is not limited
		for key, value := range keys {
			key, values := strings.ToLower(key), texts(value)
			switch {
			case len(values) == 0:
			case key == "aws:sourceip" && operator == "IpAddress":
				if !slices.ContainsFunc(values, func(v string) bool { return !narrow(v) }) {
					return true
				}
			case slices.Contains(fixedKeys, key) && slices.Contains([]string{"StringEquals", "StringEqualsIgnoreCase", "StringLike", "ArnEquals", "ArnLike"}, operator):
				if !slices.ContainsFunc(values, func(v string) bool { return !fixedValue(key, v) }) {
					return true
				}
			}
		}
	}
	return false
}

// fixedValue reports whether a value has neither wildcards nor variables. The name of an access point may have them if its
// account is fixed.
func fixedValue(key, value string) bool {
	if parts := strings.SplitN(value, ":", 6); key == "s3:dataaccesspointarn" && len(parts) == 6 {
		value = parts[4]
	}
	return value != "" && !strings.ContainsAny(value, "*?") && !strings.Contains(value, "${")
}

// narrow reports whether a network is not too wide to be a set of fixed addresses: an IPv4 network of at least 8 bits, an
// IPv6 network of at least 32.
func narrow(network string) bool {
	p, err := netip.ParsePrefix(network)
	if err != nil {
		_, err := netip.ParseAddr(network)
		return err == nil
	}
	if p.Addr().Is4() {
		return p.Bits() >= 8
	}
	return p.Bits() >= 32
}

// decideByPolicy reports what a bucket's policy says of an action on the bucket itself by a caller of the account, who may
// have several names. Conditions are not evaluated: a denial holds in any case, and a permission does not.
func decideByPolicy(policy []byte, caller []string, account, action, bucket string) (allowed, denied bool) {
	all, err := bucketStatements(policy)
	if err != nil {
		return false, false
	}
	for _, s := range all {
		matches := func(patterns any, subject string) bool {
			return slices.ContainsFunc(texts(patterns), func(p string) bool {
				ok, _ := path.Match(p, subject) // neither has a slash
				return ok
			})
		}
		by := func(names ...string) bool {
			return slices.ContainsFunc(texts(s.Principal), func(p string) bool { return slices.Contains(names, p) })
		}
		if !matches(s.Action, action) || !matches(s.Resource, "arn:aws:s3:::"+bucket) { // the object store knows one partition
			continue
		}
		direct := by(append(caller, "*")...)
		denied = denied || s.Effect == "Deny" && (direct || by(account, "arn:aws:iam::"+account+":root"))
		allowed = allowed || s.Effect == "Allow" && direct && s.Condition == nil
	}
	return allowed, denied
}
