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

// xenTypes are the types of the hypervisor Xen, all of earlier generations. New types have Nitro.
// https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-nitro-instances.html
var xenTypes = regexp.MustCompile(`^(c[134]|d2|f1|g2|g3s?|h1|i[23]|m[1-4]|p[23]|r[34]|t[12]|x1e?)\.`)

// CheckDataVolumeType reports an instance type on which no data volume is found: a machine finds its volume by
// the id, which is in the names of NVMe devices, and Xen names devices after what the request has said.
func CheckDataVolumeType(name string) (errs invalid.Fields) {
	if xenTypes.MatchString(name) && !strings.HasSuffix(name, ".metal") {
		errs.Say("instance_type", "No data volume on this type", "%s runs on Xen, where devices are not named after the ids of their volumes, so the machine could not tell "+
			"which one is its data volume. Choose a type that runs on Nitro, such as %s, or remove %s.", name, aws.DefaultInstanceType, fieldDataVolume)
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
