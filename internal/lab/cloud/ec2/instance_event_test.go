package ec2_test

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// eventLab is an account with instances that have scheduled events.
type eventLab struct{ *cloudtest.Lab }

// status returns what EC2 says of an instance's checks and events.
func (l eventLab) status(t *testing.T, id string) types.InstanceStatus {
	t.Helper()
	return cloudtest.Must[*awsec2.DescribeInstanceStatusOutput](t)(l.DescribeInstanceStatus(t.Context(),
		&awsec2.DescribeInstanceStatusInput{InstanceIds: []string{id}, IncludeAllInstances: aws.Bool(true)})).InstanceStatuses[0]
}

// shown returns the code and state of each event, by its description.
func (l eventLab) shown(t *testing.T, i types.Instance) string {
	t.Helper()
	var out []string
	for _, e := range l.status(t, *i.InstanceId).Events {
		state := "active"
		if note, _, noted := strings.Cut(*e.Description, "] "); noted {
			state = strings.ToLower(strings.TrimPrefix(note, "["))
		}
		out = append(out, string(e.Code)+" "+state)
	}
	return strings.Join(out, ", ")
}

// agree compares the events in the metadata with those of DescribeInstanceStatus.
func (l eventLab) agree(t *testing.T, i types.Instance) {
	t.Helper()
	m, _ := l.Account.Instances().InstanceByAddress(*i.VpcId, netip.MustParseAddr(*i.PrivateIpAddress))
	for n, e := range l.status(t, *i.InstanceId).Events {
		if got := m.Events[n]; got.ID != *e.InstanceEventId || !strings.HasPrefix(got.ID, "instance-event-0") || got.Code != string(e.Code) || got.Description != *e.Description || !got.NotBefore.Equal(*e.NotBefore) {
			t.Errorf("%+v in the metadata, %+v elsewhere", got, e)
		}
	}
}

// running starts an instance whose status checks pass.
func (l eventLab) running(t *testing.T, in *awsec2.RunInstancesInput) types.Instance {
	t.Helper()
	i := l.Run(t, in)
	l.healthy(t, i)
	return i
}

func (l eventLab) healthy(t *testing.T, i types.Instance) {
	t.Helper()
	l.Account.Instances().AddressLeased(*i.VpcId, cloudtest.Must[net.HardwareAddr](t)(net.ParseMAC(*i.NetworkInterfaces[0].MacAddress)))
	l.Clock.Advance(time.Minute)
	if got := l.status(t, *i.InstanceId).InstanceStatus.Status; got != types.SummaryStatusOk {
		t.Fatalf("its checks: %s", got)
	}
}

func (l eventLab) schedule(t *testing.T, i types.Instance, code string, seconds int) {
	t.Helper()
	l.Fault(t, cloudtest.Fields{"kind": "schedule", "instance": *i.InstanceId, "code": code, "seconds": seconds})
}

// TestScheduledReboot: the instance reboots at its time, also if the daemon starts again meanwhile, and the event is active for
// a while afterwards. It cannot be scheduled for an instance that does not run.
func TestScheduledReboot(t *testing.T) {
	l := eventLab{cloudtest.New(t)}
	s := l.NewSite(t)
	i := l.running(t, s.RunInput())
	for _, f := range []cloudtest.Fields{
		{"kind": "schedule", "instance": *i.InstanceId, "code": "system-maintenance"},
		{"kind": "schedule", "instance": "i-0123456789abcdef0", "code": "system-reboot"},
		{"kind": "rebalance", "instance": *i.InstanceId},
	} {
		if got := l.Control(t, http.MethodPost, "/_lab/faults", f, nil); got != http.StatusConflict {
			t.Errorf("%v: %d", f, got)
		}
	}
	l.schedule(t, i, "system-reboot", 90)
	found := cloudtest.Must[*awsec2.DescribeInstanceStatusOutput](t)(l.DescribeInstanceStatus(t.Context(),
		&awsec2.DescribeInstanceStatusInput{Filters: []types.Filter{cloudtest.Filter("event.code", "system-reboot", "instance-stop")}})).InstanceStatuses
	if len(found) != 1 || !found[0].Events[0].NotAfter.Equal(found[0].Events[0].NotBefore.Add(2*time.Hour)) {
		t.Errorf("the filter finds %+v", found)
	}
	l.agree(t, i)
	l.Account.Close()
	l.Open(t)
	l.Clock.Advance(99 * time.Second) // ten seconds late, as EC2 may be by hours
	if got := l.status(t, *i.InstanceId).InstanceStatus.Status; got != types.SummaryStatusOk {
		t.Errorf("before its time: %s", got)
	}
	l.Clock.Advance(time.Second)
	cloudtest.Eventually(t, "it reboots", func() bool {
		return l.status(t, *i.InstanceId).InstanceStatus.Status == types.SummaryStatusInitializing
	})
	if got := l.shown(t, i); got != "system-reboot active" {
		t.Errorf("right after the reboot: %s", got)
	}
	cloudtest.Eventually(t, "its machine is up", func() bool { return l.Machines.Running(*i.InstanceId) })
	l.Account.Close()
	l.Open(t)
	l.healthy(t, i) // the reboot is not repeated
	l.Clock.Advance(4 * time.Minute)
	cloudtest.Eventually(t, "the event is over", func() bool { return l.shown(t, i) == "system-reboot completed" })
	l.Clock.Advance(8 * 24 * time.Hour)
	if got := l.shown(t, i); got != "" {
		t.Errorf("a week later: %s", got)
	}
}

