package ec2_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// TestPlacementGroups: a group has a name of its own, rules for what runs in it, and is not deleted while an
// instance is on in it. A stopped instance changes its group.
func TestPlacementGroups(t *testing.T) {
	l := cloudtest.New(t)
	s, ctx := l.NewSite(t), t.Context()
	create := func(name string, strategy types.PlacementStrategy) error {
		_, err := l.CreatePlacementGroup(ctx, &awsec2.CreatePlacementGroupInput{GroupName: &name, Strategy: strategy, TagSpecifications: cloudtest.Tags(types.ResourceTypePlacementGroup, "team", "a")})
		return err
	}
	for name, strategy := range map[string]types.PlacementStrategy{"near": "cluster", "far": "spread", "parts": "partition"} {
		if err := create(name, strategy); err != nil {
			t.Fatal(err)
		}
	}
	cloudtest.Refused(t, create("far", "spread"), "InvalidPlacementGroup.Duplicate")
	cloudtest.Refused(t, create("odd", "apart"), "InvalidParameterValue")
	_, err := l.CreatePlacementGroup(ctx, &awsec2.CreatePlacementGroupInput{GroupName: aws.String("odd"), Strategy: "spread", PartitionCount: aws.Int32(2)})
	cloudtest.Refused(t, err, "InvalidParameterCombination")

	groups := cloudtest.Must[*awsec2.DescribePlacementGroupsOutput](t)(l.DescribePlacementGroups(ctx, &awsec2.DescribePlacementGroupsInput{GroupNames: []string{"far"}})).PlacementGroups
	if len(groups) != 1 || groups[0].Strategy != "spread" || groups[0].SpreadLevel != "rack" || *groups[0].GroupArn != "arn:aws:ec2:us-east-1:123456789012:placement-group/far" || len(groups[0].Tags) != 1 {
		t.Errorf("%+v", groups)
	}
	groups = cloudtest.Must[*awsec2.DescribePlacementGroupsOutput](t)(l.DescribePlacementGroups(ctx, &awsec2.DescribePlacementGroupsInput{Filters: []types.Filter{cloudtest.Filter("strategy", "partition")}})).PlacementGroups
	if len(groups) != 1 || *groups[0].GroupName != "parts" || *groups[0].PartitionCount != 2 {
		t.Errorf("%+v", groups)
	}
	_, err = l.DescribePlacementGroups(ctx, &awsec2.DescribePlacementGroupsInput{GroupNames: []string{"none"}})
	cloudtest.Refused(t, err, "InvalidPlacementGroup.Unknown")

	launch := func(group string, typ types.InstanceType, most int32) ([]types.Instance, error) {
		in := s.RunInput()
		in.InstanceType, in.MaxCount, in.Placement = typ, &most, &types.Placement{GroupName: &group}
		out, err := l.RunInstances(ctx, in)
		if err != nil {
			return nil, err
		}
		return out.Instances, nil
	}
	_, err = launch("none", "t3.small", 1)
	cloudtest.Refused(t, err, "InvalidPlacementGroup.Unknown")
	_, err = launch("near", "t3.small", 1)
	cloudtest.Refused(t, err, "InvalidParameterCombination")
	spread := cloudtest.Must[[]types.Instance](t)(launch("far", "t3.nano", 9))
	if len(spread) != 7 || aws.ToString(spread[0].Placement.GroupName) != "far" || spread[0].Placement.GroupId == nil {
		t.Errorf("%d instances in a spread group", len(spread))
	}
	_, err = launch("far", "t3.nano", 1)
	cloudtest.Refused(t, err, "InsufficientInstanceCapacity")

	// A stopped instance makes room, leaves the group, and cannot return when the group is full again.
	id := *spread[0].InstanceId
	l.Await(t, id, types.InstanceStateNameRunning)
	move := func(group string) error {
		_, err := l.ModifyInstancePlacement(ctx, &awsec2.ModifyInstancePlacementInput{InstanceId: &id, GroupName: &group})
		return err
	}
	start := func() error {
		_, err := l.StartInstances(ctx, &awsec2.StartInstancesInput{InstanceIds: []string{id}})
		return err
	}
	cloudtest.Refused(t, move(""), "IncorrectInstanceState")
	cloudtest.Must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{id}}))
	l.Await(t, id, types.InstanceStateNameStopped)
	cloudtest.Must[[]types.Instance](t)(launch("far", "t3.nano", 1))
	cloudtest.Refused(t, start(), "InsufficientInstanceCapacity")
	cloudtest.Refused(t, move("none"), "InvalidPlacementGroup.Unknown")
	if err := move("parts"); err != nil {
		t.Fatal(err)
	}
	if got := l.Instance(t, id); aws.ToString(got.Placement.GroupName) != "parts" {
		t.Errorf("moved to %v", got.Placement)
	}
	remove := func(name string) error {
		_, err := l.DeletePlacementGroup(ctx, &awsec2.DeletePlacementGroupInput{GroupName: &name})
		return err
	}
	cloudtest.Refused(t, remove("far"), "InvalidPlacementGroup.InUse")
	cloudtest.Refused(t, remove("none"), "InvalidPlacementGroup.Unknown")
	if err := remove("parts"); err != nil {
		t.Fatal(err)
	}
	cloudtest.Refused(t, start(), "InvalidPlacementGroup.Unknown")
	if err := move(""); err != nil {
		t.Fatal(err)
	}
	if err := start(); err != nil {
		t.Fatal(err)
	}
}
