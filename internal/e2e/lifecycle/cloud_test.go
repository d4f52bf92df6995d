package lifecycle_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// terminate terminates a machine outside Terraform.
func (c *cluster) terminate(t *testing.T, machine string) {
	t.Helper()
	api := ec2.NewFromConfig(suite.AWS())
	out, err := api.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: []types.Filter{
		{Name: aws.String("tag:Name"), Values: []string{"demo-" + machine, machine}},
		{Name: aws.String("instance-state-name"), Values: []string{"running"}},
	}})
	if err != nil || len(out.Reservations) != 1 || len(out.Reservations[0].Instances) != 1 {
		t.Fatalf("finding %s: %v, %d found", machine, err, len(out.Reservations))
	}
	if _, err := api.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{*out.Reservations[0].Instances[0].InstanceId}}); err != nil {
		t.Fatal(err)
	}
}
