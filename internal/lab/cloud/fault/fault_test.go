package fault_test

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

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

func TestFaultThrottle(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	describe := func() string {
		_, err := l.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{})
		return cloudtest.Code(err)
	}
	l.Fault(t, cloudtest.Fields{"kind": "throttle", "action": "Describe*", "every": 3})
	for n, want := range []string{"", "", "RequestLimitExceeded", "", "", "RequestLimitExceeded"} {
		if got := describe(); got != want {
			t.Errorf("call %d got %q, want %q", n, got, want)
		}
	}
	l.Control(t, http.MethodDelete, "/_lab/faults", nil, nil)
	l.Fault(t, cloudtest.Fields{"kind": "throttle", "fraction": 0.5, "count": 2})
	throttled := 0
	for range 40 {
		if describe() == "RequestLimitExceeded" {
			throttled++
		}
	}
	if throttled != 2 {
		t.Errorf("a fault that counts to 2 struck %d times", throttled)
	}
	l.Fault(t, cloudtest.Fields{"kind": "throttle", "fraction": 1})
	_, err := l.SSM.GetParameter(ctx, &awsssm.GetParameterInput{Name: aws.String("/x")})
	cloudtest.Refused(t, err, "ThrottlingException")

	// The SDK's retries overcome occasional throttling.
	l.Control(t, http.MethodDelete, "/_lab/faults", nil, nil)
	l.Fault(t, cloudtest.Fields{"kind": "throttle", "every": 2})
	patient := awsec2.NewFromConfig(l.AWS, func(o *awsec2.Options) { o.HTTPSignerV4, o.RetryMaxAttempts = l.Clock, 3 })
	for range 3 {
		if _, err := patient.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{}); err != nil {
			t.Errorf("with retries: %v", err)
		}
	}
}

func TestFaultEventualConsistency(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	l.Fault(t, cloudtest.Fields{"kind": "eventual", "action": "CreateVpc", "calls": 2})
	v := cloudtest.Must[*awsec2.CreateVpcOutput](t)(l.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})).Vpc.VpcId
	use := func() string {
		_, err := l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: v, CidrBlock: aws.String("10.0.0.0/24")})
		return cloudtest.Code(err)
	}
	if got := use(); got != "InvalidVpcID.NotFound" {
		t.Errorf("first use: %q", got)
	}
	_, err := l.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{VpcIds: []string{*v}})
	cloudtest.Refused(t, err, "InvalidVpcID.NotFound")
	if got := use(); got != "" {
		t.Errorf("third use: %q", got)
	}

	l.Control(t, http.MethodDelete, "/_lab/faults", nil, nil)
	l.Fault(t, cloudtest.Fields{"kind": "eventual", "milliseconds": 500})
	v = cloudtest.Must[*awsec2.CreateVpcOutput](t)(l.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})).Vpc.VpcId
	find := func() int {
		return len(cloudtest.Must[*awsec2.DescribeVpcsOutput](t)(l.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{Filters: []types.Filter{cloudtest.Filter("vpc-id", *v)}})).Vpcs)
	}
	l.Clock.Advance(499 * time.Millisecond)
	if find() != 0 {
		t.Error("a listing shows the new VPC at once")
	}
	l.Clock.Advance(time.Millisecond)
	if find() != 1 {
		t.Error("the new VPC does not appear")
	}
}

func TestFaultCapacityAndCodes(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	l.Fault(t, cloudtest.Fields{"kind": "capacity", "count": 2})
	for range 2 {
		_, err := l.RunInstances(ctx, s.RunInput())
		cloudtest.Refused(t, err, "InsufficientInstanceCapacity")
	}
	l.Run(t, s.RunInput())
	l.Fault(t, cloudtest.Fields{"kind": "fail", "action": "AllocateAddress", "code": "AddressLimitExceeded", "count": 1})
	_, err := l.AllocateAddress(ctx, &awsec2.AllocateAddressInput{})
	cloudtest.Refused(t, err, "AddressLimitExceeded")
	cloudtest.Must[*awsec2.AllocateAddressOutput](t)(l.AllocateAddress(ctx, &awsec2.AllocateAddressInput{}))

	for _, bad := range []cloudtest.Fields{{"kind": "flood"}, {"kind": "throttle"}, {"kind": "fail"}, {"kind": "eventual"}, {"kind": "slow-start"}, {"kind": "capacity", "colour": "red"}, {"kind": "throttle", "every": 2, "action": "["}} {
		if got := l.Control(t, http.MethodPost, "/_lab/faults", bad, nil); got != http.StatusBadRequest {
			t.Errorf("the fault %v got status %d", bad, got)
		}
	}
}

