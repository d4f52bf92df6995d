package ec2

import "time"

type connectEndpointItem struct {
	ID               string    `xml:"instanceConnectEndpointId"`
	ARN              string    `xml:"instanceConnectEndpointArn"`
	OwnerID          string    `xml:"ownerId"`
	State            string    `xml:"state"`
	StateMessage     string    `xml:"stateMessage"`
	DNSName          string    `xml:"dnsName,omitempty"`
	FIPSDNSName      string    `xml:"fipsDnsName,omitempty"`
	Interfaces       []string  `xml:"networkInterfaceIdSet>item"`
	VPCID            string    `xml:"vpcId"`
	SubnetID         string    `xml:"subnetId"`
	Zone             string    `xml:"availabilityZone"`
	CreatedAt        time.Time `xml:"createdAt"`
	PreserveClientIP bool      `xml:"preserveClientIp"`
	Groups           []string  `xml:"securityGroupIdSet>item"`
	IPAddressType    string    `xml:"ipAddressType"`
	Tags             []tag     `xml:"tagSet>item"`
}

func (t *tx) connectEndpointItem(e *connectEndpoint) connectEndpointItem {
	item := connectEndpointItem{
		ID: e.ID, ARN: t.c.arn(kindConnectEndpoint.typ + "/" + e.ID), OwnerID: t.c.cfg.AccountID,
		State: e.State, VPCID: e.VPC, SubnetID: e.Subnet, Zone: e.Zone, CreatedAt: e.Created, Groups: e.Groups, IPAddressType: "ipv4", Tags: t.tags(e.ID),
	}
	if e.State != connectDeleted {
		item.Interfaces = []string{e.Interface}
	}
	if e.State != connectCreating {
		item.DNSName = t.connectDNSName(e)
	}
	return item
}

var connectEndpointFields = fields[connectEndpoint]{
	"instance-connect-endpoint-id": func(_ *tx, e *connectEndpoint) []string { return one(e.ID) },
	"state":                        func(_ *tx, e *connectEndpoint) []string { return one(e.State) },
	"subnet-id":                    func(_ *tx, e *connectEndpoint) []string { return one(e.Subnet) },
	"vpc-id":                       func(_ *tx, e *connectEndpoint) []string { return one(e.VPC) },
}

type describeConnectEndpointsRequest struct {
	describeRequest
	InstanceConnectEndpointIds []string `query:"InstanceConnectEndpointId"`
}

type describeConnectEndpointsResponse struct {
	Endpoints []connectEndpointItem `xml:"instanceConnectEndpointSet>item"`
	NextToken string                `xml:"nextToken,omitempty"`
}

func describeConnectEndpoints(t *tx, in *describeConnectEndpointsRequest) (any, error) {
	items, next, err := describe(t, selection[connectEndpoint]{
		kindConnectEndpoint, t.connectEndpoints(), "instanceConnectEndpointId", in.InstanceConnectEndpointIds, connectEndpointFields, in.describeRequest, 1,
	}, t.connectEndpointItem)
	return describeConnectEndpointsResponse{items, next}, err
}
