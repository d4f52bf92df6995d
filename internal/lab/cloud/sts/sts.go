// Package sts is the local cloud's Security Token Service: it returns a caller's identity and
// issues temporary credentials, which are kept in one private file. IAM says who may assume a role.
//
// It knows nothing of signatures, faults, HTTP and other services.
package sts

import (
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Config is a Service's configuration.
type Config struct {
	File      string // where sessions are kept, mode 0600; empty keeps them in memory
	AccountID string
	Partition string          // of the owner's ARN
	Owner     aws.Credentials // who may do everything
	// User returns the secret key and the ARN of the user with an access key id.
	User func(accessKeyID string) (secret, arn string, ok bool)
	// Trusts reports whether a role of the account exists and trusts who wants to assume it.
	Trusts func(role string, who Assumption) bool
	// CheckPolicy reports what is wrong with the policy of a session.
	CheckPolicy func(document string) error
	Now         func() time.Time
	Rand        io.Reader // for keys
	// Lifetime returns how long a session lasts that was asked for a lifetime.
	Lifetime func(asked time.Duration) time.Duration
}

// Assumption is a request for a session of a role.
type Assumption struct {
	Action  string              // AssumeRole or AssumeRoleWithWebIdentity
	Caller  string              // ARN of the caller, or of the identity provider
	Context map[string][]string // condition keys
}

// Service knows every credential of the account. Its methods are safe for concurrent use.
type Service struct {
	cfg      Config
	mu       sync.Mutex
	sessions map[string]session // by access key id
}

// session is a session of AssumeRole or GetSessionToken, or that of an instance.
type session struct {
	Secret, Token, ARN, UserID string
	Policy                     string    `json:",omitempty"` // of the session
	Owner                      bool      `json:",omitempty"` // the session is the owner's
	Instance                   string    `json:",omitempty"` // the EC2 instance it was issued to
	Issued                     time.Time `json:",omitzero"`
	Expires                    time.Time
}

// remembered is how long an expired session is kept, so that its key is refused as expired and not
// as unknown.
const remembered = time.Hour

// Open reads the sessions kept in cfg.File, if it exists.
func Open(cfg Config) (*Service, error) {
	s := &Service{cfg: cfg, sessions: map[string]session{}}
	if cfg.File == "" {
		return s, nil
	}
	if err := file.ReadJSON(cfg.File, &s.sessions); err != nil {
		return nil, fmt.Errorf("reading the sessions: %w", err)
	}
	return s, nil
}

// Credentials returns the credentials of an access key id, also if they have expired. ok is false
// if it is unknown.
func (s *Service) Credentials(accessKeyID string) (creds aws.Credentials, ok bool) {
	if accessKeyID == s.cfg.Owner.AccessKeyID {
		return s.cfg.Owner, true
	}
	if secret, _, ok := s.cfg.User(accessKeyID); ok {
		return aws.Credentials{AccessKeyID: accessKeyID, SecretAccessKey: secret}, true
	}
	is, ok := s.session(accessKeyID)
	return aws.Credentials{AccessKeyID: accessKeyID, SecretAccessKey: is.Secret, SessionToken: is.Token}, ok
}

// Caller returns who an access key belongs to: the ARN, whether it is the owner, and the policy of
// the session, if it has one.
func (s *Service) Caller(accessKeyID string) (arn string, owner bool, policy string) {
	is, _ := s.session(accessKeyID)
	return s.callerIdentity(accessKeyID).ARN, is.Owner || accessKeyID == s.cfg.Owner.AccessKeyID, is.Policy
}

// Expired reports whether the credentials of an access key id have expired.
func (s *Service) Expired(accessKeyID string) bool {
	is, ok := s.session(accessKeyID)
	return ok && s.cfg.Now().After(is.Expires)
}

func (s *Service) session(accessKeyID string) (session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, ok := s.sessions[accessKeyID]
	return is, ok
}

type credentials struct {
	AccessKeyID  string    `xml:"AccessKeyId"`
	Secret       string    `xml:"SecretAccessKey"`
	SessionToken string    `xml:"SessionToken"`
	Expiration   time.Time `xml:"Expiration"`
}

type callerIdentity struct {
	ARN     string `xml:"Arn"`
	UserID  string `xml:"UserId"`
	Account string `xml:"Account"`
}

type assumeRoleRequest struct {
	RoleArn         string
	RoleSessionName string
	ExternalId      string
	SourceIdentity  string
	Policy          string
	DurationSeconds *int
	PolicyArns      struct {
		Members []struct {
			Arn string `query:"arn"`
		} `query:"member"`
	}
	Tags struct {
		Members []struct{ Key, Value string } `query:"member"`
	}
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
}

type sessionTokenRequest struct{ DurationSeconds *int }

type sessionTokenResult struct {
	Credentials credentials `xml:"Credentials"`
}

// actions are those served here.
var actions = map[string]func(s *Service, form url.Values, accessKeyID string) (any, error){
	"GetCallerIdentity": func(s *Service, _ url.Values, key string) (any, error) { return s.callerIdentity(key), nil },
	"AssumeRole":        (*Service).assumeRole,
	"GetSessionToken":   (*Service).sessionToken,
	// DecodeAuthorizationMessage returns what the message of a refusal by EC2 holds.
	"DecodeAuthorizationMessage": func(_ *Service, form url.Values, _ string) (any, error) { return decodeMessage(form) },
	WithWebIdentity:              func(s *Service, form url.Values, _ string) (any, error) { return s.assumeRoleWithWebIdentity(form) },
}

// Actions returns the names of the actions that are served here, sorted.
func Actions() []string { return slices.Sorted(maps.Keys(actions)) }

// Serve runs one action with its form parameters for the owner of an access key, and returns the
// answer. Refusals are *wire.Error.
func (s *Service) Serve(action string, form url.Values, accessKeyID string) (any, error) {
	run, ok := actions[action]
	if !ok {
		return nil, wire.Refuse("InvalidAction", "Could not find operation %s for version 2011-06-15", action)
	}
	return run(s, form, accessKeyID)
}

func (s *Service) sessionToken(form url.Values, accessKeyID string) (any, error) {
	in := sessionTokenRequest{}
	if err := wire.Decode(form, &in); err != nil {
		return nil, err
	}
	if _, ok := s.session(accessKeyID); ok {
		return nil, wire.RefuseWith(403, "AccessDenied", "Cannot call GetSessionToken with session credentials")
	}
	me := s.callerIdentity(accessKeyID)
	creds, err := s.newSession(session{ARN: me.ARN, UserID: me.UserID, Owner: accessKeyID == s.cfg.Owner.AccessKeyID}, in.DurationSeconds, 12*time.Hour)
	return sessionTokenResult{creds}, err
}

func (s *Service) callerIdentity(accessKeyID string) callerIdentity {
	if is, ok := s.session(accessKeyID); ok {
		return callerIdentity{is.ARN, is.UserID, s.cfg.AccountID}
	}
	if _, arn, ok := s.cfg.User(accessKeyID); ok {
		return callerIdentity{arn, "AIDA" + strings.TrimPrefix(accessKeyID, "AKIA"), s.cfg.AccountID}
	}
	return callerIdentity{"arn:" + s.cfg.Partition + ":iam::" + s.cfg.AccountID + ":user/lab", "AIDALABLABLABLABLABLA", s.cfg.AccountID}
}

// maxSessionPolicy is how many characters the policy of a session may have.
// https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
const maxSessionPolicy = 2048

var (
	roleARN     = regexp.MustCompile(`^arn:aws:iam::(\d{12}):role/(?:.+/)?([\w+=,.@-]{1,64})$`)
	sessionName = regexp.MustCompile(`^[\w+=,.@-]{2,64}$`)
)

// ExternalID returns the condition keys of an AssumeRole request.
func ExternalID(form url.Values) map[string][]string {
	if id := form.Get("ExternalId"); id != "" {
		return map[string][]string{"sts:ExternalId": {id}}
	}
	return nil
}

func (s *Service) assumeRole(form url.Values, accessKeyID string) (any, error) {
	var in assumeRoleRequest
	if err := wire.Decode(form, &in); err != nil {
		return nil, err
	}
	if len(in.PolicyArns.Members) > 0 {
		return nil, errManagedPolicies
	}
	who := Assumption{"AssumeRole", s.callerIdentity(accessKeyID).ARN, ExternalID(form)}
	denied := wire.RefuseWith(403, "AccessDenied", "User: %s is not authorized to perform: sts:AssumeRole on resource: %s", who.Caller, in.RoleArn)
	return s.roleSession(who, denied, in.RoleArn, in.RoleSessionName, in.Policy, in.DurationSeconds)
}

var errManagedPolicies = wire.Refuse("ValidationError", "The local STS knows no managed policies: give the session a policy document.")

// RoleName returns the name of the role that an ARN names, empty if it names none.
func RoleName(arn string) string {
	if role := roleARN.FindStringSubmatch(arn); role != nil {
		return role[2]
	}
	return ""
}

// roleSession makes a session of a role of the account. denied is the error if there is no such role,
// or if it does not trust the caller: STS does not say which.
func (s *Service) roleSession(who Assumption, denied error, arn, name, policy string, seconds *int) (out assumeRoleResult, err error) {
	role := roleARN.FindStringSubmatch(arn)
	switch {
	case role == nil:
		return out, wire.Refuse("ValidationError", "%s is invalid", arn)
	case !sessionName.MatchString(name):
		return out, wire.Refuse("ValidationError", "1 validation error detected: Value '%s' at 'roleSessionName' failed to satisfy constraint: Member must satisfy regular expression pattern: [\\w+=,.@-]*", name)
	case role[1] != s.cfg.AccountID || !s.cfg.Trusts(role[2], who):
		return out, denied
	case len(policy) > maxSessionPolicy:
		return out, wire.Refuse("ValidationError", "1 validation error detected: Value at 'policy' failed to satisfy constraint: Member must have length less than or equal to %d", maxSessionPolicy)
	}
	if policy != "" {
		if err := s.cfg.CheckPolicy(policy); err != nil {
			return out, wire.Refuse("MalformedPolicyDocument", "%v", err)
		}
	}
	out.User.ID = "AROALABLABLABLABLABLA:" + name
	out.User.ARN = fmt.Sprintf("arn:aws:sts::%s:assumed-role/%s/%s", s.cfg.AccountID, role[2], name)
	out.Credentials, err = s.newSession(session{ARN: out.User.ARN, UserID: out.User.ID, Policy: policy}, seconds, time.Hour)
	return out, err
}

// newSession completes a session and keeps it.
func (s *Service) newSession(is session, seconds *int, lifetime time.Duration) (credentials, error) {
	if seconds != nil {
		lifetime = time.Duration(*seconds) * time.Second
		if lifetime < 15*time.Minute || lifetime > 36*time.Hour {
			return credentials{}, wire.Refuse("ValidationError", "1 validation error detected: Value '%d' at 'durationSeconds' failed to satisfy constraint: Member must have value greater than or equal to 900", *seconds)
		}
	}
	now := s.cfg.Now()
	key := "ASIA" + strings.TrimRight(base32.StdEncoding.EncodeToString(s.random(10)), "=")
	is.Secret, is.Token = base64.RawStdEncoding.EncodeToString(s.random(30)), base64.StdEncoding.EncodeToString(s.random(96))
	is.Issued = now
	is.Expires = now.Add(s.cfg.Lifetime(lifetime)).Truncate(time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.sessions, func(_ string, old session) bool { return now.Sub(old.Expires) > remembered })
	s.sessions[key] = is
	if err := s.save(); err != nil {
		delete(s.sessions, key)
		return credentials{}, err
	}
	return credentials{key, is.Secret, is.Token, is.Expires}, nil
}

// save writes all sessions. The caller holds mu.
func (s *Service) save() error {
	if s.cfg.File == "" {
		return nil
	}
	if err := file.WriteJSON(s.cfg.File, s.sessions, 0o600); err != nil {
		return fmt.Errorf("saving the sessions: %w", err)
	}
	return nil
}

// random returns n random bytes. Errors of the source are ignored: crypto/rand never fails.
func (s *Service) random(n int) []byte {
	b := make([]byte, n)
	_, _ = io.ReadFull(s.cfg.Rand, b)
	return b
}

type decodeRequest struct{ EncodedMessage string }

type decodeResult struct {
	Message string `xml:"DecodedMessage"`
}

func decodeMessage(form url.Values) (any, error) {
	var in decodeRequest
	if err := wire.Decode(form, &in); err != nil {
		return nil, err
	}
	message, err := base64.RawURLEncoding.DecodeString(in.EncodedMessage)
	if err != nil || len(message) == 0 {
		return nil, wire.Refuse("InvalidAuthorizationMessageException", "The message is invalid")
	}
	return decodeResult{string(message)}, nil
}
