package ec2

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// connectEndpoint is an EC2 Instance Connect Endpoint. Its interface exists until it is deleted.
type connectEndpoint struct {
	ID        string
	VPC       string
	Subnet    string
	Zone      string
	State     string
	Created   time.Time
	Ended     time.Time // when it was deleted
	Interface string
	Groups    []string
}

// The states of an EC2 Instance Connect Endpoint.
const (
	connectCreating = "create-in-progress"
	connectReady    = "create-complete"
	connectDeleting = "delete-in-progress"
	connectDeleted  = "delete-complete"
)

const (
	// connectChanging is how long an endpoint is created or deleted. On AWS it is some minutes.
	connectChanging = 2 * time.Second
	// connectVisible is how long a deleted endpoint is shown. AWS does not say how long it does.
	connectVisible = time.Minute
)

var connectEndpointActions = map[string]action{
	"CreateInstanceConnectEndpoint":    writes(createConnectEndpoint),
	"DeleteInstanceConnectEndpoint":    writes(deleteConnectEndpoint),
	"DescribeInstanceConnectEndpoints": reads(describeConnectEndpoints),
}

// connectEndpoints returns those that are shown.
func (t *tx) connectEndpoints() map[string]*connectEndpoint {
	out := make(map[string]*connectEndpoint, len(t.st.ConnectEndpoints))
	for id, e := range t.st.ConnectEndpoints {
		if e.State != connectDeleted || t.now.Sub(e.Ended) <= connectVisible {
			out[id] = e
		}
	}
	return out
}

type createConnectEndpointRequest struct {
	request
	ClientToken       string
	IpAddressType     string
	PreserveClientIp  bool
	SecurityGroupIds  []string `query:"SecurityGroupId"`
	SubnetId          string
	TagSpecifications []tagSpecification `query:"TagSpecification"`
}

type createConnectEndpointResponse struct {
	ClientToken string              `xml:"clientToken,omitempty"`
	Endpoint    connectEndpointItem `xml:"instanceConnectEndpoint"`
}

func createConnectEndpoint(t *tx, in *createConnectEndpointRequest) (any, error) {
	ids, token, err := t.resultOf(in.ClientToken)
	if err != nil {
		return nil, err
	}
	if len(ids) > 0 {
		e := t.connectEndpoints()[ids[0]]
		if e == nil {
			return nil, kindConnectEndpoint.notFoundError(ids[0])
		}
		return createConnectEndpointResponse{in.ClientToken, t.connectEndpointItem(e)}, nil
	}
	switch {
	case in.PreserveClientIp:
		return nil, wire.Refuse("UnsupportedOperation", "The local EC2 does not preserve the client's address: PreserveClientIp must be false.")
	case in.IpAddressType != "" && in.IpAddressType != "ipv4":
		return nil, wire.Refuse("UnsupportedOperation", "The local EC2 has IPv4 only.")
	}
	s, err := find(t, kindSubnet, t.st.Subnets, "subnetId", in.SubnetId)
	if err != nil {
		return nil, err
	}
	if err := t.checkGroups(kindGroup, s.VPC, s.ID, in.SecurityGroupIds); err != nil {
		return nil, err
	}
	if err := checkSpecs(in.TagSpecifications, kindConnectEndpoint); err != nil {
		return nil, err
	}
	if err := t.roomForConnectEndpoint(s); err != nil {
		return nil, err
	}
	ip, err := t.takeAddress(s, "")
	if err != nil {
		return nil, err
	}
	groups := in.SecurityGroupIds
	if len(groups) == 0 {
		groups = []string{t.defaultGroup(s.VPC)}
	}
	e := &connectEndpoint{ID: t.newID(kindConnectEndpoint.prefix), VPC: s.VPC, Subnet: s.ID, Zone: s.Zone, State: connectCreating, Created: t.now, Groups: groups}
	i := &iface{
		ID: t.newID(kindInterface.prefix), VPC: s.VPC, Subnet: s.ID, ConnectEndpoint: e.ID, AttachmentID: t.newID("ela-attach"),
		AttachTime: t.now, Description: "EC2 Instance Connect Endpoint " + e.ID, MAC: mac(ip), PrivateIP: ip, Groups: slices.Clone(groups),
	}
	e.Interface = i.ID
	t.st.Interfaces[i.ID], t.st.ConnectEndpoints[e.ID] = i, e
	t.saveResult(token, e.ID)
	if err := t.applySpecs(in.TagSpecifications, kindConnectEndpoint, e.ID); err != nil {
		return nil, err
	}
	t.afterCommit(func() { t.c.settleConnectEndpoint(e.ID) })
	return createConnectEndpointResponse{in.ClientToken, t.connectEndpointItem(e)}, nil
}

