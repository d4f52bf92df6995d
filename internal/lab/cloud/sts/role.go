package sts

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// limits are the policies and tags that a request gives its session.
type limits struct {
	Policy     string
	PolicyArns struct {
		Members []struct {
			Arn string `query:"arn"`
		} `query:"member"`
	}
	Tags struct {
		Members []sessionTag `query:"member"`
	}
}

type sessionTag struct{ Key, Value string }

type assumeRoleRequest struct {
	limits
	RoleArn           string
	RoleSessionName   string
	ExternalId        string
	SourceIdentity    string
	DurationSeconds   *int
	TransitiveTagKeys struct {
		Members []string `query:"member"`
	}
}

type assumeRoleResult struct {
	Credentials credentials `xml:"Credentials"`
	User        struct {
		ID  string `xml:"AssumedRoleId"`
		ARN string `xml:"Arn"`
	} `xml:"AssumedRoleUser"`
	Source string `xml:"SourceIdentity,omitempty"`
}

// https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
const (
	maxSessionPolicy = 2048 // characters
	maxSessionTags   = 50
	maxSessionARNs   = 10
)

var (
	roleARN     = regexp.MustCompile(`^arn:aws(?:-cn|-us-gov)?:iam::(\d{12}):role/(?:.+/)?([\w+=,.@-]{1,64})$`)
	sessionName = regexp.MustCompile(`^[\w+=,.@-]{2,64}$`)
)

// Assuming returns the condition keys of a request for a session, which the policies of the caller and the trust
// policy of the role see.
func Assuming(form url.Values) map[string][]string {
	out := map[string][]string{}
	for parameter, key := range map[string]string{"ExternalId": "sts:ExternalId", "RoleSessionName": "sts:RoleSessionName", "SourceIdentity": "sts:SourceIdentity"} {
		if v := form.Get(parameter); v != "" {
			out[key] = []string{v}
		}
	}
	for parameter := range form {
		item, ok := strings.CutSuffix(parameter, ".Key")
		if ok && strings.HasPrefix(item, "Tags.member.") {
			key := form.Get(parameter)
			out["aws:RequestTag/"+key] = []string{form.Get(item + ".Value")}
			out["aws:TagKeys"] = append(out["aws:TagKeys"], key)
		}
		if strings.HasPrefix(parameter, "TransitiveTagKeys.member.") {
			out["sts:TransitiveTagKeys"] = append(out["sts:TransitiveTagKeys"], form.Get(parameter))
		}
	}
	slices.Sort(out["aws:TagKeys"])
	return out
}

func (s *Service) assumeRole(form url.Values, accessKeyID string) (any, error) {
	var in assumeRoleRequest
	if err := wire.Decode(form, &in); err != nil {
		return nil, err
	}
	from, _ := s.session(accessKeyID)
	if in.SourceIdentity == "" {
		in.SourceIdentity = from.Source // which nobody can change in a chain of roles
	} else if from.Source != "" && from.Source != in.SourceIdentity {
		return nil, wire.RefuseWith(403, "AccessDenied", "SourceIdentity cannot be changed in a chain of roles")
	}
	who := Assumption{s.callerIdentity(accessKeyID).ARN, Assuming(form)}
	actions := []string{"AssumeRole"}
	if len(in.Tags.Members) > 0 {
		actions = append(actions, "TagSession")
	}
	if in.SourceIdentity != "" {
		actions = append(actions, "SetSourceIdentity")
	}
	denied := func(action string) error {
		return wire.RefuseWith(403, "AccessDenied", "User: %s is not authorized to perform: sts:%s on resource: %s", who.Caller, action, in.RoleArn)
	}
	return s.roleSession(who, actions, denied, from, in)
}

// roleSession makes a session of a role of the account. The role must trust who asks with each action. denied returns
// the error if it does not, or if there is no such role: STS does not say which.
func (s *Service) roleSession(who Assumption, actions []string, denied func(action string) error, from session, in assumeRoleRequest) (out assumeRoleResult, err error) {
	role := roleARN.FindStringSubmatch(in.RoleArn)
	switch {
	case role == nil:
		return out, wire.Refuse("ValidationError", "%s is invalid", in.RoleArn)
	case !sessionName.MatchString(in.RoleSessionName):
		return out, wire.Refuse("ValidationError", "1 validation error detected: Value '%s' at 'roleSessionName' failed to satisfy constraint: Member must satisfy regular expression pattern: [\\w+=,.@-]*", in.RoleSessionName)
	}
	for _, action := range actions {
		if !s.cfg.Trusts(in.RoleArn, action, who) {
			return out, denied(action)
		}
	}
	is := session{Source: in.SourceIdentity, Tags: from.transitive()}
	if err := s.limit(&is, in.limits); err != nil {
		return out, err
	}
	is.Transitive = slices.Concat(from.Transitive, in.TransitiveTagKeys.Members)
	out.User.ID = "AROALABLABLABLABLABLA:" + in.RoleSessionName
	out.User.ARN = s.assumed(role[2], in.RoleSessionName)
	out.Source = in.SourceIdentity
	is.ARN, is.UserID = out.User.ARN, out.User.ID
	out.Credentials, err = s.newSession(is, in.DurationSeconds, time.Hour)
	return out, err
}

