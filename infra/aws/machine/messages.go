package machine

import (
	"regexp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// otherVPCWords are those about a launch with a security group of another VPC than its subnet's. The code has other meanings, too.
// https://github.com/ansible/ansible-modules-core/issues/347
var otherVPCWords = regexp.MustCompile(`Security group \S+ and subnet \S+ belong to different networks`)

// GroupOfOtherVPC reports whether EC2 refuses a launch because a security group is of another VPC.
func GroupOfOtherVPC(err error) bool { return aws.Says(err, "InvalidParameter", otherVPCWords) }
