package ec2_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

func TestLifeCycle(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	hold := make(chan struct{})
	l.Machines.SetHold(hold)
	release := func() { hold <- struct{}{} } // lets one start or stop proceed
	in := s.RunInput()
	in.NetworkInterfaces = []types.InstanceNetworkInterfaceSpecification{{DeviceIndex: aws.Int32(0), SubnetId: &s.Subnet, Groups: []string{s.Group}, AssociatePublicIpAddress: aws.Bool(true)}}
	in.SubnetId, in.SecurityGroupIds = nil, nil
	run := cloudtest.Must[*awsec2.RunInstancesOutput](t)(l.RunInstances(ctx, in)).Instances[0]
	id := *run.InstanceId
	ids := []string{id}
	if run.State.Name != types.InstanceStateNamePending {
		t.Errorf("just launched it is %s", run.State.Name)
	}
	stop := func() error {
		_, err := l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: ids})
		return err
	}
	start := func() error {
		_, err := l.StartInstances(ctx, &awsec2.StartInstancesInput{InstanceIds: ids})
		return err
	}
	reboot := func() error {
		_, err := l.RebootInstances(ctx, &awsec2.RebootInstancesInput{InstanceIds: ids})
		return err
	}
	retype := func() error {
		_, err := l.ModifyInstanceAttribute(ctx, &awsec2.ModifyInstanceAttributeInput{InstanceId: &id, InstanceType: &types.AttributeValue{Value: aws.String("t3.large")}})
		return err
	}
	cloudtest.Refused(t, stop(), "IncorrectInstanceState")
	release()
	running := l.Await(t, id, types.InstanceStateNameRunning)
	cloudtest.Refused(t, start(), "")
	cloudtest.Refused(t, retype(), "IncorrectInstanceState")
	checks := func(want types.SummaryStatus) {
		t.Helper()
		status := cloudtest.Must[*awsec2.DescribeInstanceStatusOutput](t)(l.DescribeInstanceStatus(ctx, &awsec2.DescribeInstanceStatusInput{InstanceIds: ids})).InstanceStatuses
		if len(status) != 1 || status[0].InstanceStatus.Status != want || status[0].SystemStatus.Status != want {
			t.Errorf("status is %+v, want %s", status, want)
		}
	}
	mac := cloudtest.Must[net.HardwareAddr](t)(net.ParseMAC(*running.NetworkInterfaces[0].MacAddress))
	checks(types.SummaryStatusInitializing)
	l.Account.Instances().AddressLeased(s.VPC, mac)
	checks(types.SummaryStatusInitializing) // the first checks come a minute after the start
	l.Clock.Advance(time.Minute)
	checks(types.SummaryStatusOk)

	cloudtest.Refused(t, stop(), "")
	if i := l.Instance(t, id); i.State.Name != types.InstanceStateNameStopping || i.PublicIpAddress == nil {
		t.Errorf("while stopping it is %s with public address %v", i.State.Name, i.PublicIpAddress)
	}
	cloudtest.Refused(t, start(), "IncorrectInstanceState")
	cloudtest.Refused(t, reboot(), "IncorrectInstanceState")
	release()
	stopped := l.Await(t, id, types.InstanceStateNameStopped)
	if stopped.PublicIpAddress != nil || *stopped.PrivateIpAddress != *running.PrivateIpAddress || *stopped.StateReason.Code != "Client.UserInitiatedShutdown" {
		t.Errorf("stopped: %+v", stopped)
	}
	cloudtest.Eventually(t, "the network knows that the instance is stopped", func() bool { return l.Network.VPC(t, s.VPC).Interfaces[0].Stopped })
	if n := l.Network.Resets(); n != 1 {
		t.Errorf("the interface was reset %d times by a stop", n)
	}
	cloudtest.Refused(t, retype(), "")
	cloudtest.Refused(t, stop(), "")

	cloudtest.Refused(t, start(), "")
	release()
	again := l.Await(t, id, types.InstanceStateNameRunning)
	if *again.PublicIpAddress == *running.PublicIpAddress || *again.PrivateIpAddress != *running.PrivateIpAddress || again.InstanceType != types.InstanceTypeT3Large {
		t.Errorf("started again: %+v, before %+v", again, running)
	}
	if spec := l.Machines.Spec(id); spec.VCPUs != 2 || spec.MemoryMiB != 7813 {
		t.Errorf("the machine of a t3.large was started as %+v", spec)
	}
	checks(types.SummaryStatusInitializing)
	l.Account.Instances().AddressLeased(s.VPC, mac)
	l.Clock.Advance(time.Minute)
	checks(types.SummaryStatusOk)
	cloudtest.Refused(t, reboot(), "")
	checks(types.SummaryStatusInitializing)
	release()
	cloudtest.Eventually(t, "the reboot", func() bool { return !l.Machines.Running(id) })
	release()
	cloudtest.Eventually(t, "the reboot", func() bool { return l.Machines.Running(id) })
	if i := l.Instance(t, id); i.State.Name != types.InstanceStateNameRunning || *i.PublicIpAddress != *again.PublicIpAddress {
		t.Errorf("after a reboot: %+v", i)
	}

	cloudtest.Must[*awsec2.ModifyInstanceAttributeOutput](t)(l.ModifyInstanceAttribute(ctx, &awsec2.ModifyInstanceAttributeInput{InstanceId: &id, DisableApiTermination: &types.AttributeBooleanValue{Value: aws.Bool(true)}}))
	_, err := l.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: ids})
	cloudtest.Refused(t, err, "OperationNotPermitted")
	cloudtest.Must[*awsec2.ModifyInstanceAttributeOutput](t)(l.ModifyInstanceAttribute(ctx, &awsec2.ModifyInstanceAttributeInput{InstanceId: &id, DisableApiTermination: &types.AttributeBooleanValue{Value: aws.Bool(false)}}))
	term := cloudtest.Must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: ids})).TerminatingInstances[0]
	if term.PreviousState.Name != types.InstanceStateNameRunning || term.CurrentState.Name != types.InstanceStateNameShuttingDown {
		t.Errorf("terminating: %+v", term)
	}
	_, err = l.DeleteSubnet(ctx, &awsec2.DeleteSubnetInput{SubnetId: &s.Subnet})
	cloudtest.Refused(t, err, "DependencyViolation") // not before the instance is terminated
	release()
	gone := l.Await(t, id, types.InstanceStateNameTerminated)
	if gone.PrivateIpAddress != nil || gone.VpcId != nil || len(gone.NetworkInterfaces) != 0 {
		t.Errorf("terminated: %+v", gone)
	}
	cloudtest.Refused(t, start(), "IncorrectInstanceState")
	cloudtest.Refused(t, stop(), "IncorrectInstanceState")
	if o := l.Account.Overview(); len(o.Instances)+len(o.Interfaces)+len(o.Volumes) != 0 {
		t.Errorf("left after termination: %+v", o)
	}
	cloudtest.Must[*awsec2.DeleteSubnetOutput](t)(l.DeleteSubnet(ctx, &awsec2.DeleteSubnetInput{SubnetId: &s.Subnet}))
}

