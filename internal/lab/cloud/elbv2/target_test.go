package elbv2_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awselb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/network"
)

// health returns "state reason" of every target, by instance.
func (b *balanced) health(t *testing.T) map[string]string {
	t.Helper()
	out := cloudtest.Must[*awselb.DescribeTargetHealthOutput](t)(b.ELB.DescribeTargetHealth(t.Context(), &awselb.DescribeTargetHealthInput{TargetGroupArn: &b.targetGroup}))
	found := map[string]string{}
	for _, d := range out.TargetHealthDescriptions {
		found[*d.Target.Id] = strings.TrimSpace(string(d.TargetHealth.State) + " " + string(d.TargetHealth.Reason))
	}
	return found
}

// becomes moves the clock second by second until a target has a state.
func (b *balanced) becomes(t *testing.T, id, want string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); b.health(t)[id] != want; time.Sleep(10 * time.Millisecond) { // checks run in the background
		if time.Now().After(end) {
			t.Fatalf("%s never came to %q: %q", id, want, b.health(t)[id])
		}
		b.second(t)
	}
}

// second moves the clock by a second, and waits until the loop of health checks has seen that.
func (b *balanced) second(t *testing.T) {
	t.Helper()
	waits := func() bool { return b.Clock.Waiting() > 0 }
	cloudtest.Eventually(t, "the loop of health checks waits", waits)
	b.Clock.Advance(time.Second)
	cloudtest.Eventually(t, "the loop of health checks waits again", waits)
}

func (b *balanced) register(t *testing.T, ids ...string) {
	t.Helper()
	in := &awselb.RegisterTargetsInput{TargetGroupArn: &b.targetGroup}
	for _, id := range ids {
		in.Targets = append(in.Targets, elbtypes.TargetDescription{Id: &id})
	}
	cloudtest.Must[*awselb.RegisterTargetsOutput](t)(b.ELB.RegisterTargets(t.Context(), in))
}

func (b *balanced) deregister(t *testing.T, id string) {
	t.Helper()
	cloudtest.Must[*awselb.DeregisterTargetsOutput](t)(b.ELB.DeregisterTargets(t.Context(), &awselb.DeregisterTargetsInput{
		TargetGroupArn: &b.targetGroup, Targets: []elbtypes.TargetDescription{{Id: &id}},
	}))
}

// forwarded returns the targets of each node, by zone of its subnet.
func (b *balanced) forwarded(t *testing.T) map[string]string {
	t.Helper()
	zones := map[string]string{b.Subnet: "a", b.subnetB: "b"}
	out := map[string]string{}
	for _, i := range b.Network.VPC(t, b.VPC).Interfaces {
		if i.Balancer != nil {
			out[zones[i.SubnetID]] = fmt.Sprint(slices.Concat(targets(i.Balancer.Listeners)...), i.Stopped)
		}
	}
	return out
}

func targets(listeners []network.Listener) [][]string {
	var out [][]string
	for _, l := range listeners {
		var some []string
		for _, x := range l.Targets {
			some = append(some, x.String())
		}
		out = append(out, some)
	}
	return out
}

func (b *balanced) names(t *testing.T) []string {
	t.Helper()
	addrs, _ := b.Account.Instances().BalancerAddresses(*b.describe(t).DNSName)
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return out
}

// twoTargets runs an instance in each zone and registers both.
func (b *balanced) twoTargets(t *testing.T) (inA, inB string, atA, atB string) {
	t.Helper()
	a := b.Run(t, b.RunInput())
	in := b.RunInput()
	in.SubnetId = &b.subnetB
	other := b.Run(t, in)
	b.register(t, *a.InstanceId, *other.InstanceId)
	return *a.InstanceId, *other.InstanceId, *a.PrivateIpAddress + ":6443", *other.PrivateIpAddress + ":6443"
}

