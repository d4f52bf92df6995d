package bake

import (
	"context"
	_ "embed" // the code itself
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/image"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// KindBuilder is the kind, in its tags, of a machine that becomes an image. It is no machine of a cluster.
const KindBuilder = "image-builder"

// RoleBuilder is its role.
const RoleBuilder aws.MachineRole = "image-builder"

// Spec is an image that is to be made, and the machine of which it is made.
type Spec struct {
	Image image.Spec
	// Machine says where the machine is launched, from which image, and who may log in. Without a subnet it is launched in the region's
	// default VPC. Its name, kind, role, tags, claim and boot command follow from the image.
	Machine machine.Spec
}

// The machine's tag image.TagContent has the digest of the content, and how far the machine is.
const (
	sealing = " sealing" // nobody may be able to log in any more, and something may be there that must go
	sealed  = " sealed"  // it is stopped, and an image can be made of it
)

// Make makes an image, or continues where an interrupted run has stopped: with its image, with its machine, or with a new machine. At
// its end, also with an error and when ctx ends, the machine is terminated. With an error it returns the image if that exists, since
// it costs money. If the error is a ClaimedError, another run has taken over.
func Make(ctx context.Context, c *aws.Client, spec Spec, rand io.Reader, connect machine.Connect, work Work) (made image.Image, err error) {
	b := newBuilder(c, spec, rand, connect, work)
	found, err := b.find(ctx)
	if err == nil {
		err = b.takeOver(ctx, found)
	}
	if err != nil {
		return made, b.about(err)
	}
	// What is left of the machine would go on to cost money.
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience.Of(ctx, endBudget))
		defer cancel()
		if left := b.end(last); left != nil && !aws.IsClaimed(err) {
			err = errors.Join(err, fmt.Errorf("terminate the machine of which the image was made: %w", left))
		}
	}()
	made, err = image.Ensure(ctx, c, spec.Image, b.ready)
	return made, b.about(err)
}

var (
	//go:embed make.go
	makeCode string
	//go:embed work.go
	workCode string
)

// Code returns a digest of the code of this package that acts on machines. Content does not have it: a newer version of
// the code makes the same images, unless their format changes.
func Code() string { return desired.Sum([]byte(makeCode + workCode)) }

// Stopped makes the machine of which an image can be made, and leaves it: it is sealed and stopped. It returns the instance's id.
func Stopped(ctx context.Context, c *aws.Client, spec Spec, rand io.Reader, connect machine.Connect, work Work) (string, error) {
	return newBuilder(c, spec, rand, connect, work).ready(ctx)
}

// endBudget is how long the machine may take to terminate.
const endBudget = 5 * time.Minute

// Remove terminates the machine that an interrupted run has left, if the claim of the image is its own. There is none after a run that
// was not killed.
func Remove(ctx context.Context, c *aws.Client, spec image.Spec) error {
	b := newBuilder(c, Spec{Image: spec}, nil, nil, nil)
	return b.about(b.end(ctx))
}

type builder struct {
	*aws.Client
	spec    Spec
	rand    io.Reader
	connect machine.Connect
	work    Work
	made    string // the instance that this run has launched, or found running
	placed  bool   // whether place has chosen the subnet
}

func newBuilder(c *aws.Client, spec Spec, rand io.Reader, connect machine.Connect, work Work) *builder {
	b := &builder{Client: c, spec: spec, rand: rand, connect: connect, work: work}
	m, i := &b.spec.Machine, b.spec.Image
	m.Cluster, m.Name, m.Kind, m.Role, m.Claim, m.BootCommand = i.Cluster, i.Name, KindBuilder, RoleBuilder, i.Claim, bootCommand()
	m.Tags = maps.Clone(i.Tags)
	if m.Tags == nil {
		m.Tags = map[string]string{}
	}
	m.Tags[image.TagContent] = i.Content
	return b
}

// about says what an error is about, and calls fields as they are called of an image.
func (b *builder) about(err error) error {
	var field *invalid.Field
	if errors.As(err, &field) && field.Field == "root_volume_kms_key_id" {
		field.Field = "kms_key_id"
	}
	return err
}

// find returns the machine that an interrupted run has left, nil if there is none.
func (b *builder) find(ctx context.Context) (*types.Instance, error) {
	var found *types.Instance
	filters := append(aws.KindFilters(KindBuilder, b.spec.Image.Cluster), aws.TagFilter(aws.TagResource, b.spec.Image.Name),
		aws.Filter("instance-state-name", "pending", "running", "stopping", "stopped"))
	err := b.EachInstance(ctx, func(i types.Instance) { found = &i }, filters...)
	if err != nil {
		err = fmt.Errorf("look for the machine of which the image %s is made: %w", b.spec.Image.Name, err)
	}
	return found, err
}

// judge decides about the machine. known says that it is this run's.
func (b *builder) judge(i types.Instance, known bool) (take bool, err error) {
	return b.spec.Image.Claim.Judge("instance "+sdk.ToString(i.InstanceId), aws.OwnerOf(aws.TagMap(i.Tags)), known)
}

