package network

import (
	"regexp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// closedZoneWords are those about an availability zone in which EC2 makes no subnets for the account. There is no code for that.
var closedZoneWords = regexp.MustCompile(`parameter availabilityZone is invalid`)

// closedZone reports whether EC2 makes no subnet in an availability zone. It does so in a constrained zone, which offers
// instance types all the same.
func closedZone(err error) bool {
	return aws.Says(err, "InvalidParameterValue", closedZoneWords)
}
