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
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/bake"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
)

// work is what would be done on a machine that becomes an image.
type work struct {
	done []string // in order
	fail string   // what fails
}

var errWork = errors.New("it does not work")

func (w *work) do(ctx context.Context, shell machine.Shell, what string) error {
	w.done = append(w.done, what)
	if w.fail == what {
		return errWork
	}
	_, err := shell.Run(ctx, remote.Command{Name: what})
	return err
}

// Install implements bake.Work.
func (w *work) Install(ctx context.Context, shell machine.Shell) error {
	return w.do(ctx, shell, "install")
}

// Seal implements bake.Work.
func (w *work) Seal(ctx context.Context, shell machine.Shell) error { return w.do(ctx, shell, "seal") }

func bakeSpec(process string, n network.Network) bake.Spec {
	m := machineSpecs(n)[3]
	return bake.Spec{Image: imageSpec(process), Machine: machine.Spec{
		SubnetID: m.SubnetID, VPCID: m.VPCID, NetworkSubnets: m.NetworkSubnets, SecurityGroupIDs: m.SecurityGroupIDs, PublicIP: true,
		InstanceType: "t3.small", RootVolumeGiB: 8, User: "admin", AuthorizedKeys: m.AuthorizedKeys,
	}}
}

// left fails the test unless so many instances and root volumes are left.
func (a lab) left(n int) {
	a.t.Helper()
	if o := a.Cloud.Overview(); len(o.Instances) != n || len(o.Volumes) != n {
		a.t.Errorf("%d instances and %d volumes, wanted %d: %+v", len(o.Instances), len(o.Volumes), n, o.Instances)
	}
}

// TestBake makes an image: the machine is no machine of the cluster while it exists, and it is gone afterwards.
func TestBake(t *testing.T) {
	t.Parallel()
	a, ctx, w := newAccount(t), deadline(t), &wire{}
	c := a.client(w)
	ssh := a.newMachines(t, a.client(&wire{}))
	n := ensured(ctx, t, c, networkSpec())
	spec, did := bakeSpec("a", n), &work{}
	i, err := bake.Make(ctx, c, spec, random, ssh.on(w), did)
	if err != nil {
		t.Fatal(err)
	}
	if i.State != "available" || !i.Encrypted || !slices.Equal(did.done, []string{"install", "seal"}) {
		t.Errorf("made %+v, with %v", i, did.done)
	}
	a.left(0)
	a.hasImages(1)
	settled(ctx, t, c, spec.Image, i)
	at := func(call string) int { return slices.Index(w.calls, call) }
	if at("StopInstances") < 0 || at("StopInstances") > at("CreateImage") || at("CreateImage") > at("TerminateInstances") {
		t.Errorf("in the order %v", w.calls)
	}

	// Another one beside it, with the same content: it replaces the first one.
	next, did := bakeSpec("b", n), &work{}
	second, err := bake.Make(ctx, c, next, random, ssh.on(w), did)
	if err != nil || second.ID == i.ID || len(did.done) != 2 {
		t.Errorf("the second one is %s, made with %v: %v", second.ID, did.done, err)
	}
	a.hasImages(2)
	for id, spec := range map[string]image.Spec{i.ID: spec.Image, second.ID: next.Image} {
		if err := image.Delete(ctx, c, id, spec); err != nil {
			t.Error(err)
		}
	}
	known := networkSpec()
	known.Known = n
	if err := network.Delete(ctx, c, known); err != nil {
		t.Fatal(err)
	}
	a.Empty()
}

// TestBakeFails: whatever fails, no machine is left, and no image unless it was begun.
func TestBakeFails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(lab, *bake.Spec, *work)
		field  string
		images int
	}{
		{name: "to install", change: func(_ lab, _ *bake.Spec, w *work) { w.fail = "install" }},
		{name: "to seal", change: func(_ lab, _ *bake.Spec, w *work) { w.fail = "seal" }},
		{name: "with an unusable key", change: func(a lab, s *bake.Spec, _ *work) {
			a.Fault(fault.Fault{Kind: fault.Key, Name: "alias/none"})
			s.Machine.RootVolumeKey = "alias/none"
		}, field: "kms_key_id"},
		{name: "with an image that does not exist", change: func(_ lab, s *bake.Spec, _ *work) { s.Machine.Image = "ami-00000000000000000" }},
		{name: "in time", change: func(a lab, _ *bake.Spec, _ *work) { a.Fault(fault.Fault{Kind: fault.SlowSnapshot, Seconds: 3600}) }, images: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, w := newAccount(t), &wire{}
			ctx, cancel := context.WithCancel(deadline(t))
			defer cancel()
			c := a.client(w)
			spec, did := bakeSpec("a", ensured(ctx, t, c, networkSpec())), &work{}
			tt.change(a, &spec, did)
			if tt.images > 0 { // it ends while the image is pending
				go func() {
					for ctx.Err() == nil {
						if time.Sleep(100 * time.Millisecond); slices.Contains(w.changes(), "CreateImage") {
							time.Sleep(time.Second)
							cancel()
						}
					}
				}()
			}
			i, err := bake.Make(ctx, c, spec, random, a.newMachines(t, a.client(&wire{})).on(&wire{}), did)
			if err == nil || (i.ID != "") != (tt.images > 0) {
				t.Errorf("made %+v: %v", i, err)
			}
			var field *invalid.Field
			if tt.field != "" && (!errors.As(err, &field) || field.Field != tt.field) {
				t.Errorf("it is not about %s: %v", tt.field, err)
			}
			a.left(0)
			a.hasImages(tt.images)
		})
	}
}

