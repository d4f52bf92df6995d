package machines_test

import (
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestImageInDefaultVPC: without a network and a subnet an image is made in the default VPC, under the policies of examples/iam. A mistake
// is an error on its attribute before anything is made.
func TestImageInDefaultVPC(t *testing.T) {
	t.Parallel()
	c := providertest.NewImageCloud(t)
	site := providertest.NewSite(t, c)
	elsewhere := *providertest.Answer[*ec2.CreateSecurityGroupOutput](t)(c.Client.EC2.CreateSecurityGroup(t.Context(), &ec2.CreateSecurityGroupInput{
		GroupName: sdk.String("builders"), Description: sdk.String("builders"), VpcId: &site.Vpc})).GroupId
	user := providertest.Answer[iam.User](t)(c.Account.Cloud.Identities().PutUser("terraform", iam.Entity{Policies: []string{
		providertest.ReadPolicy(t, "everyday.json").Without(""), providertest.ReadPolicy(t, "image.json").Without("")}}))
	c.More = providertest.With(c.More, providertest.Values{"access_key": user.AccessKeyID, "secret_key": user.SecretAccessKey})
	made := c.Process(t).Instance("k8s_image")
	config := func(group string) providertest.Values {
		return providertest.Values{"name": "node", "roles": []any{"lb"}, "security_group_ids": []any{group}}
	}
	refused := func(config providertest.Values, attribute, want string) {
		t.Helper()
		before := len(launchedIn(t, c))
		if failure := made.Attempt(config); !strings.HasPrefix(failure, `"`+attribute+`"`) || !strings.Contains(failure, want) {
			t.Errorf("wanted %s: %s: %s", attribute, want, failure)
		}
		if n := len(launchedIn(t, c)) - before; n != 0 {
			t.Errorf("%d instances were launched", n)
		}
	}
	refused(config(elsewhere), "subnet_id", "has no default VPC")
	v := providertest.NewDefaultVPC(t, c.Client.EC2)
	refused(config(elsewhere), "security_group_ids", "subnet_id can name a subnet of the groups' VPC")
	in := providertest.With(config(elsewhere), providertest.Values{"subnet_id": v.Subnets["b"]})
	refused(in, "security_group_ids", v.Subnets["b"]+" belong to different networks")
	right := v.Image() // the machine cannot be in another VPC than its group
	made.Must(right)
	made.Converged(right)
	c.Fatal(made.Apply(made.Plan(nil)))
	if o := c.Account.Cloud.Overview(); len(o.Instances)+len(o.Images)+len(o.Snapshots) != 0 {
		t.Errorf("left %+v", o)
	}
	v.Without(t, "a", "b", "c", "e")
	refused(right, "subnet_id", "the default VPC "+v.ID+" has no default subnet with free addresses")
}

// launchedIn returns the zones in which instances were launched, by their letters.
func launchedIn(t *testing.T, c providertest.Cloud) (zones []string) {
	t.Helper()
	for _, r := range providertest.Answer[*ec2.DescribeInstancesOutput](t)(c.Client.EC2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{})).Reservations {
		for _, i := range r.Instances {
			zones = append(zones, strings.TrimPrefix(*i.Placement.AvailabilityZone, "us-east-1"))
		}
	}
	return zones
}

// TestImageSubnet: the machine is in the first default subnet whose zone offers its type. In zone c there is no t3.
func TestImageSubnet(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		without []string
		want    string
	}{{nil, "a"}, {[]string{"a"}, "b"}, {[]string{"a", "b"}, "e"}} {
		c := providertest.NewImageCloud(t)
		v := providertest.NewDefaultVPC(t, c.Client.EC2)
		v.Without(t, tt.without...)
		c.Instance("k8s_image").Must(v.Image())
		if got := launchedIn(t, c); len(got) != 1 || got[0] != tt.want {
			t.Errorf("without subnets in %v it is launched in %v, wanted %s", tt.without, got, tt.want)
		}
	}
}

// TestImageWithoutRoom: where a zone has no room for the machine, the error says that another subnet can be named if none is.
func TestImageWithoutRoom(t *testing.T) {
	t.Parallel()
	c := providertest.NewImageCloud(t)
	v := providertest.NewDefaultVPC(t, c.Client.EC2)
	c.Account.Fault(fault.Fault{Kind: fault.Capacity, Zone: "us-east-1a"})
	made, advice := c.Instance("k8s_image"), "subnet_id can name a subnet of another zone"
	if got := made.Attempt(v.Image()); !strings.Contains(got, "InsufficientInstanceCapacity") || !strings.Contains(got, advice) {
		t.Error(got)
	}
	if got := made.Attempt(providertest.With(v.Image(), providertest.Values{"subnet_id": v.Subnets["a"]})); !strings.Contains(got, "InsufficientInstanceCapacity") || strings.Contains(got, advice) {
		t.Error(got)
	}
	made.Must(providertest.With(v.Image(), providertest.Values{"subnet_id": v.Subnets["b"]}))
}

// TestImageContinued: the machine that an interrupted run has left becomes the image, also where another default subnet would be chosen now.
func TestImageContinued(t *testing.T) {
	t.Parallel()
	for _, last := range []string{"RunInstances", "CreateImage"} { // it runs, or it is sealed and stopped
		k := &providertest.Killed{T: t, Cloud: providertest.NewImageCloud(t)}
		v := providertest.NewDefaultVPC(t, k.Cloud.Client.EC2)
		k.Object = k.Cloud.Instance("k8s_image")
		k.Cloud.Wire.DieOn = last
		k.Die(k.Cloud.Wire.Arm(t.Context(), 0, last == "RunInstances"), k.Object.Plan(providertest.With(v.Image(), providertest.Values{"subnet_id": v.Subnets["b"]})))
		c := k.Cloud.Process(t)
		c.Account.ForgetCalls()
		c.Instance("k8s_image").Must(v.Image())
		if got := launchedIn(t, c); len(got) != 1 || got[0] != "b" {
			t.Errorf("after %s: launched in %v", last, got)
		}
		if calls := c.Account.Calls(); last == "CreateImage" && calls["DescribeSubnets"] != 0 {
			t.Errorf("after %s: a subnet was chosen: %v", last, calls)
		}
	}
}

// TestImageWayOut: the plan of an image warns of a machine that would be in a default subnet without a public address.
func TestImageWayOut(t *testing.T) {
	t.Parallel()
	c := providertest.NewImageCloud(t)
	made, config := c.Instance("k8s_image"), providertest.Values{"name": "node", "roles": []any{"lb"}, "security_group_ids": []any{"sg-0123456789abcdef0"}}
	for _, tt := range []struct {
		more providertest.Values
		warn bool
	}{
		{nil, false},
		{providertest.Values{"associate_public_ip_address": false}, true},
		{providertest.Values{"associate_public_ip_address": false, "subnet_id": "subnet-0123456789abcdef0"}, false},
	} {
		if got := providertest.Warnings(made.Plan(providertest.With(config, tt.more))); strings.Contains(got, "no NAT gateway") != tt.warn {
			t.Errorf("%v: %q", tt.more, got)
		}
	}
}