func TestTargetHealth(t *testing.T) {
	b := newBalanced(t)
	ctx := t.Context()
	inA, inB, atA, atB := b.twoTargets(t)
	if got := b.health(t); got[inA] != "unused Target.NotInUse" {
		t.Errorf("without a listener: %v", got)
	}
	b.listen(t, b.arn, b.targetGroup, 443)
	if got := b.health(t); got[inA] != "initial Elb.RegistrationInProgress" {
		t.Errorf("at first: %v", got)
	}
	if got := b.forwarded(t); got["a"] != "[] true" && got["a"] != "["+atA+"] true" {
		t.Errorf("provisioning: %v", got)
	}
	b.Network.SetWell(atA, true)
	b.Clock.Advance(3 * time.Second)
	b.becomes(t, inA, "initial Elb.InitialHealthChecking")
	b.becomes(t, inA, "healthy")
	b.becomes(t, inB, "unhealthy Target.FailedHealthChecks")
	cloudtest.Eventually(t, "each node forwards in its zone, also if nobody is healthy", func() bool {
		got := b.forwarded(t)
		return got["a"] == "["+atA+"] false" && got["b"] == "["+atB+"] false"
	})
	nodes := b.interfaces(t)
	slices.SortFunc(nodes, func(x, y types.NetworkInterface) int {
		return strings.Compare(*x.AvailabilityZone, *y.AvailabilityZone)
	})
	if got := b.names(t); !slices.Equal(got, []string{*nodes[0].PrivateIpAddress}) {
		t.Errorf("the name has %v", got)
	}

	// Across zones, only the healthy one gets connections.
	cloudtest.Must[*awselb.ModifyLoadBalancerAttributesOutput](t)(b.ELB.ModifyLoadBalancerAttributes(ctx, &awselb.ModifyLoadBalancerAttributesInput{
		LoadBalancerArn: &b.arn, Attributes: []elbtypes.LoadBalancerAttribute{{Key: aws.String("load_balancing.cross_zone.enabled"), Value: aws.String("true")}},
	}))
	if got := b.forwarded(t); got["a"] != "["+atA+"] false" || got["b"] != "["+atA+"] false" {
		t.Errorf("across zones: %v", got)
	}
	if got := b.names(t); len(got) != 2 {
		t.Errorf("across zones the name has %v", got)
	}

	// An unhealthy target loses its connections.
	b.Network.SetWell(atB, true)
	b.becomes(t, inB, "healthy")
	b.Network.SetWell(atA, false)
	b.becomes(t, inA, "unhealthy Target.FailedHealthChecks")
	cloudtest.Eventually(t, "connections end", func() bool {
		ended := b.Network.EndedFlows()
		return len(ended) == 2 && ended[0].String() == atA // at both nodes
	})
	if got := b.forwarded(t); got["a"] != "["+atB+"] false" {
		t.Errorf("without A: %v", got)
	}

	// Deregistered, it drains; registered again, it is new.
	b.deregister(t, inB)
	if got := b.health(t); got[inB] != "draining Target.DeregistrationInProgress" {
		t.Errorf("deregistered: %v", got)
	}
	if got := b.forwarded(t); got["b"] != "["+atA+"] false" {
		t.Errorf("without B: %v", got)
	}
	b.register(t, inB)
	if got := b.health(t); got[inB] != "initial Elb.RegistrationInProgress" {
		t.Errorf("registered again: %v", got)
	}
	b.becomes(t, inB, "healthy")

	// A stopped instance is not used, a terminated one leaves.
	cloudtest.Must[*awsec2.StopInstancesOutput](t)(b.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{inB}}))
	b.becomes(t, inB, "unused Target.InvalidState")
	b.Await(t, inB, types.InstanceStateNameStopped)
	_, err := b.ELB.RegisterTargets(ctx, &awselb.RegisterTargetsInput{TargetGroupArn: &b.targetGroup, Targets: []elbtypes.TargetDescription{{Id: &inB, Port: aws.Int32(1)}}})
	cloudtest.Refused(t, err, "InvalidTarget")
	b.second(t)
	cloudtest.Must[*awsec2.StartInstancesOutput](t)(b.StartInstances(ctx, &awsec2.StartInstancesInput{InstanceIds: []string{inB}}))
	b.Await(t, inB, types.InstanceStateNameRunning)
	if got := b.health(t); !strings.HasPrefix(got[inB], "initial") {
		t.Errorf("started again: %v", got)
	}
	b.becomes(t, inB, "healthy")
	cloudtest.Must[*awsec2.TerminateInstancesOutput](t)(b.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: []string{inB}}))
	b.becomes(t, inB, "draining Target.DeregistrationInProgress")
	b.Clock.Advance(300 * time.Second)
	b.becomes(t, inB, "")
}

