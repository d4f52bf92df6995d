package ec2

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// natGateway is a NAT gateway. Its interface, and the association of its address, exist until it is
// deleted. One that failed has neither.
type natGateway struct {
	ID           string
	VPC          string
	Subnet       string
	Zone         string
	Connectivity string // public or private
	State        string
	Created      time.Time
	Deleting     time.Time   // when its deletion began; zero if none did
	Ended        time.Time   // when it failed or was deleted
	Failure      stateReason // known from the start, shown when it has failed
	Address      natAddress
}

// natAddress is what is shown of a NAT gateway's address, also after its end.
type natAddress struct {
	Allocation  string
	Association string
	Interface   string
	PrivateIP   netip.Addr
	PublicIP    netip.Addr
}

// The states of a NAT gateway.
const (
	natPending   = "pending"
	natAvailable = "available"
	natFailed    = "failed"
	natDeleting  = "deleting"
	natDeleted   = "deleted"
)

const (
	// natChanging is how long a NAT gateway is pending or deleting. On AWS it is a minute or more.
	natChanging = 2 * time.Second
	// natKeeps is how long the address of a deleted NAT gateway cannot be released. On AWS it is seconds to minutes:
	// https://github.com/kubernetes/kops/issues/938
	natKeeps = 2 * time.Second
	// natVisible is how long a NAT gateway is shown that failed or was deleted. AWS says "about an hour":
	// https://docs.aws.amazon.com/vpc/latest/userguide/nat-gateway-troubleshooting.html
	natVisible = time.Hour
)

var natGatewayActions = map[string]action{
	"CreateNatGateway":    writes(createNATGateway),
	"DeleteNatGateway":    writes(deleteNATGateway),
	"DescribeNatGateways": reads(describeNATGateways),
}

// ended reports whether a NAT gateway has nothing any more but its description.
func (g *natGateway) ended() bool { return g.State == natFailed || g.State == natDeleted }

// natGateways returns those that are shown.
func (t *tx) natGateways() map[string]*natGateway {
	out := make(map[string]*natGateway, len(t.st.NATGateways))
	for id, g := range t.st.NATGateways {
		if !g.ended() || t.now.Sub(g.Ended) <= natVisible {
			out[id] = g
		}
	}
	return out
}

type createNATGatewayRequest struct {
	request
	AllocationId      string
	AvailabilityMode  string
	ClientToken       string
	ConnectivityType  string
	PrivateIpAddress  string
	SubnetId          string
	TagSpecifications []tagSpecification `query:"TagSpecification"`
}

type createNATGatewayResponse struct {
	Gateway     natGatewayItem `xml:"natGateway"`
	ClientToken string         `xml:"clientToken,omitempty"`
}

