package ec2_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// TestCreditOptions: burstable instances have a credit option, which changes while they run or are stopped.
// EC2 says in a successful answer what it has not changed.
func TestCreditOptions(t *testing.T) {
	l := cloudtest.New(t)
	s, ctx := l.NewSite(t), t.Context()
	launch := func(typ types.InstanceType, option string) (string, error) {
		in := s.RunInput()
		if in.InstanceType = typ; option != "" {
			in.CreditSpecification = &types.CreditSpecificationRequest{CpuCredits: &option}
		}
		out, err := l.RunInstances(ctx, in)
		if err != nil {
			return "", err
		}
		return *out.Instances[0].InstanceId, nil
	}
	_, err := launch("m5.large", "standard")
	cloudtest.Refused(t, err, "InstanceCreditSpecification.NotSupported")
	_, err = launch("t3.small", "many")
	cloudtest.Refused(t, err, "InvalidParameterValue")
	frugal := cloudtest.Must[string](t)(launch("t3.small", "standard"))
	lavish := cloudtest.Must[string](t)(launch("t3.small", ""))
	other := cloudtest.Must[string](t)(launch("m5.large", ""))
	for _, id := range []string{frugal, lavish, other} {
		l.Await(t, id, types.InstanceStateNameRunning)
	}

	listed := func(in awsec2.DescribeInstanceCreditSpecificationsInput) map[string]string {
		t.Helper()
		out := map[string]string{}
		for _, i := range cloudtest.Must[*awsec2.DescribeInstanceCreditSpecificationsOutput](t)(l.DescribeInstanceCreditSpecifications(ctx, &in)).InstanceCreditSpecifications {
			out[*i.InstanceId] = *i.CpuCredits
		}
		return out
	}
	byFilter := awsec2.DescribeInstanceCreditSpecificationsInput{Filters: []types.Filter{cloudtest.Filter("instance-id", frugal, lavish, other)}}
	if got := listed(byFilter); len(got) != 1 || got[lavish] != "unlimited" {
		t.Errorf("without ids: %v", got)
	}
	byID := awsec2.DescribeInstanceCreditSpecificationsInput{InstanceIds: []string{frugal, lavish}}
	if got := listed(byID); len(got) != 2 || got[lavish] != "unlimited" || got[frugal] != "standard" {
		t.Errorf("by id: %v", got)
	}
	_, err = l.DescribeInstanceCreditSpecifications(ctx, &awsec2.DescribeInstanceCreditSpecificationsInput{InstanceIds: []string{other}})
	cloudtest.Refused(t, err, "InstanceCreditSpecification.NotSupported")

	change := func(option string, ids ...string) (*awsec2.ModifyInstanceCreditSpecificationOutput, error) {
		in := &awsec2.ModifyInstanceCreditSpecificationInput{}
		for _, id := range ids {
			in.InstanceCreditSpecifications = append(in.InstanceCreditSpecifications, types.InstanceCreditSpecificationRequest{InstanceId: aws.String(id), CpuCredits: &option})
		}
		return l.ModifyInstanceCreditSpecification(ctx, in)
	}
	_, err = change("many", frugal)
	cloudtest.Refused(t, err, "InvalidParameterValue")
	out := cloudtest.Must[*awsec2.ModifyInstanceCreditSpecificationOutput](t)(change("unlimited", frugal, other, "i-00000000000000000", "nonsense"))
	codes := map[string]types.UnsuccessfulInstanceCreditSpecificationErrorCode{}
	for _, u := range out.UnsuccessfulInstanceCreditSpecifications {
		codes[*u.InstanceId] = u.Error.Code
	}
	if len(out.SuccessfulInstanceCreditSpecifications) != 1 || codes[other] != "InstanceCreditSpecification.NotSupported" ||
		codes["i-00000000000000000"] != "InvalidInstanceID.NotFound" || codes["nonsense"] != "InvalidInstanceID.Malformed" {
		t.Errorf("changed %v, refused %v", out.SuccessfulInstanceCreditSpecifications, codes)
	}
	if got := listed(byID); got[frugal] != "unlimited" {
		t.Errorf("after the change: %v", got)
	}
	cloudtest.Must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: []string{frugal}}))
	if out := cloudtest.Must[*awsec2.ModifyInstanceCreditSpecificationOutput](t)(change("standard", frugal)); len(out.UnsuccessfulInstanceCreditSpecifications) != 1 ||
		out.UnsuccessfulInstanceCreditSpecifications[0].Error.Code != "IncorrectInstanceState" {
		t.Errorf("of a terminated instance: %v", out.UnsuccessfulInstanceCreditSpecifications)
	}
}