// TestTargetDrained: at the end of the delay the connections end, if that is wanted.
func TestTargetDrained(t *testing.T) {
	b := newBalanced(t)
	inA, _, atA, _ := b.twoTargets(t)
	b.listen(t, b.arn, b.targetGroup, 6443)
	b.Clock.Advance(3 * time.Second)
	set := func(pairs ...string) {
		in := &awselb.ModifyTargetGroupAttributesInput{TargetGroupArn: &b.targetGroup}
		for i := 0; i < len(pairs); i += 2 {
			in.Attributes = append(in.Attributes, elbtypes.TargetGroupAttribute{Key: &pairs[i], Value: &pairs[i+1]})
		}
		cloudtest.Must[*awselb.ModifyTargetGroupAttributesOutput](t)(b.ELB.ModifyTargetGroupAttributes(t.Context(), in))
	}
	set("deregistration_delay.timeout_seconds", "10", "preserve_client_ip.enabled", "false")
	for _, i := range b.Network.VPC(t, b.VPC).Interfaces {
		if i.Balancer != nil && i.Balancer.Listeners[0].PreserveClient {
			t.Errorf("%s keeps the client's address", i.ID)
		}
	}
	drain := func() int {
		b.deregister(t, inA)
		b.becomes(t, inA, "")
		b.second(t)
		return len(b.Network.EndedFlows())
	}
	if n := drain(); n != 0 {
		t.Errorf("%d connections ended", n)
	}
	set("deregistration_delay.connection_termination.enabled", "true")
	b.register(t, inA)
	if drain(); len(b.Network.EndedFlows()) == 0 || b.Network.EndedFlows()[0].String() != atA {
		t.Errorf("ended %v", b.Network.EndedFlows())
	}
}

