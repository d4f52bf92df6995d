package ec2_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// TestVCPUQuota: stopped instances do not count, and a start is refused like a launch.
func TestVCPUQuota(t *testing.T) {
	l := cloudtest.New(t, func(l *cloudtest.Lab) { l.Quotas.VCPUs = 5 })
	s := l.NewSite(t)
	ctx := t.Context()
	in := s.RunInput()
	in.MaxCount = aws.Int32(3)
	two := cloudtest.Must[*awsec2.RunInstancesOutput](t)(l.RunInstances(ctx, in)).Instances
	if len(two) != 2 {
		t.Fatalf("%d instances of 2 vCPUs run with a quota of 5", len(two))
	}
	ids := []string{*two[0].InstanceId}
	l.Await(t, ids[0], types.InstanceStateNameRunning)
	_, err := l.RunInstances(ctx, s.RunInput())
	cloudtest.Refused(t, err, "VcpuLimitExceeded")
	cloudtest.Must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: ids}))
	l.Await(t, ids[0], types.InstanceStateNameStopped)
	l.Run(t, s.RunInput())
	_, err = l.StartInstances(ctx, &awsec2.StartInstancesInput{InstanceIds: ids})
	cloudtest.Refused(t, err, "VcpuLimitExceeded")
}