// TestBakeKilledAnywhere kills the process at every call of a creation. The next run ends with one image, and no machine is left.
func TestBakeKilledAnywhere(t *testing.T) {
	t.Parallel()
	whole := newAccount(t)
	n := ensured(deadline(t), t, whole.client(&wire{}), networkSpec())
	w := &wire{}
	if _, err := bake.Make(deadline(t), whole.client(w), bakeSpec("a", n), random, whole.newMachines(t, whole.client(&wire{})).on(w), &work{}); err != nil {
		t.Fatal(err)
	}
	for at := range w.count() {
		for _, arrives := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d arrives %v", at+1, arrives), func(t *testing.T) {
				t.Parallel()
				a := newAccount(t)
				c, ssh := a.client(&wire{}), a.newMachines(t, a.client(&wire{}))
				n := ensured(deadline(t), t, c, networkSpec())
				ctx, cancel := context.WithCancel(deadline(t))
				defer cancel()
				dying := &wire{dieAt: at + 1, arrives: arrives, cancel: cancel}
				_, _ = bake.Make(ctx, a.client(dying), bakeSpec("a", n), random, ssh.on(dying), &work{})
				last := "none"
				if dying.count() > at {
					last = dying.calls[at]
				}

				spec := bakeSpec("b", n)
				i, err := bake.Make(deadline(t), c, spec, random, ssh.on(&wire{}), &work{})
				if err != nil {
					t.Fatalf("after dying at %s: %v", last, err)
				}
				if i.State != "available" || i.Claim.ID != spec.Image.Claim.ID {
					t.Errorf("after dying at %s: %+v", last, i)
				}
				a.left(0)
				a.hasImages(1)
				if err := image.Delete(deadline(t), c, i.ID, spec.Image); err != nil {
					t.Errorf("after dying at %s: %v", last, err)
				}
				a.hasImages(0)
			})
		}
	}
}

// TestBakeOthers: machines of other content, and those that nobody knows how far they are, are begun anew. One of another state's that
// is known to it stays.
func TestBakeOthers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		content string // of the machine that is left
		stop    bool
		claimed bool
		anew    bool
	}{
		{name: "running", content: "same", anew: false},
		{name: "stopped halfway", content: "same", stop: true, anew: true},
		{name: "sealing", content: "same sealing", anew: true},
		{name: "sealed", content: "same sealed", stop: true, anew: false},
		{name: "of other content", content: "other sealed", stop: true, anew: true},
		{name: "of another state", content: "same", claimed: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, ctx := newAccount(t), deadline(t)
			c, ssh := a.client(&wire{}), a.newMachines(t, a.client(&wire{}))
			n := ensured(ctx, t, c, networkSpec())
			left := bakeSpec("a", n).Machine
			left.Cluster, left.Name, left.Kind, left.Role, left.Claim = "demo", "node", bake.KindBuilder, bake.RoleBuilder, imageSpec("a").Claim
			left.Tags = map[string]string{image.TagContent: strings.Replace(tt.content, "same", imageSpec("a").Content, 1)}
			m, err := make1(ctx, c, ssh.on(&wire{}), left)
			if err != nil {
				t.Fatal(err)
			}
			if tt.claimed {
				if err := c.Settle(ctx, left.Claim, []string{m.ID}, time.Now()); err != nil {
					t.Fatal(err)
				}
			}
			if tt.stop {
				if _, err := c.EC2.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{m.ID}}); err != nil {
					t.Fatal(err)
				}
				if _, err := c.AwaitState(ctx, m.ID, types.InstanceStateNameStopped); err != nil {
					t.Fatal(err)
				}
			}
			i, err := bake.Make(ctx, c, bakeSpec("b", n), random, ssh.on(&wire{}), &work{})
			if tt.claimed {
				if !infraaws.IsClaimed(err) {
					t.Errorf("made %+v: %v", i, err)
				}
				a.left(1)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if out, err := c.EC2.DescribeImages(ctx, &ec2.DescribeImagesInput{ImageIds: []string{i.ID}}); err != nil || (sdk.ToString(out.Images[0].SourceInstanceId) != m.ID) != tt.anew {
				t.Errorf("made of %s: %v", sdk.ToString(out.Images[0].SourceInstanceId), err)
			}
			a.left(0)
		})
	}
}