// assumed returns the ARN of a session of a role.
func (s *Service) assumed(role, name string) string {
	return "arn:" + s.cfg.Partition + ":sts::" + s.cfg.AccountID + ":assumed-role/" + role + "/" + name
}

// transitive returns the tags that a session made with this one has.
func (s session) transitive() map[string]string {
	tags := maps.Clone(s.Tags)
	maps.DeleteFunc(tags, func(key, _ string) bool { return !slices.Contains(s.Transitive, key) })
	return tags
}

// limit gives a session the policies and tags of a request.
func (s *Service) limit(is *session, in limits) error {
	switch {
	case len(in.Policy) > maxSessionPolicy:
		return wire.Refuse("ValidationError", "1 validation error detected: Value at 'policy' failed to satisfy constraint: Member must have length less than or equal to %d", maxSessionPolicy)
	case len(in.PolicyArns.Members) > maxSessionARNs:
		return wire.Refuse("ValidationError", "1 validation error detected: Value at 'policyArns' failed to satisfy constraint: Member must have length less than or equal to %d", maxSessionARNs)
	case len(in.Tags.Members) > maxSessionTags:
		return wire.Refuse("ValidationError", "1 validation error detected: Value at 'tags' failed to satisfy constraint: Member must have length less than or equal to %d", maxSessionTags)
	}
	if in.Policy != "" {
		if err := s.cfg.CheckPolicy(in.Policy); err != nil {
			return wire.Refuse("MalformedPolicyDocument", "%v", err)
		}
		is.Limited, is.Policies = true, append(is.Policies, in.Policy)
	}
	for _, m := range in.PolicyArns.Members {
		document, ok := s.cfg.Managed(m.Arn)
		if !ok {
			return wire.Refuse("MalformedPolicyDocument", "The policy %s does not exist, or is not a policy of this account", m.Arn)
		}
		is.Limited, is.Policies = true, append(is.Policies, document)
	}
	folded := map[string]bool{}
	for key := range is.Tags {
		folded[strings.ToLower(key)] = true
	}
	for _, tag := range in.Tags.Members {
		if folded[strings.ToLower(tag.Key)] {
			return wire.Refuse("InvalidParameterValue", "Duplicate tag keys found, or a key is that of a transitive tag of the calling session. Tag keys are case insensitive.")
		}
		folded[strings.ToLower(tag.Key)] = true
		if is.Tags == nil {
			is.Tags = map[string]string{}
		}
		is.Tags[tag.Key] = tag.Value
	}
	return nil
}

type federationRequest struct {
	limits
	Name            string
	DurationSeconds *int
}

type federationResult struct {
	Credentials credentials `xml:"Credentials"`
	User        struct {
		ID  string `xml:"FederatedUserId"`
		ARN string `xml:"Arn"`
	} `xml:"FederatedUser"`
}

// federationToken makes a session of a user, which may do what both the user's policies and its own allow. Without a
// policy of its own it may do nothing.
// https://docs.aws.amazon.com/STS/latest/APIReference/API_GetFederationToken.html
func (s *Service) federationToken(form url.Values, accessKeyID string) (any, error) {
	var in federationRequest
	if err := wire.Decode(form, &in); err != nil {
		return nil, err
	}
	if _, ok := s.session(accessKeyID); ok {
		return nil, wire.RefuseWith(403, "AccessDenied", "Cannot call GetFederationToken with session credentials")
	}
	if !sessionName.MatchString(in.Name) || len(in.Name) > 32 {
		return nil, wire.Refuse("ValidationError", "1 validation error detected: Value '%s' at 'name' failed to satisfy constraint: Member must satisfy regular expression pattern: [\\w+=,.@-]*", in.Name)
	}
	is := session{User: s.callerIdentity(accessKeyID).ARN, Owner: accessKeyID == s.cfg.Owner.AccessKeyID}
	if err := s.limit(&is, in.limits); err != nil {
		return nil, err
	}
	is.Limited = true
	var out federationResult
	out.User.ID, out.User.ARN = s.cfg.AccountID+":"+in.Name, "arn:"+s.cfg.Partition+":sts::"+s.cfg.AccountID+":federated-user/"+in.Name
	is.ARN, is.UserID = out.User.ARN, out.User.ID
	var err error
	out.Credentials, err = s.newSession(is, in.DurationSeconds, 12*time.Hour)
	return out, err
}
