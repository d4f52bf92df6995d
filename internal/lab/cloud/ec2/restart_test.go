package ec2_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// TestRestart opens the cloud from its files, as after a crash of the daemon, with one instance in
// each state.
func TestRestart(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	runs, died, stops, ends := l.Run(t, s.RunInput()), l.Run(t, s.RunInput()), l.Run(t, s.RunInput()), l.Run(t, s.RunInput())
	l.Machines.SetHold(make(chan struct{}))
	cloudtest.Must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{*stops.InstanceId}}))
	cloudtest.Must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: []string{*ends.InstanceId}}))
	starts := cloudtest.Must[*awsec2.RunInstancesOutput](t)(l.RunInstances(ctx, s.RunInput())).Instances[0]

	l.Account.Close()
	if info, err := os.Stat(filepath.Join(l.Dir, "state.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the state file: %v, %v", info, err)
	}
	if err := l.Machines.Kill(ctx, *died.InstanceId); err != nil {
		t.Fatal(err)
	}
	l.Machines.SetHold(nil)
	l.Network.Forget()
	l.Open(t)

	for id, want := range map[string]types.InstanceStateName{
		*runs.InstanceId: types.InstanceStateNameRunning, *died.InstanceId: types.InstanceStateNameStopped,
		*stops.InstanceId: types.InstanceStateNameStopped, *ends.InstanceId: types.InstanceStateNameTerminated,
		*starts.InstanceId: types.InstanceStateNameRunning,
	} {
		l.Await(t, id, want)
	}
	cloudtest.Eventually(t, "the network has 4 interfaces", func() bool { return len(l.Network.VPC(t, s.VPC).Interfaces) == 4 })

	// After a reboot of the host no machine runs; those that should are started again.
	l.Account.Close()
	if err := l.Machines.Kill(ctx, *runs.InstanceId); err != nil {
		t.Fatal(err)
	}
	l.BootID = "boot-2"
	l.Open(t)
	l.Await(t, *runs.InstanceId, types.InstanceStateNameRunning)
	if !l.Machines.Running(*runs.InstanceId) {
		t.Error("the instance is not started again after a reboot of the host")
	}
	l.Await(t, *stops.InstanceId, types.InstanceStateNameStopped)
}

// TestNetworkTrouble checks that a failed change of the network is tried again and reported, while
// the API works.
func TestNetworkTrouble(t *testing.T) {
	l := cloudtest.New(t)
	l.Network.SetFail(errors.New("nft: out of memory"))
	s := l.NewSite(t)
	if o := l.Account.Overview(); o.NetworkError == "" {
		t.Error("the trouble does not show")
	}
	l.Network.SetFail(nil)
	cloudtest.Eventually(t, "the network is in order", func() bool {
		l.Clock.Advance(time.Second)
		return l.Account.Overview().NetworkError == ""
	})
	if got := l.Network.VPC(t, s.VPC); len(got.Subnets) != 1 {
		t.Errorf("the network was told %+v", got)
	}
}
