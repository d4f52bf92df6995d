package cloud_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/metadata"
)

const lookOnly = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:Describe*","Resource":"*"}]}`

// profile makes an instance profile, and the role of the same name with a policy.
func (l *lab) profile(t *testing.T, name, policy string) iam.Profile {
	t.Helper()
	if _, err := l.cloud.Identities().PutRole(name, []string{policy}, ""); err != nil {
		t.Fatal(err)
	}
	return must[iam.Profile](t)(l.cloud.PutInstanceProfile(name, name))
}

func named(name string) *types.IamInstanceProfileSpecification {
	return &types.IamInstanceProfileSpecification{Name: &name}
}

// associated returns an instance's associations, oldest first, as "profile state".
func (l *lab) associated(t *testing.T, instance string) (ids []string, shown string) {
	t.Helper()
	out := must[*awsec2.DescribeIamInstanceProfileAssociationsOutput](t)(l.DescribeIamInstanceProfileAssociations(t.Context(),
		&awsec2.DescribeIamInstanceProfileAssociationsInput{Filters: []types.Filter{filter("instance-id", instance)}}))
	var words []string
	for _, a := range out.IamInstanceProfileAssociations {
		ids = append(ids, *a.AssociationId)
		words = append(words, (*a.IamInstanceProfile.Arn)[strings.LastIndex(*a.IamInstanceProfile.Arn, "/")+1:]+" "+string(a.State))
	}
	return ids, strings.Join(words, ", ")
}

// TestInstanceProfile: an instance has one profile, which is given at the launch or later, replaced
// while it runs, taken away, and gone with the instance.
func TestInstanceProfile(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	s := l.site(t)
	node, other := l.profile(t, "node", lookOnly), l.profile(t, "other", lookOnly)
	in := s.runInput()
	in.IamInstanceProfile = named("node")
	id := *l.run(t, in).InstanceId

	shows := func(want string) {
		t.Helper()
		got := ""
		if p := l.instance(t, id).IamInstanceProfile; p != nil {
			got = *p.Arn + " " + *p.Id
		}
		if got != want {
			t.Errorf("the instance shows %q, want %q", got, want)
		}
	}
	associations := func(want string) []string {
		t.Helper()
		ids, got := l.associated(t, id)
		if got != want {
			t.Errorf("associations %q, want %q", got, want)
		}
		return ids
	}
	pass := func() { l.clock.advance(time.Second) }
	pass()
	shows("arn:aws:iam::123456789012:instance-profile/node " + node.ID)
	first := associations("node associated")[0]
	found := must[*awsec2.DescribeInstancesOutput](t)(l.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{Filters: []types.Filter{
		filter("iam-instance-profile.name", "node"), filter("iam-instance-profile.arn", node.ARN), filter("iam-instance-profile.id", node.ID)}}))
	if len(found.Reservations) != 1 {
		t.Error("not found by its profile")
	}

	associate := func(name string) error {
		_, err := l.AssociateIamInstanceProfile(ctx, &awsec2.AssociateIamInstanceProfileInput{InstanceId: &id, IamInstanceProfile: named(name)})
		return err
	}
	replace := func(association, name string) error {
		_, err := l.ReplaceIamInstanceProfileAssociation(ctx, &awsec2.ReplaceIamInstanceProfileAssociationInput{AssociationId: &association, IamInstanceProfile: named(name)})
		return err
	}
	disassociate := func(association string) error {
		_, err := l.DisassociateIamInstanceProfile(ctx, &awsec2.DisassociateIamInstanceProfileInput{AssociationId: &association})
		return err
	}
	refused(t, associate("other"), "IncorrectState") // it has one
	refused(t, replace(first, "nobody"), "InvalidParameterValue")
	refused(t, replace("iip-assoc-00000000000000001", "other"), "InvalidAssociationID.NotFound")
	refused(t, replace(first, "other"), "")
	shows(other.ARN + " " + other.ID)
	if ids, states := l.associated(t, id); len(ids) != 2 || !strings.Contains(states, "node disassociating") || !strings.Contains(states, "other associating") {
		t.Errorf("during a replacement: %q", states)
	}
	refused(t, replace(first, "node"), "IncorrectState")
	pass()
	second := associations("other associated")[0]
	if second == first {
		t.Error("a replacement keeps the association's id")
	}

	must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{id}}))
	l.await(t, id, types.InstanceStateNameStopped)
	refused(t, replace(second, "node"), "IncorrectState") // only of a running instance
	refused(t, disassociate(second), "")
	associations("other disassociating")
	refused(t, disassociate(second), "IncorrectState")
	refused(t, associate("node"), "IncorrectState") // not yet
	pass()
	associations("")
	shows("")
	refused(t, disassociate(second), "InvalidAssociationID.NotFound")
	refused(t, associate("nobody"), "InvalidParameterValue")
	_, err := l.AssociateIamInstanceProfile(ctx, &awsec2.AssociateIamInstanceProfileInput{InstanceId: &id, IamInstanceProfile: &types.IamInstanceProfileSpecification{Name: aws.String("node"), Arn: &node.ARN}})
	refused(t, err, "InvalidParameterCombination")
	_, err = l.AssociateIamInstanceProfile(ctx, &awsec2.AssociateIamInstanceProfileInput{InstanceId: &id, IamInstanceProfile: &types.IamInstanceProfileSpecification{Arn: &node.ARN}})
	refused(t, err, "")
	associations("node associating")

	must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: []string{id}}))
	l.await(t, id, types.InstanceStateNameTerminated)
	associations("")
	shows("")
	refused(t, associate("node"), "IncorrectInstanceState")
}

