package iam

import (
	"encoding/base32"
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"
)

// What IAM's own actions do with the account's users, roles and instance profiles.

// ErrNone says that there is no user, role or instance profile of a name.
var ErrNone = errors.New("there is none of this name")

// ErrExists says that there is one already.
var ErrExists = errors.New("there is one of this name")

// newKey returns a new access key.
func (d *Directory) newKey() Key {
	return Key{AccessKeyID: "AKIA" + base32.StdEncoding.EncodeToString(d.random(10)), SecretAccessKey: base64.RawURLEncoding.EncodeToString(d.random(30))}
}

// named returns an entity of its own, in which every inline policy has a name.
func (e Entity) named() Entity {
	e.Tags, e.Inline, e.Attached = maps.Clone(e.Tags), maps.Clone(e.Inline), slices.Clone(e.Attached)
	if e.Tags == nil {
		e.Tags = map[string]string{}
	}
	if e.Inline == nil {
		e.Inline = map[string]string{}
	}
	for n, document := range e.Policies {
		e.Inline["policy-"+strconv.Itoa(n+1)] = document
	}
	e.Policies = nil
	return e
}

// UserNamed returns a user, without secret keys. Every inline policy has a name.
func (d *Directory) UserNamed(name string) (User, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	u, ok := d.saved.Users[name]
	u.Entity, u.SecretAccessKey, u.Second.SecretAccessKey = u.named(), "", ""
	return u, ok
}

// RoleNamed returns a role, whose inline policies all have names.
func (d *Directory) RoleNamed(name string) (Role, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, ok := d.saved.Roles[name]
	r.Entity = r.named()
	return r, ok
}

// MakeUser makes a user without an access key.
func (d *Directory) MakeUser(name string, e Entity, now time.Time) (User, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, exists := d.saved.Users[name]; exists {
		return User{}, ErrExists
	}
	if err := d.check(name, &e); err != nil {
		return User{}, err
	}
	u := User{Name: name, ARN: d.arn("user", e.Path, name), Created: now, Entity: e}
	return u, put(d, d.saved.Users, name, u)
}

// MakeRole makes a role.
func (d *Directory) MakeRole(name string, e Entity, trust string, now time.Time) (Role, error) {
	if _, err := ParseTrust([]byte(trust)); err != nil {
		return Role{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, exists := d.saved.Roles[name]; exists {
		return Role{}, ErrExists
	}
	if err := d.check(name, &e); err != nil {
		return Role{}, err
	}
	r := Role{Name: name, ARN: d.arn("role", e.Path, name), Created: now, Entity: e, Trust: trust}
	return r, put(d, d.saved.Roles, name, r)
}

// ChangeUser changes a user.
func (d *Directory) ChangeUser(name string, change func(*User) error) error {
	return changed(d, d.saved.Users, name, func(u *User) error {
		u.Entity = u.named()
		if err := change(u); err != nil {
			return err
		}
		return d.check(name, &u.Entity)
	})
}

// ChangeRole changes a role.
func (d *Directory) ChangeRole(name string, change func(*Role) error) error {
	return changed(d, d.saved.Roles, name, func(r *Role) error {
		r.Entity = r.named()
		if err := change(r); err != nil {
			return err
		}
		return d.check(name, &r.Entity)
	})
}

// GiveKey gives a user another access key. ok is false if the user has two.
func (d *Directory) GiveKey(name string) (key Key, ok bool, err error) {
	err = d.ChangeUser(name, func(u *User) error {
		for _, slot := range []*Key{&u.Key, &u.Second} {
			if slot.AccessKeyID == "" && !ok {
				*slot, ok = d.newKey(), true
				key = *slot
			}
		}
		return nil
	})
	return key, ok, err
}

// MakeProfile makes an instance profile without a role.
func (d *Directory) MakeProfile(name, path string) (Profile, error) {
	path, err := checkPath(path)
	if err != nil {
		return Profile{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, exists := d.saved.Profiles[name]; exists {
		return Profile{}, ErrExists
	}
	p := d.newProfile(name, path)
	return p, put(d, d.saved.Profiles, name, p)
}

// ChangeProfile changes an instance profile.
func (d *Directory) ChangeProfile(name string, change func(*Profile) error) error {
	return changed(d, d.saved.Profiles, name, change)
}

// changed changes what is saved under a name, if change returns no error.
func changed[T any](d *Directory, all map[string]T, name string, change func(*T) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	value, ok := all[name]
	if !ok {
		return ErrNone
	}
	if err := change(&value); err != nil {
		return err
	}
	return put(d, all, name, value)
}
