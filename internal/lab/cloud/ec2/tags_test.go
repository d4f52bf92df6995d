package ec2_test

import (
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

func TestTags(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	tag := func(id, key, value string) error {
		_, err := l.CreateTags(ctx, &awsec2.CreateTagsInput{Resources: []string{id}, Tags: []types.Tag{{Key: &key, Value: &value}}})
		return err
	}
	cloudtest.Refused(t, tag(s.VPC, "Name", "demo"), "")
	cloudtest.Refused(t, tag(s.VPC, "Name", "other"), "")
	cloudtest.Refused(t, tag(s.VPC, "aws:x", "y"), "InvalidParameterValue")
	cloudtest.Refused(t, tag("vpc-00000000000000000", "a", "b"), "InvalidVpcID.NotFound")
	cloudtest.Refused(t, tag("nothing", "a", "b"), "InvalidID")
	found := cloudtest.Must[*awsec2.DescribeTagsOutput](t)(l.DescribeTags(ctx, &awsec2.DescribeTagsInput{Filters: []types.Filter{cloudtest.Filter("resource-type", "vpc"), cloudtest.Filter("key", "Name")}})).Tags
	if len(found) != 1 || *found[0].Value != "other" || *found[0].ResourceId != s.VPC {
		t.Errorf("found %+v", found)
	}
	untag := func(tags ...types.Tag) int {
		cloudtest.Must[*awsec2.DeleteTagsOutput](t)(l.DeleteTags(ctx, &awsec2.DeleteTagsInput{Resources: []string{s.VPC}, Tags: tags}))
		return len(cloudtest.Must[*awsec2.DescribeTagsOutput](t)(l.DescribeTags(ctx, &awsec2.DescribeTagsInput{})).Tags)
	}
	if n := untag(types.Tag{Key: aws.String("Name"), Value: aws.String("demo")}); n != 1 {
		t.Errorf("deleting a tag with another value left %d", n)
	}
	if n := untag(types.Tag{Key: aws.String("Name")}); n != 0 {
		t.Errorf("deleting a tag left %d", n)
	}
	var many []types.Tag
	for n := range 51 {
		many = append(many, types.Tag{Key: aws.String(fmt.Sprint(n)), Value: aws.String("x")})
	}
	_, err := l.CreateTags(ctx, &awsec2.CreateTagsInput{Resources: []string{s.VPC}, Tags: many})
	cloudtest.Refused(t, err, "TagLimitExceeded")
	if n := len(cloudtest.Must[*awsec2.DescribeTagsOutput](t)(l.DescribeTags(ctx, &awsec2.DescribeTagsInput{})).Tags); n != 0 {
		t.Errorf("a refused request left %d tags", n)
	}
}
