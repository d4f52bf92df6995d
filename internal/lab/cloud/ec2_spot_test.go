package cloud_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
)

// spotInput returns a request to launch one Spot instance in the site.
func (s site) spotInput(change ...func(*types.SpotMarketOptions)) *awsec2.RunInstancesInput {
	in, o := s.runInput(), &types.SpotMarketOptions{}
	for _, f := range change {
		f(o)
	}
	in.InstanceMarketOptions = &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeSpot, SpotOptions: o}
	return in
}

// TestSpotRequests: what EC2 refuses of a request for Spot instances, and what it shows of one.
func TestSpotRequests(t *testing.T) {
	l := newLab(t, func(l *lab) { l.quotas = ec2.Quotas{SpotVCPUs: 2, VCPUs: 2} })
	s, ctx := l.site(t), t.Context()
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
		"an end":               {func(o *types.SpotMarketOptions) { o.ValidUntil = aws.Time(l.clock.Now().Add(time.Hour)) }, "InvalidParameterCombination"},
		"a price that is none": {func(o *types.SpotMarketOptions) { o.MaxPrice = aws.String("cheap") }, "InvalidParameterValue"},
		"a low price":          {func(o *types.SpotMarketOptions) { o.MaxPrice = aws.String("0.001") }, "SpotMaxPriceTooLow"},
	} {
		if _, err := l.RunInstances(ctx, s.spotInput(tc.change)); code(err) != tc.code {
			t.Errorf("%s: %v, want %s", name, err, tc.code)
		}
	}
	protected := s.spotInput()
	protected.DisableApiTermination = aws.Bool(true)
	_, err := l.RunInstances(ctx, protected)
	refused(t, err, "UnsupportedOperation")

	i := l.run(t, s.spotInput(func(o *types.SpotMarketOptions) { o.MaxPrice = aws.String("0.05") }))
	if i.InstanceLifecycle != types.InstanceLifecycleTypeSpot || !strings.HasPrefix(aws.ToString(i.SpotInstanceRequestId), "sir-") {
		t.Errorf("it is shown as %q with the request %q", i.InstanceLifecycle, aws.ToString(i.SpotInstanceRequestId))
	}
	_, err = l.RunInstances(ctx, s.spotInput())
	refused(t, err, "MaxSpotInstanceCountExceeded")
	if i := l.run(t, s.runInput()); i.InstanceLifecycle != "" || i.SpotInstanceRequestId != nil { // another quota
		t.Errorf("an On-Demand instance is shown as %q", i.InstanceLifecycle)
	}
	found := must[*awsec2.DescribeInstancesOutput](t)(l.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{Filters: []types.Filter{filter("instance-lifecycle", "spot")}}))
	if len(found.Reservations) != 1 || *found.Reservations[0].Instances[0].InstanceId != *i.InstanceId {
		t.Errorf("the filter finds %+v", found.Reservations)
	}
	_, err = l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{*i.InstanceId}})
	refused(t, err, "UnsupportedOperation")
	for _, attribute := range []*awsec2.ModifyInstanceAttributeInput{
		{DisableApiTermination: &types.AttributeBooleanValue{Value: aws.Bool(true)}},
		{DisableApiStop: &types.AttributeBooleanValue{Value: aws.Bool(true)}},
	} {
		attribute.InstanceId = i.InstanceId
		_, err = l.ModifyInstanceAttribute(ctx, attribute)
		refused(t, err, "UnsupportedOperation")
	}
	l.machines.powerOff(*i.InstanceId)
	l.machines.powerOff(*i.InstanceId) // and told twice
	if i := l.await(t, *i.InstanceId, types.InstanceStateNameTerminated); *i.StateReason.Code != "Client.InstanceInitiatedShutdown" {
		t.Errorf("shut down from inside: %+v", i.StateReason)
	}
}

// TestSpotInterruption: the notice comes two minutes before the end, also if the daemon starts again meanwhile.
func TestSpotInterruption(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	plain, spot, short := l.run(t, s.runInput()), l.run(t, s.spotInput()), l.run(t, s.spotInput())
	post := func(f fields) int { return l.control(t, http.MethodPost, "/_lab/faults", f, nil) }
	if got := post(fields{"kind": "interrupt", "instance": *plain.InstanceId}); got != http.StatusConflict {
		t.Errorf("an On-Demand instance was interrupted: %d", got)
	}
	if got := post(fields{"kind": "interrupt", "instance": *spot.InstanceId, "seconds": -1}); got != http.StatusBadRequest {
		t.Errorf("negative seconds: %d", got)
	}
	l.fault(t, fields{"kind": "interrupt", "instance": *spot.InstanceId})
	l.fault(t, fields{"kind": "interrupt", "instance": *short.InstanceId, "seconds": 10})
	if got := post(fields{"kind": "interrupt", "instance": *spot.InstanceId}); got != http.StatusConflict {
		t.Errorf("a second notice: %d", got)
	}
	end := func(i types.Instance) {
		t.Helper()
		gone := l.await(t, *i.InstanceId, types.InstanceStateNameTerminated)
		if *gone.StateReason.Code != "Server.SpotInstanceTermination" || *gone.StateTransitionReason != "Server.SpotInstanceTermination" {
			t.Errorf("it ended for %+v, %q", gone.StateReason, *gone.StateTransitionReason)
		}
	}
	l.clock.advance(10 * time.Second)
	end(short)
	l.cloud.Close()
	l.open(t)
	l.clock.advance(109 * time.Second)
	if i := l.instance(t, *spot.InstanceId); i.State.Name != types.InstanceStateNameRunning {
		t.Errorf("before the end of the two minutes it is %s", i.State.Name)
	}
	l.clock.advance(time.Second)
	end(spot)
}
