package iamapi_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	entity "github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

const (
	everything = cloudtest.Everything
	look       = cloudtest.LookOnly
	trust      = `{"Version":"2012-10-17", "Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`
	account    = "arn:aws:iam::123456789012:"
)

func tags(pairs ...string) (out []types.Tag) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, types.Tag{Key: &pairs[i], Value: &pairs[i+1]})
	}
	return out
}

// TestUsers follows a user from the beginning to the end, with what is refused on the way.
func TestUsers(t *testing.T) {
	l := cloudtest.New(t)
	c, ctx, ada := iam.NewFromConfig(l.AWS), t.Context(), aws.String("ada")
	refused := func(code string) func(any, error) {
		t.Helper()
		return func(_ any, err error) { t.Helper(); cloudtest.Refused(t, err, code) }
	}
	boundary := cloudtest.Must[*iam.CreatePolicyOutput](t)(c.CreatePolicy(ctx, &iam.CreatePolicyInput{PolicyName: aws.String("boundary"), Path: aws.String("/k8s/"), PolicyDocument: aws.String(everything)})).Policy
	if *boundary.Arn != account+"policy/k8s/boundary" || *boundary.DefaultVersionId != "v1" {
		t.Errorf("%+v", boundary)
	}
	create := &iam.CreateUserInput{UserName: ada, Path: aws.String("/k8s/"), PermissionsBoundary: aws.String(account + "policy/none"), Tags: tags("k8s-cluster", "ada")}
	refused("NoSuchEntity")(c.CreateUser(ctx, create))
	create.PermissionsBoundary = boundary.Arn
	made := cloudtest.Must[*iam.CreateUserOutput](t)(c.CreateUser(ctx, create)).User
	if *made.Arn != account+"user/k8s/ada" || *made.Path != "/k8s/" || made.CreateDate == nil || *made.PermissionsBoundary.PermissionsBoundaryArn != *boundary.Arn {
		t.Errorf("%+v", made)
	}
	refused("EntityAlreadyExists")(c.CreateUser(ctx, create))
	refused("ValidationError")(c.CreateUser(ctx, &iam.CreateUserInput{UserName: aws.String("a b")}))
	refused("ValidationError")(c.CreateUser(ctx, &iam.CreateUserInput{UserName: aws.String("bob"), Path: aws.String("k8s")}))
	refused("NoSuchEntity")(c.GetUser(ctx, &iam.GetUserInput{UserName: aws.String("bob")}))
	if got := cloudtest.Must[*iam.GetUserOutput](t)(c.GetUser(ctx, &iam.GetUserInput{UserName: ada})).User; *got.UserId != *made.UserId || len(got.Tags) != 1 {
		t.Errorf("%+v", got)
	}

	cloudtest.Must[*iam.TagUserOutput](t)(c.TagUser(ctx, &iam.TagUserInput{UserName: ada, Tags: tags("K8S-Cluster", "bob", "team", "x")}))
	cloudtest.Must[*iam.UntagUserOutput](t)(c.UntagUser(ctx, &iam.UntagUserInput{UserName: ada, TagKeys: []string{"TEAM"}}))
	if got := cloudtest.Must[*iam.ListUserTagsOutput](t)(c.ListUserTags(ctx, &iam.ListUserTagsInput{UserName: ada})).Tags; len(got) != 1 || *got[0].Key != "K8S-Cluster" || *got[0].Value != "bob" {
		t.Errorf("tags: %+v", got)
	}
	var many []string
	for n := range 51 {
		many = append(many, strings.Repeat("k", n+1), "")
	}
	refused("LimitExceeded")(c.TagUser(ctx, &iam.TagUserInput{UserName: ada, Tags: tags(many...)}))

	refused("MalformedPolicyDocument")(c.PutUserPolicy(ctx, &iam.PutUserPolicyInput{UserName: ada, PolicyName: aws.String("look"), PolicyDocument: aws.String(`{"Statement":1}`)}))
	large := strings.Replace(look, "ec2:Describe*", "ec2:"+strings.Repeat("x", 2048), 1)
	refused("LimitExceeded")(c.PutUserPolicy(ctx, &iam.PutUserPolicyInput{UserName: ada, PolicyName: aws.String("look"), PolicyDocument: &large}))
	cloudtest.Must[*iam.PutUserPolicyOutput](t)(c.PutUserPolicy(ctx, &iam.PutUserPolicyInput{UserName: ada, PolicyName: aws.String("look"), PolicyDocument: aws.String(look)}))
	if got := cloudtest.Must[*iam.GetUserPolicyOutput](t)(c.GetUserPolicy(ctx, &iam.GetUserPolicyInput{UserName: ada, PolicyName: aws.String("look")})); decoded(t, got.PolicyDocument) != look {
		t.Errorf("%s", *got.PolicyDocument)
	}

	key := cloudtest.Must[*iam.CreateAccessKeyOutput](t)(c.CreateAccessKey(ctx, &iam.CreateAccessKeyInput{UserName: ada})).AccessKey
	as := l.With(*key.AccessKeyId, *key.SecretAccessKey, "")
	if who := cloudtest.Must[*awssts.GetCallerIdentityOutput](t)(as.STS.GetCallerIdentity(ctx, &awssts.GetCallerIdentityInput{})); *who.Arn != *made.Arn {
		t.Errorf("the key is of %s", *who.Arn)
	}
	describe := func(as *cloudtest.Lab) error {
		_, err := as.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{})
		return err
	}
	cloudtest.Refused(t, describe(as), "")
	second := cloudtest.Must[*iam.CreateAccessKeyOutput](t)(c.CreateAccessKey(ctx, &iam.CreateAccessKeyInput{UserName: ada})).AccessKey
	refused("LimitExceeded")(c.CreateAccessKey(ctx, &iam.CreateAccessKeyInput{UserName: ada}))
	cloudtest.Refused(t, describe(l.With(*second.AccessKeyId, *second.SecretAccessKey, "")), "")
	cloudtest.Must[*iam.UpdateAccessKeyOutput](t)(c.UpdateAccessKey(ctx, &iam.UpdateAccessKeyInput{UserName: ada, AccessKeyId: key.AccessKeyId, Status: types.StatusTypeInactive}))
	cloudtest.Refused(t, describe(as), "AuthFailure")
	if keys := cloudtest.Must[*iam.ListAccessKeysOutput](t)(c.ListAccessKeys(ctx, &iam.ListAccessKeysInput{UserName: ada})).AccessKeyMetadata; len(keys) != 2 || keys[0].Status != types.StatusTypeInactive || keys[1].Status != types.StatusTypeActive {
		t.Errorf("%+v", keys)
	}
	cloudtest.Must[*iam.UpdateAccessKeyOutput](t)(c.UpdateAccessKey(ctx, &iam.UpdateAccessKeyInput{UserName: ada, AccessKeyId: key.AccessKeyId, Status: types.StatusTypeActive}))
	cloudtest.Refused(t, describe(as), "")

	denies := cloudtest.Must[*iam.CreatePolicyOutput](t)(c.CreatePolicy(ctx, &iam.CreatePolicyInput{PolicyName: aws.String("deny"), PolicyDocument: aws.String(strings.Replace(look, "Allow", "Deny", 1))})).Policy
	refused("EntityAlreadyExists")(c.CreatePolicy(ctx, &iam.CreatePolicyInput{PolicyName: aws.String("deny"), Path: aws.String("/other/"), PolicyDocument: aws.String(look)}))
	refused("MalformedPolicyDocument")(c.CreatePolicy(ctx, &iam.CreatePolicyInput{PolicyName: aws.String("bad"), PolicyDocument: aws.String("{")}))
	refused("NoSuchEntity")(c.AttachUserPolicy(ctx, &iam.AttachUserPolicyInput{UserName: ada, PolicyArn: aws.String(account + "policy/none")}))
	cloudtest.Must[*iam.AttachUserPolicyOutput](t)(c.AttachUserPolicy(ctx, &iam.AttachUserPolicyInput{UserName: ada, PolicyArn: denies.Arn}))
	cloudtest.Refused(t, describe(as), "UnauthorizedOperation")
	refused("DeleteConflict")(c.DeletePolicy(ctx, &iam.DeletePolicyInput{PolicyArn: denies.Arn}))
	if got := cloudtest.Must[*iam.ListAttachedUserPoliciesOutput](t)(c.ListAttachedUserPolicies(ctx, &iam.ListAttachedUserPoliciesInput{UserName: ada})).AttachedPolicies; len(got) != 1 || *got[0].PolicyName != "deny" {
		t.Errorf("%+v", got)
	}
	cloudtest.Must[*iam.DetachUserPolicyOutput](t)(c.DetachUserPolicy(ctx, &iam.DetachUserPolicyInput{UserName: ada, PolicyArn: denies.Arn}))
	refused("NoSuchEntity")(c.DetachUserPolicy(ctx, &iam.DetachUserPolicyInput{UserName: ada, PolicyArn: denies.Arn}))
	cloudtest.Refused(t, describe(as), "")
	cloudtest.Must[*iam.PutUserPermissionsBoundaryOutput](t)(c.PutUserPermissionsBoundary(ctx, &iam.PutUserPermissionsBoundaryInput{UserName: ada, PermissionsBoundary: denies.Arn}))
	cloudtest.Refused(t, describe(as), "UnauthorizedOperation")
	cloudtest.Must[*iam.DeleteUserPermissionsBoundaryOutput](t)(c.DeleteUserPermissionsBoundary(ctx, &iam.DeleteUserPermissionsBoundaryInput{UserName: ada}))
	cloudtest.Refused(t, describe(as), "")
	refused("NoSuchEntity")(c.DeleteUserPermissionsBoundary(ctx, &iam.DeleteUserPermissionsBoundaryInput{UserName: ada}))
	cloudtest.Must[*iam.DeletePolicyOutput](t)(c.DeletePolicy(ctx, &iam.DeletePolicyInput{PolicyArn: denies.Arn}))
	refused("NoSuchEntity")(c.GetPolicy(ctx, &iam.GetPolicyInput{PolicyArn: denies.Arn}))

	// Users that k8s-lab has made are the same users.
	l.User(t, `{"Effect":"Allow","Action":"*","Resource":"*"}`)
	if got := cloudtest.Must[*iam.ListUserPoliciesOutput](t)(c.ListUserPolicies(ctx, &iam.ListUserPoliciesInput{UserName: aws.String("dev")})).PolicyNames; !slices.Equal(got, []string{"policy-1"}) {
		t.Errorf("policies of dev: %q", got)
	}
	var names []string
	for pages := iam.NewListUsersPaginator(c, &iam.ListUsersInput{MaxItems: aws.Int32(1)}); pages.HasMorePages(); {
		for _, u := range cloudtest.Must[*iam.ListUsersOutput](t)(pages.NextPage(ctx)).Users {
			names = append(names, *u.Arn)
		}
	}
	if want := []string{account + "user/k8s/ada", account + "user/dev"}; !slices.Equal(names, want) {
		t.Errorf("users %q, want %q", names, want)
	}
	if got := cloudtest.Must[*iam.ListUsersOutput](t)(c.ListUsers(ctx, &iam.ListUsersInput{PathPrefix: aws.String("/k8s/")})).Users; len(got) != 1 {
		t.Errorf("%d users below /k8s/", len(got))
	}

	remove := &iam.DeleteUserInput{UserName: ada}
	refused("DeleteConflict")(c.DeleteUser(ctx, remove))
	for _, k := range []*string{key.AccessKeyId, second.AccessKeyId} {
		cloudtest.Must[*iam.DeleteAccessKeyOutput](t)(c.DeleteAccessKey(ctx, &iam.DeleteAccessKeyInput{UserName: ada, AccessKeyId: k}))
	}
	refused("NoSuchEntity")(c.DeleteAccessKey(ctx, &iam.DeleteAccessKeyInput{UserName: ada, AccessKeyId: key.AccessKeyId}))
	cloudtest.Refused(t, describe(as), "AuthFailure")
	refused("DeleteConflict")(c.DeleteUser(ctx, remove))
	cloudtest.Must[*iam.DeleteUserPolicyOutput](t)(c.DeleteUserPolicy(ctx, &iam.DeleteUserPolicyInput{UserName: ada, PolicyName: aws.String("look")}))
	refused("NoSuchEntity")(c.DeleteUserPolicy(ctx, &iam.DeleteUserPolicyInput{UserName: ada, PolicyName: aws.String("look")}))
	cloudtest.Must[*iam.DeleteUserOutput](t)(c.DeleteUser(ctx, remove))
	refused("NoSuchEntity")(c.DeleteUser(ctx, remove))
}

