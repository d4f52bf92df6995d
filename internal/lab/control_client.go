package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

// ErrNotRunning says that the lab's daemon does not run.
var ErrNotRunning = errors.New("the lab is not running")

// PublishImage publishes the image of a release of Debian ("13") again, as a newer one, and returns its id. With a
// variant, one of [machine.Variants], it publishes an image of the account that differs from Debian's.
func (l *Lab) PublishImage(ctx context.Context, release, variant string) (string, error) {
	var out struct{ ID string }
	err := l.Control(ctx, http.MethodPost, "/_lab/images", map[string]string{"release": release, "variant": variant}, &out)
	return out.ID, err
}

// Control sends one request to the control endpoint, whose path begins with /_lab/, and reads its
// answer. in and out are JSON, and may be nil.
func (l *Lab) Control(ctx context.Context, method, path string, in, out any) error {
	s, err := l.readSettings()
	if err != nil {
		return err
	}
	if s.APIPort == 0 {
		return fmt.Errorf("%w: there is no lab in %s; k8s-lab up starts one", ErrNotRunning, l.dir)
	}
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encoding the request: %w", err)
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.endpoint()+path, body)
	if err != nil {
		return fmt.Errorf("asking the lab: %w", err)
	}
	req.Header.Set("Authorization", bearer+s.Token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%w: nothing answers at %s; k8s-lab up starts it", ErrNotRunning, s.endpoint())
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("reading the lab's answer: %w", err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		var refusal struct{ Error string }
		if json.Unmarshal(raw, &refusal) != nil || refusal.Error == "" {
			refusal.Error = resp.Status
		}
		return fmt.Errorf("the lab refused: %s", refusal.Error)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("reading the lab's answer: %w", err)
	}
	return nil
}

func (l *Lab) daemon(ctx context.Context) (Daemon, error) {
	var d Daemon
	return d, l.Control(ctx, http.MethodGet, "/_lab/daemon", nil, &d)
}

// Overview returns everything the lab holds.
func (l *Lab) Overview(ctx context.Context) (cloud.Overview, error) {
	var o cloud.Overview
	return o, l.Control(ctx, http.MethodGet, "/_lab/state", nil, &o)
}

// Fault adds a fault. The control endpoint defines its fields.
func (l *Lab) Fault(ctx context.Context, fields map[string]any) error {
	return l.Control(ctx, http.MethodPost, "/_lab/faults", fields, nil)
}

// Faults returns the faults in force, in the form of the control endpoint.
func (l *Lab) Faults(ctx context.Context) ([]map[string]any, error) {
	var out []map[string]any
	return out, l.Control(ctx, http.MethodGet, "/_lab/faults", nil, &out)
}

// ClearFaults removes all faults.
func (l *Lab) ClearFaults(ctx context.Context) error {
	return l.Control(ctx, http.MethodDelete, "/_lab/faults", nil, nil)
}

// Identities is what IAM has, without secret keys.
type Identities struct {
	Users    []iam.User    `json:"users"`
	Roles    []iam.Role    `json:"roles"`
	Profiles []iam.Profile `json:"instance_profiles"`
	Policies []iam.Managed `json:"policies"`
	Issuers  []iam.Issuer  `json:"oidc_providers"`
}

// Identities returns what IAM has in the lab.
func (l *Lab) Identities(ctx context.Context) (Identities, error) {
	var out Identities
	return out, l.Control(ctx, http.MethodGet, "/_lab/iam", nil, &out)
}

// PutUser creates a user, or changes an existing user. It returns the user with its access key.
func (l *Lab) PutUser(ctx context.Context, name string, e iam.Entity) (iam.User, error) {
	var u iam.User
	return u, l.Control(ctx, http.MethodPut, "/_lab/iam/users/"+url.PathEscape(name), cloud.Identity{Entity: e}, &u)
}

// PutRole creates a role with a trust policy, or changes an existing role. With an empty trust policy the role trusts the account and EC2.
func (l *Lab) PutRole(ctx context.Context, name string, e iam.Entity, trust string) (iam.Role, error) {
	var r iam.Role
	return r, l.Control(ctx, http.MethodPut, "/_lab/iam/roles/"+url.PathEscape(name), cloud.Identity{Entity: e, Trust: trust}, &r)
}

// PutPolicy creates a managed policy, or gives the document to an existing policy.
func (l *Lab) PutPolicy(ctx context.Context, name, path, document string) (iam.Managed, error) {
	var m iam.Managed
	return m, l.Control(ctx, http.MethodPut, "/_lab/iam/policies/"+url.PathEscape(name), cloud.ManagedPolicy{Path: path, Document: document}, &m)
}

// DeletePolicy deletes a managed policy. It is an error if there is none, or if a user or role has it.
func (l *Lab) DeletePolicy(ctx context.Context, arn string) error {
	return l.Control(ctx, http.MethodDelete, "/_lab/iam/policies/"+arn, nil, nil)
}

// PutIssuer creates an OpenID Connect provider, or changes an existing provider.
func (l *Lab) PutIssuer(ctx context.Context, i iam.Issuer) (iam.Issuer, error) {
	var out iam.Issuer
	return out, l.Control(ctx, http.MethodPut, "/_lab/iam/oidc-providers", i, &out)
}

// DeleteIssuer deletes an OpenID Connect provider. It is an error if there is none.
func (l *Lab) DeleteIssuer(ctx context.Context, arn string) error {
	return l.Control(ctx, http.MethodDelete, "/_lab/iam/oidc-providers/"+arn, nil, nil)
}

// PutControls gives the account service control policies. None allow everything.
func (l *Lab) PutControls(ctx context.Context, documents []string) error {
	return l.Control(ctx, http.MethodPut, "/_lab/iam/service-control-policies", iam.Entity{Policies: documents}, nil)
}

// DeleteUser deletes a user. It is an error if there is none.
func (l *Lab) DeleteUser(ctx context.Context, name string) error {
	return l.Control(ctx, http.MethodDelete, "/_lab/iam/users/"+url.PathEscape(name), nil, nil)
}

// PutInstanceProfile creates an instance profile with a role, or gives the role to an existing
// profile.
func (l *Lab) PutInstanceProfile(ctx context.Context, name, path, role string) (iam.Profile, error) {
	var p iam.Profile
	return p, l.Control(ctx, http.MethodPut, "/_lab/iam/instance-profiles/"+url.PathEscape(name), cloud.InstanceProfile{Path: path, Role: role}, &p)
}

// DeleteInstanceProfile deletes an instance profile. It is an error if there is none.
func (l *Lab) DeleteInstanceProfile(ctx context.Context, name string) error {
	return l.Control(ctx, http.MethodDelete, "/_lab/iam/instance-profiles/"+url.PathEscape(name), nil, nil)
}

// DeleteRole deletes a role. It is an error if there is none, or if it is in an instance profile.
func (l *Lab) DeleteRole(ctx context.Context, name string) error {
	return l.Control(ctx, http.MethodDelete, "/_lab/iam/roles/"+url.PathEscape(name), nil, nil)
}