// TestUnknownProfile: a launch with a profile that EC2 does not know is refused, also if the profile
// was made a moment ago.
func TestUnknownProfile(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	in := s.runInput()
	in.IamInstanceProfile = named("late")
	launch := func() error {
		_, err := l.RunInstances(t.Context(), in)
		return err
	}
	err := launch()
	refused(t, err, "InvalidParameterValue")
	if want := "Value (late) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"; !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	l.control(t, http.MethodPost, "/_lab/faults", fault.Fault{Kind: fault.Eventual, Action: "CreateInstanceProfile", Calls: 2}, nil)
	l.profile(t, "late", lookOnly)
	refused(t, launch(), "InvalidParameterValue")
	refused(t, launch(), "InvalidParameterValue")
	refused(t, launch(), "")
	in.ClientToken = nil // the SDK has filled it in
	in.IamInstanceProfile = &types.IamInstanceProfileSpecification{Arn: aws.String("arn:aws:iam::210987654321:instance-profile/late")}
	refused(t, launch(), "InvalidParameterValue")
}

// TestPassRole: who gives an instance a profile must be allowed to pass its role to EC2.
func TestPassRole(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	l.profile(t, "node", lookOnly)
	const ec2All = `{"Effect":"Allow","Action":"ec2:*","Resource":"*"}`
	pass := func(role, service string) string {
		return `{"Effect":"Allow","Action":"iam:PassRole","Resource":"arn:aws:iam::123456789012:role/` + role + `","Condition":{"StringEquals":{"iam:PassedToService":"` + service + `"}}}`
	}
	in := s.runInput()
	in.IamInstanceProfile = named("node")
	for _, tc := range []struct {
		name, statement string
		want            string
	}{
		{"nothing", ec2All, "UnauthorizedOperation"},
		{"another role", pass("admin", "ec2.amazonaws.com"), "UnauthorizedOperation"},
		{"another service", pass("node", "lambda.amazonaws.com"), "UnauthorizedOperation"},
		{"the role", pass("node", "ec2.amazonaws.com"), ""},
	} {
		dev := l.user(t, ec2All, tc.statement)
		out, err := dev.RunInstances(t.Context(), in)
		refused(t, err, tc.want)
		if tc.want != "" && !strings.Contains(err.Error(), "is not authorized to perform: iam:PassRole on resource: arn:aws:iam::123456789012:role/node because") {
			t.Errorf("%s: %v", tc.name, err)
		}
		if err == nil {
			id := *out.Instances[0].InstanceId
			l.await(t, id, types.InstanceStateNameRunning)
			l.clock.advance(time.Second)
			ids, _ := l.associated(t, id)
			plain := l.user(t, ec2All)
			_, err = plain.ReplaceIamInstanceProfileAssociation(t.Context(), &awsec2.ReplaceIamInstanceProfileAssociationInput{AssociationId: &ids[0], IamInstanceProfile: named("node")})
			refused(t, err, "UnauthorizedOperation")
			bound := l.user(t, `{"Effect":"Allow","Action":"ec2:Disassociate*","Resource":"arn:aws:ec2:*:*:instance/`+id+`"}`)
			_, err = bound.DisassociateIamInstanceProfile(t.Context(), &awsec2.DisassociateIamInstanceProfileInput{AssociationId: &ids[0]})
			refused(t, err, "")
		}
	}
}

