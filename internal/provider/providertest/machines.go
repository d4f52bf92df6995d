package providertest

import (
	"compress/gzip"
	"encoding/base64"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

// HasCredits fails the test unless the machine has the credit option.
func (c Cloud) HasCredits(t *testing.T, machine *Instance, want string) {
	t.Helper()
	out := Answer[*ec2.DescribeInstanceCreditSpecificationsOutput](t)(c.Client.EC2.DescribeInstanceCreditSpecifications(t.Context(),
		&ec2.DescribeInstanceCreditSpecificationsInput{InstanceIds: []string{machine.Get("id").(string)}}))
	if got := sdk.ToString(out.InstanceCreditSpecifications[0].CpuCredits); got != want {
		t.Errorf("the machine has the credit option %s, want %s", got, want)
	}
}

// Pin makes a key the SSH host key of a machine, in its state and in its tags, as if the machine had made it.
func (c Cloud) Pin(t *testing.T, machine *Instance, key string) {
	t.Helper()
	state, err := tftypes.Transform(machine.State, func(p *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
		if last, ok := p.LastStep().(tftypes.AttributeName); ok && last == "host_key" {
			return tftypes.NewValue(tftypes.String, key), nil
		}
		return v, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	machine.State = state
	c.TagHostKey(t, machine, key)
}

// TagHostKey writes an SSH host key into the tags of a machine.
func (c Cloud) TagHostKey(t *testing.T, machine *Instance, key string) {
	t.Helper()
	Answer[*ec2.CreateTagsOutput](t)(c.Client.EC2.CreateTags(t.Context(), &ec2.CreateTagsInput{
		Resources: []string{machine.Get("id").(string)}, Tags: []types.Tag{{Key: sdk.String(infraaws.TagHostKey), Value: &key}},
	}))
}

// Group makes a security group of somebody else in a network's VPC.
func (c Cloud) Group(t *testing.T, network *Instance, name string) string {
	t.Helper()
	out := Answer[*ec2.CreateSecurityGroupOutput](t)(c.Client.EC2.CreateSecurityGroup(t.Context(), &ec2.CreateSecurityGroupInput{
		GroupName: &name, Description: &name, VpcId: sdk.String(network.Get("vpc_id").(string)),
	}))
	return *out.GroupId
}

// HasGroups fails the test unless the machine has exactly these groups beside those of its network.
func (c Cloud) HasGroups(t *testing.T, machine *Instance, further ...string) {
	t.Helper()
	groups := machine.Get("network").(Values)["security_group_ids"].(Values)
	var got []string
	for _, g := range c.Found(t, machine).SecurityGroups {
		got = append(got, *g.GroupId)
	}
	want := append([]string{groups[machine.Get("role").(string)].(string), groups["ssh"].(string)}, further...)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the machine has the groups %q, want %q", got, want)
	}
}

// PlacementGroup makes a placement group of somebody else.
func (c Cloud) PlacementGroup(t *testing.T, name string, strategy types.PlacementStrategy, tags ...types.TagSpecification) {
	t.Helper()
	Answer[*ec2.CreatePlacementGroupOutput](t)(c.Client.EC2.CreatePlacementGroup(t.Context(), &ec2.CreatePlacementGroupInput{GroupName: &name, Strategy: strategy, TagSpecifications: tags}))
}

// IsIn fails the test unless the machine runs in the placement group, in none if name is empty.
func (c Cloud) IsIn(t *testing.T, machine *Instance, name string) {
	t.Helper()
	i := c.Found(t, machine)
	if got := sdk.ToString(i.Placement.GroupName); got != name || i.State.Name != types.InstanceStateNameRunning {
		t.Errorf("the machine is %s in the group %q, want running in %q", i.State.Name, got, name)
	}
}

// Launched launches an instance of somebody else into a placement group.
func (c Cloud) Launched(t *testing.T, subnet, group string) {
	t.Helper()
	out := Answer[*ec2.RunInstancesOutput](t)(c.Client.EC2.RunInstances(t.Context(), &ec2.RunInstancesInput{
		ImageId: sdk.String(account.ImageID), InstanceType: types.InstanceTypeT3Nano, MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1),
		SubnetId: &subnet, Placement: &types.Placement{GroupName: &group},
	}))
	if len(out.Instances) != 1 {
		t.Fatalf("launched %v", out.Instances)
	}
}

// Profile makes an instance profile with a role of the same name.
func (c Cloud) Profile(t *testing.T, name string) { t.Helper(); c.ProfileAt(t, name, "") }

// ProfileAt is Profile with a path of both.
func (c Cloud) ProfileAt(t *testing.T, name, path string) {
	t.Helper()
	if _, err := c.Account.Cloud.Identities().PutRole(name, iam.Entity{Path: path}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Account.Cloud.PutInstanceProfile(name, path, name); err != nil {
		t.Fatal(err)
	}
}

// HasProfile fails the test unless the machine's instance has the profile, none if name is empty.
func (c Cloud) HasProfile(t *testing.T, machine *Instance, name string) {
	t.Helper()
	got := ""
	if p := c.Found(t, machine).IamInstanceProfile; p != nil {
		got = (*p.Arn)[strings.LastIndex(*p.Arn, "/")+1:]
	}
	if got != name {
		t.Errorf("the instance has profile %q, want %q", got, name)
	}
}

// Found returns the machine's instance.
func (c Cloud) Found(t *testing.T, machine *Instance) types.Instance {
	t.Helper()
	out := Answer[*ec2.DescribeInstancesOutput](t)(c.Client.EC2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{machine.Get("id").(string)}}))
	return out.Reservations[0].Instances[0]
}