// TestScheduledStop: a retired instance stops, a Spot instance ends. What a user does earlier cancels the events that it makes
// needless.
func TestScheduledStop(t *testing.T) {
	l, ctx := eventLab{cloudtest.New(t)}, t.Context()
	s := l.NewSite(t)
	retired, spot, moved := l.running(t, s.RunInput()), l.running(t, spotInput(s)), l.running(t, s.RunInput())
	ids := []string{*moved.InstanceId}
	for _, code := range []string{"instance-reboot", "system-reboot", "instance-stop"} {
		l.schedule(t, moved, code, 600)
	}
	cloudtest.Must[*awsec2.RebootInstancesOutput](t)(l.RebootInstances(ctx, &awsec2.RebootInstancesInput{InstanceIds: ids}))
	if got := l.shown(t, moved); got != "instance-reboot canceled, system-reboot active, instance-stop active" {
		t.Errorf("after a reboot: %s", got)
	}
	cloudtest.Must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: ids}))
	l.Await(t, *moved.InstanceId, types.InstanceStateNameStopped)
	cloudtest.Must[*awsec2.StartInstancesOutput](t)(l.StartInstances(ctx, &awsec2.StartInstancesInput{InstanceIds: ids}))
	l.Await(t, *moved.InstanceId, types.InstanceStateNameRunning)
	if got := l.shown(t, moved); got != "instance-reboot canceled, system-reboot canceled, instance-stop canceled" {
		t.Errorf("after a start: %s", got)
	}
	l.agree(t, moved)
	l.schedule(t, retired, "instance-retirement", 5)
	l.schedule(t, spot, "instance-stop", 5)
	l.Clock.Advance(5 * time.Second)
	if i := l.Await(t, *retired.InstanceId, types.InstanceStateNameStopped); *i.StateReason.Code != "Server.ScheduledStop" {
		t.Errorf("retired: %+v", i.StateReason)
	}
	if i := l.Await(t, *spot.InstanceId, types.InstanceStateNameTerminated); *i.StateReason.Code != "Server.ScheduledStop" {
		t.Errorf("the Spot instance: %+v", i.StateReason)
	}
	cloudtest.Eventually(t, "the event is over", func() bool { return l.shown(t, retired) == "instance-retirement completed" })
	l.Clock.Advance(10 * time.Minute)
	if i := l.Instance(t, *moved.InstanceId); i.State.Name != types.InstanceStateNameRunning {
		t.Errorf("a canceled event stopped it: %s", i.State.Name)
	}
}

// TestStatusFilters: DescribeInstanceStatus and DescribeInstances have filters of their own.
func TestStatusFilters(t *testing.T) {
	l := cloudtest.New(t)
	_, err := l.DescribeInstanceStatus(t.Context(), &awsec2.DescribeInstanceStatusInput{Filters: []types.Filter{cloudtest.Filter("instance-id", "i-0123456789abcdef0")}})
	cloudtest.Refused(t, err, "InvalidParameterValue")
	_, err = l.DescribeInstances(t.Context(), &awsec2.DescribeInstancesInput{Filters: []types.Filter{cloudtest.Filter("event.code", "system-reboot")}})
	cloudtest.Refused(t, err, "InvalidParameterValue")
}