func decoded(t *testing.T, document *string) string {
	t.Helper()
	text, err := url.PathUnescape(aws.ToString(document)) // a plus stays one
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestRoles: a role gets to an instance by its profile.
func TestRoles(t *testing.T) {
	l := cloudtest.New(t)
	c, ctx, node := iam.NewFromConfig(l.AWS), t.Context(), aws.String("node")
	refused := func(code string) func(any, error) {
		t.Helper()
		return func(_ any, err error) { t.Helper(); cloudtest.Refused(t, err, code) }
	}
	refused("MalformedPolicyDocument")(c.CreateRole(ctx, &iam.CreateRoleInput{RoleName: node, AssumeRolePolicyDocument: aws.String(everything)}))
	role := cloudtest.Must[*iam.CreateRoleOutput](t)(c.CreateRole(ctx, &iam.CreateRoleInput{RoleName: node, Path: aws.String("/k8s/ada/"), AssumeRolePolicyDocument: aws.String(trust)})).Role
	if *role.Arn != account+"role/k8s/ada/node" || decoded(t, role.AssumeRolePolicyDocument) != trust {
		t.Errorf("%+v", role)
	}
	refused("EntityAlreadyExists")(c.CreateRole(ctx, &iam.CreateRoleInput{RoleName: node, AssumeRolePolicyDocument: aws.String(trust)}))
	cloudtest.Must[*iam.PutRolePolicyOutput](t)(c.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: node, PolicyName: aws.String("look"), PolicyDocument: aws.String(look)}))
	cloudtest.Must[*iam.CreateInstanceProfileOutput](t)(c.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: node, Path: aws.String("/k8s/ada/")}))
	refused("EntityAlreadyExists")(c.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: node}))
	refused("NoSuchEntity")(c.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: node, RoleName: aws.String("none")}))
	cloudtest.Must[*iam.AddRoleToInstanceProfileOutput](t)(c.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: node, RoleName: node}))
	refused("LimitExceeded")(c.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: node, RoleName: node}))
	profile := cloudtest.Must[*iam.GetInstanceProfileOutput](t)(c.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: node})).InstanceProfile
	if *profile.Arn != account+"instance-profile/k8s/ada/node" || len(profile.Roles) != 1 || *profile.Roles[0].Arn != *role.Arn {
		t.Errorf("%+v", profile)
	}
	in := l.NewSite(t).RunInput()
	in.IamInstanceProfile = cloudtest.ProfileNamed("node")
	if got := cloudtest.Must[*awsec2.RunInstancesOutput](t)(l.RunInstances(ctx, in)).Instances[0].IamInstanceProfile; *got.Arn != *profile.Arn {
		t.Errorf("the instance has %s", *got.Arn)
	}
	if got := cloudtest.Must[*iam.ListInstanceProfilesForRoleOutput](t)(c.ListInstanceProfilesForRole(ctx, &iam.ListInstanceProfilesForRoleInput{RoleName: node})).InstanceProfiles; len(got) != 1 {
		t.Errorf("%d profiles", len(got))
	}

	deploy := strings.Replace(trust, `"Service":"ec2.amazonaws.com"`, `"AWS":"`+account+`root"`, 1)
	cloudtest.Must[*iam.UpdateAssumeRolePolicyOutput](t)(c.UpdateAssumeRolePolicy(ctx, &iam.UpdateAssumeRolePolicyInput{RoleName: node, PolicyDocument: &deploy}))
	if _, err := l.STS.AssumeRole(ctx, &awssts.AssumeRoleInput{RoleArn: role.Arn, RoleSessionName: aws.String("x1")}); err != nil {
		t.Error(err)
	}

	refused("DeleteConflict")(c.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: node}))
	refused("DeleteConflict")(c.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: node}))
	cloudtest.Must[*iam.RemoveRoleFromInstanceProfileOutput](t)(c.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: node, RoleName: node}))
	refused("NoSuchEntity")(c.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: node, RoleName: node}))
	cloudtest.Must[*iam.DeleteInstanceProfileOutput](t)(c.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: node}))
	refused("DeleteConflict")(c.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: node}))
	cloudtest.Must[*iam.DeleteRolePolicyOutput](t)(c.DeleteRolePolicy(ctx, &iam.DeleteRolePolicyInput{RoleName: node, PolicyName: aws.String("look")}))
	cloudtest.Must[*iam.DeleteRoleOutput](t)(c.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: node}))
	if got := cloudtest.Must[*iam.ListRolesOutput](t)(c.ListRoles(ctx, &iam.ListRolesInput{})).Roles; len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestTeacher: a teacher may make users below a path with one boundary and a tag, and no others.
