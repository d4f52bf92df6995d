// Package iamapi has the actions of IAM by which an account gets its users, roles, policies, instance
// profiles and OpenID Connect providers. Package iam keeps them, and says what they mean.
package iamapi

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Service serves IAM's actions. It is safe for concurrent use.
type Service struct {
	Directory *iam.Directory
	Now       func() time.Time
	// MadeProfile is told of every new instance profile.
	MadeProfile func(iam.Profile)
	// MadeIssuer is told of every new OpenID Connect provider, and Hidden says whether IAM does not show one yet; each may be nil.
	MadeIssuer func(arn string)
	Hidden     func(arn string) bool
	// Thumbprint asks the server of an OpenID Connect provider for the thumbprint of its certificate.
	Thumbprint func(*url.URL) (string, error)

	mu sync.Mutex // one action at a time: it looks before it changes
}

// action is one action with its form parameters. caller is the name of the user who calls, empty if it is none.
type action func(s *Service, form url.Values, caller string) (any, error)

func of[T any](run func(*Service, *T) (any, error)) action {
	return func(s *Service, form url.Values, caller string) (any, error) {
		var in T
		if err := wire.Decode(form, &in); err != nil {
			return nil, err
		}
		if self, ok := any(&in).(interface{ self(string) }); ok {
			self.self(caller)
		}
		return run(s, &in)
	}
}

var actions = func() map[string]action {
	all := map[string]action{}
	for _, some := range []map[string]action{userActions, roleActions, policyActions, profileActions, issuerActions, entityActions(ofUser), entityActions(ofRole)} {
		maps.Copy(all, some)
	}
	return all
}()

// Actions returns the names of the actions that are served here, sorted.
func Actions() []string { return slices.Sorted(maps.Keys(actions)) }

// Serve runs one action for a user of the account, or for somebody else if the name is empty. Refusals are *wire.Error.
func (s *Service) Serve(name string, form url.Values, caller string) (any, error) {
	run, ok := actions[name]
	if !ok {
		return nil, wire.Refuse("InvalidAction", "Could not find operation %s for version 2010-05-08", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return run(s, form, caller)
}

// The refusals of IAM.
// https://docs.aws.amazon.com/IAM/latest/APIReference/CommonErrors.html

func noSuch(format string, args ...any) error {
	return wire.RefuseWith(404, "NoSuchEntity", format, args...)
}

func exists(kind, name string) error {
	return wire.RefuseWith(409, "EntityAlreadyExists", "%s with name %s already exists.", kind, name)
}

func conflict(text string) error {
	return wire.RefuseWith(409, "DeleteConflict", "Cannot delete entity, must %s first.", text)
}

func limitExceeded(format string, args ...any) error {
	return wire.RefuseWith(409, "LimitExceeded", format, args...)
}

// refusal turns an error of the directory into IAM's.
func refusal(err error, kind, name string) error {
	var refused *wire.Error
	var limit iam.LimitError
	var input iam.InputError
	switch {
	case err == nil || errors.As(err, &refused):
		return err
	case errors.As(err, &limit):
		return limitExceeded("%v", limit)
	case errors.As(err, &input):
		return wire.Refuse("InvalidInput", "%v", input)
	case errors.Is(err, iam.ErrNone):
		return noSuch("The %s with name %s cannot be found.", strings.ToLower(kind), name)
	case errors.Is(err, iam.ErrExists):
		return exists(kind, name)
	}
	return wire.Refuse("ValidationError", "%v", err)
}

// checkDocument refuses a policy that is not valid, or larger than most characters without white space.
func checkDocument(document string, most int, what string) error {
	if _, err := iam.Parse([]byte(document)); err != nil {
		return wire.Refuse("MalformedPolicyDocument", "%v", err)
	}
	return iam.CheckSize(most, what, document)
}

// encoded returns a document as IAM's answers have it: percent-encoded (RFC 3986), in which a plus is no space.
func encoded(document string) string {
	return strings.ReplaceAll(url.QueryEscape(document), "+", "%20")
}

type tag struct{ Key, Value string }

type tags struct {
	Tags struct {
		Members []tag `query:"member"`
	}
}

func (t tags) byKey() map[string]string {
	out := map[string]string{}
	for _, one := range t.Tags.Members {
		out[one.Key] = one.Value
	}
	return out
}

func tagItems(of map[string]string) (out []tag) {
	for _, key := range slices.Sorted(maps.Keys(of)) {
		out = append(out, tag{key, of[key]})
	}
	return out
}

// pages are the parameters of lists.
type pages struct {
	PathPrefix string
	Marker     string
	MaxItems   *int
}

// page is the end of an answer with a list.
type page struct {
	IsTruncated bool
	Marker      string `xml:",omitempty"`
}

// cut returns one page of a list.
func cut[T any](in pages, all []T) ([]T, page, error) {
	from, most := 0, 100
	if in.MaxItems != nil {
		most = *in.MaxItems
	}
	if in.Marker != "" {
		var err error
		if from, err = strconv.Atoi(in.Marker); err != nil || from < 0 || from > len(all) {
			return nil, page{}, wire.Refuse("ValidationError", "Invalid Marker.")
		}
	}
	if most < 1 || most > 1000 {
		return nil, page{}, wire.Refuse("ValidationError", "MaxItems must be between 1 and 1000.")
	}
	all = all[from:]
	if len(all) <= most {
		return all, page{}, nil
	}
	return all[:most], page{true, strconv.Itoa(from + most)}, nil
}

// boundary is a permissions boundary in an answer.
type boundary struct {
	Type string `xml:"PermissionsBoundaryType"`
	ARN  string `xml:"PermissionsBoundaryArn"`
}

func boundaryOf(e iam.Entity) *boundary {
	if e.Boundary == "" {
		return nil
	}
	return &boundary{"Policy", e.Boundary}
}

func dated(t time.Time) *time.Time {
	if t.IsZero() { // made by k8s-lab, which notes no time
		return nil
	}
	t = t.UTC().Truncate(time.Second)
	return &t
}
