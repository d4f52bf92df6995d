package cloud_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awselb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
)

// TestLoadBalancerRestart opens the cloud from its files with one load balancer in each state.
func TestLoadBalancerRestart(t *testing.T) {
	b := newBalanced(t)
	ctx := t.Context()
	inA, _, atA, _ := b.twoTargets(t)
	b.listen(t, b.arn, b.group, 6443)
	b.network.setWell(atA, true)
	b.clock.advance(3 * time.Second)
	b.becomes(t, inA, "healthy")
	b.becomes(t, inA, "healthy")
	before := b.forwarded(t)
	must[*awselb.CreateLoadBalancerOutput](t)(b.elb.CreateLoadBalancer(ctx, b.balancerInput("new")))
	gone := must[*awselb.CreateLoadBalancerOutput](t)(b.elb.CreateLoadBalancer(ctx, b.balancerInput("gone")))
	must[*awselb.DeleteLoadBalancerOutput](t)(b.elb.DeleteLoadBalancer(ctx, &awselb.DeleteLoadBalancerInput{LoadBalancerArn: gone.LoadBalancers[0].LoadBalancerArn}))
	if n := len(b.interfaces(t)); n != 6 {
		t.Fatalf("%d interfaces", n)
	}

	b.cloud.Close()
	b.network.forget()
	b.open(t)
	if got := b.health(t); got[inA] != "healthy" {
		t.Errorf("after a restart: %v", got)
	}
	b.clock.advance(3 * time.Second)
	eventually(t, "the nodes forward as before", func() bool {
		stopped, forwarding := 0, 0
		for _, i := range b.network.vpc(t, b.vpc).Interfaces {
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
	b.clock.advance(5 * time.Second)
	eventually(t, "the interfaces of the deleted one are gone", func() bool { return len(b.interfaces(t)) == 4 })
	b.network.setWell(atA, false)
	b.becomes(t, inA, "unhealthy Target.FailedHealthChecks") // the checks go on
}

// TestLoadBalancerZone: checks of a zone that is cut off fail with its node. The name follows.
func TestLoadBalancerZone(t *testing.T) {
	b := newBalanced(t)
	inA, inB, atA, atB := b.twoTargets(t)
	b.listen(t, b.arn, b.group, 6443)
	b.network.setWell(atA, true)
	b.network.setWell(atB, true)
	b.clock.advance(3 * time.Second)
	b.becomes(t, inA, "healthy")
	b.becomes(t, inB, "healthy")
	if n := len(b.names(t)); n != 2 {
		t.Errorf("%d addresses", n)
	}
	b.fault(t, fields{"kind": "zone", "zone": "us-east-1a"})
	for _, i := range b.network.vpc(t, b.vpc).Interfaces {
		if i.Balancer != nil && i.Cut != (i.SubnetID == b.subnet) {
			t.Errorf("node in %s: cut %v", i.SubnetID, i.Cut)
		}
	}
	b.network.setWell(atA, false) // as the packets of the check are dropped
	b.becomes(t, inA, "unhealthy Target.FailedHealthChecks")
	if n := len(b.names(t)); n != 1 {
		t.Errorf("%d addresses without the zone", n)
	}
	for _, n := range b.interfaces(t) { // each node checks the targets of its own zone
		if b.network.dialed(*n.NetworkInterfaceId) == 0 {
			t.Errorf("no check from the node in %s", *n.AvailabilityZone)
		}
	}
}

// TestLoadBalancerFaults: throttling, and ARNs that are not visible yet.
func TestLoadBalancerFaults(t *testing.T) {
	b := newBalanced(t, func(l *lab) { l.throttled = true })
	ctx := t.Context()
	list := func() error {
		_, err := b.elb.DescribeLoadBalancers(ctx, &awselb.DescribeLoadBalancersInput{})
		return err
	}
	for n := range 41 {
		want := ""
		if n == 40 {
			want = "Throttling"
		}
		if got := code(list()); got != want {
			t.Fatalf("call %d: %q", n, got)
		}
	}
	b.clock.advance(time.Second)
	if err := list(); err != nil {
		t.Error(err)
	}
	b.clock.advance(time.Minute)
	b.control(t, http.MethodPost, "/_lab/faults", fault.Fault{Kind: fault.Eventual, Action: "CreateTargetGroup", Calls: 1}, nil)
	group := b.newGroup(t, "hidden")
	get := &awselb.DescribeTargetGroupsInput{TargetGroupArns: []string{group}}
	_, err := b.elb.DescribeTargetGroups(ctx, get)
	refused(t, err, "TargetGroupNotFound")
	must[*awselb.DescribeTargetGroupsOutput](t)(b.elb.DescribeTargetGroups(ctx, get))

	// Pages.
	b.control(t, http.MethodDelete, "/_lab/faults", nil, nil)
	for n := range 3 {
		b.newGroup(t, fmt.Sprint("page-", n))
	}
	seen := 0
	pages := awselb.NewDescribeTargetGroupsPaginator(b.elb, &awselb.DescribeTargetGroupsInput{PageSize: aws.Int32(2)})
	for range 10 {
		if !pages.HasMorePages() {
			break
		}
		page := must[*awselb.DescribeTargetGroupsOutput](t)(pages.NextPage(ctx))
		if len(page.TargetGroups) > 2 {
			t.Errorf("%d on a page", len(page.TargetGroups))
		}
		seen += len(page.TargetGroups)
	}
	if seen != 5 {
		t.Errorf("%d target groups on all pages", seen)
	}
	_, err = b.elb.DescribeTargetHealth(ctx, &awselb.DescribeTargetHealthInput{TargetGroupArn: &group, Include: []elbtypes.DescribeTargetHealthInputIncludeEnum{elbtypes.DescribeTargetHealthInputIncludeEnumAll}})
	refused(t, err, "ValidationError")
}
