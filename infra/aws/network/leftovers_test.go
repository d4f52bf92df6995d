package network

import (
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// TestFindUses: a load balancer of the leftovers frees its group, and any other keeps it in use. A Classic Load Balancer is named,
// in an adopted VPC only if it is in a group that is to be deleted.
func TestFindUses(t *testing.T) {
	t.Parallel()
	of := func(group string) types.SecurityGroup { return types.SecurityGroup{GroupId: &group} }
	nic := func(about string, managed bool, groups ...string) (out types.NetworkInterface) {
		out = types.NetworkInterface{NetworkInterfaceId: sdk.String("eni-1"), Description: &about, RequesterManaged: &managed}
		for _, g := range groups {
			out.Groups = append(out.Groups, types.GroupIdentifier{GroupId: &g})
		}
		return out
	}
	for _, tt := range []struct {
		name    string
		adopted bool
		nic     types.NetworkInterface
		wanted  string // of the errors, about the only finding
	}{
		{"balancer of the leftovers", false, nic("ELB net/web/0a1b", true, "sg-left"), ""},
		{"another balancer", false, nic("ELB app/other/0a1b", true, "sg-left"), "security group sg-left (used by network interface eni-1 (ELB app/other/0a1b))"},
		{"other group", false, nic("", false, "sg-other"), ""},
		{"a person's description", false, nic("ELB web", false, "sg-other"), ""},
		{"classic", false, nic("ELB web", true, "sg-other"), "Classic Load Balancer web (delete it first)"},
		{"classic, elsewhere in an adopted VPC", true, nic("ELB web", true, "sg-other"), ""},
		{"classic, in an own group of an adopted VPC", true, nic("ELB web", true, "sg-own"), "Classic Load Balancer web (delete it first)"},
	} {
		l := leftovers{groups: []types.SecurityGroup{of("sg-left")}, balancers: []elbtypes.LoadBalancer{
			{LoadBalancerArn: sdk.String("arn:aws:elasticloadbalancing:us-east-1:123456789012:loadbalancer/net/web/0a1b")}}}
		s := snapshot{adopted: tt.adopted}
		own := of("sg-own")
		s.groups = map[aws.MachineRole]types.SecurityGroup{"worker": own}
		l.findUses(s, []types.SecurityGroup{of("sg-left"), own, of("sg-other")}, []types.NetworkInterface{tt.nic}, nil)
		got := ""
		for _, found := range l.all() {
			if found.Use != "" {
				got += found.String()
			}
		}
		if got != tt.wanted {
			t.Errorf("%s: found %q, wanted %q", tt.name, got, tt.wanted)
		}
	}
}

// TestOurs: a volume with the cluster's name is of another tool's cluster if it is older than the network, or attached elsewhere.
func TestOurs(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	volume := func(zone string, made time.Time, instances ...string) (out types.Volume) {
		out = types.Volume{AvailabilityZone: &zone, CreateTime: &made}
		for _, i := range instances {
			out.Attachments = append(out.Attachments, types.VolumeAttachment{InstanceId: &i})
		}
		return out
	}
	s := snapshot{subnets: []types.Subnet{{AvailabilityZone: sdk.String("us-east-1a")}}}
	for name, tt := range map[string]struct {
		volume types.Volume
		wanted bool
	}{
		"detached":                      {volume("us-east-1a", at), true},
		"attached to an instance of it": {volume("us-east-1a", at.Add(time.Hour), "i-in"), true},
		"attached outside the VPC":      {volume("us-east-1a", at.Add(time.Hour), "i-out"), false},
		"attached to both":              {volume("us-east-1a", at.Add(time.Hour), "i-in", "i-out"), false},
		"older than the network":        {volume("us-east-1a", at.Add(-time.Second)), false},
		"in another zone":               {volume("us-east-1b", at), false},
	} {
		if got := ours(tt.volume, Spec{Claim: aws.Claim{At: at}}, s, map[string]types.Instance{"i-in": {}}); got != tt.wanted {
			t.Errorf("%s: ours is %t", name, got)
		}
	}
}
