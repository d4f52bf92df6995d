package cloud_test

import (
	"net/http"
	"testing"

	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

func TestFaultKill(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	for _, tc := range []struct {
		outcome string
		want    types.InstanceStateName
	}{{"", types.InstanceStateNameStopped}, {"stopped", types.InstanceStateNameStopped}, {"terminated", types.InstanceStateNameTerminated}, {"impaired", types.InstanceStateNameRunning}} {
		id := *l.run(t, s.runInput()).InstanceId
		l.fault(t, fields{"kind": "kill", "instance": id, "outcome": tc.outcome})
		i := l.await(t, id, tc.want)
		if l.machines.Running(id) {
			t.Errorf("outcome %q: the machine runs", tc.outcome)
		}
		if tc.outcome != "impaired" {
			if *i.StateReason.Code != "Server.ScheduledStop" {
				t.Errorf("outcome %q: reason %s", tc.outcome, *i.StateReason.Code)
			}
			continue
		}
		status := must[*awsec2.DescribeInstanceStatusOutput](t)(l.DescribeInstanceStatus(t.Context(), &awsec2.DescribeInstanceStatusInput{InstanceIds: []string{id}})).InstanceStatuses[0]
		if status.InstanceStatus.Status != types.SummaryStatusImpaired {
			t.Errorf("status is %s", status.InstanceStatus.Status)
		}
		must[*awsec2.RebootInstancesOutput](t)(l.RebootInstances(t.Context(), &awsec2.RebootInstancesInput{InstanceIds: []string{id}}))
		eventually(t, "the reboot helps", func() bool { return l.machines.Running(id) })
	}
	if got := l.control(t, http.MethodPost, "/_lab/faults", fields{"kind": "kill", "instance": "i-1"}, nil); got != http.StatusConflict {
		t.Errorf("killing nobody got status %d", got)
	}
}