// Give gives the machine another profile, as somebody else does it. It takes the present one away
// first.
func (c Cloud) Give(t *testing.T, machine *Instance, name string) {
	t.Helper()
	id := machine.Get("id").(string)
	api, filters := c.Client.EC2, &ec2.DescribeIamInstanceProfileAssociationsInput{Filters: []types.Filter{{Name: sdk.String("instance-id"), Values: []string{id}}}}
	for range 2400 {
		all := Answer[*ec2.DescribeIamInstanceProfileAssociationsOutput](t)(api.DescribeIamInstanceProfileAssociations(t.Context(), filters)).IamInstanceProfileAssociations
		if len(all) == 0 {
			break
		}
		if all[0].State == types.IamInstanceProfileAssociationStateAssociated {
			Answer[*ec2.DisassociateIamInstanceProfileOutput](t)(api.DisassociateIamInstanceProfile(t.Context(), &ec2.DisassociateIamInstanceProfileInput{AssociationId: all[0].AssociationId}))
		}
		time.Sleep(50 * time.Millisecond)
	}
	if name != "" {
		Answer[*ec2.AssociateIamInstanceProfileOutput](t)(api.AssociateIamInstanceProfile(t.Context(), &ec2.AssociateIamInstanceProfileInput{
			InstanceId: &id, IamInstanceProfile: &types.IamInstanceProfileSpecification{Name: &name}}))
	}
}

func (c Cloud) Stop(t *testing.T, machine *Instance) {
	t.Helper()
	id := machine.Get("id").(string)
	Answer[*ec2.StopInstancesOutput](t)(c.Client.EC2.StopInstances(t.Context(), &ec2.StopInstancesInput{InstanceIds: []string{id}}))
	for range 2400 {
		if c.Found(t, machine).State.Name == types.InstanceStateNameStopped {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("it does not stop")
}

// KMS keys of the account: that of root volumes, and another one.
const (
	RootKeyID  = "1234abcd-12ab-34cd-56ef-1234567890ab"
	RootKeyARN = "arn:aws:kms:us-east-1:123456789012:key/" + RootKeyID
	OtherKeyID = "00000000-12ab-34cd-56ef-1234567890ab"
)

// RootVolume returns the root volume of a machine.
func (c Cloud) RootVolume(t *testing.T, machine *Instance) types.Volume {
	t.Helper()
	return c.Volume(t, *c.Found(t, machine).BlockDeviceMappings[0].Ebs.VolumeId)
}

// Ended waits until an instance is terminated.
func (c Cloud) Ended(t *testing.T, id string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		gone := true
		for _, i := range c.Account.Cloud.Overview().Instances {
			gone = gone && i.ID != id
		}
		if gone {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not end", id)
		}
	}
}

// stagingScript matches the packed script in user data.
var stagingScript = regexp.MustCompile(`printf %s ([A-Za-z0-9+/=]+) `)

// Staging returns the script that a machine got to stage what its roles will install; empty if it got
// none.
func (c Cloud) Staging(t *testing.T, machine *Instance) string {
	t.Helper()
	// YAML breaks long lines between words.
	found := stagingScript.FindStringSubmatch(strings.Join(strings.Fields(c.UserData(machine)), " "))
	if found == nil {
		return ""
	}
	packed, err := base64.StdEncoding.DecodeString(found[1])
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(strings.NewReader(string(packed)))
	if err != nil {
		t.Fatal(err)
	}
	script, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// UserData returns the user data with which a machine was launched.
func (c Cloud) UserData(machine *Instance) string {
	c.T.Helper()
	out := Answer[*ec2.DescribeInstanceAttributeOutput](c.T)(c.Client.EC2.DescribeInstanceAttribute(c.T.Context(), &ec2.DescribeInstanceAttributeInput{
		InstanceId: sdk.String(machine.Get("id").(string)), Attribute: types.InstanceAttributeNameUserData}))
	raw, err := base64.StdEncoding.DecodeString(*out.UserData.Value)
	if err != nil {
		c.T.Fatal(err)
	}
	return string(raw)
}
