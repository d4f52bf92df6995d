package route

import (
	"regexp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// goneRouteWords are those about a route that is to be replaced and does not exist. There is no code for that.
var goneRouteWords = regexp.MustCompile(`no route defined for`)

// goneRoute reports whether EC2 does not replace a route because there is none, although it may still show one.
func goneRoute(err error) bool {
	return aws.Says(err, "InvalidParameterValue", goneRouteWords)
}
