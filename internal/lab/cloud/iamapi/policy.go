package iamapi

import (
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

var policyActions = map[string]action{
	"CreatePolicy":       of(createPolicy),
	"GetPolicy":          of(getPolicy),
	"GetPolicyVersion":   of(getPolicyVersion),
	"ListPolicyVersions": of(listPolicyVersions),
	"ListPolicies":       of(listPolicies),
	"DeletePolicy":       of(deletePolicy),
}

// version is the only version of every policy.
const version = "v1"

type policyItem struct {
	PolicyName       string
	PolicyID         string `xml:"PolicyId"`
	ARN              string `xml:"Arn"`
	Path             string
	DefaultVersionID string `xml:"DefaultVersionId"`
	AttachmentCount  int
	BoundaryCount    int `xml:"PermissionsBoundaryUsageCount"`
	IsAttachable     bool
}

func (s *Service) policyItem(m iam.Managed) policyItem {
	item := policyItem{m.Name, uniqueID("ANPA", m.ARN), m.ARN, m.Path, version, 0, 0, true}
	users, roles := s.Directory.List()
	count := func(e iam.Entity) {
		if slices.Contains(e.Attached, m.ARN) {
			item.AttachmentCount++
		}
		if e.Boundary == m.ARN {
			item.BoundaryCount++
		}
	}
	for _, u := range users {
		count(u.Entity)
	}
	for _, r := range roles {
		count(r.Entity)
	}
	return item
}

type policyAnswer struct{ Policy policyItem }

func (s *Service) policy(arn string) (iam.Managed, error) {
	for _, m := range s.Directory.ManagedPolicies() {
		if m.ARN == arn {
			return m, nil
		}
	}
	return iam.Managed{}, noSuch("Policy %s was not found.", arn)
}

func createPolicy(s *Service, in *struct{ PolicyName, Path, PolicyDocument, Description string }) (any, error) {
	if err := checkDocument(in.PolicyDocument, iam.MaxManaged, "policy "+in.PolicyName); err != nil {
		return nil, refusal(err, "Policy", in.PolicyName)
	}
	for _, m := range s.Directory.ManagedPolicies() {
		if m.Name == in.PolicyName { // whatever its path
			return nil, wire.RefuseWith(409, "EntityAlreadyExists", "A policy called %s already exists. Duplicate names are not allowed.", in.PolicyName)
		}
	}
	m, err := s.Directory.PutPolicy(in.PolicyName, in.Path, in.PolicyDocument)
	if err != nil {
		return nil, refusal(err, "Policy", in.PolicyName)
	}
	return policyAnswer{s.policyItem(m)}, nil
}

func getPolicy(s *Service, in *struct{ PolicyArn string }) (any, error) {
	m, err := s.policy(in.PolicyArn)
	return policyAnswer{s.policyItem(m)}, err
}

type versionItem struct {
	Document         string `xml:",omitempty"`
	VersionID        string `xml:"VersionId"`
	IsDefaultVersion bool
}

func getPolicyVersion(s *Service, in *struct{ PolicyArn, VersionId string }) (any, error) { //nolint:revive // IAM's own spelling
	m, err := s.policy(in.PolicyArn)
	if err != nil {
		return nil, err
	}
	if in.VersionId != version {
		return nil, noSuch("Policy %s version %s does not exist or is not attachable.", in.PolicyArn, in.VersionId)
	}
	return struct{ PolicyVersion versionItem }{versionItem{encoded(m.Document), version, true}}, nil
}

func listPolicyVersions(s *Service, in *struct {
	PolicyArn, Marker string
	MaxItems          *int
}) (any, error) {
	if _, err := s.policy(in.PolicyArn); err != nil {
		return nil, err
	}
	items, end, err := cut(pages{Marker: in.Marker, MaxItems: in.MaxItems}, []versionItem{{"", version, true}})
	return struct {
		Versions []versionItem `xml:"Versions>member"`
		page
	}{items, end}, err
}

type listPoliciesRequest struct {
	pages
	Scope        string
	OnlyAttached bool
}

// listPolicies lists the account's own policies: the local IAM has none of AWS.
func listPolicies(s *Service, in *listPoliciesRequest) (any, error) {
	var items []policyItem
	for _, m := range s.Directory.ManagedPolicies() {
		item := s.policyItem(m)
		if strings.HasPrefix(m.Path, in.PathPrefix) && in.Scope != "AWS" && (!in.OnlyAttached || item.AttachmentCount > 0) {
			items = append(items, item)
		}
	}
	items, end, err := cut(in.pages, items)
	return struct {
		Policies []policyItem `xml:"Policies>member"`
		page
	}{items, end}, err
}

func deletePolicy(s *Service, in *struct{ PolicyArn string }) (any, error) {
	m, err := s.policy(in.PolicyArn)
	if err != nil {
		return nil, err
	}
	if item := s.policyItem(m); item.AttachmentCount+item.BoundaryCount > 0 {
		return nil, wire.RefuseWith(409, "DeleteConflict", "Cannot delete a policy attached to entities.")
	}
	_, err = s.Directory.DeletePolicy(in.PolicyArn)
	return struct{}{}, refusal(err, "Policy", in.PolicyArn)
}