func TestTeacher(t *testing.T) {
	l := cloudtest.New(t)
	owner, ctx := iam.NewFromConfig(l.AWS), t.Context()
	boundary := cloudtest.Must[*iam.CreatePolicyOutput](t)(owner.CreatePolicy(ctx, &iam.CreatePolicyInput{PolicyName: aws.String("boundary"), PolicyDocument: aws.String(everything)})).Policy.Arn
	other := cloudtest.Must[*iam.CreatePolicyOutput](t)(owner.CreatePolicy(ctx, &iam.CreatePolicyInput{PolicyName: aws.String("other"), PolicyDocument: aws.String(everything)})).Policy.Arn
	c := iam.NewFromConfig(l.User(t,
		`{"Effect":"Allow","Action":["iam:CreateUser","iam:AttachUserPolicy","iam:PutUserPolicy","iam:PutUserPermissionsBoundary"],"Resource":"`+account+`user/class/*","Condition":{"StringEquals":{"iam:PermissionsBoundary":"`+*boundary+`"}}}`,
		`{"Effect":"Deny","Action":"iam:AttachUserPolicy","Resource":"*","Condition":{"ArnNotEquals":{"iam:PolicyARN":"`+*boundary+`"}}}`,
		`{"Effect":"Allow","Action":["iam:TagUser","iam:CreateAccessKey"],"Resource":"`+account+`user/class/*","Condition":{"ForAllValues:StringEquals":{"aws:TagKeys":"k8s-cluster"}}}`,
		`{"Effect":"Allow","Action":"iam:GetUser","Resource":"*","Condition":{"StringEquals":{"iam:ResourceTag/k8s-cluster":"ada"}}}`,
	).AWS)
	ada, class := aws.String("ada"), aws.String("/class/")
	create := func(in iam.CreateUserInput) error {
		_, err := c.CreateUser(ctx, &in)
		return err
	}
	for _, denied := range []iam.CreateUserInput{
		{UserName: ada, Path: class}, {UserName: ada, PermissionsBoundary: boundary}, {UserName: ada, Path: class, PermissionsBoundary: other},
		{UserName: ada, Path: class, PermissionsBoundary: boundary, Tags: tags("admin", "yes")},
	} {
		cloudtest.Refused(t, create(denied), "AccessDenied")
	}
	cloudtest.Refused(t, create(iam.CreateUserInput{UserName: ada, Path: class, PermissionsBoundary: boundary, Tags: tags("k8s-cluster", "ada")}), "")
	cloudtest.Must[*iam.CreateAccessKeyOutput](t)(c.CreateAccessKey(ctx, &iam.CreateAccessKeyInput{UserName: ada}))
	cloudtest.Must[*iam.PutUserPolicyOutput](t)(c.PutUserPolicy(ctx, &iam.PutUserPolicyInput{UserName: ada, PolicyName: aws.String("look"), PolicyDocument: aws.String(look)}))
	cloudtest.Must[*iam.AttachUserPolicyOutput](t)(c.AttachUserPolicy(ctx, &iam.AttachUserPolicyInput{UserName: ada, PolicyArn: boundary}))
	cloudtest.Must[*iam.GetUserOutput](t)(c.GetUser(ctx, &iam.GetUserInput{UserName: ada}))
	for name, err := range map[string]error{
		"another policy":   second(c.AttachUserPolicy(ctx, &iam.AttachUserPolicyInput{UserName: ada, PolicyArn: other})),
		"another boundary": second(c.PutUserPermissionsBoundary(ctx, &iam.PutUserPermissionsBoundaryInput{UserName: ada, PermissionsBoundary: other})),
		"no boundary":      second(c.DeleteUserPermissionsBoundary(ctx, &iam.DeleteUserPermissionsBoundaryInput{UserName: ada})),
		"herself":          second(c.GetUser(ctx, &iam.GetUserInput{})),
		"her own key":      second(c.CreateAccessKey(ctx, &iam.CreateAccessKeyInput{})),
		"a role":           second(c.CreateRole(ctx, &iam.CreateRoleInput{RoleName: ada, AssumeRolePolicyDocument: aws.String(trust)})),
		"all users":        second(c.ListUsers(ctx, &iam.ListUsersInput{})),
	} {
		t.Log(name, err)
		cloudtest.Refused(t, err, "AccessDenied")
	}
}