func TestFaultSlowStart(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	l.Fault(t, cloudtest.Fields{"kind": "slow-start", "seconds": 20, "count": 1})
	id := *cloudtest.Must[*awsec2.RunInstancesOutput](t)(l.RunInstances(t.Context(), s.RunInput())).Instances[0].InstanceId
	cloudtest.Eventually(t, "the launch waits", func() bool { return l.Clock.Waiting() == 1 })
	if i := l.Instance(t, id); i.State.Name != types.InstanceStateNamePending || l.Machines.Running(id) {
		t.Errorf("while it starts slowly it is %s", i.State.Name)
	}
	if !l.Network.VPC(t, s.VPC).Interfaces[0].Stopped {
		t.Error("the network lets packets through to a machine that is not there")
	}
	l.Clock.Advance(20 * time.Second)
	l.Await(t, id, types.InstanceStateNameRunning)
	if l.Network.VPC(t, s.VPC).Interfaces[0].Stopped {
		t.Error("the network still drops packets to a running instance")
	}
}

func TestFaultFirstBoot(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	boot := func(name string) map[string]string {
		t.Helper()
		in := s.RunInput()
		in.TagSpecifications = cloudtest.Tags(types.ResourceTypeInstance, "Name", name)
		id := *l.Run(t, in).InstanceId
		return l.Machines.Spec(id).Files
	}
	l.Fault(t, cloudtest.Fields{"kind": "boot", "fault": "dpkg-locked", "seconds": 60, "name": "worker-*", "count": 2})
	l.Fault(t, cloudtest.Fields{"kind": "boot", "fault": "apt-lists-locked", "seconds": 5, "name": "worker-1"})
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
	l.Control(t, http.MethodDelete, "/_lab/faults", nil, nil)

	for _, tc := range []struct {
		fault cloudtest.Fields
		file  string
		says  string
	}{
		{cloudtest.Fields{"fault": "dpkg-locked", "seconds": 60}, locked, "hold-lock /etc/systemd/system/sysinit.target.d/k8s-lab-dpkg-locked.conf unattended-upgr 60 /var/lib/dpkg/lock-frontend"},
		{cloudtest.Fields{"fault": "dpkg-locked", "seconds": 60}, "etc/systemd/system/sysinit.target.d/k8s-lab-dpkg-locked.conf", "Wants=k8s-lab-dpkg-locked.service"},
		{cloudtest.Fields{"fault": "dpkg-locked", "seconds": 60}, "usr/lib/k8s-lab/hold-lock", "fcntl.lockf"},
		{cloudtest.Fields{"fault": "apt-lists-locked", "seconds": 1.5}, lists, "apt-get 1.5 /var/lib/apt/lists/lock"},
		{cloudtest.Fields{"fault": "package-half-installed", "package": "socat"}, "etc/systemd/system/k8s-lab-package-half-installed.service", ".conf socat\n"},
		{cloudtest.Fields{"fault": "cloud-init-hangs"}, "etc/systemd/system/cloud-final.service.d/k8s-lab-fault.conf", "exec sleep infinity"},
		{cloudtest.Fields{"fault": "cloud-init-hangs", "seconds": 9}, "etc/systemd/system/cloud-final.service.d/k8s-lab-fault.conf", "exec sleep 9'"},
	} {
		tc.fault["kind"], tc.fault["count"] = "boot", 1
		l.Fault(t, tc.fault)
		if files := boot("x/y"); !strings.Contains(files[tc.file], tc.says) {
			t.Errorf("%v: %s is %q, want %q in it", tc.fault, tc.file, files[tc.file], tc.says)
		}
	}
	for _, bad := range []cloudtest.Fields{
		{}, {"fault": "fire"}, {"fault": "dpkg-locked"}, {"fault": "package-half-installed"}, {"fault": "package-half-installed", "package": "; reboot"},
		{"fault": "cloud-init-hangs", "seconds": -1}, {"fault": "cloud-init-hangs", "name": "["},
	} {
		bad["kind"] = "boot"
		if got := l.Control(t, http.MethodPost, "/_lab/faults", bad, nil); got != http.StatusBadRequest {
			t.Errorf("the fault %v got status %d", bad, got)
		}
	}
}

