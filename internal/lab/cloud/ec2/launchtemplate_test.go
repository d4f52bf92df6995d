package ec2_test

import (
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// TestLaunchTemplates: the first version of a launch template is its default; all templates are asked only for their default and latest
// versions.
func TestLaunchTemplates(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	data := func(image string) *types.RequestLaunchTemplateData {
		return &types.RequestLaunchTemplateData{ImageId: &image, InstanceType: types.InstanceTypeT3Small}
	}
	const one, two, three = "ami-00000000000000001", "ami-00000000000000002", "ami-00000000000000003"
	create := func(name, image string) error {
		_, err := l.CreateLaunchTemplate(ctx, &awsec2.CreateLaunchTemplateInput{LaunchTemplateName: &name, LaunchTemplateData: data(image), TagSpecifications: cloudtest.Tags(types.ResourceTypeLaunchTemplate, "team", "a")})
		return err
	}
	for _, name := range []string{"web", "batch"} {
		if err := create(name, one); err != nil {
			t.Fatal(err)
		}
	}
	cloudtest.Refused(t, create("web", one), "InvalidLaunchTemplateName.AlreadyExistsException")
	cloudtest.Refused(t, create("a b", one), "InvalidLaunchTemplateName.MalformedException")
	for _, image := range []string{two, three} {
		for range 2 { // with the same token
			_, err := l.CreateLaunchTemplateVersion(ctx, &awsec2.CreateLaunchTemplateVersionInput{LaunchTemplateName: aws.String("web"), LaunchTemplateData: data(image), ClientToken: &image})
			cloudtest.Refused(t, err, "")
		}
	}
	versions := func(in awsec2.DescribeLaunchTemplateVersionsInput) (out string, err error) {
		in.MaxResults = aws.Int32(2)
		pages := awsec2.NewDescribeLaunchTemplateVersionsPaginator(l, &in)
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return "", err
			}
			for _, v := range page.LaunchTemplateVersions {
				if *v.LaunchTemplateName == "web" {
					out += fmt.Sprintf("%d %s %t\n", *v.VersionNumber, (*v.LaunchTemplateData.ImageId)[19:], *v.DefaultVersion)
				}
			}
		}
		return out, nil
	}
	all := []string{"$Latest", "$Default"}
	for want, in := range map[string]awsec2.DescribeLaunchTemplateVersionsInput{
		"1 01 true\n2 02 false\n3 03 false\n": {LaunchTemplateName: aws.String("web")},
		"2 02 false\n":                        {LaunchTemplateName: aws.String("web"), Versions: []string{"2"}},
		"1 01 true\n3 03 false\n":             {Versions: all},
		"1 01 true\n":                         {Versions: all, Filters: []types.Filter{cloudtest.Filter("image-id", one, two)}},
		"3 03 false\n":                        {Versions: all[:1]},
	} {
		if got, err := versions(in); err != nil || got != want {
			t.Errorf("%v: %q, %v; want %q", in.Versions, got, err, want)
		}
	}
	for _, in := range []awsec2.DescribeLaunchTemplateVersionsInput{{}, {Versions: []string{"1"}}} {
		_, err := versions(in)
		cloudtest.Refused(t, err, "InvalidParameterCombination")
	}
	_, err := versions(awsec2.DescribeLaunchTemplateVersionsInput{LaunchTemplateName: aws.String("web"), Versions: []string{"4"}})
	cloudtest.Refused(t, err, "InvalidLaunchTemplateId.VersionNotFound")
	_, err = versions(awsec2.DescribeLaunchTemplateVersionsInput{LaunchTemplateId: aws.String("lt-00000000000000009")})
	cloudtest.Refused(t, err, "InvalidLaunchTemplateId.NotFound")
	gone := &awsec2.DeleteLaunchTemplateInput{LaunchTemplateName: aws.String("batch")}
	_, err = l.DeleteLaunchTemplate(ctx, gone)
	cloudtest.Refused(t, err, "")
	_, err = l.DeleteLaunchTemplate(ctx, gone)
	cloudtest.Refused(t, err, "InvalidLaunchTemplateName.NotFoundException")
}