// TestTerminateCancelsALaunch terminates an instance whose machine hangs while booting.
func TestTerminateCancelsALaunch(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	hold := make(chan struct{})
	l.Machines.SetHold(hold)
	id := *cloudtest.Must[*awsec2.RunInstancesOutput](t)(l.RunInstances(t.Context(), s.RunInput())).Instances[0].InstanceId
	time.Sleep(20 * time.Millisecond) // let the launch begin; the test passes without it, too
	cloudtest.Must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(t.Context(), &awsec2.TerminateInstancesInput{InstanceIds: []string{id}}))
	close(hold)
	l.Await(t, id, types.InstanceStateNameTerminated)
	if l.Machines.Running(id) {
		t.Error("the machine runs")
	}
}

func TestShutdownFromInside(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	stops := l.Run(t, s.RunInput())
	in := s.RunInput()
	in.InstanceInitiatedShutdownBehavior = types.ShutdownBehaviorTerminate
	terminates := l.Run(t, in)
	l.Machines.PowerOff(*stops.InstanceId)
	l.Machines.PowerOff(*terminates.InstanceId)
	if i := l.Await(t, *stops.InstanceId, types.InstanceStateNameStopped); *i.StateReason.Code != "Client.InstanceInitiatedShutdown" {
		t.Errorf("the reason is %s", *i.StateReason.Code)
	}
	l.Await(t, *terminates.InstanceId, types.InstanceStateNameTerminated)
}

// TestRebootFromInside: the instance stays running, whatever its shutdown behavior, and its machine boots
// again with the same network interface and volumes.
func TestRebootFromInside(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	in := s.RunInput()
	in.InstanceInitiatedShutdownBehavior = types.ShutdownBehaviorTerminate
	id := *l.Run(t, in).InstanceId
	before, was := l.Machines.Spec(id), l.Instance(t, id)
	l.Machines.Reboot(id)
	cloudtest.Eventually(t, "the reboot", func() bool { return l.Machines.Running(id) })
	if after := l.Machines.Spec(id); after.Netns != before.Netns || after.Hostname != before.Hostname {
		t.Errorf("booted again as %+v, before %+v", after, before)
	}
	if i := l.Instance(t, id); i.State.Name != types.InstanceStateNameRunning || aws.ToString(i.PublicIpAddress) != aws.ToString(was.PublicIpAddress) || *i.PrivateIpAddress != *was.PrivateIpAddress {
		t.Errorf("after a reboot from inside: %+v", i)
	}
	l.Machines.SetFail(errors.New("no such file"))
	l.Machines.Reboot(id)
	l.Await(t, id, types.InstanceStateNameStopped) // one that does not boot any more
}

func TestFailedLaunch(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	l.Machines.SetFail(errors.New("no such file"))
	id := *cloudtest.Must[*awsec2.RunInstancesOutput](t)(l.RunInstances(t.Context(), s.RunInput())).Instances[0].InstanceId
	if i := l.Await(t, id, types.InstanceStateNameTerminated); !strings.HasPrefix(*i.StateReason.Message, "Server.InternalError: booting instance "+id) {
		t.Errorf("the reason is %s", *i.StateReason.Message)
	}
	l.Machines.SetFail(nil)
	id = *l.Run(t, s.RunInput()).InstanceId
	cloudtest.Must[*awsec2.StopInstancesOutput](t)(l.StopInstances(t.Context(), &awsec2.StopInstancesInput{InstanceIds: []string{id}}))
	l.Await(t, id, types.InstanceStateNameStopped)
	l.Machines.SetFail(errors.New("no such file"))
	cloudtest.Must[*awsec2.StartInstancesOutput](t)(l.StartInstances(t.Context(), &awsec2.StartInstancesInput{InstanceIds: []string{id}}))
	l.Await(t, id, types.InstanceStateNameStopped) // an instance that has run before is not terminated
}
