package iam

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
)

// Config is a Directory's configuration.
type Config struct {
	File      string // where users and roles are kept, mode 0600; empty keeps them in memory
	AccountID string
	Region    string
	Rand      io.Reader // for keys
}

// Directory holds the account's users, roles, managed policies, instance profiles and OpenID Connect providers. Its
// methods are safe for concurrent use.
type Directory struct {
	cfg   Config
	mu    sync.Mutex
	saved saved
}

type saved struct {
	Users    map[string]User
	Roles    map[string]Role
	Profiles map[string]Profile
	Managed  map[string]Managed // by ARN
	Issuers  map[string]Issuer  // by ARN
	Controls []string           // documents of the account's service control policies; none allow everything
}

// Entity is what users and roles have in common.
type Entity struct {
	Path     string            `json:"path,omitempty"`     // begins and ends with a slash; "/" if it is empty when it is given
	Tags     map[string]string `json:"tags,omitempty"`     // aws:PrincipalTag
	Boundary string            `json:"boundary,omitempty"` // ARN of a managed policy: the permissions boundary
	Policies []string          `json:"policies"`           // documents
	Inline   map[string]string `json:"inline,omitempty"`   // documents by name
	Attached []string          `json:"attached,omitempty"` // ARNs of managed policies
}

// User has up to two access keys.
type User struct {
	Name    string    `json:"name"`
	ARN     string    `json:"arn"`
	Created time.Time `json:"created,omitzero"`
	Entity
	Key
	Second Key `json:"second_key,omitzero"`
}

// Key is an access key.
type Key struct {
	AccessKeyID     string `json:"access_key_id,omitempty"`
	SecretAccessKey string `json:"secret_access_key,omitempty"`
	Inactive        bool   `json:"inactive,omitempty"`
}

// Role can be assumed by whom its trust policy allows.
type Role struct {
	Name    string    `json:"name"`
	ARN     string    `json:"arn"`
	Created time.Time `json:"created,omitzero"`
	Entity
	Trust string `json:"trust"` // document
}

// Open reads the users and roles kept in cfg.File, if it exists.
func Open(cfg Config) (*Directory, error) {
	d := &Directory{cfg: cfg, saved: saved{Users: map[string]User{}, Roles: map[string]Role{}, Profiles: map[string]Profile{}, Managed: map[string]Managed{}, Issuers: map[string]Issuer{}}}
	if cfg.File == "" {
		return d, nil
	}
	if err := file.ReadJSON(cfg.File, &d.saved); err != nil {
		return nil, fmt.Errorf("reading users and roles: %w", err)
	}
	return d, nil
}

var entityName = regexp.MustCompile(`^[\w+=,.@-]{1,64}$`)

// maxTags is how many tags a user or role may have.
const maxTags = 50

// check completes an entity. Policies without names stand for managed policies, which may be larger than inline ones. The
// caller holds mu.
func (d *Directory) check(name string, e *Entity) error {
	if !entityName.MatchString(name) {
		return fmt.Errorf("%q is not a name for a user or role", name)
	}
	var err error
	if e.Path, err = checkPath(e.Path); err != nil {
		return err
	}
	if len(e.Tags) > maxTags {
		return LimitError(fmt.Sprintf("The number of tags has reached the maximum limit of %d for %s.", maxTags, name))
	}
	folded := map[string]string{}
	for key := range e.Tags {
		other, twice := folded[strings.ToLower(key)]
		if twice { // IAM keeps the case of a key, and ignores it in comparisons
			return fmt.Errorf("%s has the tags %q and %q: IAM takes them for the same key", name, min(key, other), max(key, other))
		}
		folded[strings.ToLower(key)] = key
	}
	for _, p := range slices.Concat(e.Policies, slices.Collect(maps.Values(e.Inline))) {
		if _, err := Parse([]byte(p)); err != nil {
			return err
		}
	}
	for _, p := range e.Policies {
		if err := CheckSize(MaxManaged, name, p); err != nil {
			return err
		}
	}
	for _, arn := range slices.Concat(e.Attached, []string{e.Boundary}) {
		if _, ok := d.saved.Managed[arn]; !ok && arn != "" {
			return fmt.Errorf("there is no policy %s", arn)
		}
	}
	return nil
}

// PutUser makes a user, or changes the one that exists, who keeps the access keys and the path, and loses what e does not
// have. A user without an access key gets one.
func (d *Directory) PutUser(name string, e Entity) (User, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(name, &e); err != nil {
		return User{}, err
	}
	u, ok := d.saved.Users[name]
	if !ok {
		u = User{Name: name, ARN: d.arn("user", e.Path, name)}
	} else {
		e.Path = u.Path
	}
	if u.AccessKeyID == "" {
		u.Key = d.newKey()
	}
	u.Entity = e
	return u, put(d, d.saved.Users, name, u)
}