// inside is an instance as its metadata service sees it.
func (l *lab) inside(t *testing.T, s site, id string) metadata.Instance {
	t.Helper()
	i, ok := l.cloud.Instances().InstanceByAddress(s.vpc, netip.MustParseAddr(*l.instance(t, id).PrivateIpAddress))
	if !ok {
		t.Fatal("the metadata service does not know it")
	}
	return i
}

// as returns the lab as it is seen with the credentials that the metadata service gives an instance,
// through the endpoint for instances.
func (l *lab) as(t *testing.T, r metadata.Role) *lab {
	t.Helper()
	server := httptest.NewServer(l.cloud.API())
	t.Cleanup(server.Close)
	other := l.with(r.AccessKeyID, r.SecretAccessKey, r.Token)
	cfg := other.aws.Copy()
	cfg.BaseEndpoint = &server.URL
	return (&lab{aws: cfg, clock: l.clock, url: server.URL}).with(r.AccessKeyID, r.SecretAccessKey, r.Token)
}

// TestInstanceRole: an instance's credentials are its own, have its role's rights, and are replaced
// long before they expire.
func TestInstanceRole(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	s := l.site(t)
	l.profile(t, "node", `{"Version":"2012-10-17","Statement":[
		{"Effect":"Allow","Action":"ec2:DescribeInstances","Resource":"*","Condition":{"StringLike":{"ec2:SourceInstanceARN":"arn:aws:ec2:us-east-1:123456789012:instance/i-*"}}}]}`)
	in := s.runInput()
	in.IamInstanceProfile = named("node")
	in.MinCount, in.MaxCount = aws.Int32(2), aws.Int32(2)
	out := must[*awsec2.RunInstancesOutput](t)(l.RunInstances(ctx, in))
	var ids []string
	for _, i := range out.Instances {
		ids = append(ids, *i.InstanceId)
		l.await(t, *i.InstanceId, types.InstanceStateNameRunning)
	}
	source := l.cloud.Instances()
	roleOf := func(id string) metadata.Role {
		t.Helper()
		return must[metadata.Role](t)(source.Role(l.inside(t, s, id)))
	}
	first, second := roleOf(ids[0]), roleOf(ids[1])
	if first.Name != "node" || !first.Trusted || first.AccessKeyID == "" || first.AccessKeyID == second.AccessKeyID || first.Token == second.Token {
		t.Errorf("credentials %+v and %+v", first, second)
	}
	if again := roleOf(ids[0]); again != first {
		t.Error("they change with every look")
	}

	api := l.as(t, first)
	me := must[*awssts.GetCallerIdentityOutput](t)(api.sts.GetCallerIdentity(ctx, &awssts.GetCallerIdentityInput{}))
	if want := "arn:aws:sts::123456789012:assumed-role/node/" + ids[0]; *me.Arn != want {
		t.Errorf("it is %s, want %s", *me.Arn, want)
	}
	must[*awsec2.DescribeInstancesOutput](t)(api.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{}))
	_, err := api.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: ids})
	refused(t, err, "UnauthorizedOperation")
	if !strings.Contains(err.Error(), "User: "+*me.Arn+" is not authorized to perform: ec2:TerminateInstances") {
		t.Error(err)
	}

	l.clock.advance(2 * time.Hour)
	rotated := roleOf(ids[0])
	if rotated.AccessKeyID == first.AccessKeyID || !rotated.Expires.After(first.Expires) {
		t.Errorf("not replaced: %+v", rotated)
	}
	must[*awsec2.DescribeInstancesOutput](t)(api.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{})) // the old ones last
	l.clock.advance(4*time.Hour + time.Minute)
	_, err = api.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{})
	refused(t, err, "RequestExpired")

	if _, err := l.cloud.Identities().PutRole("node", nil, strings.Replace(iam.DefaultTrust("123456789012"), "ec2.", "lambda.", 1)); err != nil {
		t.Fatal(err)
	}
	if r := roleOf(ids[0]); r.Name != "node" || r.Trusted || r.AccessKeyID != "" {
		t.Errorf("of a role that does not trust EC2: %+v", r)
	}
	if _, err := l.cloud.Identities().DeleteProfile("node"); err != nil {
		t.Fatal(err)
	}
	if r := roleOf(ids[0]); r.Name != "" {
		t.Errorf("of a profile that is gone: %+v", r)
	}
	l.profile(t, "node", lookOnly)
	if r := roleOf(ids[0]); r.Name != "" {
		t.Errorf("of a new profile with the name of a deleted one: %+v", r)
	}
}

