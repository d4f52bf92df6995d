package elbv2_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awselb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
)

// TestLoadBalancerRestart opens the cloud from its files with one load balancer in each state.
func TestLoadBalancerRestart(t *testing.T) {
	b := newBalanced(t)
	ctx := t.Context()
	inA, _, atA, _ := b.twoTargets(t)
	b.listen(t, b.arn, b.targetGroup, 6443)
	b.Network.SetWell(atA, true)
	b.Clock.Advance(3 * time.Second)
	b.becomes(t, inA, "healthy")
	b.becomes(t, inA, "healthy")
	before := b.forwarded(t)
	cloudtest.Must[*awselb.CreateLoadBalancerOutput](t)(b.ELB.CreateLoadBalancer(ctx, b.balancerInput("new")))
	gone := cloudtest.Must[*awselb.CreateLoadBalancerOutput](t)(b.ELB.CreateLoadBalancer(ctx, b.balancerInput("gone")))
	cloudtest.Must[*awselb.DeleteLoadBalancerOutput](t)(b.ELB.DeleteLoadBalancer(ctx, &awselb.DeleteLoadBalancerInput{LoadBalancerArn: gone.LoadBalancers[0].LoadBalancerArn}))
	if n := len(b.interfaces(t)); n != 6 {
		t.Fatalf("%d interfaces", n)
	}

	b.Account.Close()
	b.Network.Forget()
	b.Open(t)
	if got := b.health(t); got[inA] != "healthy" {
		t.Errorf("after a restart: %v", got)
	}
	b.Clock.Advance(3 * time.Second)
	cloudtest.Eventually(t, "the nodes forward as before", func() bool {
		stopped, forwarding := 0, 0
		for _, i := range b.Network.VPC(t, b.VPC).Interfaces {
			switch {
			case i.Balancer == nil:
			case i.Stopped:
				stopped++
			case len(i.Balancer.Listeners) == 1:
				forwarding++
			}
		}
		return stopped == 2 && forwarding == 2 // and two of the new one, which has no listener
	})
	if before["a"] != "["+atA+"] false" {
		t.Errorf("before: %v", before)
	}
	b.Clock.Advance(5 * time.Second)
	cloudtest.Eventually(t, "the interfaces of the deleted one are gone", func() bool { return len(b.interfaces(t)) == 4 })
	b.Network.SetWell(atA, false)
	b.becomes(t, inA, "unhealthy Target.FailedHealthChecks") // the checks go on
}

// TestLoadBalancerZone: checks of a zone that is cut off fail with its node. The name follows.
func TestLoadBalancerZone(t *testing.T) {
	b := newBalanced(t)
	inA, inB, atA, atB := b.twoTargets(t)
	b.listen(t, b.arn, b.targetGroup, 6443)
	b.Network.SetWell(atA, true)
	b.Network.SetWell(atB, true)
	b.Clock.Advance(3 * time.Second)
	b.becomes(t, inA, "healthy")
	b.becomes(t, inB, "healthy")
	if n := len(b.names(t)); n != 2 {
		t.Errorf("%d addresses", n)
	}
	b.Fault(t, cloudtest.Fields{"kind": "zone", "zone": "us-east-1a"})
	for _, i := range b.Network.VPC(t, b.VPC).Interfaces {
		if i.Balancer != nil && i.Cut != (i.SubnetID == b.Subnet) {
			t.Errorf("node in %s: cut %v", i.SubnetID, i.Cut)
		}
	}
	b.Network.SetWell(atA, false) // as the packets of the check are dropped
	b.becomes(t, inA, "unhealthy Target.FailedHealthChecks")
	if n := len(b.names(t)); n != 1 {
		t.Errorf("%d addresses without the zone", n)
	}
	for _, n := range b.interfaces(t) { // each node checks the targets of its own zone
		if b.Network.Dials(*n.NetworkInterfaceId) == 0 {
			t.Errorf("no check from the node in %s", *n.AvailabilityZone)
		}
	}
}

// TestLoadBalancerFaults: throttling, and ARNs that are not visible yet.
func TestLoadBalancerFaults(t *testing.T) {
	b := newBalanced(t, func(l *cloudtest.Lab) { l.Throttled = true })
	ctx := t.Context()
	list := func() error {
		_, err := b.ELB.DescribeLoadBalancers(ctx, &awselb.DescribeLoadBalancersInput{})
		return err
	}
	for n := range 41 {
		want := ""
		if n == 40 {
			want = "Throttling"
		}
		if got := cloudtest.Code(list()); got != want {
			t.Fatalf("call %d: %q", n, got)
		}
	}
	b.Clock.Advance(time.Second)
	if err := list(); err != nil {
		t.Error(err)
	}
	b.Clock.Advance(time.Minute)
	b.Control(t, http.MethodPost, "/_lab/faults", fault.Fault{Kind: fault.Eventual, Action: "CreateTargetGroup", Calls: 1}, nil)
	group := b.newGroup(t, "hidden")
	get := &awselb.DescribeTargetGroupsInput{TargetGroupArns: []string{group}}
	_, err := b.ELB.DescribeTargetGroups(ctx, get)
	cloudtest.Refused(t, err, "TargetGroupNotFound")
	cloudtest.Must[*awselb.DescribeTargetGroupsOutput](t)(b.ELB.DescribeTargetGroups(ctx, get))

	// Pages.
	b.Control(t, http.MethodDelete, "/_lab/faults", nil, nil)
	for n := range 3 {
		b.newGroup(t, fmt.Sprint("page-", n))
	}
	seen := 0
	pages := awselb.NewDescribeTargetGroupsPaginator(b.ELB, &awselb.DescribeTargetGroupsInput{PageSize: aws.Int32(2)})
	for range 10 {
		if !pages.HasMorePages() {
			break
		}
		page := cloudtest.Must[*awselb.DescribeTargetGroupsOutput](t)(pages.NextPage(ctx))
		if len(page.TargetGroups) > 2 {
			t.Errorf("%d on a page", len(page.TargetGroups))
		}
		seen += len(page.TargetGroups)
	}
	if seen != 5 {
		t.Errorf("%d target groups on all pages", seen)
	}
	_, err = b.ELB.DescribeTargetHealth(ctx, &awselb.DescribeTargetHealthInput{TargetGroupArn: &group, Include: []elbtypes.DescribeTargetHealthInputIncludeEnum{elbtypes.DescribeTargetHealthInputIncludeEnumAll}})
	cloudtest.Refused(t, err, "ValidationError")
}