// PutRole makes a role, or changes the one that exists, which keeps the path and loses what e does not have. An empty
// trust policy stands for DefaultTrust.
func (d *Directory) PutRole(name string, e Entity, trust string) (Role, error) {
	if trust == "" {
		trust = DefaultTrust(d.cfg.Region, d.cfg.AccountID)
	}
	if _, err := ParseTrust([]byte(trust)); err != nil {
		return Role{}, err
	}
	if err := CheckSize(MaxTrust, "the trust policy", trust); err != nil {
		return Role{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(name, &e); err != nil {
		return Role{}, err
	}
	r, ok := d.saved.Roles[name]
	if ok {
		e.Path = r.Path
	}
	r = Role{Name: name, ARN: d.arn("role", e.Path, name), Created: r.Created, Entity: e, Trust: trust}
	return r, put(d, d.saved.Roles, name, r)
}

// put keeps one user or role. It changes nothing if it cannot save it. The caller holds mu.
func put[T any](d *Directory, all map[string]T, name string, value T) error {
	before, existed := all[name]
	all[name] = value
	err := d.save()
	if err != nil {
		if delete(all, name); existed {
			all[name] = before
		}
	}
	return err
}

// DeleteUser deletes a user: the access key is unknown from now on. ok is false if there is none.
func (d *Directory) DeleteUser(name string) (ok bool, err error) {
	return remove(d, d.saved.Users, name)
}

// DeleteRole deletes a role. What has its credentials may do nothing any more. ok is false if there
// is none. A role in an instance profile is not deleted.
func (d *Directory) DeleteRole(name string) (ok bool, err error) {
	for _, p := range d.Profiles() {
		if p.Role == name {
			return true, fmt.Errorf("role %s is in instance profile %s: delete that first", name, p.Name)
		}
	}
	return remove(d, d.saved.Roles, name)
}

func remove[T any](d *Directory, all map[string]T, name string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before, ok := all[name]
	if !ok {
		return false, nil
	}
	delete(all, name)
	if err := d.save(); err != nil {
		all[name] = before
		return true, err
	}
	return true, nil
}

// List returns users and roles by name, without secret keys.
func (d *Directory) List() (users []User, roles []Role) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, u := range inOrder(d.saved.Users) {
		u.SecretAccessKey, u.Second.SecretAccessKey = "", ""
		users = append(users, u)
	}
	return users, inOrder(d.saved.Roles)
}

// inOrder returns the values of a map in the order of their keys.
func inOrder[T any](all map[string]T) (out []T) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[key])
	}
	return out
}

// UserOf returns the user with an access key, which is then the first of the user's keys.
func (d *Directory) UserOf(accessKeyID string) (User, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, u := range d.saved.Users {
		for _, k := range []Key{u.Key, u.Second} {
			if k.AccessKeyID == accessKeyID && !k.Inactive && accessKeyID != "" {
				u.Key = k
				return u, true
			}
		}
	}
	return User{}, false
}

// Trusts reports whether the role with an ARN exists and may be assumed, and whether its trust policy names the
// caller (see Trust.Allows).
func (d *Directory) Trusts(arn string, a Assumption) (allowed, named bool) {
	d.mu.Lock()
	r, ok := d.saved.Roles[arn[strings.LastIndex(arn, "/")+1:]]
	a.Role = d.saved.Roles[roleName(a.Caller)].ARN
	d.mu.Unlock()
	if a.Action != "sts:AssumeRoleWithWebIdentity" {
		a.Context = maps.Clone(a.Context)
		if a.Context == nil {
			a.Context = map[string][]string{}
		}
		a.Context["aws:PrincipalArn"] = []string{cmp.Or(a.Role, a.Caller)}
	}
	if !ok || r.ARN != arn {
		return false, false
	}
	t, err := ParseTrust([]byte(r.Trust))
	if err != nil { // it was checked when it was given
		return false, false
	}
	return t.Allows(a)
}

// save writes users and roles. The caller holds mu.
func (d *Directory) save() error {
	if d.cfg.File == "" {
		return nil
	}
	if err := file.WriteJSON(d.cfg.File, d.saved, 0o600); err != nil {
		return fmt.Errorf("saving users and roles: %w", err)
	}
	return nil
}

// random returns n random bytes. Errors of the source are ignored: crypto/rand never fails.
func (d *Directory) random(n int) []byte {
	b := make([]byte, n)
	_, _ = io.ReadFull(d.cfg.Rand, b)
	return b
}
