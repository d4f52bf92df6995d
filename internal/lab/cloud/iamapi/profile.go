package iamapi

import (
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

var profileActions = map[string]action{
	"CreateInstanceProfile":         of(createProfile),
	"GetInstanceProfile":            of(getProfile),
	"ListInstanceProfiles":          of(listProfiles),
	"ListInstanceProfilesForRole":   of(listProfilesForRole),
	"DeleteInstanceProfile":         of(deleteProfile),
	"AddRoleToInstanceProfile":      of(addRole),
	"RemoveRoleFromInstanceProfile": of(removeRole),
}

const kindProfile = "Instance Profile"

type profileItem struct {
	Path, InstanceProfileName string
	ID                        string     `xml:"InstanceProfileId"`
	ARN                       string     `xml:"Arn"`
	Roles                     []roleItem `xml:"Roles>member"`
}

func (s *Service) profileItem(p iam.Profile) profileItem {
	item := profileItem{p.Path, p.Name, p.ID, p.ARN, nil}
	if r, ok := s.Directory.RoleNamed(p.Role); ok {
		item.Roles = []roleItem{itemOfRole(r)}
	}
	return item
}

func (s *Service) profile(name string) (iam.Profile, error) {
	for _, p := range s.Directory.Profiles() {
		if p.Name == name {
			return p, nil
		}
	}
	return iam.Profile{}, noSuch("Instance Profile %s cannot be found.", name)
}

type profileAnswer struct{ InstanceProfile profileItem }

func createProfile(s *Service, in *struct{ InstanceProfileName, Path string }) (any, error) {
	p, err := s.Directory.MakeProfile(in.InstanceProfileName, in.Path)
	if err != nil {
		return nil, refusal(err, kindProfile, in.InstanceProfileName)
	}
	s.MadeProfile(p)
	return profileAnswer{s.profileItem(p)}, nil
}

func getProfile(s *Service, in *struct{ InstanceProfileName string }) (any, error) {
	p, err := s.profile(in.InstanceProfileName)
	return profileAnswer{s.profileItem(p)}, err
}

func (s *Service) listed(in pages, want func(iam.Profile) bool) (any, error) {
	var items []profileItem
	for _, p := range s.Directory.Profiles() {
		if want(p) {
			items = append(items, s.profileItem(p))
		}
	}
	items, end, err := cut(in, items)
	return struct {
		Profiles []profileItem `xml:"InstanceProfiles>member"`
		page
	}{items, end}, err
}

func listProfiles(s *Service, in *pages) (any, error) {
	return s.listed(*in, func(p iam.Profile) bool { return strings.HasPrefix(p.Path, in.PathPrefix) })
}

func listProfilesForRole(s *Service, in *struct {
	RoleName, Marker string
	MaxItems         *int
}) (any, error) {
	if _, ok := s.Directory.RoleNamed(in.RoleName); !ok {
		return nil, refusal(iam.ErrNone, "Role", in.RoleName)
	}
	return s.listed(pages{Marker: in.Marker, MaxItems: in.MaxItems}, func(p iam.Profile) bool { return p.Role == in.RoleName })
}

func deleteProfile(s *Service, in *struct{ InstanceProfileName string }) (any, error) {
	p, err := s.profile(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	if p.Role != "" {
		return nil, conflict("remove roles from instance profile")
	}
	_, err = s.Directory.DeleteProfile(p.Name)
	return struct{}{}, refusal(err, kindProfile, p.Name)
}

type profileRoleRequest struct{ InstanceProfileName, RoleName string }

func addRole(s *Service, in *profileRoleRequest) (any, error) {
	p, err := s.profile(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	if _, ok := s.Directory.RoleNamed(in.RoleName); !ok {
		return nil, refusal(iam.ErrNone, "Role", in.RoleName)
	}
	if p.Role != "" {
		return nil, limitExceeded("Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1")
	}
	return struct{}{}, s.setRole(p.Name, in.RoleName)
}

func removeRole(s *Service, in *profileRoleRequest) (any, error) {
	p, err := s.profile(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	if p.Role != in.RoleName || in.RoleName == "" {
		return nil, refusal(iam.ErrNone, "Role", in.RoleName)
	}
	return struct{}{}, s.setRole(p.Name, "")
}

func (s *Service) setRole(profile, role string) error {
	return s.Directory.ChangeProfile(profile, func(p *iam.Profile) error {
		p.Role = role
		return nil
	})
}
