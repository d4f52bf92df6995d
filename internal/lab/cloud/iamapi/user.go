package iamapi

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

var userActions = map[string]action{
	"CreateUser":      of(createUser),
	"GetUser":         of(getUser),
	"ListUsers":       of(listUsers),
	"DeleteUser":      of(deleteUser),
	"CreateAccessKey": of(createAccessKey),
	"ListAccessKeys":  of(listAccessKeys),
	"UpdateAccessKey": of(updateAccessKey),
	"DeleteAccessKey": of(deleteAccessKey),
}

// uniqueID returns the id of a user, role or policy.
func uniqueID(prefix, arn string) string {
	sum := sha256.Sum256([]byte(arn))
	return prefix + base32.StdEncoding.EncodeToString(sum[:10])
}

// userRequest names a user: the caller, if it names none.
type userRequest struct{ UserName string }

func (r *userRequest) self(caller string) {
	if r.UserName == "" {
		r.UserName = caller
	}
}

type userItem struct {
	Path, UserName      string
	UserID              string `xml:"UserId"`
	ARN                 string `xml:"Arn"`
	CreateDate          *time.Time
	PermissionsBoundary *boundary
	Tags                []tag `xml:"Tags>member"`
}

func itemOfUser(u iam.User) userItem {
	return userItem{u.Path, u.Name, uniqueID("AIDA", u.ARN), u.ARN, dated(u.Created), boundaryOf(u.Entity), tagItems(u.Tags)}
}

type userAnswer struct{ User userItem }

type createUserRequest struct {
	tags
	UserName, Path, PermissionsBoundary string
}

func createUser(s *Service, in *createUserRequest) (any, error) {
	e, err := s.made(in.Path, in.PermissionsBoundary, in.tags)
	if err != nil {
		return nil, err
	}
	u, err := s.Directory.MakeUser(in.UserName, e, s.Now())
	return userAnswer{itemOfUser(u)}, refusal(err, "User", in.UserName)
}

func getUser(s *Service, in *userRequest) (any, error) {
	u, ok := s.Directory.UserNamed(in.UserName)
	if !ok {
		return nil, refusal(iam.ErrNone, "User", in.UserName)
	}
	return userAnswer{itemOfUser(u)}, nil
}

func listUsers(s *Service, in *pages) (any, error) {
	var items []userItem
	users, _ := s.Directory.List()
	for _, u := range users {
		if strings.HasPrefix(u.Path, in.PathPrefix) {
			item := itemOfUser(u)
			item.Tags, item.PermissionsBoundary = nil, nil // as on AWS
			items = append(items, item)
		}
	}
	items, end, err := cut(*in, items)
	return struct {
		Users []userItem `xml:"Users>member"`
		page
	}{items, end}, err
}

func deleteUser(s *Service, in *struct{ UserName string }) (any, error) {
	u, ok := s.Directory.UserNamed(in.UserName)
	if !ok {
		return nil, refusal(iam.ErrNone, "User", in.UserName)
	}
	if u.AccessKeyID != "" || u.Second.AccessKeyID != "" {
		return nil, conflict("delete access keys")
	}
	if err := unused(u.Entity); err != nil {
		return nil, err
	}
	_, err := s.Directory.DeleteUser(in.UserName)
	return struct{}{}, refusal(err, "User", in.UserName)
}

type keyItem struct {
	UserName    string
	AccessKeyID string `xml:"AccessKeyId"`
	Status      string
	Secret      string `xml:"SecretAccessKey,omitempty"`
}

func itemOfKey(user string, k iam.Key) keyItem {
	status := "Active"
	if k.Inactive {
		status = "Inactive"
	}
	return keyItem{UserName: user, AccessKeyID: k.AccessKeyID, Status: status}
}

func createAccessKey(s *Service, in *userRequest) (any, error) {
	key, ok, err := s.Directory.GiveKey(in.UserName)
	if err != nil {
		return nil, refusal(err, "User", in.UserName)
	}
	if !ok {
		return nil, limitExceeded("Cannot exceed quota for AccessKeysPerUser: 2")
	}
	item := itemOfKey(in.UserName, key)
	item.Secret = key.SecretAccessKey
	return struct{ AccessKey keyItem }{item}, nil
}

type listKeysRequest struct {
	userRequest
	Marker   string
	MaxItems *int
}

func listAccessKeys(s *Service, in *listKeysRequest) (any, error) {
	u, ok := s.Directory.UserNamed(in.UserName)
	if !ok {
		return nil, refusal(iam.ErrNone, "User", in.UserName)
	}
	var items []keyItem
	for _, k := range []iam.Key{u.Key, u.Second} {
		if k.AccessKeyID != "" {
			items = append(items, itemOfKey(u.Name, k))
		}
	}
	items, end, err := cut(pages{Marker: in.Marker, MaxItems: in.MaxItems}, items)
	return struct {
		Keys []keyItem `xml:"AccessKeyMetadata>member"`
		page
	}{items, end}, err
}

type keyRequest struct {
	userRequest
	AccessKeyID string `query:"AccessKeyId"`
	Status      string
}

func updateAccessKey(s *Service, in *keyRequest) (any, error) {
	return s.changeKey(in, func(k *iam.Key) { k.Inactive = in.Status == "Inactive" })
}

func deleteAccessKey(s *Service, in *keyRequest) (any, error) {
	return s.changeKey(in, func(k *iam.Key) { *k = iam.Key{} })
}

func (s *Service) changeKey(in *keyRequest, f func(*iam.Key)) (any, error) {
	err := s.Directory.ChangeUser(in.UserName, func(u *iam.User) error {
		for _, k := range []*iam.Key{&u.Key, &u.Second} {
			if in.AccessKeyID != "" && k.AccessKeyID == in.AccessKeyID {
				f(k)
				return nil
			}
		}
		return noSuch("The Access Key with id %s cannot be found.", in.AccessKeyID)
	})
	return struct{}{}, refusal(err, "User", in.UserName)
}