func TestFaultFirstBootAlone(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	id := *l.Run(t, s.RunInput()).InstanceId
	cloudtest.Must[*awsec2.StopInstancesOutput](t)(l.StopInstances(t.Context(), &awsec2.StopInstancesInput{InstanceIds: []string{id}}))
	l.Await(t, id, types.InstanceStateNameStopped)
	l.Fault(t, cloudtest.Fields{"kind": "boot", "fault": "cloud-init-hangs", "count": 1})
	cloudtest.Must[*awsec2.StartInstancesOutput](t)(l.StartInstances(t.Context(), &awsec2.StartInstancesInput{InstanceIds: []string{id}}))
	l.Await(t, id, types.InstanceStateNameRunning)
	if files := l.Machines.Spec(id).Files; len(files) > 0 {
		t.Errorf("an instance that had booted before got %v", files)
	}
}

// TestFaultRoom has room for three instances of a type in a zone.
func TestFaultRoom(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	l.Fault(t, cloudtest.Fields{"kind": "capacity", "instances": 3, "instance_type": "t3.*", "zone": "us-east-1a", "action": "*Instances"})
	run := func(instanceType types.InstanceType, least, most int32) (ids []string, err error) {
		in := s.RunInput()
		in.InstanceType, in.MinCount, in.MaxCount = instanceType, &least, &most
		out, err := l.RunInstances(t.Context(), in)
		if err != nil {
			return nil, err
		}
		for _, i := range out.Instances {
			ids = append(ids, *i.InstanceId)
			l.Await(t, *i.InstanceId, types.InstanceStateNameRunning)
		}
		return ids, nil
	}
	first, err := run(types.InstanceTypeT3Small, 1, 1)
	cloudtest.Refused(t, err, "")
	_, err = run(types.InstanceTypeT3Small, 3, 3)
	cloudtest.Refused(t, err, "InsufficientInstanceCapacity")
	if want := "sufficient t3.small capacity in the Availability Zone you requested (us-east-1a)"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("EC2 says %v, without %q", err, want)
	}
	more, err := run(types.InstanceTypeT3Medium, 1, 5)
	if cloudtest.Refused(t, err, ""); len(more) != 2 {
		t.Errorf("launched %d instances where there is room for 2", len(more))
	}
	_, err = run(types.InstanceTypeT3Small, 1, 1)
	cloudtest.Refused(t, err, "InsufficientInstanceCapacity")
	_, err = run(types.InstanceTypeM5Large, 1, 1)
	cloudtest.Refused(t, err, "") // another family

	// A stopped instance gives its room to others, and then there is none to start it.
	cloudtest.Must[*awsec2.StopInstancesOutput](t)(l.StopInstances(t.Context(), &awsec2.StopInstancesInput{InstanceIds: first}))
	l.Await(t, first[0], types.InstanceStateNameStopped)
	_, err = run(types.InstanceTypeT3Small, 1, 1)
	cloudtest.Refused(t, err, "")
	_, err = l.StartInstances(t.Context(), &awsec2.StartInstancesInput{InstanceIds: first})
	cloudtest.Refused(t, err, "InsufficientInstanceCapacity")
	cloudtest.Must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(t.Context(), &awsec2.TerminateInstancesInput{InstanceIds: more}))
	cloudtest.Must[*awsec2.StartInstancesOutput](t)(l.StartInstances(t.Context(), &awsec2.StartInstancesInput{InstanceIds: first}))

	for _, bad := range []cloudtest.Fields{{"instances": -1}, {"zone": "["}, {"instance_type": "["}, {"count": -1}} {
		bad["kind"] = "capacity"
		if got := l.Control(t, http.MethodPost, "/_lab/faults", bad, nil); got != http.StatusBadRequest {
			t.Errorf("the fault %v got status %d", fmt.Sprint(bad), got)
		}
	}
}