func second(_ any, err error) error { return err }

// TestTeacherMakesProfiles: with teacher.json, a teacher puts roles below the path into instance profiles, and no other roles.
func TestTeacherMakesProfiles(t *testing.T) {
	l := cloudtest.New(t)
	owner, ctx := iam.NewFromConfig(l.AWS), t.Context()
	boundary := cloudtest.Must[*iam.CreatePolicyOutput](t)(owner.CreatePolicy(ctx, &iam.CreatePolicyInput{PolicyName: aws.String("k8s-boundary"), PolicyDocument: aws.String(everything)})).Policy.Arn
	cloudtest.Must[*iam.CreateRoleOutput](t)(owner.CreateRole(ctx, &iam.CreateRoleInput{RoleName: aws.String("admin"), AssumeRolePolicyDocument: aws.String(trust)}))
	document := string(cloudtest.Must[[]byte](t)(os.ReadFile(filepath.Join("..", "..", "..", "..", "examples", "iam", "teacher.json"))))
	u := cloudtest.Must[entity.User](t)(l.Account.Identities().PutUser("teacher", entity.Entity{Policies: []string{document}}))
	c := iam.NewFromConfig(l.With(u.AccessKeyID, u.SecretAccessKey, "").AWS)
	node, path := aws.String("ada-node"), aws.String("/k8s/ada/")
	cloudtest.Must[*iam.CreateRoleOutput](t)(c.CreateRole(ctx, &iam.CreateRoleInput{
		RoleName: node, Path: path, PermissionsBoundary: boundary, AssumeRolePolicyDocument: aws.String(trust), Tags: tags("k8s-cluster", "ada"),
	}))
	cloudtest.Must[*iam.CreateInstanceProfileOutput](t)(c.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: node, Path: path}))
	_, err := c.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: node, RoleName: aws.String("admin")})
	cloudtest.Refused(t, err, "AccessDenied")
	cloudtest.Must[*iam.AddRoleToInstanceProfileOutput](t)(c.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: node, RoleName: node}))
}

