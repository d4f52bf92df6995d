package cloud_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// TestRestart opens the cloud from its files, as after a crash of the daemon, with one instance in
// each state.
func TestRestart(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	ctx := t.Context()
	runs, died, stops, ends := l.run(t, s.runInput()), l.run(t, s.runInput()), l.run(t, s.runInput()), l.run(t, s.runInput())
	l.machines.hold = make(chan struct{})
	must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{*stops.InstanceId}}))
	must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: []string{*ends.InstanceId}}))
	starts := must[*awsec2.RunInstancesOutput](t)(l.RunInstances(ctx, s.runInput())).Instances[0]

	l.cloud.Close()
	if info, err := os.Stat(filepath.Join(l.dir, "state.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the state file: %v, %v", info, err)
	}
	if err := l.machines.Kill(ctx, *died.InstanceId); err != nil {
		t.Fatal(err)
	}
	l.machines.hold = nil
	l.network.forget()
	l.open(t)

	for id, want := range map[string]types.InstanceStateName{
		*runs.InstanceId: types.InstanceStateNameRunning, *died.InstanceId: types.InstanceStateNameStopped,
		*stops.InstanceId: types.InstanceStateNameStopped, *ends.InstanceId: types.InstanceStateNameTerminated,
		*starts.InstanceId: types.InstanceStateNameRunning,
	} {
		l.await(t, id, want)
	}
	if n := len(l.network.vpc(t, s.vpc).Interfaces); n != 4 {
		t.Errorf("the network has %d interfaces, want 4", n)
	}

	// After a reboot of the host no machine runs; those that should are started again.
	l.cloud.Close()
	if err := l.machines.Kill(ctx, *runs.InstanceId); err != nil {
		t.Fatal(err)
	}
	l.bootID = "boot-2"
	l.open(t)
	l.await(t, *runs.InstanceId, types.InstanceStateNameRunning)
	if !l.machines.Running(*runs.InstanceId) {
		t.Error("the instance is not started again after a reboot of the host")
	}
	l.await(t, *stops.InstanceId, types.InstanceStateNameStopped)
}

// TestNetworkTrouble checks that a failed change of the network is tried again and reported, while
// the API works.
func TestNetworkTrouble(t *testing.T) {
	l := newLab(t)
	l.network.setFail(errors.New("nft: out of memory"))
	s := l.site(t)
	if o := l.cloud.Overview(); o.NetworkError == "" {
		t.Error("the trouble does not show")
	}
	l.network.setFail(nil)
	eventually(t, "the network is in order", func() bool {
		l.clock.advance(time.Second)
		return l.cloud.Overview().NetworkError == ""
	})
	if got := l.network.vpc(t, s.vpc); len(got.Subnets) != 1 {
		t.Errorf("the network was told %+v", got)
	}
}