// TestFaultEventualChanges: what existed is shown as it was, and a route to a gateway is refused as long as its
// attachment is not visible.
func TestFaultEventualChanges(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	v := cloudtest.Must[*awsec2.CreateVpcOutput](t)(l.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})).Vpc.VpcId
	subnet := cloudtest.Must[*awsec2.CreateSubnetOutput](t)(l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: v, CidrBlock: aws.String("10.0.0.0/24")})).Subnet.SubnetId
	table := cloudtest.Must[*awsec2.CreateRouteTableOutput](t)(l.CreateRouteTable(ctx, &awsec2.CreateRouteTableInput{VpcId: v})).RouteTable.RouteTableId
	l.Fault(t, cloudtest.Fields{"kind": "eventual", "milliseconds": 500})
	gateway := cloudtest.Must[*awsec2.CreateInternetGatewayOutput](t)(l.CreateInternetGateway(ctx, &awsec2.CreateInternetGatewayInput{})).InternetGateway.InternetGatewayId
	put := func() string {
		_, err := l.CreateRoute(ctx, &awsec2.CreateRouteInput{RouteTableId: table, DestinationCidrBlock: aws.String("0.0.0.0/0"), GatewayId: gateway})
		return cloudtest.Code(err)
	}
	if got := put(); got != "InvalidGatewayID.NotFound" {
		t.Errorf("a route to a gateway that is not known yet: %q", got)
	}
	l.Clock.Advance(time.Second)
	cloudtest.Must[*awsec2.AttachInternetGatewayOutput](t)(l.AttachInternetGateway(ctx, &awsec2.AttachInternetGatewayInput{InternetGatewayId: gateway, VpcId: v}))
	cloudtest.Must[*awsec2.ModifySubnetAttributeOutput](t)(l.ModifySubnetAttribute(ctx, &awsec2.ModifySubnetAttributeInput{SubnetId: subnet, MapPublicIpOnLaunch: &types.AttributeBooleanValue{Value: aws.Bool(true)}}))
	shown := func() (attachments int, public bool, routes int) {
		g := cloudtest.Must[*awsec2.DescribeInternetGatewaysOutput](t)(l.DescribeInternetGateways(ctx, &awsec2.DescribeInternetGatewaysInput{InternetGatewayIds: []string{*gateway}}))
		s := cloudtest.Must[*awsec2.DescribeSubnetsOutput](t)(l.DescribeSubnets(ctx, &awsec2.DescribeSubnetsInput{Filters: []types.Filter{cloudtest.Filter("map-public-ip-on-launch", "true")}}))
		r := cloudtest.Must[*awsec2.DescribeRouteTablesOutput](t)(l.DescribeRouteTables(ctx, &awsec2.DescribeRouteTablesInput{RouteTableIds: []string{*table}}))
		return len(g.InternetGateways[0].Attachments), len(s.Subnets) == 1, len(r.RouteTables[0].Routes)
	}
	if attachments, public, _ := shown(); attachments != 0 || public {
		t.Errorf("changes are shown at once: %d attachments, public %v", attachments, public)
	}
	if got := put(); got != "InvalidParameterValue" {
		t.Errorf("a route to a gateway whose attachment is not visible: %q", got)
	}
	l.Clock.Advance(500 * time.Millisecond)
	if got := put(); got != "" {
		t.Errorf("a route to the gateway: %q", got)
	}
	if attachments, public, routes := shown(); attachments != 1 || !public || routes != 1 {
		t.Errorf("after the time: %d attachments, public %v, %d routes", attachments, public, routes)
	}
	l.Clock.Advance(500 * time.Millisecond)
	if _, _, routes := shown(); routes != 2 {
		t.Errorf("the table has %d routes", routes)
	}
}
