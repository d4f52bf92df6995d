package iam

import (
	"encoding/base32"
	"fmt"
	"regexp"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Profile is an instance profile: what carries a role to an instance. Its name may differ from the
// role's.
type Profile struct {
	Name string `json:"name"`
	ID   string `json:"id"` // AIPA...; another one when a profile of the same name is made again
	ARN  string `json:"arn"`
	Path string `json:"path"`
	Role string `json:"role"` // name
}

// EC2 returns the name of the service that assumes the roles of instances, as trust policies and conditions have it in
// a region.
func EC2(region string) string { return "ec2." + wire.Domain(region) }

var profileName = regexp.MustCompile(`^[\w+=,.@-]{1,128}$`)

// PutProfile makes an instance profile with a role, or gives the role to the one that exists, which keeps its
// path. made says which. The role must exist. An empty path stands for "/".
func (d *Directory) PutProfile(name, path, role string) (p Profile, made bool, err error) {
	if !profileName.MatchString(name) {
		return p, false, fmt.Errorf("%q is not a name for an instance profile", name)
	}
	if path, err = checkPath(path); err != nil {
		return p, false, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.saved.Roles[role]; !ok {
		return p, false, fmt.Errorf("there is no role %q", role)
	}
	p, ok := d.saved.Profiles[name]
	if !ok {
		p = d.newProfile(name, path)
	}
	p.Role = role
	return p, !ok, put(d, d.saved.Profiles, name, p)
}

// newProfile returns a profile without a role.
func (d *Directory) newProfile(name, path string) Profile {
	return Profile{Name: name, ID: "AIPA" + base32.StdEncoding.EncodeToString(d.random(10)), ARN: d.arn("instance-profile", path, name), Path: path}
}

// DeleteProfile deletes an instance profile. Instances that have it get no credentials any more. ok
// is false if there is none.
func (d *Directory) DeleteProfile(name string) (ok bool, err error) {
	return remove(d, d.saved.Profiles, name)
}

// Profiles returns the instance profiles by name.
func (d *Directory) Profiles() []Profile {
	d.mu.Lock()
	defer d.mu.Unlock()
	return inOrder(d.saved.Profiles)
}

// ProfileOf returns the instance profile with a name or an ARN.
func (d *Directory) ProfileOf(nameOrARN string) (Profile, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, ok := d.saved.Profiles[nameOrARN[strings.LastIndex(nameOrARN, "/")+1:]]
	return p, ok && (nameOrARN == p.Name || nameOrARN == p.ARN)
}

// ProfileAndRole returns the ARNs of the instance profile with a name or an ARN, and of its role; empty if there is no
// such profile.
func (d *Directory) ProfileAndRole(nameOrARN string) (profile, role string) {
	p, _ := d.ProfileOf(nameOrARN)
	return p.ARN, d.RoleIn(nameOrARN)
}

// RoleIn returns the ARN of the role in the instance profile with a name or an ARN; empty if there
// is no such profile.
func (d *Directory) RoleIn(nameOrARN string) string {
	p, ok := d.ProfileOf(nameOrARN)
	if !ok {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.saved.Roles[p.Role].ARN
}
