package machine

import (
	"context"
	"fmt"
	"regexp"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// fieldPlacement is the argument with the name of a placement group.
const fieldPlacement = "placement_group"

// placementName is what EC2 accepts as the name of a placement group.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreatePlacementGroup.html
var placementName = regexp.MustCompile(`^[!-~]([ -~]{0,253}[!-~])?$`)

// CheckPlacementGroup reports a text that cannot be the name of a placement group. Whether there is one, EC2
// says at the launch.
func CheckPlacementGroup(name string) (errs invalid.Fields) {
	if name != "" && !placementName.MatchString(name) {
		errs.Say(fieldPlacement, "Unusable name", "%q cannot be the name of a placement group: EC2 allows 1 to 255 ASCII characters, without spaces at either end.", name)
	}
	return errs
}

func placementSpec(group string) *types.Placement {
	if group == "" {
		return nil
	}
	return &types.Placement{GroupName: &group}
}

// findPlacement says whether a placement group exists: a machine is not stopped for one that does not.
func findPlacement(ctx context.Context, c *aws.Client, group string) error {
	_, err := c.EC2.DescribePlacementGroups(ctx, &ec2.DescribePlacementGroupsInput{GroupNames: []string{group}}, c.RetryUntilKnown())
	if err != nil {
		return fmt.Errorf("find placement group %s: %w", group, aboutPlacement(err))
	}
	return nil
}

// aboutPlacement adds the name of the argument to an error that only the placement group can have
// caused.
func aboutPlacement(err error) error {
	if !aws.IsCode(err, "InvalidPlacementGroup.Unknown", "InvalidPlacementGroup.InUse") {
		return err
	}
	return &invalid.Field{Field: fieldPlacement, Problem: "Unusable placement group", Err: err}
}