// roomForConnectEndpoint refuses a second endpoint of a VPC, and of a subnet with it, and one more than
// the account may have. EC2's list of error codes has none of their own for these quotas.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/eice-quotas.html
func (t *tx) roomForConnectEndpoint(s *subnet) error {
	all, inVPC := 0, 0
	for _, e := range t.st.ConnectEndpoints {
		if e.State == connectDeleted {
			continue
		}
		if all++; e.VPC == s.VPC {
			inVPC++
		}
	}
	switch limit := t.c.cfg.Quotas.ConnectEndpoints; {
	case inVPC > 0:
		return wire.Refuse("ResourceLimitExceeded", "You have reached the limit of 1 EC2 Instance Connect Endpoint for the VPC '%s'.", s.VPC)
	case all >= limit:
		return wire.Refuse("ResourceLimitExceeded", "You have reached the limit of %d EC2 Instance Connect Endpoints.", limit)
	}
	return nil
}

type connectEndpointIDRequest struct {
	request
	InstanceConnectEndpointId string
}

type deleteConnectEndpointResponse struct {
	Endpoint connectEndpointItem `xml:"instanceConnectEndpoint"`
}

// deleteConnectEndpoint begins a deletion, and ends the tunnels.
func deleteConnectEndpoint(t *tx, in *connectEndpointIDRequest) (any, error) {
	e, err := find(t, kindConnectEndpoint, t.connectEndpoints(), "instanceConnectEndpointId", in.InstanceConnectEndpointId)
	if err != nil {
		return nil, err
	}
	switch e.State {
	case connectDeleted:
		return nil, kindConnectEndpoint.notFoundError(e.ID)
	case connectDeleting:
	default:
		e.State = connectDeleting
		t.afterCommit(func() {
			t.c.cfg.EndTunnels(e.ID)
			t.c.settleConnectEndpoint(e.ID)
		})
	}
	return deleteConnectEndpointResponse{t.connectEndpointItem(e)}, nil
}

// settleConnectEndpoint ends, after a while, the creation or the deletion of an endpoint.
func (c *Compute) settleConnectEndpoint(id string) {
	c.mu.Lock()
	state := ""
	if e := c.st.ConnectEndpoints[id]; e != nil {
		state = e.State
	}
	c.mu.Unlock()
	c.settleLater(connectChanging, "an endpoint's", id, func(t *tx) {
		e := t.st.ConnectEndpoints[id]
		switch {
		case e == nil || e.State != state:
		case state == connectCreating:
			e.State = connectReady
		case state == connectDeleting:
			e.State, e.Ended = connectDeleted, t.now
			if i := t.st.Interfaces[e.Interface]; i != nil {
				t.dropInterface(i)
			}
		}
	})
}

// resumeConnectEndpoints continues with every endpoint as the last run left it.
func (t *tx) resumeConnectEndpoints() {
	for _, e := range sorted(t.st.ConnectEndpoints) {
		if e.State == connectCreating || e.State == connectDeleting {
			t.afterCommit(func() { t.c.settleConnectEndpoint(e.ID) })
		}
	}
}

// ConnectEndpointFacts is what a tunnel needs to know of an endpoint.
type ConnectEndpointFacts struct {
	DNSName   string
	Interface string // from which its packets go out
	VPC       netip.Prefix
	Ready     bool
}

// ConnectEndpoint returns the facts about an endpoint, if it exists.
func (c *Compute) ConnectEndpoint(id string) (facts ConnectEndpointFacts, ok bool) {
	c.look(func(t *tx) {
		e := t.st.ConnectEndpoints[id]
		if e == nil || e.State == connectDeleted || c.faults.Hidden(id, t.now) {
			return
		}
		facts, ok = ConnectEndpointFacts{t.connectDNSName(e), e.Interface, t.st.VPCs[e.VPC].CIDR, e.State == connectReady}, true
	})
	return facts, ok
}

// ConnectDomain is the end of the DNS names of the endpoints in a region.
func ConnectDomain(region string) string {
	return ".ec2-instance-connect-endpoint." + region + "." + wire.Domain(region)
}

func (t *tx) connectDNSName(e *connectEndpoint) string {
	hash := fnv.New32a()
	hash.Write([]byte(e.ID))
	return e.ID + "." + strconv.FormatUint(uint64(binary.BigEndian.Uint32(hash.Sum(nil))), 16) + ConnectDomain(t.c.cfg.Region)
}

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
