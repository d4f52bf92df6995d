package machine

import (
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// fieldGroups is the argument with the ids of security groups.
const fieldGroups = "security_group_ids"

// aboutGroups adds the name of the argument to an error that only a security group can have caused. It may also be a group of the
// machine's network.
func aboutGroups(err error) error {
	if !GroupOfOtherVPC(err) && !aws.IsCode(err, "InvalidGroup.NotFound", "InvalidSecurityGroupID.NotFound") {
		return err
	}
	return &invalid.Field{Field: fieldGroups, Problem: "Unusable security group", Err: err}
}
