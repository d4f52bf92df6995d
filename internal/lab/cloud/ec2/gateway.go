package ec2

import "github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"

// gateway is an internet gateway; VPC is empty while it is not attached.
type gateway struct {
	ID  string
	VPC string
}

var gatewayActions = map[string]action{
	"CreateInternetGateway":    writes(createGateway),
	"DeleteInternetGateway":    writes(deleteGateway),
	"AttachInternetGateway":    writes(attachGateway),
	"DetachInternetGateway":    writes(detachGateway),
	"DescribeInternetGateways": reads(describeGateways),
}

type createGatewayRequest struct {
	request
	TagSpecifications []tagSpecification `query:"TagSpecification"`
}

func createGateway(t *tx, in *createGatewayRequest) (any, error) {
	if err := checkSpecs(in.TagSpecifications, kindGateway); err != nil {
		return nil, err
	}
	g, err := t.newGateway()
	if err != nil {
		return nil, err
	}
	if err := t.applySpecs(in.TagSpecifications, kindGateway, g.ID); err != nil {
		return nil, err
	}
	return struct {
		Gateway gatewayItem `xml:"internetGateway"`
	}{t.gatewayItem(g)}, nil
}

func (t *tx) newGateway() (*gateway, error) {
	if len(t.st.Gateways) >= t.c.cfg.Quotas.VPCs {
		return nil, wire.Refuse("InternetGatewayLimitExceeded", "The maximum number of internet gateways has been reached.")
	}
	g := &gateway{ID: t.newID(kindGateway.prefix)}
	t.st.Gateways[g.ID] = g
	return g, nil
}

type gatewayRequest struct {
	request
	InternetGatewayId string
	VpcId             string
}

func deleteGateway(t *tx, in *gatewayRequest) (any, error) {
	g, err := find(t, kindGateway, t.st.Gateways, "internetGatewayId", in.InternetGatewayId)
	if err != nil {
		return nil, err
	}
	if g.VPC != "" {
		return nil, dependency("The internetGateway '%s' has dependencies and cannot be deleted.", g.ID)
	}
	t.drop(g.ID)
	delete(t.st.Gateways, g.ID)
	return done{true}, nil
}

func (t *tx) gatewayAndVPC(in *gatewayRequest) (*gateway, *vpc, error) {
	g, err := find(t, kindGateway, t.st.Gateways, "internetGatewayId", in.InternetGatewayId)
	if err != nil {
		return nil, nil, err
	}
	v, err := find(t, kindVPC, t.st.VPCs, "vpcId", in.VpcId)
	if err != nil {
		return nil, nil, err
	}
	return g, v, nil
}

// gatewayOf returns the internet gateway attached to a VPC, or nil.
func (t *tx) gatewayOf(vpcID string) *gateway {
	for _, g := range t.st.Gateways {
		if g.VPC == vpcID {
			return g
		}
	}
	return nil
}

func attachGateway(t *tx, in *gatewayRequest) (any, error) {
	g, v, err := t.gatewayAndVPC(in)
	if err != nil {
		return nil, err
	}
	if g.VPC != "" {
		return nil, wire.Refuse("Resource.AlreadyAssociated", "resource %s is already attached to network %s", g.ID, g.VPC)
	}
	if t.gatewayOf(v.ID) != nil {
		return nil, invalidValue("Network %s already has an internet gateway attached", v.ID)
	}
	g.VPC = v.ID
	return done{true}, nil
}

func detachGateway(t *tx, in *gatewayRequest) (any, error) {
	g, v, err := t.gatewayAndVPC(in)
	if err != nil {
		return nil, err
	}
	if g.VPC != v.ID {
		return nil, wire.Refuse("Gateway.NotAttached", "resource %s is not attached to network %s", g.ID, v.ID)
	}
	for _, e := range t.st.Interfaces {
		if e.VPC == v.ID && t.publicIP(e).IsValid() {
			return nil, dependency("Network %s has some mapped public address(es). Please unmap those public address(es) before detaching the gateway.", v.ID)
		}
	}
	g.VPC = ""
	return done{true}, nil
}

type gatewayItem struct {
	ID          string              `xml:"internetGatewayId"`
	OwnerID     string              `xml:"ownerId"`
	Attachments []gatewayAttachment `xml:"attachmentSet>item"`
	Tags        []tag               `xml:"tagSet>item"`
}

type gatewayAttachment struct {
	VPCID string `xml:"vpcId"`
	State string `xml:"state"`
}

func (t *tx) gatewayItem(g *gateway) gatewayItem {
	item := gatewayItem{ID: g.ID, OwnerID: t.c.cfg.AccountID, Tags: t.tags(g.ID)}
	if g.VPC != "" {
		item.Attachments = []gatewayAttachment{{g.VPC, "available"}}
	}
	return item
}

var gatewayFields = fields[gateway]{
	"internet-gateway-id": func(_ *tx, g *gateway) []string { return one(g.ID) },
	"attachment.vpc-id":   func(_ *tx, g *gateway) []string { return one(g.VPC) },
	"attachment.state": func(_ *tx, g *gateway) []string {
		if g.VPC == "" {
			return nil
		}
		return one("available")
	},
	"owner-id": func(t *tx, _ *gateway) []string { return one(t.c.cfg.AccountID) },
}

type describeGatewaysRequest struct {
	describeRequest
	InternetGatewayIds []string `query:"InternetGatewayId"`
}

type describeGatewaysResponse struct {
	Gateways  []gatewayItem `xml:"internetGatewaySet>item"`
	NextToken string        `xml:"nextToken,omitempty"`
}

func describeGateways(t *tx, in *describeGatewaysRequest) (any, error) {
	items, next, err := describe(t, selection[gateway]{kindGateway, t.st.Gateways, "internetGatewayId", in.InternetGatewayIds, gatewayFields, in.describeRequest, 5}, t.gatewayItem)
	return describeGatewaysResponse{items, next}, err
}
