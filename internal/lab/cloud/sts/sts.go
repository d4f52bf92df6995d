// Package sts is the local cloud's Security Token Service: it returns a caller's identity and
// issues temporary credentials, which are kept in one private file. IAM says who may assume a role.
//
// It knows nothing of signatures, faults, HTTP and other services.
package sts

import (
	"cmp"
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/webidentity"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Config is a Service's configuration.
type Config struct {
	File      string // where sessions are kept, mode 0600; empty keeps them in memory
	AccountID string
	Partition string          // of ARNs
	Owner     aws.Credentials // who may do everything
	// User returns the secret key and the ARN of the user with an access key id.
	User func(accessKeyID string) (secret, arn string, ok bool)
	// Trusts reports whether a role exists, and trusts who wants to assume it with the action.
	Trusts func(roleARN, action string, who Assumption) bool
	// Verify returns what the token of a web identity says. Refusals are *wire.Error.
	Verify func(token string) (webidentity.Token, error)
	// CheckPolicy reports what is wrong with the policy of a session.
	CheckPolicy func(document string) error
	// Managed returns the document of a managed policy.
	Managed func(arn string) (document string, ok bool)
	Now     func() time.Time
	Rand    io.Reader // for keys
	// Lifetime returns how long a session lasts that was asked for a lifetime.
	Lifetime func(asked time.Duration) time.Duration
}

// Assumption is a request for a session of a role.
type Assumption struct {
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
	User                       string            `json:",omitempty"` // ARN of the user to whom the rights belong, if it is not ARN
	Limited                    bool              `json:",omitempty"` // it may do only what Policies allow, too
	Policies                   []string          `json:",omitempty"` // documents
	Tags                       map[string]string `json:",omitempty"` // aws:PrincipalTag, over those of the role or user
	Transitive                 []string          `json:",omitempty"` // keys of Tags that a session made with this one has, too
	Source                     string            `json:",omitempty"` // aws:SourceIdentity
	Owner                      bool              `json:",omitempty"` // the session is the owner's
	Instance                   string            `json:",omitempty"` // the EC2 instance it was issued to
	Issued                     time.Time         `json:",omitzero"`
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

// Caller is who an access key belongs to.
type Caller struct {
	ARN      string
	User     string // ARN of the user or of the session of a role to whom the rights belong
	Owner    bool
	Limited  bool              // the session may do only what Policies allow, too
	Policies []string          // of the session; documents
	Tags     map[string]string // of the session
	Source   string            // aws:SourceIdentity
}

// Caller returns who an access key belongs to.
func (s *Service) Caller(accessKeyID string) Caller {
	is, _ := s.session(accessKeyID)
	arn := s.callerIdentity(accessKeyID).ARN
	return Caller{arn, cmp.Or(is.User, arn), is.Owner || accessKeyID == s.cfg.Owner.AccessKeyID, is.Limited, is.Policies, is.Tags, is.Source}
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

type sessionTokenRequest struct{ DurationSeconds *int }

type sessionTokenResult struct {
	Credentials credentials `xml:"Credentials"`
}

// actions are those served here.
var actions = map[string]func(s *Service, form url.Values, accessKeyID string) (any, error){
	"GetCallerIdentity":  func(s *Service, _ url.Values, key string) (any, error) { return s.callerIdentity(key), nil },
	"AssumeRole":         (*Service).assumeRole,
	"GetFederationToken": (*Service).federationToken,
	"GetSessionToken":    (*Service).sessionToken,
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
