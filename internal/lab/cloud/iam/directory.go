package iam

import (
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
)

// Config is a Directory's configuration.
type Config struct {
	File      string // where users and roles are kept, mode 0600; empty keeps them in memory
	AccountID string
	Rand      io.Reader // for keys
}

// Directory holds the account's users, roles and instance profiles. Its methods are safe for concurrent use.
type Directory struct {
	cfg   Config
	mu    sync.Mutex
	saved saved
}

type saved struct {
	Users    map[string]User
	Roles    map[string]Role
	Profiles map[string]Profile
}

// User has one access key.
type User struct {
	Name            string   `json:"name"`
	ARN             string   `json:"arn"`
	AccessKeyID     string   `json:"access_key_id"`
	SecretAccessKey string   `json:"secret_access_key"`
	Policies        []string `json:"policies"` // documents
}

// Role can be assumed by whom its trust policy allows.
type Role struct {
	Name     string   `json:"name"`
	ARN      string   `json:"arn"`
	Policies []string `json:"policies"` // documents
	Trust    string   `json:"trust"`    // document
}

// Open reads the users and roles kept in cfg.File, if it exists.
func Open(cfg Config) (*Directory, error) {
	d := &Directory{cfg: cfg, saved: saved{map[string]User{}, map[string]Role{}, map[string]Profile{}}}
	if cfg.File == "" {
		return d, nil
	}
	if err := file.ReadJSON(cfg.File, &d.saved); err != nil {
		return nil, fmt.Errorf("reading users and roles: %w", err)
	}
	return d, nil
}

var entityName = regexp.MustCompile(`^[\w+=,.@-]{1,64}$`)

func check(name string, policies []string) error {
	if !entityName.MatchString(name) {
		return fmt.Errorf("%q is not a name for a user or role", name)
	}
	for _, p := range policies {
		if _, err := Parse([]byte(p)); err != nil {
			return err
		}
	}
	return nil
}

// PutUser makes a user with the policies, or gives them to the one that exists, who keeps the
// access key.
func (d *Directory) PutUser(name string, policies []string) (User, error) {
	if err := check(name, policies); err != nil {
		return User{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	u, ok := d.saved.Users[name]
	if !ok {
		u = User{
			Name: name, ARN: "arn:aws:iam::" + d.cfg.AccountID + ":user/" + name,
			AccessKeyID:     "AKIA" + base32.StdEncoding.EncodeToString(d.random(10)),
			SecretAccessKey: base64.RawURLEncoding.EncodeToString(d.random(30)),
		}
	}
	u.Policies = policies
	return u, put(d, d.saved.Users, name, u)
}

// PutRole makes a role with the policies, or gives them to the one that exists. An empty trust policy
// stands for DefaultTrust.
func (d *Directory) PutRole(name string, policies []string, trust string) (Role, error) {
	if trust == "" {
		trust = DefaultTrust(d.cfg.AccountID)
	}
	if err := check(name, policies); err != nil {
		return Role{}, err
	}
	if _, err := ParseTrust([]byte(trust)); err != nil {
		return Role{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r := Role{Name: name, ARN: d.roleARN(name), Policies: policies, Trust: trust}
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
	for _, name := range slices.Sorted(maps.Keys(d.saved.Users)) {
		u := d.saved.Users[name]
		u.SecretAccessKey = ""
		users = append(users, u)
	}
	for _, name := range slices.Sorted(maps.Keys(d.saved.Roles)) {
		roles = append(roles, d.saved.Roles[name])
	}
	return users, roles
}

// UserOf returns the user with an access key.
func (d *Directory) UserOf(accessKeyID string) (User, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, u := range d.saved.Users {
		if u.AccessKeyID == accessKeyID {
			return u, true
		}
	}
	return User{}, false
}

// Trusts reports whether a role exists and may be assumed, and whether its trust policy names the
// caller (see Trust.Allows).
func (d *Directory) Trusts(role string, a Assumption) (allowed, named bool) {
	d.mu.Lock()
	r, ok := d.saved.Roles[role]
	d.mu.Unlock()
	if !ok {
		return false, false
	}
	t, err := ParseTrust([]byte(r.Trust))
	if err != nil { // it was checked when it was given
		return false, false
	}
	return t.Allows(a)
}

// Policies returns the policies of the user or role that an ARN names: that of a user, or of a
// session of a role. They are none if it does not exist.
func (d *Directory) Policies(arn string) []Policy {
	_, resource, _ := strings.Cut(arn, d.cfg.AccountID+":")
	kind, name, _ := strings.Cut(resource, "/")
	d.mu.Lock()
	defer d.mu.Unlock()
	var documents []string
	switch kind {
	case "user":
		documents = d.saved.Users[name].Policies
	case "assumed-role":
		role, _, _ := strings.Cut(name, "/")
		documents = d.saved.Roles[role].Policies
	}
	var out []Policy
	for _, doc := range documents {
		p, err := Parse([]byte(doc))
		if err == nil { // it was checked when it was given
			out = append(out, p)
		}
	}
	return out
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
