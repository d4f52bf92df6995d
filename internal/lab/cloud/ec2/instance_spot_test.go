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
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
)

// spotInput returns a request to launch one Spot instance in the site.
func spotInput(s cloudtest.Site, change ...func(*types.SpotMarketOptions)) *awsec2.RunInstancesInput {
	in, o := s.RunInput(), &types.SpotMarketOptions{}
	for _, f := range change {
		f(o)
	}
	in.InstanceMarketOptions = &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeSpot, SpotOptions: o}
	return in
}

// TestSpotRequests: what EC2 refuses of a request for Spot instances, and what it shows of one.
func TestSpotRequests(t *testing.T) {
	l := cloudtest.New(t, func(l *cloudtest.Lab) { l.Quotas = ec2.Quotas{SpotVCPUs: 2, VCPUs: 2} })
	s, ctx := l.NewSite(t), t.Context()
	for name, tc := range map[string]struct {
		change func(*types.SpotMarketOptions)
		code   string
	}{
		"one-time, stopped": {func(o *types.SpotMarketOptions) { o.InstanceInterruptionBehavior = "stop" }, "InvalidParameterCombination"},
		"one-time, hibernated": {func(o *types.SpotMarketOptions) {
			o.SpotInstanceType, o.InstanceInterruptionBehavior = "one-time", "hibernate"
		}, "InvalidParameterCombination"},
		"persistent, terminated": {func(o *types.SpotMarketOptions) { o.SpotInstanceType = "persistent" }, "InvalidParameterCombination"},
		"persistent, not there here": {func(o *types.SpotMarketOptions) {
			o.SpotInstanceType, o.InstanceInterruptionBehavior = "persistent", "stop"
		}, "UnsupportedOperation"},
		"unknown kind":         {func(o *types.SpotMarketOptions) { o.SpotInstanceType = "twice" }, "InvalidParameterValue"},
		"unknown behavior":     {func(o *types.SpotMarketOptions) { o.InstanceInterruptionBehavior = "wait" }, "InvalidParameterValue"},
		"an end":               {func(o *types.SpotMarketOptions) { o.ValidUntil = aws.Time(l.Clock.Now().Add(time.Hour)) }, "InvalidParameterCombination"},
		"a price that is none": {func(o *types.SpotMarketOptions) { o.MaxPrice = aws.String("cheap") }, "InvalidParameterValue"},
		"a low price":          {func(o *types.SpotMarketOptions) { o.MaxPrice = aws.String("0.001") }, "SpotMaxPriceTooLow"},
	} {
		if _, err := l.RunInstances(ctx, spotInput(s, tc.change)); cloudtest.Code(err) != tc.code {
			t.Errorf("%s: %v, want %s", name, err, tc.code)
		}
	}
	protected := spotInput(s)
	protected.DisableApiTermination = aws.Bool(true)
	_, err := l.RunInstances(ctx, protected)
	cloudtest.Refused(t, err, "UnsupportedOperation")

	i := l.Run(t, spotInput(s, func(o *types.SpotMarketOptions) { o.MaxPrice = aws.String("0.05") }))
	if i.InstanceLifecycle != types.InstanceLifecycleTypeSpot || !strings.HasPrefix(aws.ToString(i.SpotInstanceRequestId), "sir-") {
		t.Errorf("it is shown as %q with the request %q", i.InstanceLifecycle, aws.ToString(i.SpotInstanceRequestId))
	}
	_, err = l.RunInstances(ctx, spotInput(s))
	cloudtest.Refused(t, err, "MaxSpotInstanceCountExceeded")
	if i := l.Run(t, s.RunInput()); i.InstanceLifecycle != "" || i.SpotInstanceRequestId != nil { // another quota
		t.Errorf("an On-Demand instance is shown as %q", i.InstanceLifecycle)
	}
	found := cloudtest.Must[*awsec2.DescribeInstancesOutput](t)(l.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{Filters: []types.Filter{cloudtest.Filter("instance-lifecycle", "spot")}}))
	if len(found.Reservations) != 1 || *found.Reservations[0].Instances[0].InstanceId != *i.InstanceId {
		t.Errorf("the filter finds %+v", found.Reservations)
	}
	_, err = l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{*i.InstanceId}})
	cloudtest.Refused(t, err, "UnsupportedOperation")
	for _, attribute := range []*awsec2.ModifyInstanceAttributeInput{
		{DisableApiTermination: &types.AttributeBooleanValue{Value: aws.Bool(true)}},
		{DisableApiStop: &types.AttributeBooleanValue{Value: aws.Bool(true)}},
	} {
		attribute.InstanceId = i.InstanceId
		_, err = l.ModifyInstanceAttribute(ctx, attribute)
		cloudtest.Refused(t, err, "UnsupportedOperation")
	}
	l.Machines.PowerOff(*i.InstanceId)
	l.Machines.PowerOff(*i.InstanceId) // and told twice
	if i := l.Await(t, *i.InstanceId, types.InstanceStateNameTerminated); *i.StateReason.Code != "Client.InstanceInitiatedShutdown" {
		t.Errorf("shut down from inside: %+v", i.StateReason)
	}
}

// TestSpotInterruption: the notice comes two minutes before the end, also if the daemon starts again meanwhile.
func TestSpotInterruption(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	plain, spot, short := l.Run(t, s.RunInput()), l.Run(t, spotInput(s)), l.Run(t, spotInput(s))
	post := func(f cloudtest.Fields) int { return l.Control(t, http.MethodPost, "/_lab/faults", f, nil) }
	if got := post(cloudtest.Fields{"kind": "interrupt", "instance": *plain.InstanceId}); got != http.StatusConflict {
		t.Errorf("an On-Demand instance was interrupted: %d", got)
	}
	if got := post(cloudtest.Fields{"kind": "interrupt", "instance": *spot.InstanceId, "seconds": -1}); got != http.StatusBadRequest {
		t.Errorf("negative seconds: %d", got)
	}
	l.Fault(t, cloudtest.Fields{"kind": "interrupt", "instance": *spot.InstanceId})
	l.Fault(t, cloudtest.Fields{"kind": "interrupt", "instance": *short.InstanceId, "seconds": 10})
	if got := post(cloudtest.Fields{"kind": "interrupt", "instance": *spot.InstanceId}); got != http.StatusConflict {
		t.Errorf("a second notice: %d", got)
	}
	end := func(i types.Instance) {
		t.Helper()
		gone := l.Await(t, *i.InstanceId, types.InstanceStateNameTerminated)
		if *gone.StateReason.Code != "Server.SpotInstanceTermination" || *gone.StateTransitionReason != "Server.SpotInstanceTermination" {
			t.Errorf("it ended for %+v, %q", gone.StateReason, *gone.StateTransitionReason)
		}
	}
	l.Clock.Advance(10 * time.Second)
	end(short)
	l.Account.Close()
	l.Open(t)
	l.Clock.Advance(109 * time.Second)
	if i := l.Instance(t, *spot.InstanceId); i.State.Name != types.InstanceStateNameRunning {
		t.Errorf("before the end of the two minutes it is %s", i.State.Name)
	}
	l.Clock.Advance(time.Second)
	end(spot)
}