func TestTargetGroupRefusals(t *testing.T) {
	b := newBalanced(t)
	ctx := t.Context()
	for name, tt := range map[string]struct {
		change func(*awselb.CreateTargetGroupInput)
		code   string
	}{
		"same":      {func(*awselb.CreateTargetGroupInput) {}, ""},
		"other":     {func(in *awselb.CreateTargetGroupInput) { in.Port = aws.Int32(1) }, "DuplicateTargetGroupName"},
		"interval":  {func(in *awselb.CreateTargetGroupInput) { in.HealthCheckIntervalSeconds = aws.Int32(4) }, "ValidationError"},
		"timeout":   {func(in *awselb.CreateTargetGroupInput) { in.HealthCheckTimeoutSeconds = aws.Int32(1) }, "ValidationError"},
		"longer":    {func(in *awselb.CreateTargetGroupInput) { in.HealthCheckTimeoutSeconds = aws.Int32(6) }, "ValidationError"},
		"threshold": {func(in *awselb.CreateTargetGroupInput) { in.HealthyThresholdCount = aws.Int32(11) }, "ValidationError"},
		"path":      {func(in *awselb.CreateTargetGroupInput) { in.HealthCheckPath = aws.String("/readyz") }, "ValidationError"},
		"matcher": {func(in *awselb.CreateTargetGroupInput) {
			in.HealthCheckProtocol, in.Matcher = elbtypes.ProtocolEnumHttps, &elbtypes.Matcher{HttpCode: aws.String("2xx")}
		}, "ValidationError"},
		"protocol": {func(in *awselb.CreateTargetGroupInput) { in.Protocol = elbtypes.ProtocolEnumUdp }, "InvalidConfigurationRequest"},
		"VPC":      {func(in *awselb.CreateTargetGroupInput) { in.VpcId = aws.String("vpc-00000000000000001") }, "ValidationError"},
		"name":     {func(in *awselb.CreateTargetGroupInput) { in.Name = aws.String("-a") }, "ValidationError"},
	} {
		in := b.groupInput("api")
		tt.change(in)
		if _, err := b.ELB.CreateTargetGroup(ctx, in); cloudtest.Code(err) != tt.code {
			t.Errorf("%s: %v, want %q", name, err, tt.code)
		}
	}
	changed := cloudtest.Must[*awselb.ModifyTargetGroupOutput](t)(b.ELB.ModifyTargetGroup(ctx, &awselb.ModifyTargetGroupInput{
		TargetGroupArn: &b.targetGroup, HealthCheckProtocol: elbtypes.ProtocolEnumHttps, HealthCheckPath: aws.String("/readyz"),
	})).TargetGroups[0]
	if *changed.HealthCheckPath != "/readyz" || *changed.Matcher.HttpCode != "200-399" || *changed.HealthCheckPort != "traffic-port" || *changed.HealthCheckTimeoutSeconds != 5 {
		t.Errorf("%+v", changed)
	}

	listener := b.listen(t, b.arn, b.targetGroup, 6443)
	_, err := b.ELB.DeleteTargetGroup(ctx, &awselb.DeleteTargetGroupInput{TargetGroupArn: &b.targetGroup})
	cloudtest.Refused(t, err, "ResourceInUse")
	in := &awselb.CreateListenerInput{LoadBalancerArn: &b.arn, Port: aws.Int32(6443), Protocol: elbtypes.ProtocolEnumTcp, DefaultActions: forward(b.targetGroup)}
	if again := cloudtest.Must[*awselb.CreateListenerOutput](t)(b.ELB.CreateListener(ctx, in)); *again.Listeners[0].ListenerArn != listener {
		t.Errorf("again: %s", *again.Listeners[0].ListenerArn)
	}
	in.Tags = elbTags("a", "1")
	_, err = b.ELB.CreateListener(ctx, in)
	cloudtest.Refused(t, err, "DuplicateListener")
	in.Tags = nil
	in.Port, in.Protocol = aws.Int32(80), elbtypes.ProtocolEnumHttp
	_, err = b.ELB.CreateListener(ctx, in)
	cloudtest.Refused(t, err, "UnsupportedProtocol")
	other := cloudtest.Must[*awselb.CreateLoadBalancerOutput](t)(b.ELB.CreateLoadBalancer(ctx, b.balancerInput("other"))).LoadBalancers[0].LoadBalancerArn
	in.LoadBalancerArn, in.Protocol = other, elbtypes.ProtocolEnumTcp
	_, err = b.ELB.CreateListener(ctx, in)
	cloudtest.Refused(t, err, "TargetGroupAssociationLimit")
	second := b.newGroup(t, "second")
	cloudtest.Must[*awselb.ModifyListenerOutput](t)(b.ELB.ModifyListener(ctx, &awselb.ModifyListenerInput{ListenerArn: &listener, Port: aws.Int32(443), DefaultActions: forward(second)}))
	cloudtest.Must[*awselb.DeleteTargetGroupOutput](t)(b.ELB.DeleteTargetGroup(ctx, &awselb.DeleteTargetGroupInput{TargetGroupArn: &b.targetGroup}))
	listed := cloudtest.Must[*awselb.DescribeListenersOutput](t)(b.ELB.DescribeListeners(ctx, &awselb.DescribeListenersInput{LoadBalancerArn: &b.arn})).Listeners
	if len(listed) != 1 || *listed[0].Port != 443 || *listed[0].DefaultActions[0].TargetGroupArn != second {
		t.Errorf("%+v", listed)
	}

	for id, want := range map[string]string{"i-00000000000000001": "InvalidTarget", "10.0.0.1": "ValidationError"} {
		_, err = b.ELB.RegisterTargets(ctx, &awselb.RegisterTargetsInput{TargetGroupArn: &second, Targets: []elbtypes.TargetDescription{{Id: &id}}})
		cloudtest.Refused(t, err, want)
	}
	_, err = b.ELB.RegisterTargets(ctx, &awselb.RegisterTargetsInput{TargetGroupArn: &b.targetGroup, Targets: []elbtypes.TargetDescription{{Id: aws.String("i-00000000000000001")}}})
	cloudtest.Refused(t, err, "TargetGroupNotFound")

	cloudtest.Must[*awselb.AddTagsOutput](t)(b.ELB.AddTags(ctx, &awselb.AddTagsInput{ResourceArns: []string{b.arn, second}, Tags: elbTags("a", "1")}))
	cloudtest.Must[*awselb.RemoveTagsOutput](t)(b.ELB.RemoveTags(ctx, &awselb.RemoveTagsInput{ResourceArns: []string{b.arn}, TagKeys: []string{"cluster"}}))
	tagged := cloudtest.Must[*awselb.DescribeTagsOutput](t)(b.ELB.DescribeTags(ctx, &awselb.DescribeTagsInput{ResourceArns: []string{b.arn, second}}))
	for _, d := range tagged.TagDescriptions {
		if len(d.Tags) != 1 || *d.Tags[0].Key != "a" {
			t.Errorf("%+v", d)
		}
	}
	_, err = b.ELB.DescribeTags(ctx, &awselb.DescribeTagsInput{ResourceArns: []string{b.arn + "0"}})
	cloudtest.Refused(t, err, "LoadBalancerNotFound")
}
