package cloudtest

import (
	"strings"
	"testing"

	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

// Policies: one allows all actions, one to look at EC2.
const (
	Everything = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`
	LookOnly   = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:Describe*","Resource":"*"}]}`
)

// User returns the lab as a user with the statements of one policy sees it.
func (l *Lab) User(t *testing.T, statements ...string) *Lab {
	t.Helper()
	return l.UserWith(t, `{"Version":"2012-10-17","Statement":[`+strings.Join(statements, ",")+`]}`)
}

// UserWith is User for a whole policy.
func (l *Lab) UserWith(t *testing.T, policy string) *Lab {
	t.Helper()
	u, err := l.Account.Identities().PutUser("dev", iam.Entity{Policies: []string{policy}})
	if err != nil {
		t.Fatal(err)
	}
	return l.With(u.AccessKeyID, u.SecretAccessKey, "")
}

// Profile makes an instance profile, and the role of the same name with a policy.
func (l *Lab) Profile(t *testing.T, name, policy string) iam.Profile {
	t.Helper()
	if _, err := l.Account.Identities().PutRole(name, iam.Entity{Policies: []string{policy}}, ""); err != nil {
		t.Fatal(err)
	}
	return Must[iam.Profile](t)(l.Account.PutInstanceProfile(name, "", name))
}

// ProfileNamed returns how requests name an instance profile.
func ProfileNamed(name string) *types.IamInstanceProfileSpecification {
	return &types.IamInstanceProfileSpecification{Name: &name}
}

// Associated returns the ids of an instance's associations with profiles, oldest first, and shows them as
// "profile state, ...".
func (l *Lab) Associated(t *testing.T, instance string) (ids []string, shown string) {
	t.Helper()
	out := Must[*awsec2.DescribeIamInstanceProfileAssociationsOutput](t)(l.DescribeIamInstanceProfileAssociations(t.Context(),
		&awsec2.DescribeIamInstanceProfileAssociationsInput{Filters: []types.Filter{Filter("instance-id", instance)}}))
	var words []string
	for _, a := range out.IamInstanceProfileAssociations {
		ids = append(ids, *a.AssociationId)
		words = append(words, (*a.IamInstanceProfile.Arn)[strings.LastIndex(*a.IamInstanceProfile.Arn, "/")+1:]+" "+string(a.State))
	}
	return ids, strings.Join(words, ", ")
}
