package ec2_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
)

// TestDefaultQuotas: a new account has few of everything, and may raise it by name.
func TestDefaultQuotas(t *testing.T) {
	l := cloudtest.New(t, func(l *cloudtest.Lab) { l.Quotas = ec2.Quotas{} })
	s := l.NewSite(t) // one VPC
	ctx := t.Context()
	in := s.RunInput()
	in.MaxCount = aws.Int32(4)
	if n := len(cloudtest.Must[*awsec2.RunInstancesOutput](t)(l.RunInstances(ctx, in)).Instances); n != 2 {
		t.Errorf("%d instances of 2 vCPUs run", n)
	}
	refused := func(want string, call func() error) {
		t.Helper()
		made, err := 0, call()
		for ; err == nil && made < 10; made++ {
			err = call()
		}
		if cloudtest.Refused(t, err, want); made > 5 {
			t.Errorf("%s after %d", want, made)
		}
	}
	refused("VpcLimitExceeded", func() error {
		_, err := l.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})
		return err
	})
	refused("AddressLimitExceeded", func() error {
		_, err := l.AllocateAddress(ctx, &awsec2.AllocateAddressInput{})
		return err
	})
	q, err := ec2.QuotasOf(map[string]int{"vcpus": 32, "vpcs": 7})
	if want := (ec2.Quotas{VCPUs: 32, VPCs: 7}); err != nil || q != want {
		t.Errorf("%+v, %v", q, err)
	}
	for name, n := range map[string]int{"cpus": 32, "vcpus": 0} {
		if _, err := ec2.QuotasOf(map[string]int{name: n}); err == nil {
			t.Errorf("%s=%d is taken", name, n)
		}
	}
}

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