// createNATGateway refuses what names nothing. What is wrong otherwise, such as an address in use, a NAT
// gateway finds out while it is pending. Then it fails. Its token gives it again, also when it has failed
// or was deleted.
func createNATGateway(t *tx, in *createNATGatewayRequest) (any, error) {
	ids, token, err := t.resultOf(in.ClientToken)
	if err != nil {
		return nil, err
	}
	if len(ids) > 0 {
		g := t.natGateways()[ids[0]]
		if g == nil {
			return nil, kindNATGateway.notFoundError(ids[0])
		}
		return createNATGatewayResponse{t.natGatewayItem(g), in.ClientToken}, nil
	}
	in.ConnectivityType = cmp.Or(in.ConnectivityType, "public")
	switch {
	case in.AvailabilityMode != "" && in.AvailabilityMode != "zonal":
		return nil, wire.Refuse("UnsupportedOperation", "The local EC2 has zonal NAT gateways only.")
	case in.ConnectivityType != "public" && in.ConnectivityType != "private":
		return nil, invalidValue("Value (%s) for parameter connectivityType is invalid. Expected one of: public, private", in.ConnectivityType)
	case in.ConnectivityType == "public" && in.AllocationId == "":
		return nil, missing("AllocationId")
	case in.ConnectivityType == "private" && in.AllocationId != "":
		return nil, wire.Refuse("InvalidParameterCombination", "AllocationId cannot be used with the connectivity type private")
	}
	s, err := t.natSubnet(in.SubnetId)
	if err != nil {
		return nil, err
	}
	a, err := t.natElasticIP(in.AllocationId)
	if err != nil {
		return nil, err
	}
	if a != nil && a.BorderGroup != t.c.borderGroup(s.Zone) {
		return nil, differentGroups("Primary elastic IP")
	}
	if err := checkSpecs(in.TagSpecifications, kindNATGateway); err != nil {
		return nil, err
	}
	if limit := t.c.cfg.Quotas.NATGatewaysPerZone; t.natGatewaysIn(s.Zone) >= limit {
		return nil, wire.Refuse("NatGatewayLimitExceeded", "Performing this operation would exceed the limit of %d NAT gateways", limit)
	}
	g := &natGateway{
		ID: t.newID(kindNATGateway.prefix), VPC: s.VPC, Subnet: s.ID, Zone: s.Zone, Connectivity: in.ConnectivityType,
		State: natPending, Created: t.now, Address: natAddress{Allocation: in.AllocationId},
	}
	if err := t.equipNATGateway(g, s, a, in.PrivateIpAddress); err != nil {
		return nil, err
	}
	t.st.NATGateways[g.ID] = g
	t.saveResult(token, g.ID)
	if err := t.applySpecs(in.TagSpecifications, kindNATGateway, g.ID); err != nil {
		return nil, err
	}
	t.afterCommit(func() { t.c.settleNATGateway(g.ID) })
	return createNATGatewayResponse{t.natGatewayItem(g), in.ClientToken}, nil
}

// natSubnet and natElasticIP return what a NAT gateway is made of. Their codes are not those of other
// actions: https://github.com/openshift/hypershift retries them while these are not visible yet.
func (t *tx) natSubnet(id string) (*subnet, error) {
	if id == "" {
		return nil, missing("SubnetId")
	}
	if !kindSubnet.wellFormed(id) {
		return nil, wire.Refuse("InvalidSubnet", "The subnet ID '%s' is malformed", id)
	}
	s, err := find(t, kindSubnet, t.st.Subnets, "subnetId", id)
	if err != nil {
		return nil, wire.Refuse("InvalidSubnet", "The subnet ID '%s' does not exist", id)
	}
	return s, nil
}

func (t *tx) natElasticIP(id string) (*address, error) {
	if id == "" {
		return nil, nil
	}
	if !kindAddress.wellFormed(id) {
		return nil, wire.Refuse("InvalidElasticIpID.Malformed", "The elastic-ip ID '%s' is malformed", id)
	}
	a, err := find(t, kindAddress, t.st.Addresses, "allocationId", id)
	if err != nil {
		return nil, wire.Refuse("InvalidElasticIpID.NotFound", "The elastic-ip ID '%s' does not exist", id)
	}
	return a, nil
}

// natGatewaysIn returns the number of NAT gateways in a zone that count against its quota: those that are
// pending, available or deleting.
func (t *tx) natGatewaysIn(zone string) int {
	n := 0
	for _, g := range t.st.NATGateways {
		if g.Zone == zone && !g.ended() {
			n++
		}
	}
	return n
}

// equipNATGateway gives a NAT gateway its interface and its address, or notes why it will fail. a is nil
// if it is private.
func (t *tx) equipNATGateway(g *natGateway, s *subnet, a *address, privateIP string) error {
	ip, err := t.takeAddress(s, privateIP)
	switch {
	case err != nil && wire.AsError(err).Code != "InsufficientFreeAddressesInSubnet":
		return err
	case err != nil:
		g.Failure = stateReason{"InsufficientFreeAddressesInSubnet", "Subnet has insufficient free addresses to create this NAT gateway"}
	case a != nil && t.gatewayOf(s.VPC) == nil:
		g.Failure = stateReason{"Gateway.NotAttached", "Network " + s.VPC + " has no Internet gateway attached"}
	case a != nil && a.Interface != "":
		g.Failure = stateReason{"Resource.AlreadyAssociated", "Elastic IP address [" + a.ID + "] is already associated"}
	}
	if g.Failure.Code != "" {
		return nil
	}
	e := &iface{
		ID: t.newID(kindInterface.prefix), VPC: s.VPC, Subnet: s.ID, NATGateway: g.ID, AttachmentID: t.newID("ela-attach"),
		AttachTime: t.now, Description: "Interface for NAT Gateway " + g.ID, MAC: mac(ip), PrivateIP: ip,
	}
	t.st.Interfaces[e.ID] = e
	g.Address.Interface, g.Address.PrivateIP = e.ID, ip
	if a != nil {
		a.Interface, a.AssociationID = e.ID, t.newID("eipassoc")
		g.Address.Association, g.Address.PublicIP = a.AssociationID, a.PublicIP
	}
	return nil
}