// TestLimits: every kind of policy has a size of its own, and a user and a role have 50 tags from the beginning.
func TestLimits(t *testing.T) {
	l := cloudtest.New(t)
	c, ctx, name := iam.NewFromConfig(l.AWS), t.Context(), aws.String("one")
	sized := func(document string, n int) *string {
		return aws.String(strings.Replace(document, "ec2:Describe*", "ec2:"+strings.Repeat("x", n), 1))
	}
	var many []string
	for n := range 51 {
		many = append(many, strings.Repeat("k", n+1), "")
	}
	calls := map[string]error{}
	call := func(what string, _ any, err error) { calls[what] = err }
	policy := func(what string, n int) {
		out, err := c.CreatePolicy(ctx, &iam.CreatePolicyInput{PolicyName: &what, PolicyDocument: sized(look, n)})
		call(what, out, err)
	}
	inline := func(what string, n int) {
		out, err := c.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: name, PolicyName: name, PolicyDocument: sized(look, n)})
		call(what, out, err)
	}
	out, err := c.CreateRole(ctx, &iam.CreateRoleInput{RoleName: name, AssumeRolePolicyDocument: aws.String(trust), Tags: tags(many...)})
	call("tags", out, err)
	out, err = c.CreateRole(ctx, &iam.CreateRoleInput{RoleName: name, AssumeRolePolicyDocument: aws.String(strings.Replace(trust, "ec2.", strings.Repeat("x", 2048), 1))})
	call("trust", out, err)
	out, err = c.CreateRole(ctx, &iam.CreateRoleInput{RoleName: name, AssumeRolePolicyDocument: aws.String(trust), Tags: tags(many[2:]...)})
	call("a role", out, err)
	policy("managed", 6144)
	policy("small", 6000)
	inline("inline", 10240)
	inline("more than managed", 10000)
	for what, err := range calls {
		want := "LimitExceeded"
		if slices.Contains([]string{"a role", "small", "more than managed"}, what) {
			want = ""
		}
		if got := cloudtest.Code(err); got != want {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
}

// TestIssuers follows an OpenID Connect provider from the beginning to the end.
func TestIssuers(t *testing.T) {
	l := cloudtest.New(t)
	c, ctx := iam.NewFromConfig(l.AWS), t.Context()
	refused := func(code string) func(any, error) {
		t.Helper()
		return func(_ any, err error) { t.Helper(); cloudtest.Refused(t, err, code) }
	}
	thumbprint := strings.Repeat("ab", 20)
	create := &iam.CreateOpenIDConnectProviderInput{Url: aws.String("https://app.terraform.io"), ClientIDList: []string{"aws.workload.identity"}, ThumbprintList: []string{thumbprint}, Tags: tags("team", "a")}
	var ids []string
	for n := range 101 {
		ids = append(ids, fmt.Sprint(n))
	}
	many := tags()
	for _, id := range append(ids[:51:51], "") {
		many = append(many, tags("tag-"+id, "x")...)
	}
	for _, test := range []struct {
		url, code string
		change    func(*iam.CreateOpenIDConnectProviderInput)
	}{
		{"app.terraform.io", "ValidationError", nil},
		{"http://app.terraform.io", "InvalidInput", nil},
		{"https://app.terraform.io?a=b", "ValidationError", nil},
		{"https://app.terraform.io#a", "ValidationError", nil},
		{"https://app.terraform.io:8443", "InvalidInput", nil},
		{"https://" + strings.Repeat("a", 248), "ValidationError", nil},
		{"https://app.terraform.io", "ValidationError", func(in *iam.CreateOpenIDConnectProviderInput) { in.ThumbprintList = []string{"ab"} }},
		{"https://app.terraform.io", "InvalidInput", func(in *iam.CreateOpenIDConnectProviderInput) {
			in.ThumbprintList = slices.Repeat([]string{thumbprint}, 6)
		}},
		{"https://app.terraform.io", "LimitExceeded", func(in *iam.CreateOpenIDConnectProviderInput) { in.ClientIDList = ids }},
		{"https://app.terraform.io", "ValidationError", func(in *iam.CreateOpenIDConnectProviderInput) {
			in.ClientIDList = []string{strings.Repeat("a", 256)}
		}},
		{"https://app.terraform.io", "LimitExceeded", func(in *iam.CreateOpenIDConnectProviderInput) { in.Tags = many }},
		// Without thumbprints IAM asks the server.
		{"https://127.0.0.1", "OpenIdIdpCommunicationError", func(in *iam.CreateOpenIDConnectProviderInput) { in.ThumbprintList = nil }},
	} {
		in := &iam.CreateOpenIDConnectProviderInput{Url: &test.url, ThumbprintList: []string{thumbprint}}
		if test.change != nil {
			test.change(in)
		}
		refused(test.code)(c.CreateOpenIDConnectProvider(ctx, in))
	}
	// Terraform sends an empty list for none.
	refused("OpenIdIdpCommunicationError")(c.CreateOpenIDConnectProvider(ctx, &iam.CreateOpenIDConnectProviderInput{Url: aws.String("https://127.0.0.1"), ThumbprintList: []string{}}))
	arn := cloudtest.Must[*iam.CreateOpenIDConnectProviderOutput](t)(c.CreateOpenIDConnectProvider(ctx, create)).OpenIDConnectProviderArn
	if *arn != account+"oidc-provider/app.terraform.io" {
		t.Errorf("it is %s", *arn)
	}
	refused("EntityAlreadyExists")(c.CreateOpenIDConnectProvider(ctx, create))
	for range 2 { // the second time changes nothing
		refused("")(c.AddClientIDToOpenIDConnectProvider(ctx, &iam.AddClientIDToOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, ClientID: aws.String("ci")}))
	}
	refused("ValidationError")(c.AddClientIDToOpenIDConnectProvider(ctx, &iam.AddClientIDToOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, ClientID: aws.String(strings.Repeat("a", 256))}))
	for n := range 98 {
		refused("")(c.AddClientIDToOpenIDConnectProvider(ctx, &iam.AddClientIDToOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, ClientID: &ids[n]}))
	}
	refused("LimitExceeded")(c.AddClientIDToOpenIDConnectProvider(ctx, &iam.AddClientIDToOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, ClientID: &ids[100]}))
	for n := range 98 {
		refused("")(c.RemoveClientIDFromOpenIDConnectProvider(ctx, &iam.RemoveClientIDFromOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, ClientID: &ids[n]}))
	}
	refused("InvalidInput")(c.UpdateOpenIDConnectProviderThumbprint(ctx, &iam.UpdateOpenIDConnectProviderThumbprintInput{OpenIDConnectProviderArn: arn, ThumbprintList: []string{}}))
	refused("")(c.RemoveClientIDFromOpenIDConnectProvider(ctx, &iam.RemoveClientIDFromOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, ClientID: aws.String("aws.workload.identity")}))
	refused("")(c.UpdateOpenIDConnectProviderThumbprint(ctx, &iam.UpdateOpenIDConnectProviderThumbprintInput{OpenIDConnectProviderArn: arn, ThumbprintList: []string{thumbprint, strings.Repeat("0", 40)}}))
	refused("")(c.TagOpenIDConnectProvider(ctx, &iam.TagOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, Tags: tags("room", "12")}))
	refused("")(c.UntagOpenIDConnectProvider(ctx, &iam.UntagOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, TagKeys: []string{"team"}}))
	got := cloudtest.Must[*iam.GetOpenIDConnectProviderOutput](t)(c.GetOpenIDConnectProvider(ctx, &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn}))
	if *got.Url != "app.terraform.io" || !slices.Equal(got.ClientIDList, []string{"ci"}) || len(got.ThumbprintList) != 2 || got.CreateDate == nil || len(got.Tags) != 1 || *got.Tags[0].Value != "12" {
		t.Errorf("it is %+v", got)
	}
	if listed := cloudtest.Must[*iam.ListOpenIDConnectProviderTagsOutput](t)(c.ListOpenIDConnectProviderTags(ctx, &iam.ListOpenIDConnectProviderTagsInput{OpenIDConnectProviderArn: arn})); len(listed.Tags) != 1 {
		t.Errorf("its tags are %+v", listed.Tags)
	}
	// A permission is for one provider, and a list needs one for all of them.
	dev := iam.NewFromConfig(l.User(t, `{"Effect":"Allow","Action":"iam:*","Resource":"`+*arn+`"}`).AWS)
	refused("")(dev.GetOpenIDConnectProvider(ctx, &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn}))
	refused("AccessDenied")(dev.CreateOpenIDConnectProvider(ctx, &iam.CreateOpenIDConnectProviderInput{Url: aws.String("https://ci.example.com")}))
	refused("AccessDenied")(dev.ListOpenIDConnectProviders(ctx, &iam.ListOpenIDConnectProvidersInput{}))
	dev = iam.NewFromConfig(l.User(t, `{"Effect":"Allow","Action":"iam:List*","Resource":["arn:aws:iam::*:user/*","arn:aws:iam::*:oidc-provider/*"]}`).AWS)
	refused("")(dev.ListOpenIDConnectProviders(ctx, &iam.ListOpenIDConnectProvidersInput{}))
	refused("")(dev.ListUsers(ctx, &iam.ListUsersInput{}))
	refused("AccessDenied")(dev.ListRoles(ctx, &iam.ListRolesInput{}))
	// Tags of the request and of the provider count.
	dev = iam.NewFromConfig(l.User(t,
		`{"Effect":"Allow","Action":["iam:CreateOpenIDConnectProvider","iam:TagOpenIDConnectProvider"],"Resource":"arn:aws:iam::123456789012:oidc-provider/s3.us-east-1.amazonaws.com/*","Condition":{"StringEquals":{"aws:RequestTag/team":"a"},"ForAllValues:StringEquals":{"aws:TagKeys":"team"}}}`,
		`{"Effect":"Allow","Action":"iam:DeleteOpenIDConnectProvider","Resource":"*","Condition":{"StringEquals":{"aws:ResourceTag/team":"a"}}}`).AWS)
	for _, test := range []struct {
		url, code string
		tags      []types.Tag
	}{
		{"https://s3.us-east-1.amazonaws.com/keys/one", "AccessDenied", nil},
		{"https://s3.us-east-1.amazonaws.com/keys/one", "AccessDenied", tags("team", "b")},
		{"https://s3.us-east-1.amazonaws.com/keys/one", "AccessDenied", tags("team", "a", "room", "1")},
		{"https://ci.example.com", "AccessDenied", tags("team", "a")},
		{"https://s3.us-east-1.amazonaws.com/keys/one", "", tags("team", "a")},
	} {
		refused(test.code)(dev.CreateOpenIDConnectProvider(ctx, &iam.CreateOpenIDConnectProviderInput{Url: &test.url, ThumbprintList: []string{thumbprint}, Tags: test.tags}))
	}
	refused("AccessDenied")(dev.DeleteOpenIDConnectProvider(ctx, &iam.DeleteOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn}))
	refused("")(dev.DeleteOpenIDConnectProvider(ctx, &iam.DeleteOpenIDConnectProviderInput{OpenIDConnectProviderArn: aws.String(account + "oidc-provider/s3.us-east-1.amazonaws.com/keys/one")}))
	for range 2 { // deleting what is gone is no error
		refused("")(c.DeleteOpenIDConnectProvider(ctx, &iam.DeleteOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn}))
	}
	refused("NoSuchEntity")(c.GetOpenIDConnectProvider(ctx, &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn}))
	if all := cloudtest.Must[*iam.ListOpenIDConnectProvidersOutput](t)(c.ListOpenIDConnectProviders(ctx, &iam.ListOpenIDConnectProvidersInput{})); len(all.OpenIDConnectProviderList) != 0 {
		t.Errorf("there are %+v", all.OpenIDConnectProviderList)
	}
}
