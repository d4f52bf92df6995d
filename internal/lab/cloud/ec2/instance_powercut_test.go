package ec2_test

import (
	"net/http"
	"testing"

	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

func TestFaultKill(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	for _, tc := range []struct {
		outcome string
		want    types.InstanceStateName
	}{{"", types.InstanceStateNameStopped}, {"stopped", types.InstanceStateNameStopped}, {"terminated", types.InstanceStateNameTerminated}, {"impaired", types.InstanceStateNameRunning}} {
		id := *l.Run(t, s.RunInput()).InstanceId
		l.Fault(t, cloudtest.Fields{"kind": "kill", "instance": id, "outcome": tc.outcome})
		i := l.Await(t, id, tc.want)
		if l.Machines.Running(id) {
			t.Errorf("outcome %q: the machine runs", tc.outcome)
		}
		if tc.outcome != "impaired" {
			if *i.StateReason.Code != "Server.ScheduledStop" {
				t.Errorf("outcome %q: reason %s", tc.outcome, *i.StateReason.Code)
			}
			continue
		}
		status := cloudtest.Must[*awsec2.DescribeInstanceStatusOutput](t)(l.DescribeInstanceStatus(t.Context(), &awsec2.DescribeInstanceStatusInput{InstanceIds: []string{id}})).InstanceStatuses[0]
		if status.InstanceStatus.Status != types.SummaryStatusImpaired {
			t.Errorf("status is %s", status.InstanceStatus.Status)
		}
		cloudtest.Must[*awsec2.RebootInstancesOutput](t)(l.RebootInstances(t.Context(), &awsec2.RebootInstancesInput{InstanceIds: []string{id}}))
		cloudtest.Eventually(t, "the reboot helps", func() bool { return l.Machines.Running(id) })
	}
	if got := l.Control(t, http.MethodPost, "/_lab/faults", cloudtest.Fields{"kind": "kill", "instance": "i-1"}, nil); got != http.StatusConflict {
		t.Errorf("killing nobody got status %d", got)
	}
}