type natGatewayIDRequest struct {
	request
	NatGatewayId string
}

// deleteNATGateway begins a deletion. A pending or failed NAT gateway can be deleted too, and one that is
// being deleted again.
func deleteNATGateway(t *tx, in *natGatewayIDRequest) (any, error) {
	g, err := find(t, kindNATGateway, t.natGateways(), "natGatewayId", in.NatGatewayId)
	if err != nil {
		return nil, err
	}
	switch g.State {
	case natDeleted:
		return nil, kindNATGateway.notFoundError(g.ID)
	case natDeleting:
	default:
		g.State, g.Deleting = natDeleting, t.now
		t.afterCommit(func() { t.c.settleNATGateway(g.ID) })
	}
	return struct {
		ID string `xml:"natGatewayId"`
	}{g.ID}, nil
}

// settle ends the state that a NAT gateway is in for a while.
func (t *tx) settle(g *natGateway) {
	switch {
	case g.State == natPending && g.Failure.Code == "":
		g.State = natAvailable
	case g.State == natPending:
		g.State, g.Ended = natFailed, t.now
	case g.State == natDeleting:
		g.State, g.Ended = natDeleted, t.now
		if e := t.st.Interfaces[g.Address.Interface]; e != nil {
			t.dropInterface(e)
		}
	}
}

// settleNATGateway ends, after a while, the state that a NAT gateway is in now, unless that has changed.
func (c *Compute) settleNATGateway(id string) {
	c.mu.Lock()
	state := ""
	if g := c.st.NATGateways[id]; g != nil {
		state = g.State
	}
	c.mu.Unlock()
	c.settleLater(natChanging, "a NAT gateway's", id, func(t *tx) {
		if g := t.st.NATGateways[id]; g != nil && g.State == state {
			t.settle(g)
		}
	})
}

// settleLater calls end in a transaction after a while, again until what it changes is saved, and applies that to
// the network. whose is in the message of a failure.
func (c *Compute) settleLater(delay time.Duration, whose, id string, end func(*tx)) {
	waited := c.cfg.Clock.After(delay)
	c.wg.Go(func() {
		for {
			select {
			case <-c.ctx.Done():
				return // the next Start continues
			case <-waited:
			}
			err := c.update("", nil, func(t *tx) error {
				end(t)
				return nil
			})
			if err == nil {
				c.syncNetwork(c.ctx)
				return
			}
			c.log.Error(whose+" state could not be saved; trying again", "id", id, "error", err)
			waited = c.cfg.Clock.After(delay)
		}
	})
}

// resumeNATGateways continues with every NAT gateway as the last run left it.
func (t *tx) resumeNATGateways() {
	for _, g := range sorted(t.st.NATGateways) {
		if g.State == natPending || g.State == natDeleting {
			t.afterCommit(func() { t.c.settleNATGateway(g.ID) })
		}
	}
}

// keptByNATGateway refuses to release the address of a NAT gateway that was deleted a moment ago.
func (t *tx) keptByNATGateway(a *address) error {
	for _, g := range t.st.NATGateways {
		if g.Address.Allocation == a.ID && g.State == natDeleted && t.now.Sub(g.Ended) < natKeeps {
			return noPermission()
		}
	}
	return nil
}

// noPermission is what EC2 says of a resource that another service of AWS has. It is no matter of credentials.
func noPermission() error {
	return wire.Refuse("AuthFailure", "You do not have permission to access the specified resource.")
}

// managed refuses to change the interface of a NAT gateway or of a load balancer, or its address.
func managed(e *iface) error {
	if e == nil || !e.managed() {
		return nil
	}
	return noPermission()
}
