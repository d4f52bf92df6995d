package cloud_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"
)

type fields map[string]any

func (l *lab) fault(t *testing.T, f fields) {
	t.Helper()
	if got := l.control(t, http.MethodPost, "/_lab/faults", f, nil); got >= 300 {
		t.Fatalf("the fault %v got status %d", f, got)
	}
}

func TestFaultThrottle(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	describe := func() string {
		_, err := l.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{})
		return code(err)
	}
	l.fault(t, fields{"kind": "throttle", "action": "Describe*", "every": 3})
	for n, want := range []string{"", "", "RequestLimitExceeded", "", "", "RequestLimitExceeded"} {
		if got := describe(); got != want {
			t.Errorf("call %d got %q, want %q", n, got, want)
		}
	}
	l.control(t, http.MethodDelete, "/_lab/faults", nil, nil)
	l.fault(t, fields{"kind": "throttle", "fraction": 0.5, "count": 2})
	throttled := 0
	for range 40 {
		if describe() == "RequestLimitExceeded" {
			throttled++
		}
	}
	if throttled != 2 {
		t.Errorf("a fault that counts to 2 struck %d times", throttled)
	}
	l.fault(t, fields{"kind": "throttle", "fraction": 1})
	_, err := l.ssm.GetParameter(ctx, &awsssm.GetParameterInput{Name: aws.String("/x")})
	refused(t, err, "ThrottlingException")

	// The SDK's retries overcome occasional throttling.
	l.control(t, http.MethodDelete, "/_lab/faults", nil, nil)
	l.fault(t, fields{"kind": "throttle", "every": 2})
	patient := awsec2.NewFromConfig(l.aws, func(o *awsec2.Options) { o.HTTPSignerV4, o.RetryMaxAttempts = l.clock, 3 })
	for range 3 {
		if _, err := patient.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{}); err != nil {
			t.Errorf("with retries: %v", err)
		}
	}
}

func TestFaultEventualConsistency(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	l.fault(t, fields{"kind": "eventual", "action": "CreateVpc", "calls": 2})
	v := must[*awsec2.CreateVpcOutput](t)(l.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})).Vpc.VpcId
	use := func() string {
		_, err := l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: v, CidrBlock: aws.String("10.0.0.0/24")})
		return code(err)
	}
	if got := use(); got != "InvalidVpcID.NotFound" {
		t.Errorf("first use: %q", got)
	}
	_, err := l.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{VpcIds: []string{*v}})
	refused(t, err, "InvalidVpcID.NotFound")
	if got := use(); got != "" {
		t.Errorf("third use: %q", got)
	}

	l.control(t, http.MethodDelete, "/_lab/faults", nil, nil)
	l.fault(t, fields{"kind": "eventual", "milliseconds": 500})
	v = must[*awsec2.CreateVpcOutput](t)(l.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})).Vpc.VpcId
	find := func() int {
		return len(must[*awsec2.DescribeVpcsOutput](t)(l.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{Filters: []types.Filter{filter("vpc-id", *v)}})).Vpcs)
	}
	l.clock.advance(499 * time.Millisecond)
	if find() != 0 {
		t.Error("a listing shows the new VPC at once")
	}
	l.clock.advance(time.Millisecond)
	if find() != 1 {
		t.Error("the new VPC does not appear")
	}
}

func TestFaultCapacityAndCodes(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	ctx := t.Context()
	l.fault(t, fields{"kind": "capacity", "count": 2})
	for range 2 {
		_, err := l.RunInstances(ctx, s.runInput())
		refused(t, err, "InsufficientInstanceCapacity")
	}
	l.run(t, s.runInput())
	l.fault(t, fields{"kind": "fail", "action": "AllocateAddress", "code": "AddressLimitExceeded", "count": 1})
	_, err := l.AllocateAddress(ctx, &awsec2.AllocateAddressInput{})
	refused(t, err, "AddressLimitExceeded")
	must[*awsec2.AllocateAddressOutput](t)(l.AllocateAddress(ctx, &awsec2.AllocateAddressInput{}))

	for _, bad := range []fields{{"kind": "flood"}, {"kind": "throttle"}, {"kind": "fail"}, {"kind": "eventual"}, {"kind": "slow-start"}, {"kind": "capacity", "colour": "red"}, {"kind": "throttle", "every": 2, "action": "["}} {
		if got := l.control(t, http.MethodPost, "/_lab/faults", bad, nil); got != http.StatusBadRequest {
			t.Errorf("the fault %v got status %d", bad, got)
		}
	}
}

func TestFaultSlowStart(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	l.fault(t, fields{"kind": "slow-start", "seconds": 20, "count": 1})
	id := *must[*awsec2.RunInstancesOutput](t)(l.RunInstances(t.Context(), s.runInput())).Instances[0].InstanceId
	eventually(t, "the launch waits", func() bool { return l.clock.waiting() == 1 })
	if i := l.instance(t, id); i.State.Name != types.InstanceStateNamePending || l.machines.Running(id) {
		t.Errorf("while it starts slowly it is %s", i.State.Name)
	}
	if !l.network.vpc(t, s.vpc).Interfaces[0].Stopped {
		t.Error("the network lets packets through to a machine that is not there")
	}
	l.clock.advance(20 * time.Second)
	l.await(t, id, types.InstanceStateNameRunning)
	if l.network.vpc(t, s.vpc).Interfaces[0].Stopped {
		t.Error("the network still drops packets to a running instance")
	}
}

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

