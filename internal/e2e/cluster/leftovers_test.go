package cluster_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// testLeftovers: the destroy names what a controller in the cluster has left, and keeps the network.
func (c *cluster) testLeftovers(t *testing.T) {
	api, ctx := ec2.NewFromConfig(suite.AWS()), t.Context()
	groups := harness.Must[*ec2.DescribeSecurityGroupsOutput](t)(api.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{
		Filters: []types.Filter{{Name: aws.String("tag:k8s-from-scratch/name"), Values: []string{"worker"}}}})).SecurityGroups
	if len(groups) != 1 {
		t.Fatalf("%d security groups of workers", len(groups))
	}
	owned := ownedKey(groups[0].Tags)
	left := harness.Must[*ec2.CreateSecurityGroupOutput](t)(api.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{
		GroupName: aws.String("k8s-elb-web"), Description: aws.String("Security group for Kubernetes ELB (default/web)"), VpcId: groups[0].VpcId,
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeSecurityGroup, Tags: []types.Tag{{Key: &owned, Value: aws.String("owned")}}}},
	}))
	if _, err := c.WS.Destroy(ctx); err == nil || !strings.Contains(strings.Join(strings.Fields(err.Error()), " "), "security group "+*left.GroupId) {
		t.Errorf("destroy: %v, wanted one that names %s", err, *left.GroupId)
	}
	still := harness.Must[*ec2.DescribeSecurityGroupsOutput](t)(api.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{
		Filters: []types.Filter{{Name: aws.String("vpc-id"), Values: []string{*groups[0].VpcId}}}})).SecurityGroups
	if len(still) < 6 { // of four roles, of SSH, and the other one
		t.Errorf("%d security groups are left", len(still))
	}
	harness.Must[*ec2.DeleteSecurityGroupOutput](t)(api.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: left.GroupId}))
}
