package elbv2

import (
	"net/url"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// ServeClassic answers the API of Classic Load Balancers (2012-06-01) as an account does that has none and may have none: its
// quota is 0.
func ServeClassic(action string, form url.Values) (any, error) {
	switch action {
	case "DescribeLoadBalancers":
		var in struct {
			LoadBalancerNames []string `query:"LoadBalancerNames.member"`
			Marker            string
			PageSize          *int
		}
		if err := wire.Decode(form, &in); err != nil {
			return nil, invalid("%s", wire.AsError(err).Message)
		}
		if len(in.LoadBalancerNames) > 0 {
			return nil, wire.Refuse("LoadBalancerNotFound", "There is no ACTIVE Load Balancer named '%s'", in.LoadBalancerNames[0])
		}
		return struct {
			LoadBalancerDescriptions []string `xml:"LoadBalancerDescriptions>member"`
		}{}, nil
	case "CreateLoadBalancer":
		return nil, wire.Refuse("TooManyLoadBalancers", "The quota for Classic Load Balancers is 0: the local EC2 has Network Load Balancers only")
	case "DeleteLoadBalancer": // succeeds when there is none
		return none{}, nil
	}
	return nil, wire.Refuse("InvalidAction", "Could not find operation %s for version %s", action, wire.ClassicVersion)
}
