package ec2

var addressAttributeActions = map[string]action{"DescribeAddressesAttribute": reads(describeAddressesAttribute)}

type addressAttributeRequest struct {
	request
	AllocationIds []string `query:"AllocationId"`
	Attribute     string
	MaxResults    *int
	NextToken     string
}

// addressAttributeItem is an address without a reverse DNS record: none can be made here.
type addressAttributeItem struct {
	PublicIP     string `xml:"publicIp"`
	AllocationID string `xml:"allocationId"`
}

type addressAttributeResponse struct {
	Addresses []addressAttributeItem `xml:"addressSet>item"`
	NextToken string                 `xml:"nextToken,omitempty"`
}

func describeAddressesAttribute(t *tx, in *addressAttributeRequest) (any, error) {
	if in.Attribute != "" && in.Attribute != "domain-name" {
		return nil, invalidValue("Value (%s) for parameter attribute is invalid. Unknown attribute.", in.Attribute)
	}
	items, next, err := describe(t, selection[address]{
		kindAddress, t.st.Addresses, "allocationId", in.AllocationIds, nil, describeRequest{MaxResults: in.MaxResults, NextToken: in.NextToken}, 1,
	}, func(a *address) addressAttributeItem { return addressAttributeItem{a.PublicIP.String(), a.ID} })
	return addressAttributeResponse{items, next}, err
}
