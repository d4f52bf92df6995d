package awstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/image"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
)

// imageSpec is that of an image with a claim that a process, which has the given letter, has made.
func imageSpec(process string) image.Spec {
	return image.Spec{
		Cluster: "demo", Name: "node", Content: strings.Repeat("0123456789abcdef", 4), Versions: "kubernetes 1.36.4, etcd 3.6.16",
		Tags: map[string]string{"room": "12"}, Claim: infraaws.NewClaim(process+"run-1", "arn:aws:iam::123456789012:user/"+process, time.Now()),
	}
}

// stopped launches instances from an image, with an encrypted root volume, and stops the first one.
func stopped(ctx context.Context, t *testing.T, c *infraaws.Client, ami string, n int32) []string {
	t.Helper()
	vpc, err := c.EC2.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: sdk.String("10.1.0.0/16")})
	if err != nil {
		t.Fatal(err)
	}
	subnet, err := c.EC2.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: vpc.Vpc.VpcId, CidrBlock: sdk.String("10.1.0.0/24"), AvailabilityZone: sdk.String("us-east-1a")})
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.EC2.RunInstances(ctx, &ec2.RunInstancesInput{
		ImageId: &ami, InstanceType: types.InstanceTypeT3Small, MinCount: &n, MaxCount: &n, SubnetId: subnet.Subnet.SubnetId,
		BlockDeviceMappings: []types.BlockDeviceMapping{{DeviceName: sdk.String("/dev/xvda"), Ebs: &types.EbsBlockDevice{Encrypted: sdk.Bool(true)}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, i := range out.Instances {
		ids = append(ids, *i.InstanceId)
		if _, err := c.AwaitState(ctx, *i.InstanceId, types.InstanceStateNameRunning); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.EC2.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: ids[:1]}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AwaitState(ctx, ids[0], types.InstanceStateNameStopped); err != nil {
		t.Fatal(err)
	}
	return ids
}

func from(instance string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return instance, nil }
}

func settled(ctx context.Context, t *testing.T, c *infraaws.Client, spec image.Spec, i image.Image) {
	t.Helper()
	if err := c.Settle(ctx, spec.Claim, i.Unsettled, time.Now()); err != nil {
		t.Fatal(err)
	}
}

// hasImages fails the test unless the account has so many images, and as many snapshots.
func (a lab) hasImages(n int) {
	a.t.Helper()
	if o := a.Cloud.Overview(); len(o.Images) != n || len(o.Snapshots) != n {
		a.t.Errorf("%d images and %d snapshots, wanted %d: %+v", len(o.Images), len(o.Snapshots), n, o.Images)
	}
}

// TestImage makes an image, finds what differs, replaces it while it is in use, and deletes all of it.
func TestImage(t *testing.T) {
	t.Parallel()
	a, ctx := newAccount(t), deadline(t)
	c := a.client(&wire{})
	builder := stopped(ctx, t, c, account.ImageID, 1)[0]
	spec := imageSpec("a")
	first, err := image.Ensure(ctx, c, spec, from(builder))
	if err != nil {
		t.Fatal(err)
	}
	if first.State != "available" || !first.Encrypted || len(first.SnapshotIDs) != 1 || first.Cluster != "demo" || first.Name != "node" || first.Content != spec.Content ||
		first.AMIName != "demo-node-0123456789ab-"+builder || first.SizeGiB != 8 {
		t.Errorf("made %+v", first)
	}
	if len(first.Unsettled) != 2 || first.Claim.ID != spec.Claim.ID || first.Tags["room"] != "12" || first.Tags["team"] != "lab" {
		t.Errorf("its tags: %v, unsettled %v", first.Tags, first.Unsettled)
	}
	settled(ctx, t, c, spec, first)
	if _, drift, err := image.Observe(ctx, c, first.ID, spec); err != nil || len(drift) > 0 {
		t.Errorf("drift %v, error %v", drift, err)
	}
	if id, err := image.Named(ctx, c, "demo", "node"); err != nil || id != first.ID {
		t.Errorf("named %s: %v", id, err)
	}

	// Somebody changes tags, and the user does.
	for _, id := range append([]string{first.ID}, first.SnapshotIDs...) {
		if _, err := c.EC2.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{id}, Tags: []types.Tag{{Key: sdk.String("room")}}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, drift, err := image.Observe(ctx, c, first.ID, spec); err != nil || len(drift) != 1 || drift[0].Kind != finding.Tag {
		t.Errorf("drift %v, error %v", drift, err)
	}
	changed := spec
	changed.Tags, changed.RemoveTags = map[string]string{"floor": "1"}, []string{"room"}
	if now, err := image.Change(ctx, c, first.ID, changed); err != nil || now.Tags["floor"] != "1" || now.Tags["room"] != "" {
		t.Errorf("changed to %v: %v", now.Tags, err)
	}

	// Another state takes neither the image nor its name.
	other := imageSpec("b")
	if _, _, err := image.Observe(ctx, c, first.ID, other); !infraaws.IsClaimed(err) {
		t.Errorf("observed the image of another state: %v", err)
	}
	for what, err := range map[string]error{
		"deleted": image.Delete(ctx, c, first.ID, other), "retired": image.Retire(ctx, c, first.ID, other, time.Now()), "changed": failing(image.Change(ctx, c, first.ID, other)),
	} {
		if !infraaws.IsClaimed(err) {
			t.Errorf("%s the image of another state: %v", what, err)
		}
	}

	// An image that is used is not deleted. What replaces it deletes it once it is not used any more.
	used := stopped(ctx, t, c, first.ID, 2)
	var busy *image.InUseError
	if err := image.Delete(ctx, c, first.ID, spec); !errors.As(err, &busy) || len(busy.Users) != 2 {
		t.Errorf("deleted an image in use: %v", err)
	}
	if next, err := image.Successor(ctx, c, first.ID, spec); err != nil || next {
		t.Errorf("there is a successor: %v, %v", next, err)
	}
	newer := imageSpec("c")
	newer.Content = strings.Repeat("f", 64)
	another := stopped(ctx, t, c, account.ImageID, 1)[0]
	second, err := image.Ensure(ctx, c, newer, from(another))
	if err != nil {
		t.Fatal(err)
	}
	settled(ctx, t, c, newer, second)
	if next, err := image.Successor(ctx, c, first.ID, spec); err != nil || !next {
		t.Errorf("there is no successor: %v", err)
	}
	if err := image.Retire(ctx, c, first.ID, spec, time.Now()); err != nil {
		t.Fatal(err)
	}
	if left, err := image.Sweep(ctx, c, newer); err != nil || len(left[first.ID]) != 2 {
		t.Errorf("swept, with %v in use: %v", left, err)
	}
	a.hasImages(2)
	if _, drift, err := image.Observe(ctx, c, second.ID, newer); err != nil || len(drift) > 0 {
		t.Errorf("drift %v although the retired image is in use, error %v", drift, err)
	}
	ends(ctx, t, c, used...)
	if _, drift, err := image.Observe(ctx, c, second.ID, newer); err != nil || len(drift) != 1 || drift[0].Kind != finding.RetiredImage || drift[0].Target != first.ID {
		t.Errorf("drift %v, error %v", drift, err)
	}
	if _, err := image.Change(ctx, c, second.ID, newer); err != nil {
		t.Fatal(err)
	}
	a.hasImages(1)

	for range 2 {
		if err := image.Delete(ctx, c, second.ID, newer); err != nil {
			t.Fatal(err)
		}
	}
	a.hasImages(0)
	if _, _, err := image.Observe(ctx, c, second.ID, newer); !errors.Is(err, infraaws.ErrNotFound) {
		t.Errorf("after the deletion: %v", err)
	}
}

func failing[T any](_ T, err error) error { return err }

// ends terminates instances.
func ends(ctx context.Context, t *testing.T, c *infraaws.Client, ids ...string) {
	t.Helper()
	if _, err := c.EC2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids}); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if err := infraaws.Poll(ctx, "wait for the end of "+id, func(ctx context.Context) (bool, string, error) {
			gone, err := c.InstanceEnds(ctx, id)
			return gone, "", err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestImageKilledAnywhere kills the process at every call of a creation. The next run ends with one image of the content, and the
// deletion, which is killed at every call as well, leaves nothing.
func TestImageKilledAnywhere(t *testing.T) {
	t.Parallel()
	a, w := newAccount(t), &wire{}
	c := a.client(w)
	builder := stopped(deadline(t), t, a.client(&wire{}), account.ImageID, 1)[0]
	made, err := image.Ensure(deadline(t), c, imageSpec("a"), from(builder))
	if err != nil {
		t.Fatal(err)
	}
	makes := slices.Index(w.calls, "CreateImage") + 3
	before := w.count()
	if err := image.Delete(deadline(t), c, made.ID, imageSpec("a")); err != nil {
		t.Fatal(err)
	}
	deletes := w.count() - before
	for at := range makes + deletes {
		for _, arrives := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d arrives %v", at+1, arrives), func(t *testing.T) {
				t.Parallel()
				a := newAccount(t)
				c := a.client(&wire{})
				builder := stopped(deadline(t), t, c, account.ImageID, 1)[0]
				ctx, cancel := context.WithCancel(deadline(t))
				defer cancel()
				dying := &wire{dieAt: at + 1, arrives: arrives, cancel: cancel}
				spec := imageSpec("a")
				if at < makes {
					_, _ = image.Ensure(ctx, a.client(dying), spec, from(builder))
					spec = imageSpec("b")
				}
				ctx = deadline(t)
				i, err := image.Ensure(ctx, c, spec, from(builder))
				if err != nil {
					t.Fatalf("after %v: %v", dying.calls, err)
				}
				if i.State != "available" || i.Claim.ID != spec.Claim.ID {
					t.Errorf("after %v: %+v", dying.calls, i)
				}
				a.hasImages(1)
				settled(ctx, t, c, spec, i)
				if at >= makes {
					dying.dieAt = at - makes + 1
					last, cancel := context.WithCancel(deadline(t))
					defer cancel()
					dying.cancel = cancel
					_ = image.Delete(last, a.client(dying), i.ID, spec)
				}
				if err := image.Delete(ctx, c, i.ID, spec); err != nil {
					t.Fatalf("after %v: %v", dying.calls, err)
				}
				a.hasImages(0)
			})
		}
	}
}

// TestImageFails: what is left of an image that fails is deleted, and the error says why it has. An image of other content that was
// left half made goes as well.
func TestImageFails(t *testing.T) {
	t.Parallel()
	a, ctx := newAccount(t), deadline(t)
	c := a.client(&wire{})
	builder := stopped(ctx, t, c, account.ImageID, 1)[0]
	a.Fault(fault.Fault{Kind: fault.SlowSnapshot, Seconds: 3600})
	brief, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	pending, err := image.Ensure(brief, c, imageSpec("a"), from(builder))
	if !errors.Is(err, context.DeadlineExceeded) || pending.ID == "" {
		t.Errorf("a pending image: %+v, %v", pending, err)
	}
	a.Calm()
	other := imageSpec("b")
	other.Content = strings.Repeat("e", 64)
	i, err := image.Ensure(ctx, c, other, from(builder))
	if err != nil {
		t.Fatal(err)
	}
	if i.ID == pending.ID {
		t.Error("it took an image of other content")
	}
	a.hasImages(1)
	if err := image.Delete(ctx, c, i.ID, other); err != nil {
		t.Fatal(err)
	}
	a.hasImages(0)
}
