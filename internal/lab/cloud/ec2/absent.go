package ec2

import "github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"

// Kinds of resources that the local EC2 does not have. Clients list them before they delete a VPC
// or show an instance. Here the list is empty, and an id is not found.
var absentActions = map[string]action{
	"DescribeVpcEndpoints":             reads(describeVPCEndpoints),
	"DescribeVpcClassicLink":           reads(refuseClassicLink),
	"DescribeVpcClassicLinkDnsSupport": reads(refuseClassicLinkDNS),
}

// absent answers a Describe action. code and message, with one %s, are those for an unknown id.
func absent(in describeRequest, ids []string, filters []string, code, message string) error {
	known := fields[struct{}]{}
	for _, name := range filters {
		known[name] = nil
	}
	if err := checkFilters(in.Filters, known); err != nil {
		return err
	}
	if len(ids) > 0 {
		return wire.Refuse(code, message, ids[0])
	}
	_, _, err := cut(nil, in.MaxResults, in.NextToken, 5, false)
	return err
}

type describeVPCEndpointsRequest struct {
	describeRequest
	VpcEndpointIds []string `query:"VpcEndpointId"`
}

type describeVPCEndpointsResponse struct {
	Endpoints []struct{} `xml:"vpcEndpointSet>item"`
}

func describeVPCEndpoints(_ *tx, in *describeVPCEndpointsRequest) (any, error) {
	return describeVPCEndpointsResponse{}, absent(in.describeRequest, in.VpcEndpointIds,
		[]string{"ip-address-type", "service-name", "service-region", "vpc-id", "vpc-endpoint-id", "vpc-endpoint-state", "vpc-endpoint-type"},
		"InvalidVpcEndpointId.NotFound", "The Vpc Endpoint Id '%s' does not exist")
}

// errClassicLink is EC2's answer since EC2-Classic was retired.
var errClassicLink = wire.Refuse("UnsupportedOperation", "The functionality you requested is not available in this region.")

func refuseClassicLink(*tx, *describeVPCsRequest) (any, error) { return nil, errClassicLink }

type classicLinkDNSRequest struct {
	VpcIds     []string // a list with this name, unlike all others
	MaxResults *int
	NextToken  string
}

func refuseClassicLinkDNS(*tx, *classicLinkDNSRequest) (any, error) { return nil, errClassicLink }
