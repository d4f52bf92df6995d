package machine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// TestClusterMachines reads 450 machines, of which EC2 lists 100 a page and takes at most 200 ids
// in a filter. It does not ask for the volumes of machines that are gone.
func TestClusterMachines(t *testing.T) {
	t.Parallel()
	var pages, volumes int
	answer := middleware.InitializeMiddlewareFunc("answer", func(_ context.Context, in middleware.InitializeInput, _ middleware.InitializeHandler) (out middleware.InitializeOutput, md middleware.Metadata, err error) {
		switch call := in.Parameters.(type) {
		case *ec2.DescribeInstancesInput:
			pages++
			from, _ := strconv.Atoi(sdk.ToString(call.NextToken))
			answered := &ec2.DescribeInstancesOutput{}
			for n := from; n < min(from+100, 450); n++ {
				state := types.InstanceStateNameRunning
				if n >= 400 {
					state = types.InstanceStateNameTerminated
				}
				answered.Reservations = append(answered.Reservations, types.Reservation{Instances: []types.Instance{{
					InstanceId: sdk.String(fmt.Sprintf("i-%d", n)), State: &types.InstanceState{Name: state}}}})
			}
			if from+100 < 450 {
				answered.NextToken = sdk.String(strconv.Itoa(from + 100))
			}
			out.Result = answered
		case *ec2.DescribeVolumesInput:
			volumes++
			answered := &ec2.DescribeVolumesOutput{}
			if ids := call.Filters[0].Values; len(ids) > 200 || slices.Contains(ids, "i-400") {
				err = fmt.Errorf("asked for the volumes of %d instances", len(ids))
			} else {
				for _, id := range ids {
					answered.Volumes = append(answered.Volumes, types.Volume{VolumeId: sdk.String("vol-" + id), Attachments: []types.VolumeAttachment{{InstanceId: &id}}})
				}
			}
			out.Result = answered
		default:
			err = fmt.Errorf("unexpected call %T", in.Parameters)
		}
		return out, md, err
	})
	c := &aws.Client{EC2: ec2.New(ec2.Options{Region: "eu-central-1", APIOptions: []func(*middleware.Stack) error{
		func(s *middleware.Stack) error { return s.Initialize.Add(answer, middleware.Before) },
	}})}
	all, err := clusterMachines(t.Context(), c, "demo")
	if err != nil {
		t.Fatal(err)
	}
	if len(all.instances) != 450 || len(all.volumes) != 400 || *all.volumes["i-399"][0].VolumeId != "vol-i-399" {
		t.Errorf("%d instances, volumes of %d", len(all.instances), len(all.volumes))
	}
	if pages != 5 || volumes != 2 {
		t.Errorf("%d pages of instances, %d calls for volumes", pages, volumes)
	}
}
