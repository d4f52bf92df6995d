package ec2_test

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
)

// TestFaultZone checks what the network, the status checks and launches make of a zone that is cut off.
// The network's own tests show what becomes of packets.
func TestFaultZone(t *testing.T) {
	l := cloudtest.New(t, func(l *cloudtest.Lab) { l.Quotas = ec2.Quotas{VCPUs: 100} })
	s := l.NewSite(t) // in us-east-1a
	ctx := t.Context()
	b := cloudtest.Must[*awsec2.CreateSubnetOutput](t)(l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: &s.VPC, CidrBlock: aws.String("10.240.1.0/24"), AvailabilityZone: aws.String("us-east-1b")})).Subnet.SubnetId
	inB := s
	inB.Subnet = *b
	gone, stays, stopped := *l.Run(t, s.RunInput()).InstanceId, *l.Run(t, inB.RunInput()).InstanceId, *l.Run(t, s.RunInput()).InstanceId
	cloudtest.Must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{stopped}}))
	l.Await(t, stopped, types.InstanceStateNameStopped)
	newNATGateway(t, l, s.Subnet)
	for _, id := range []string{gone, stays} {
		mac, err := net.ParseMAC(*l.Instance(t, id).NetworkInterfaces[0].MacAddress)
		if err != nil {
			t.Fatal(err)
		}
		l.Account.Instances().AddressLeased(s.VPC, mac)
	}
	l.Clock.Advance(time.Minute)

	status := func(id string) types.SummaryStatus {
		out := cloudtest.Must[*awsec2.DescribeInstanceStatusOutput](t)(l.DescribeInstanceStatus(t.Context(), &awsec2.DescribeInstanceStatusInput{InstanceIds: []string{id}}))
		if out.InstanceStatuses[0].SystemStatus.Status != out.InstanceStatuses[0].InstanceStatus.Status {
			t.Errorf("%s: the checks differ", id)
		}
		return out.InstanceStatuses[0].InstanceStatus.Status
	}
	if n := cutIn(t, l, s.VPC); n != [2]int{} || status(gone) != types.SummaryStatusOk {
		t.Fatalf("before: %d cut, %s", n, status(gone))
	}
	l.Fault(t, cloudtest.Fields{"kind": "zone", "zone": "us-east-1a"})
	if n := cutIn(t, l, s.VPC); n != [2]int{3, 0} { // two instances, the NAT gateway
		t.Errorf("%d interfaces are cut off", n)
	}
	l.Clock.Advance(time.Minute - time.Second)
	if got := status(gone); got != types.SummaryStatusOk {
		t.Errorf("the status is %s before a check can have failed", got)
	}
	l.Clock.Advance(time.Second)
	if status(gone) != types.SummaryStatusImpaired || status(stays) != types.SummaryStatusOk {
		t.Errorf("status checks: %s in the zone, %s elsewhere", status(gone), status(stays))
	}
	if i := l.Instance(t, gone); i.State.Name != types.InstanceStateNameRunning || !l.Machines.Running(gone) {
		t.Errorf("it is %s", i.State.Name)
	}
	_, err := l.RunInstances(ctx, s.RunInput())
	cloudtest.Refused(t, err, "InsufficientInstanceCapacity")
	_, err = l.StartInstances(ctx, &awsec2.StartInstancesInput{InstanceIds: []string{stopped}})
	cloudtest.Refused(t, err, "InsufficientInstanceCapacity")
	l.Run(t, inB.RunInput())

	l.Control(t, http.MethodDelete, "/_lab/faults", nil, nil)
	if n := cutIn(t, l, s.VPC); n != [2]int{} || status(gone) != types.SummaryStatusOk {
		t.Errorf("cleared: %d cut, %s", n, status(gone))
	}
	cloudtest.Must[*awsec2.StartInstancesOutput](t)(l.StartInstances(ctx, &awsec2.StartInstancesInput{InstanceIds: []string{stopped}}))

	var f struct{ ID int }
	l.Control(t, http.MethodPost, "/_lab/faults", cloudtest.Fields{"kind": "zone", "zone": "us-east-1b"}, &f)
	if n := cutIn(t, l, s.VPC); n != [2]int{0, 2} {
		t.Errorf("the other zone: %d are cut off", n)
	}
	if got := l.Control(t, http.MethodDelete, "/_lab/faults/2", nil, nil); got != http.StatusNoContent || f.ID != 2 || cutIn(t, l, s.VPC) != [2]int{} {
		t.Errorf("removing fault %d: status %d", f.ID, got)
	}
	for _, bad := range []cloudtest.Fields{{}, {"zone": "us-east-1z"}, {"zone": "*"}, {"zone": "us-east-1a", "count": 1}, {"zone": "us-east-1a", "action": "RunInstances"}} {
		bad["kind"] = "zone"
		if got := l.Control(t, http.MethodPost, "/_lab/faults", bad, nil); got != http.StatusBadRequest {
			t.Errorf("the fault %v got status %d", bad, got)
		}
	}
}

// cutIn returns how many interfaces of the site's subnet are cut off, and how many others.
func cutIn(t *testing.T, l *cloudtest.Lab, vpc string) (n [2]int) {
	t.Helper()
	for _, i := range l.Network.VPC(t, vpc).Interfaces {
		switch {
		case i.Cut && strings.HasPrefix(i.PrivateIP.String(), "10.240.0."):
			n[0]++
		case i.Cut:
			n[1]++
		}
	}
	return n
}