func TestControlEndpoint(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	l.run(t, s.runInput())
	var state struct {
		Instances []struct{ ID, State string }
		VPCs      []struct{ ID string } `json:"vpcs"`
		Total     int
	}
	l.control(t, http.MethodGet, "/_lab/state", nil, &state)
	if len(state.Instances) != 1 || state.Instances[0].State != "running" || len(state.VPCs) != 1 || state.Total < 8 {
		t.Errorf("state: %+v", state)
	}
	calls := func() map[string]int {
		got := map[string]int{}
		l.control(t, http.MethodGet, "/_lab/calls", nil, &got)
		return got
	}
	if got := calls(); got["RunInstances"] != 1 || got["CreateVpc"] != 1 {
		t.Errorf("calls: %v", got)
	}
	l.control(t, http.MethodPost, "/_lab/reset-calls", nil, nil)
	if got := calls(); len(got) != 0 {
		t.Errorf("calls after a reset: %v", got)
	}
	var faults []struct{ ID int }
	l.fault(t, fields{"kind": "capacity"})
	l.control(t, http.MethodGet, "/_lab/faults", nil, &faults)
	if len(faults) != 1 || l.control(t, http.MethodDelete, "/_lab/faults/1", nil, nil) != http.StatusNoContent || l.control(t, http.MethodDelete, "/_lab/faults/1", nil, nil) != http.StatusNotFound {
		t.Errorf("faults: %+v", faults)
	}
}

func TestFaultFirstBoot(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	boot := func(name string) map[string]string {
		t.Helper()
		in := s.runInput()
		in.TagSpecifications = tags(types.ResourceTypeInstance, "Name", name)
		id := *l.run(t, in).InstanceId
		l.machines.mu.Lock()
		defer l.machines.mu.Unlock()
		return l.machines.running[id].Files
	}
	l.fault(t, fields{"kind": "boot", "fault": "dpkg-locked", "seconds": 60, "name": "worker-*", "count": 2})
	l.fault(t, fields{"kind": "boot", "fault": "apt-lists-locked", "seconds": 5, "name": "worker-1"})
	const locked, lists = "etc/systemd/system/k8s-lab-dpkg-locked.service", "etc/systemd/system/k8s-lab-apt-lists-locked.service"
	for _, tc := range []struct {
		name          string
		locked, lists bool
	}{{"controller-0", false, false}, {"worker-0", true, false}, {"worker-1", true, true}, {"worker-2", false, false}} {
		files := boot(tc.name)
		if (files[locked] != "") != tc.locked || (files[lists] != "") != tc.lists {
			t.Errorf("%s boots with %v", tc.name, files)
		}
	}
	l.control(t, http.MethodDelete, "/_lab/faults", nil, nil)

	for _, tc := range []struct {
		fault fields
		file  string
		says  string
	}{
		{fields{"fault": "dpkg-locked", "seconds": 60}, locked, "hold-lock /etc/systemd/system/sysinit.target.d/k8s-lab-dpkg-locked.conf unattended-upgr 60 /var/lib/dpkg/lock-frontend"},
		{fields{"fault": "dpkg-locked", "seconds": 60}, "etc/systemd/system/sysinit.target.d/k8s-lab-dpkg-locked.conf", "Wants=k8s-lab-dpkg-locked.service"},
		{fields{"fault": "dpkg-locked", "seconds": 60}, "usr/lib/k8s-lab/hold-lock", "fcntl.lockf"},
		{fields{"fault": "apt-lists-locked", "seconds": 1.5}, lists, "apt-get 1.5 /var/lib/apt/lists/lock"},
		{fields{"fault": "package-half-installed", "package": "socat"}, "etc/systemd/system/k8s-lab-package-half-installed.service", ".conf socat\n"},
		{fields{"fault": "cloud-init-hangs"}, "etc/systemd/system/cloud-final.service.d/k8s-lab-fault.conf", "exec sleep infinity"},
		{fields{"fault": "cloud-init-hangs", "seconds": 9}, "etc/systemd/system/cloud-final.service.d/k8s-lab-fault.conf", "exec sleep 9'"},
	} {
		tc.fault["kind"], tc.fault["count"] = "boot", 1
		l.fault(t, tc.fault)
		if files := boot("x/y"); !strings.Contains(files[tc.file], tc.says) {
			t.Errorf("%v: %s is %q, want %q in it", tc.fault, tc.file, files[tc.file], tc.says)
		}
	}
	for _, bad := range []fields{
		{}, {"fault": "fire"}, {"fault": "dpkg-locked"}, {"fault": "package-half-installed"}, {"fault": "package-half-installed", "package": "; reboot"},
		{"fault": "cloud-init-hangs", "seconds": -1}, {"fault": "cloud-init-hangs", "name": "["},
	} {
		bad["kind"] = "boot"
		if got := l.control(t, http.MethodPost, "/_lab/faults", bad, nil); got != http.StatusBadRequest {
			t.Errorf("the fault %v got status %d", bad, got)
		}
	}
}

func TestFaultFirstBootAlone(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	id := *l.run(t, s.runInput()).InstanceId
	must[*awsec2.StopInstancesOutput](t)(l.StopInstances(t.Context(), &awsec2.StopInstancesInput{InstanceIds: []string{id}}))
	l.await(t, id, types.InstanceStateNameStopped)
	l.fault(t, fields{"kind": "boot", "fault": "cloud-init-hangs", "count": 1})
	must[*awsec2.StartInstancesOutput](t)(l.StartInstances(t.Context(), &awsec2.StartInstancesInput{InstanceIds: []string{id}}))
	l.await(t, id, types.InstanceStateNameRunning)
	l.machines.mu.Lock()
	defer l.machines.mu.Unlock()
	if files := l.machines.running[id].Files; len(files) > 0 {
		t.Errorf("an instance that had booted before got %v", files)
	}
}
