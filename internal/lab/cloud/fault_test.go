package cloud_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"
)

// fields is the body of a request to the control endpoint.
type fields map[string]any

// fault adds a fault.
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

func TestFaultFirstBoot(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	boot := func(name string) map[string]string {
		t.Helper()
		in := s.runInput()
		in.TagSpecifications = tags(types.ResourceTypeInstance, "Name", name)
		id := *l.run(t, in).InstanceId
		return l.machines.spec(id).Files
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
	if files := l.machines.spec(id).Files; len(files) > 0 {
		t.Errorf("an instance that had booted before got %v", files)
	}
}

// TestFaultRoom has room for three instances of a type in a zone.
func TestFaultRoom(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	l.fault(t, fields{"kind": "capacity", "instances": 3, "instance_type": "t3.*", "zone": "us-east-1a", "action": "*Instances"})
	run := func(instanceType types.InstanceType, least, most int32) (ids []string, err error) {
		in := s.runInput()
		in.InstanceType, in.MinCount, in.MaxCount = instanceType, &least, &most
		out, err := l.RunInstances(t.Context(), in)
		if err != nil {
			return nil, err
		}
		for _, i := range out.Instances {
			ids = append(ids, *i.InstanceId)
			l.await(t, *i.InstanceId, types.InstanceStateNameRunning)
		}
		return ids, nil
	}
	first, err := run(types.InstanceTypeT3Small, 1, 1)
	refused(t, err, "")
	_, err = run(types.InstanceTypeT3Small, 3, 3)
	refused(t, err, "InsufficientInstanceCapacity")
	if want := "sufficient t3.small capacity in the Availability Zone you requested (us-east-1a)"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("EC2 says %v, without %q", err, want)
	}
	more, err := run(types.InstanceTypeT3Medium, 1, 5)
	if refused(t, err, ""); len(more) != 2 {
		t.Errorf("launched %d instances where there is room for 2", len(more))
	}
	_, err = run(types.InstanceTypeT3Small, 1, 1)
	refused(t, err, "InsufficientInstanceCapacity")
	_, err = run(types.InstanceTypeM5Large, 1, 1)
	refused(t, err, "") // another family

	// A stopped instance gives its room to others, and then there is none to start it.
	must[*awsec2.StopInstancesOutput](t)(l.StopInstances(t.Context(), &awsec2.StopInstancesInput{InstanceIds: first}))
	l.await(t, first[0], types.InstanceStateNameStopped)
	_, err = run(types.InstanceTypeT3Small, 1, 1)
	refused(t, err, "")
	_, err = l.StartInstances(t.Context(), &awsec2.StartInstancesInput{InstanceIds: first})
	refused(t, err, "InsufficientInstanceCapacity")
	must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(t.Context(), &awsec2.TerminateInstancesInput{InstanceIds: more}))
	must[*awsec2.StartInstancesOutput](t)(l.StartInstances(t.Context(), &awsec2.StartInstancesInput{InstanceIds: first}))

	for _, bad := range []fields{{"instances": -1}, {"zone": "["}, {"instance_type": "["}, {"count": -1}} {
		bad["kind"] = "capacity"
		if got := l.control(t, http.MethodPost, "/_lab/faults", bad, nil); got != http.StatusBadRequest {
			t.Errorf("the fault %v got status %d", fmt.Sprint(bad), got)
		}
	}
}
