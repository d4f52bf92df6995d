package machine

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// ImageFilter says among which images the newest one is searched. Everyone can publish an image of any name,
// so it needs owners.
type ImageFilter struct {
	Name   string   // may hold * and ?
	Owners []string // account ids, or "self", "amazon" and "aws-marketplace"
}

// fieldImageFilter is the argument with a filter of images.
const fieldImageFilter = "image_filter"

// imageOwner matches an owner of images.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeImages.html
var imageOwner = regexp.MustCompile(`^(?:[0-9]{12}|self|amazon|aws-marketplace)$`)

// CheckImageOwner reports a text that is no owner of images.
func CheckImageOwner(owner string) error {
	if !imageOwner.MatchString(owner) {
		return fmt.Errorf("%q is neither the id of an AWS account (12 digits) nor one of self, amazon and aws-marketplace", owner)
	}
	return nil
}

// String says what is searched.
func (f ImageFilter) String() string {
	return fmt.Sprintf("images named %q of %s", f.Name, strings.Join(f.Owners, ", "))
}

// newestImage returns the newest image for an architecture that a filter finds.
func newestImage(ctx context.Context, c *aws.Client, by ImageFilter, arch string) (image, error) {
	ec2Arch := "x86_64"
	if arch == artifact.ARM64 {
		ec2Arch = arch
	}
	found, err := aws.All(ctx, ec2.NewDescribeImagesPaginator(c.EC2, &ec2.DescribeImagesInput{
		Owners: by.Owners, MaxResults: sdk.Int32(1000),
		Filters: []types.Filter{aws.Filter("name", by.Name), aws.Filter("state", "available"), aws.Filter("architecture", ec2Arch), aws.Filter("root-device-type", "ebs")},
	}), func(p *ec2.DescribeImagesOutput) []types.Image { return p.Images })
	if err != nil {
		return image{}, fmt.Errorf("look for %s: %w", by, err)
	}
	if len(found) == 0 {
		return image{}, &invalid.Field{Field: fieldImageFilter, Problem: "No such image", Err: fmt.Errorf("there are no %s in region %s that are available, for %s, with an EBS root volume: "+
			"* in the name stands for any text, and a private image must be shared with this account%s",
			by, c.Region, ec2Arch, hiddenFrom(by.Owners...))}
	}
	return launchable(slices.MaxFunc(found, func(a, b types.Image) int {
		return cmp.Or(strings.Compare(sdk.ToString(a.CreationDate), sdk.ToString(b.CreationDate)), aws.CompareIDs(a.ImageId, b.ImageId))
	}))
}
