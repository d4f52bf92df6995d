package cloud_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

// lookOnly is a policy that allows to look at EC2.
const lookOnly = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:Describe*","Resource":"*"}]}`

// profile makes an instance profile, and the role of the same name with a policy.
func (l *lab) profile(t *testing.T, name, policy string) iam.Profile {
	t.Helper()
	if _, err := l.cloud.Identities().PutRole(name, []string{policy}, ""); err != nil {
		t.Fatal(err)
	}
	return must[iam.Profile](t)(l.cloud.PutInstanceProfile(name, name))
}

// named returns how requests name an instance profile.
func named(name string) *types.IamInstanceProfileSpecification {
	return &types.IamInstanceProfileSpecification{Name: &name}
}

// associated returns the ids of an instance's associations with profiles, oldest first, and shows them as
// "profile state, ...".
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
