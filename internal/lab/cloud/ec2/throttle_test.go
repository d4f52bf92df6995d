package ec2_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
)

// newThrottledLab returns a lab that throttles calls as AWS does. Its clock stands still.
func newThrottledLab(t *testing.T) *cloudtest.Lab {
	t.Helper()
	return cloudtest.New(t, func(l *cloudtest.Lab) { l.Throttled, l.Quotas = true, ec2.Quotas{VCPUs: 4000} })
}

// admitted makes calls until one is throttled, at most limit, and returns how many were not.
func admitted(t *testing.T, limit int, call func() error) int {
	t.Helper()
	for n := range limit {
		switch got := cloudtest.Code(call()); got {
		case "RequestLimitExceeded":
			return n
		case "":
		default:
			t.Fatalf("call %d: %s", n, got)
		}
	}
	return limit
}

// TestBucketsOfAccount: the buckets belong to the account, and not to an access key.
func TestBucketsOfAccount(t *testing.T) {
	l := newThrottledLab(t)
	describe := func(by *cloudtest.Lab) func() error {
		return func() error { _, err := by.DescribeVpcs(t.Context(), &awsec2.DescribeVpcsInput{}); return err }
	}
	user := l.User(t, `{"Effect":"Allow","Action":"ec2:Describe*","Resource":"*"}`)
	if n := admitted(t, 60, describe(l)); n != 60 {
		t.Fatalf("the owner had %d calls", n)
	}
	if n := admitted(t, 100, describe(user)); n != 40 {
		t.Errorf("a user had %d calls after 60 of the owner: want the remaining 40", n)
	}
	if n := admitted(t, 10, describe(l)); n != 0 {
		t.Errorf("the owner had %d calls more", n)
	}
}

// TestRequestBuckets empties the buckets of actions of each class, and lets them refill.
func TestRequestBuckets(t *testing.T) {
	l := newThrottledLab(t)
	ctx := t.Context()
	s := l.NewSite(t)
	group := func(describe awsec2.DescribeSecurityGroupsInput) func() error {
		return func() error { _, err := l.DescribeSecurityGroups(ctx, &describe); return err }
	}
	for _, tc := range []struct {
		name             string
		call             func() error
		capacity, refill int
	}{
		{"non-mutating", func() error { _, err := l.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{}); return err }, 100, 20},
		{"with ids only", group(awsec2.DescribeSecurityGroupsInput{GroupIds: []string{s.Group}}), 50, 10},
		{"with a filter", group(awsec2.DescribeSecurityGroupsInput{Filters: []types.Filter{cloudtest.Filter("vpc-id", s.VPC)}}), 100, 20},
		{"with pages", group(awsec2.DescribeSecurityGroupsInput{MaxResults: aws.Int32(5)}), 60, 20}, // three seconds after the last case, of whose bucket it is
		{"mutating", func() error {
			_, err := l.ModifyVpcAttribute(ctx, &awsec2.ModifyVpcAttributeInput{VpcId: &s.VPC, EnableDnsHostnames: &types.AttributeBooleanValue{Value: aws.Bool(true)}})
			return err
		}, 50, 5},
		{"tags", func() error {
			_, err := l.CreateTags(ctx, &awsec2.CreateTagsInput{Resources: []string{s.VPC}, Tags: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}}})
			return err
		}, 100, 10},
		{"launches", func() error { _, err := l.RunInstances(ctx, s.RunInput()); return err }, 5, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.name == "with pages" {
				l.Clock.Advance(3 * time.Second)
			}
			if got := admitted(t, 200, tc.call); got != tc.capacity {
				t.Errorf("%d calls at once, want %d", got, tc.capacity)
			}
			l.Clock.Advance(time.Second)
			if got := admitted(t, 200, tc.call); got != tc.refill {
				t.Errorf("%d calls a second later, want %d", got, tc.refill)
			}
			l.Clock.Advance(time.Hour)
			if got := admitted(t, 200, tc.call); tc.name != "launches" && tc.name != "with pages" && got != tc.capacity {
				t.Errorf("%d calls after an hour, want %d", got, tc.capacity)
			}
		})
	}

	// Calls that are not signed take no tokens from the account.
	l.Clock.Advance(time.Hour)
	stranger := l.With("AKIASTRANGER", "x", "")
	for range 10 {
		_, err := stranger.RunInstances(ctx, s.RunInput())
		cloudtest.Refused(t, err, "AuthFailure")
	}
	if got := admitted(t, 200, func() error { _, err := l.RunInstances(ctx, s.RunInput()); return err }); got != 5 {
		t.Errorf("%d launches after those of a stranger, want 5", got)
	}
}

// TestResourceBuckets launches and terminates more instances than there are tokens for.
func TestResourceBuckets(t *testing.T) {
	l := newThrottledLab(t)
	ctx := t.Context()
	s := l.NewSite(t)
	var ids []string
	run := func(n int32) error {
		in := s.RunInput()
		in.MinCount, in.MaxCount = &n, &n
		out, err := l.RunInstances(ctx, in)
		if err == nil {
			for _, i := range out.Instances {
				ids = append(ids, *i.InstanceId)
			}
		}
		return err
	}
	// The subnet has 251 addresses: some calls fail for another reason, and take their tokens all the same.
	cloudtest.Refused(t, run(245), "")
	cloudtest.Refused(t, run(250), "InsufficientFreeAddressesInSubnet")
	cloudtest.Refused(t, run(500), "InsufficientFreeAddressesInSubnet")
	cloudtest.Refused(t, run(6), "RequestLimitExceeded") // 5 of 1000 are left
	l.Clock.Advance(500 * time.Millisecond)
	cloudtest.Refused(t, run(6), "")
	cloudtest.Refused(t, run(1), "RequestLimitExceeded")
	l.Clock.Advance(500 * time.Millisecond)
	cloudtest.Refused(t, run(1), "InsufficientFreeAddressesInSubnet")
	cloudtest.Must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: ids}))
}
