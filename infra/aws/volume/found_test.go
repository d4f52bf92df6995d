package volume

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// volumeEC2 has the volumes of one cluster. before is called before each search by tags, with how many
// there were.
type volumeEC2 struct {
	volumes  []types.Volume
	before   func(searches int) error
	searches int
	deleted  []string
}

func (e *volumeEC2) client() *aws.Client {
	answer := middleware.InitializeMiddlewareFunc("answer", func(_ context.Context, in middleware.InitializeInput, _ middleware.InitializeHandler) (out middleware.InitializeOutput, md middleware.Metadata, err error) {
		switch call := in.Parameters.(type) {
		case *ec2.DescribeSubnetsInput:
			out.Result = &ec2.DescribeSubnetsOutput{Subnets: []types.Subnet{{AvailabilityZone: sdk.String("eu-central-1a")}}}
		case *ec2.DescribeVolumesInput:
			if len(call.Filters) > 0 {
				err = e.before(e.searches)
				e.searches++
			}
			out.Result = &ec2.DescribeVolumesOutput{Volumes: slices.DeleteFunc(slices.Clone(e.volumes), func(v types.Volume) bool {
				return len(call.VolumeIds) > 0 && !slices.Contains(call.VolumeIds, *v.VolumeId)
			})}
		case *ec2.CreateVolumeInput:
			v := volumeNamed("vol-made", aws.TagMap(call.TagSpecifications[0].Tags))
			e.volumes = append(e.volumes, v)
			out.Result = &ec2.CreateVolumeOutput{VolumeId: v.VolumeId, AvailabilityZone: v.AvailabilityZone, State: v.State, Size: v.Size, VolumeType: v.VolumeType, Tags: v.Tags}
		case *ec2.CreateTagsInput:
			for i, v := range e.volumes {
				if slices.Contains(call.Resources, *v.VolumeId) {
					e.volumes[i].Tags = append(slices.DeleteFunc(v.Tags, func(old types.Tag) bool {
						return slices.ContainsFunc(call.Tags, func(t types.Tag) bool { return *t.Key == *old.Key })
					}), call.Tags...)
				}
			}
			out.Result = &ec2.CreateTagsOutput{}
		case *ec2.DeleteVolumeInput:
			e.deleted = append(e.deleted, *call.VolumeId)
			out.Result = &ec2.DeleteVolumeOutput{}
		default:
			err = fmt.Errorf("unexpected call %T", in.Parameters)
		}
		return out, md, err
	})
	return &aws.Client{EC2: ec2.New(ec2.Options{Region: "eu-central-1", APIOptions: []func(*middleware.Stack) error{
		func(s *middleware.Stack) error { return s.Initialize.Add(answer, middleware.Before) },
	}})}
}

func volumeNamed(id string, tags map[string]string) types.Volume {
	return types.Volume{VolumeId: &id, AvailabilityZone: sdk.String("eu-central-1a"), State: types.VolumeStateAvailable,
		Size: sdk.Int32(8), VolumeType: types.VolumeTypeGp2, Tags: aws.EC2Tags(tags)}
}

// TestFoundVolumeStays: a create that fails after it has found a volume neither deletes it nor returns
// it. Terraform would delete what a failed create returns, with its data.
func TestFoundVolumeStays(t *testing.T) {
	t.Parallel()
	spec := Spec{Cluster: "demo", Name: "etcd-0", SubnetID: "subnet-1", SizeGiB: 8, Performance: Performance{Type: "gp2"}}
	theirs := spec
	theirs.Claim = aws.Claim{ID: "theirs.1", At: time.Unix(1, 0)}
	spec.Claim = aws.Claim{ID: "ours.1", At: time.Unix(2, 0)}
	for _, tt := range []struct {
		name     string
		adopts   bool
		races    bool // a volume of another create appears before the last look; otherwise the last look fails
		returned string
		deleted  []string
	}{
		{"adopted, and another create is faster", true, true, "", nil},
		{"adopted, and the last look fails", true, false, "", nil},
		{"made, and another create is faster", false, true, "", []string{"vol-made"}},
		{"made, and the last look fails", false, false, "vol-made", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := &volumeEC2{}
			c := e.client()
			wanted := spec
			if tt.adopts {
				wanted.Claim.Adopt = true
				e.volumes = []types.Volume{volumeNamed("vol-found", tagsOf(c, theirs))}
			}
			e.before = func(searches int) error {
				switch {
				case searches == 0:
				case tt.races:
					e.volumes = append(e.volumes, volumeNamed("vol-beside", tagsOf(c, theirs)))
				default:
					return &smithy.GenericAPIError{Code: "UnauthorizedOperation", Message: "Not you."}
				}
				return nil
			}
			v, err := Ensure(t.Context(), c, "", wanted)
			if err == nil || aws.IsClaimed(err) != tt.races || !tt.races && !strings.Contains(err.Error(), "Not you.") {
				t.Errorf("ended with %v", err)
			}
			if v.ID != tt.returned || !slices.Equal(e.deleted, tt.deleted) {
				t.Errorf("returned %q, wanted %q; deleted %q, wanted %q", v.ID, tt.returned, e.deleted, tt.deleted)
			}
		})
	}
}
