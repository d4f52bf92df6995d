package ec2_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
)

// TestInstanceProfile: an instance has one profile, which is given at the launch or later, replaced
// while it runs, taken away, and gone with the instance.
func TestInstanceProfile(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	s := l.NewSite(t)
	node, other := l.Profile(t, "node", cloudtest.LookOnly), l.Profile(t, "other", cloudtest.LookOnly)
	in := s.RunInput()
	in.IamInstanceProfile = cloudtest.ProfileNamed("node")
	id := *l.Run(t, in).InstanceId

	shows := func(want string) {
		t.Helper()
		got := ""
		if p := l.Instance(t, id).IamInstanceProfile; p != nil {
			got = *p.Arn + " " + *p.Id
		}
		if got != want {
			t.Errorf("the instance shows %q, want %q", got, want)
		}
	}
	associations := func(want string) []string {
		t.Helper()
		ids, got := l.Associated(t, id)
		if got != want {
			t.Errorf("associations %q, want %q", got, want)
		}
		return ids
	}
	pass := func() { l.Clock.Advance(time.Second) }
	pass()
	shows("arn:aws:iam::123456789012:instance-profile/node " + node.ID)
	first := associations("node associated")[0]
	found := cloudtest.Must[*awsec2.DescribeInstancesOutput](t)(l.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{Filters: []types.Filter{
		cloudtest.Filter("iam-instance-profile.name", "node"), cloudtest.Filter("iam-instance-profile.arn", node.ARN), cloudtest.Filter("iam-instance-profile.id", node.ID)}}))
	if len(found.Reservations) != 1 {
		t.Error("not found by its profile")
	}

	associate := func(name string) error {
		_, err := l.AssociateIamInstanceProfile(ctx, &awsec2.AssociateIamInstanceProfileInput{InstanceId: &id, IamInstanceProfile: cloudtest.ProfileNamed(name)})
		return err
	}
	replace := func(association, name string) error {
		_, err := l.ReplaceIamInstanceProfileAssociation(ctx, &awsec2.ReplaceIamInstanceProfileAssociationInput{AssociationId: &association, IamInstanceProfile: cloudtest.ProfileNamed(name)})
		return err
	}
	disassociate := func(association string) error {
		_, err := l.DisassociateIamInstanceProfile(ctx, &awsec2.DisassociateIamInstanceProfileInput{AssociationId: &association})
		return err
	}
	cloudtest.Refused(t, associate("other"), "IncorrectState") // it has one
	cloudtest.Refused(t, replace(first, "nobody"), "InvalidParameterValue")
	cloudtest.Refused(t, replace("iip-assoc-00000000000000001", "other"), "InvalidAssociationID.NotFound")
	cloudtest.Refused(t, replace(first, "other"), "")
	shows(other.ARN + " " + other.ID)
	if ids, states := l.Associated(t, id); len(ids) != 2 || !strings.Contains(states, "node disassociating") || !strings.Contains(states, "other associating") {
		t.Errorf("during a replacement: %q", states)
	}
	cloudtest.Refused(t, replace(first, "node"), "IncorrectState")
	pass()
	second := associations("other associated")[0]
	if second == first {
		t.Error("a replacement keeps the association's id")
	}

	cloudtest.Must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{id}}))
	l.Await(t, id, types.InstanceStateNameStopped)
	cloudtest.Refused(t, replace(second, "node"), "IncorrectState") // only of a running instance
	cloudtest.Refused(t, disassociate(second), "")
	associations("other disassociating")
	cloudtest.Refused(t, disassociate(second), "IncorrectState")
	cloudtest.Refused(t, associate("node"), "IncorrectState") // not yet
	pass()
	associations("")
	shows("")
	cloudtest.Refused(t, disassociate(second), "InvalidAssociationID.NotFound")
	cloudtest.Refused(t, associate("nobody"), "InvalidParameterValue")
	_, err := l.AssociateIamInstanceProfile(ctx, &awsec2.AssociateIamInstanceProfileInput{InstanceId: &id, IamInstanceProfile: &types.IamInstanceProfileSpecification{Name: aws.String("node"), Arn: &node.ARN}})
	cloudtest.Refused(t, err, "InvalidParameterCombination")
	_, err = l.AssociateIamInstanceProfile(ctx, &awsec2.AssociateIamInstanceProfileInput{InstanceId: &id, IamInstanceProfile: &types.IamInstanceProfileSpecification{Arn: &node.ARN}})
	cloudtest.Refused(t, err, "")
	associations("node associating")

	cloudtest.Must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: []string{id}}))
	l.Await(t, id, types.InstanceStateNameTerminated)
	associations("")
	shows("")
	cloudtest.Refused(t, associate("node"), "IncorrectInstanceState")
}

// TestUnknownProfile: a launch with a profile that EC2 does not know is refused, also if the profile
// was made a moment ago.
func TestUnknownProfile(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	in := s.RunInput()
	in.IamInstanceProfile = cloudtest.ProfileNamed("late")
	launch := func() error {
		_, err := l.RunInstances(t.Context(), in)
		return err
	}
	err := launch()
	cloudtest.Refused(t, err, "InvalidParameterValue")
	if want := "Value (late) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"; !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	l.Control(t, http.MethodPost, "/_lab/faults", fault.Fault{Kind: fault.Eventual, Action: "CreateInstanceProfile", Calls: 2}, nil)
	l.Profile(t, "late", cloudtest.LookOnly)
	cloudtest.Refused(t, launch(), "InvalidParameterValue")
	cloudtest.Refused(t, launch(), "InvalidParameterValue")
	cloudtest.Refused(t, launch(), "")
	in.ClientToken = nil // the SDK has filled it in
	in.IamInstanceProfile = &types.IamInstanceProfileSpecification{Arn: aws.String("arn:aws:iam::210987654321:instance-profile/late")}
	cloudtest.Refused(t, launch(), "InvalidParameterValue")
}
