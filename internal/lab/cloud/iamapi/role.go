package iamapi

import (
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

var roleActions = map[string]action{
	"CreateRole":             of(createRole),
	"GetRole":                of(getRole),
	"ListRoles":              of(listRoles),
	"DeleteRole":             of(deleteRole),
	"UpdateAssumeRolePolicy": of(updateTrust),
}

type roleItem struct {
	Path, RoleName           string
	RoleID                   string `xml:"RoleId"`
	ARN                      string `xml:"Arn"`
	CreateDate               *time.Time
	AssumeRolePolicyDocument string
	MaxSessionDuration       int
	PermissionsBoundary      *boundary
	Tags                     []tag `xml:"Tags>member"`
}

func itemOfRole(r iam.Role) roleItem {
	return roleItem{r.Path, r.Name, uniqueID("AROA", r.ARN), r.ARN, dated(r.Created), encoded(r.Trust), 3600, boundaryOf(r.Entity), tagItems(r.Tags)}
}

type roleAnswer struct{ Role roleItem }

// createRoleRequest has no longest session: every role has an hour.
type createRoleRequest struct {
	tags
	RoleName, Path, PermissionsBoundary, AssumeRolePolicyDocument, Description string
}

func createRole(s *Service, in *createRoleRequest) (any, error) {
	if err := checkTrust(in.AssumeRolePolicyDocument); err != nil {
		return nil, err
	}
	e, err := s.made(in.Path, in.PermissionsBoundary, in.tags)
	if err != nil {
		return nil, err
	}
	r, err := s.Directory.MakeRole(in.RoleName, e, in.AssumeRolePolicyDocument, s.Now())
	return roleAnswer{itemOfRole(r)}, refusal(err, "Role", in.RoleName)
}

func checkTrust(document string) error {
	if _, err := iam.ParseTrust([]byte(document)); err != nil {
		return wire.Refuse("MalformedPolicyDocument", "%v", err)
	}
	return refusal(iam.CheckSize(iam.MaxTrust, "the trust policy", document), "Role", "")
}

func getRole(s *Service, in *struct{ RoleName string }) (any, error) {
	r, ok := s.Directory.RoleNamed(in.RoleName)
	if !ok {
		return nil, refusal(iam.ErrNone, "Role", in.RoleName)
	}
	return roleAnswer{itemOfRole(r)}, nil
}

func listRoles(s *Service, in *pages) (any, error) {
	var items []roleItem
	_, roles := s.Directory.List()
	for _, r := range roles {
		if strings.HasPrefix(r.Path, in.PathPrefix) {
			item := itemOfRole(r)
			item.Tags, item.PermissionsBoundary = nil, nil // as on AWS
			items = append(items, item)
		}
	}
	items, end, err := cut(*in, items)
	return struct {
		Roles []roleItem `xml:"Roles>member"`
		page
	}{items, end}, err
}

func deleteRole(s *Service, in *struct{ RoleName string }) (any, error) {
	r, ok := s.Directory.RoleNamed(in.RoleName)
	if !ok {
		return nil, refusal(iam.ErrNone, "Role", in.RoleName)
	}
	for _, p := range s.Directory.Profiles() {
		if p.Role == in.RoleName {
			return nil, conflict("remove roles from instance profile")
		}
	}
	if err := unused(r.Entity); err != nil {
		return nil, err
	}
	_, err := s.Directory.DeleteRole(in.RoleName)
	return struct{}{}, refusal(err, "Role", in.RoleName)
}

func updateTrust(s *Service, in *struct{ RoleName, PolicyDocument string }) (any, error) {
	if err := checkTrust(in.PolicyDocument); err != nil {
		return nil, err
	}
	err := s.Directory.ChangeRole(in.RoleName, func(r *iam.Role) error {
		r.Trust = in.PolicyDocument
		return nil
	})
	return struct{}{}, refusal(err, "Role", in.RoleName)
}
