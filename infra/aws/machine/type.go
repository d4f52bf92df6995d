package machine

import (
	"regexp"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// instanceType splits a type into family, generation, attributes and size
// (https://docs.aws.amazon.com/ec2/latest/instancetypes/instance-type-names.html).
var instanceType = regexp.MustCompile(`^([a-z]+)([0-9]*)([a-z0-9-]*)\.([a-z0-9-]+)$`)

// CheckInstanceType reports a text that is no instance type. Whether a region has the type, EC2 says
// at the launch.
func CheckInstanceType(name string) (errs invalid.Fields) {
	if name == "" {
		return nil
	}
	if !instanceType.MatchString(name) {
		errs.Say("instance_type", "Unusable instance type", "%q is not the name of an instance type, such as %s.", name, aws.DefaultInstanceType)
	}
	return errs
}

// Architecture returns the architecture of an instance type's processors: artifact.AMD64 or
// artifact.ARM64. Graviton has a g among the attributes after the generation, and some families are of
// ARM as a whole.
func Architecture(name string) string {
	parts := instanceType.FindStringSubmatch(name)
	if parts == nil {
		return artifact.AMD64
	}
	family, generation, attributes := parts[1], parts[2], parts[3]
	if strings.Contains(attributes, "g") || family == "a" || family == "mac" && generation != "1" {
		return artifact.ARM64
	}
	return artifact.AMD64
}