// takeOver claims the machine that an interrupted run has left.
func (b *builder) takeOver(ctx context.Context, i *types.Instance) error {
	if i == nil {
		return nil
	}
	take, err := b.judge(*i, false)
	if err != nil || !take {
		return err
	}
	ids := []string{sdk.ToString(i.InstanceId)}
	for _, d := range i.BlockDeviceMappings {
		if d.Ebs != nil {
			ids = append(ids, sdk.ToString(d.Ebs.VolumeId))
		}
	}
	if err := b.TakeOver(ctx, b.spec.Image.Claim, ids); err != nil {
		return err
	}
	return aws.Raced(aws.ReadBack(ctx, func(ctx context.Context) error {
		now, err := b.find(ctx)
		if err == nil && now != nil {
			_, err = b.judge(*now, true)
		}
		return err
	}))
}

// end terminates the machine, if it is this run's.
func (b *builder) end(ctx context.Context) error {
	i, err := b.find(ctx)
	if err != nil {
		return err
	}
	id := b.made // EC2 may not show it by its tags yet
	if i != nil {
		id = sdk.ToString(i.InstanceId)
	}
	if id == "" {
		return nil
	}
	spec := b.spec.Machine
	spec.Claim.Adopt = false
	return machine.Delete(ctx, b.Client, id, spec)
}

// ready returns the instance of which an image can be made: it is stopped and sealed.
func (b *builder) ready(ctx context.Context) (string, error) {
	i, err := b.find(ctx)
	if err != nil {
		return "", err
	}
	if i != nil {
		id, state := sdk.ToString(i.InstanceId), aws.StateOf(*i)
		down := state == types.InstanceStateNameStopped || state == types.InstanceStateNameStopping
		progress, same := strings.CutPrefix(aws.TagMap(i.Tags)[image.TagContent], b.spec.Image.Content)
		if same && progress == sealed && down {
			_, err := b.AwaitState(ctx, id, types.InstanceStateNameStopped)
			return id, err
		}
		fits := same && progress == "" && !down
		if fits {
			if fits, err = b.fits(ctx, *i); err != nil {
				return "", err
			}
		}
		if !fits { // nobody knows what is on it, or nobody can log in
			if err := b.end(ctx); err != nil {
				return "", fmt.Errorf("terminate %s, which an earlier run has left: %w", id, err)
			}
		}
	}
	if err := b.place(ctx, ""); err != nil {
		return "", err
	}
	launched, err := machine.Launch(ctx, b.Client, b.spec.Machine, b.rand) // it finds a machine that fits
	if err != nil {
		if !b.placed {
			return "", err
		}
		const chosen = "no subnet is given, so the machine would be in the default subnet %s; "
		switch {
		case aws.IsCode(err, "InsufficientInstanceCapacity"):
			err = fmt.Errorf(chosen+"subnet_id can name a subnet of another zone: %w", b.spec.Machine.SubnetID, err)
		case machine.GroupOfOtherVPC(err):
			err = fmt.Errorf(chosen+"subnet_id can name a subnet of the groups' VPC: %w", b.spec.Machine.SubnetID, err)
		}
		return "", err
	}
	b.made = launched.Machine().ID
	m, err := launched.Bring(ctx, b.connect)
	if err != nil {
		return "", err
	}
	m.Name, m.User = b.spec.Machine.Name, b.spec.Machine.User
	shell := b.connect(m, []string{m.HostKey})
	if err := b.work.Install(ctx, shell); err != nil {
		return "", fmt.Errorf("machine %s (%s): %w", m.Name, m.ID, err)
	}
	if err := b.mark(ctx, m.ID, sealing); err != nil {
		return "", err
	}
	if err := b.work.Seal(ctx, shell); err != nil {
		return "", fmt.Errorf("machine %s (%s): seal it: %w", m.Name, m.ID, err)
	}
	if err := machine.Stop(ctx, b.Client, m.ID); err != nil {
		return "", fmt.Errorf("machine %s (%s): %w", m.Name, m.ID, err)
	}
	if _, err := b.AwaitState(ctx, m.ID, types.InstanceStateNameStopped); err != nil {
		return "", err
	}
	return m.ID, b.mark(ctx, m.ID, sealed)
}

// fits reports whether a machine that an earlier run has launched is as this one would launch it. If no subnet is given, any default
// subnet is right.
func (b *builder) fits(ctx context.Context, i types.Instance) (bool, error) {
	if string(i.InstanceType) != b.spec.Machine.InstanceType {
		return false, nil
	}
	err := b.place(ctx, sdk.ToString(i.SubnetId))
	return sdk.ToString(i.SubnetId) == b.spec.Machine.SubnetID, err
}

// mark writes how far the machine is.
func (b *builder) mark(ctx context.Context, id, progress string) error {
	if err := b.WriteTags(ctx, []string{id}, map[string]string{image.TagContent: b.spec.Image.Content + progress}); err != nil {
		return fmt.Errorf("note on instance %s that it is%s: %w", id, progress, err)
	}
	return nil
}
