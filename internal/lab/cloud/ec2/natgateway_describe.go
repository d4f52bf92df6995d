package ec2

import "time"

type natGatewayItem struct {
	ID             string           `xml:"natGatewayId"`
	VPCID          string           `xml:"vpcId"`
	SubnetID       string           `xml:"subnetId"`
	Connectivity   string           `xml:"connectivityType"`
	State          string           `xml:"state"`
	CreateTime     time.Time        `xml:"createTime"`
	DeleteTime     *time.Time       `xml:"deleteTime,omitempty"`
	FailureCode    string           `xml:"failureCode,omitempty"`
	FailureMessage string           `xml:"failureMessage,omitempty"`
	Addresses      []natAddressItem `xml:"natGatewayAddressSet>item"`
	Tags           []tag            `xml:"tagSet>item"`
}

type natAddressItem struct {
	AllocationID  string `xml:"allocationId,omitempty"`
	AssociationID string `xml:"associationId,omitempty"`
	InterfaceID   string `xml:"networkInterfaceId,omitempty"`
	PrivateIP     string `xml:"privateIp,omitempty"`
	PublicIP      string `xml:"publicIp,omitempty"`
	Primary       bool   `xml:"isPrimary"`
	Status        string `xml:"status"`
}

// natAddressStatus is the status of a NAT gateway's address by the state of the NAT gateway.
var natAddressStatus = map[string]string{
	natPending: "associating", natAvailable: "succeeded", natFailed: "failed", natDeleting: "disassociating", natDeleted: "succeeded",
}

func (t *tx) natGatewayItem(g *natGateway) natGatewayItem {
	item := natGatewayItem{
		ID: g.ID, VPCID: g.VPC, SubnetID: g.Subnet, Connectivity: g.Connectivity, State: g.State, CreateTime: g.Created, Tags: t.tags(g.ID),
		Addresses: []natAddressItem{{
			AllocationID: g.Address.Allocation, AssociationID: g.Address.Association, InterfaceID: g.Address.Interface, Primary: true,
			Status: natAddressStatus[g.State],
		}},
	}
	if g.Address.PrivateIP.IsValid() {
		item.Addresses[0].PrivateIP = g.Address.PrivateIP.String()
	}
	if g.Address.PublicIP.IsValid() {
		item.Addresses[0].PublicIP = g.Address.PublicIP.String()
	}
	if !g.Deleting.IsZero() {
		item.DeleteTime = &g.Deleting
	}
	if g.State != natPending {
		item.FailureCode, item.FailureMessage = g.Failure.Code, g.Failure.Message
	}
	return item
}

var natGatewayFields = fields[natGateway]{
	"nat-gateway-id": func(_ *tx, g *natGateway) []string { return one(g.ID) },
	"state":          func(_ *tx, g *natGateway) []string { return one(g.State) },
	"subnet-id":      func(_ *tx, g *natGateway) []string { return one(g.Subnet) },
	"vpc-id":         func(_ *tx, g *natGateway) []string { return one(g.VPC) },
}

type describeNATGatewaysRequest struct {
	describeRequest
	NatGatewayIds []string `query:"NatGatewayId"`
}

type describeNATGatewaysResponse struct {
	Gateways  []natGatewayItem `xml:"natGatewaySet>item"`
	NextToken string           `xml:"nextToken,omitempty"`
}

func describeNATGateways(t *tx, in *describeNATGatewaysRequest) (any, error) {
	items, next, err := describe(t, selection[natGateway]{kindNATGateway, t.natGateways(), "natGatewayId", in.NatGatewayIds, natGatewayFields, in.describeRequest, 5}, t.natGatewayItem)
	return describeNATGatewaysResponse{items, next}, err
}