// TestInstanceEndpoint: the endpoint for instances has the AWS APIs only, and asks everybody for a
// signature.
func TestInstanceEndpoint(t *testing.T) {
	l := newLab(t)
	for _, r := range []*http.Request{
		httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/_lab/state", nil),
		httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/_lab/iam", nil),
		httptest.NewRequestWithContext(context.Background(), http.MethodPut, "/_lab/iam/users/me", strings.NewReader(`{"policies":[]}`)),
		httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/?Action=DescribeInstances&Version=2016-11-15", nil),
		httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/_lab/state?Action=DescribeInstances&Version=2016-11-15", nil),
	} {
		w := httptest.NewRecorder()
		l.cloud.API().ServeHTTP(w, r)
		if body := w.Body.String(); w.Code < 400 || !strings.Contains(body, "AuthFailure") && !strings.Contains(body, "MissingAction") {
			t.Errorf("%s %s: %d %s", r.Method, r.URL, w.Code, body)
		}
	}
	if users, _ := l.cloud.Identities().List(); len(users) != 0 {
		t.Errorf("it made %v", users)
	}
}

// TestProfileControl manages profiles over the control endpoint.
func TestProfileControl(t *testing.T) {
	l := newLab(t)
	role := map[string]string{"role": "node"}
	if status := l.control(t, http.MethodPut, "/_lab/iam/instance-profiles/p", role, nil); status != http.StatusBadRequest {
		t.Errorf("with a role that does not exist: %d", status)
	}
	l.control(t, http.MethodPut, "/_lab/iam/roles/node", map[string][]string{"policies": {lookOnly}}, nil)
	if status := l.control(t, http.MethodPut, "/_lab/iam/instance-profiles/a%2Fb", role, nil); status != http.StatusBadRequest {
		t.Errorf("with a bad name: %d", status)
	}
	var made, again iam.Profile
	l.control(t, http.MethodPut, "/_lab/iam/instance-profiles/p", role, &made)
	l.control(t, http.MethodPut, "/_lab/iam/instance-profiles/p", role, &again)
	if made != again || made.ARN != "arn:aws:iam::123456789012:instance-profile/p" || made.Role != "node" || !strings.HasPrefix(made.ID, "AIPA") {
		t.Errorf("made %+v, then %+v", made, again)
	}
	if status := l.control(t, http.MethodDelete, "/_lab/iam/roles/node", nil, nil); status != http.StatusInternalServerError {
		t.Errorf("a role in a profile was deleted: %d", status)
	}
	l.open(t) // from its files
	var listed struct {
		Profiles []iam.Profile `json:"instance_profiles"`
	}
	l.control(t, http.MethodGet, "/_lab/iam", nil, &listed)
	if len(listed.Profiles) != 1 || listed.Profiles[0] != made {
		t.Errorf("listed %+v", listed)
	}
	for path, want := range map[string]int{"instance-profiles/p": 204} {
		if status := l.control(t, http.MethodDelete, "/_lab/iam/"+path, nil, nil); status != want {
			t.Errorf("delete %s: %d", path, status)
		}
	}
	if status := l.control(t, http.MethodDelete, "/_lab/iam/instance-profiles/p", nil, nil); status != http.StatusNotFound {
		t.Errorf("deleted twice: %d", status)
	}
	if status := l.control(t, http.MethodDelete, "/_lab/iam/roles/node", nil, nil); status != http.StatusNoContent {
		t.Errorf("the role then: %d", status)
	}
}
