package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// defaultImageParameter returns the public SSM parameter that names the newest Debian 13 AMI of a
// region for an architecture. https://wiki.debian.org/Cloud/AmazonEC2Image
func defaultImageParameter(arch string) string {
	return debianParameters + "release/13/latest/" + arch
}

type image struct {
	ID         string
	Arch       string // artifact.AMD64 or artifact.ARM64
	RootDevice string // "/dev/xvda"
	MinimumGiB int32  // size of its root snapshot
}

// architectures are those of EC2 by what this package calls them.
var architectures = map[types.ArchitectureValues]string{types.ArchitectureValuesX8664: artifact.AMD64, types.ArchitectureValuesArm64: artifact.ARM64}

// findImage returns the image that a filter finds. Without one it is that with an AMI id, or with the id in the
// SSM parameter named by wanted if that begins with "/" or "resolve:ssm:"; empty means
// defaultImageParameter. It is for the instance type's architecture.
func findImage(ctx context.Context, c *aws.Client, wanted string, by *ImageFilter, instanceType string) (image, error) {
	arch := Architecture(instanceType)
	question := imageQuestion(wanted, by, arch)
	return memoryOf(c).images.Get(question, func() (found image, err error) {
		if by != nil {
			found, err = newestImage(ctx, c, *by, arch)
		} else {
			found, err = describeImage(ctx, c, cmp.Or(wanted, defaultImageParameter(arch)))
		}
		if err == nil && found.Arch != arch {
			err = &invalid.Field{Field: "instance_type", Problem: "Processor of another architecture",
				Err: fmt.Errorf("AMI %s is for %s, and instances of the type %s have %s processors: choose another type or image", found.ID, found.Arch, instanceType, arch)}
		}
		return found, err
	})
}

// imageQuestion identifies how an image is chosen: the same question has the same answer.
func imageQuestion(wanted string, by *ImageFilter, arch string) string {
	if by != nil {
		return by.String() + " " + arch
	}
	return cmp.Or(wanted, defaultImageParameter(arch)) + " " + arch
}

// Debian's account in EC2, and the names of its public parameters. https://wiki.debian.org/Cloud/AmazonEC2Image
const (
	debianOwner      = "136693071363"
	debianParameters = "/aws/service/debian/"
)

// hiddenFrom says when EC2 shows no images of owners. Those of the account itself are always shown.
func hiddenFrom(owners ...string) string {
	others := slices.DeleteFunc(slices.Clone(owners), func(o string) bool { return o == "self" })
	if len(others) == 0 {
		return ""
	}
	return "; if the account limits its images (Allowed AMIs, `aws ec2 get-allowed-images-settings`), EC2 shows only images of the image providers there, which must include " + strings.Join(others, " and ")
}

func describeImage(ctx context.Context, c *aws.Client, wanted string) (image, error) {
	id := wanted
	if parameter := strings.TrimPrefix(wanted, "resolve:ssm:"); strings.HasPrefix(parameter, "/") {
		out, err := c.SSM.GetParameter(ctx, &ssm.GetParameterInput{Name: &parameter})
		if aws.IsCode(err, "ParameterNotFound") && strings.HasPrefix(parameter, debianParameters) {
			return image{}, &invalid.Field{Field: "ami", Problem: "No image of Debian", Err: fmt.Errorf("in region %s Debian publishes no such image, and there is no SSM parameter %s "+
				"(it publishes none in China): set ami or image_filter, to an image of Debian 12 or 13 that the account has in this region. "+
				"https://cloud.debian.org/images/cloud has files for `aws ec2 import-snapshot` and `aws ec2 register-image`: %w", c.Region, parameter, err)}
		}
		if err != nil {
			return image{}, fmt.Errorf("look up the AMI in SSM parameter %s: %w", parameter, err)
		}
		id = sdk.ToString(out.Parameter.Value)
	}
	out, err := c.EC2.DescribeImages(ctx, &ec2.DescribeImagesInput{ImageIds: []string{id}})
	if aws.IsCode(err, "InvalidAMIID.NotFound") || err == nil && len(out.Images) == 0 {
		owner := "its owner"
		if id != wanted && strings.Contains(wanted, debianParameters) {
			owner = "its owner, Debian (" + debianOwner + ")"
		}
		return image{}, errors.Join(fmt.Errorf("AMI %s does not exist in region %s, or is hidden%s", id, c.Region, hiddenFrom(owner)), err)
	}
	if err != nil {
		return image{}, fmt.Errorf("describe AMI %s: %w", id, err)
	}
	return launchable(out.Images[0])
}

// launchable returns what a launch needs to know of an image, or why no machine can have it.
func launchable(ami types.Image) (image, error) {
	id := sdk.ToString(ami.ImageId)
	arch, known := architectures[ami.Architecture]
	if !known {
		return image{}, fmt.Errorf("AMI %s is for %s: only x86_64 and arm64 are supported", id, ami.Architecture)
	}
	found := image{ID: id, Arch: arch, RootDevice: sdk.ToString(ami.RootDeviceName)}
	for _, m := range ami.BlockDeviceMappings {
		if sdk.ToString(m.DeviceName) == found.RootDevice && m.Ebs != nil {
			found.MinimumGiB = sdk.ToInt32(m.Ebs.VolumeSize)
		}
	}
	if found.RootDevice == "" {
		return image{}, errors.Join(fmt.Errorf("AMI %s names no root device", id), errNotEBS)
	}
	return found, nil
}

var errNotEBS = errors.New("only AMIs with an EBS root volume can be used")
