package ec2

import (
	"net/netip"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// route is a route whose target is "local", an internet gateway, a NAT gateway or a network interface.
type route struct {
	Destination netip.Prefix
	Gateway     string
	NATGateway  string
	Interface   string
	Origin      string
}

var routeActions = map[string]action{
	"CreateRoute":  writes(createRoute),
	"ReplaceRoute": writes(replaceRoute),
	"DeleteRoute":  writes(deleteRoute),
}

type routeRequest struct {
	request
	RouteTableId         string
	DestinationCidrBlock string
	GatewayId            string
	NatGatewayId         string
	NetworkInterfaceId   string
	InstanceId           string
}

func createRoute(t *tx, in *routeRequest) (any, error) {
	r, target, err := t.routeTarget(in)
	if err != nil {
		return nil, err
	}
	if r.find(target.Destination) >= 0 {
		return nil, wire.Refuse("RouteAlreadyExists", "The route identified by %s already exists.", target.Destination)
	}
	if limit := t.c.cfg.Quotas.RoutesPerTable; r.createdRoutes() >= limit {
		return nil, wire.Refuse("RouteLimitExceeded", "The maximum number of routes has been reached.")
	}
	target.Origin = "CreateRoute"
	r.Routes = append(r.Routes, target)
	return done{true}, nil
}

func replaceRoute(t *tx, in *routeRequest) (any, error) {
	r, target, err := t.routeTarget(in)
	if err != nil {
		return nil, err
	}
	i := r.find(target.Destination)
	if i < 0 {
		return nil, invalidValue("There is no route defined for '%s' in the route table. Use CreateRoute instead.", target.Destination)
	}
	if r.Routes[i].Gateway == "local" {
		return nil, invalidValue("cannot replace local route %s in route table %s", target.Destination, r.ID)
	}
	target.Origin = "CreateRoute"
	r.Routes[i] = target
	return done{true}, nil
}

func deleteRoute(t *tx, in *routeRequest) (any, error) {
	r, err := find(t, kindRouteTable, t.st.RouteTables, "routeTableId", in.RouteTableId)
	if err != nil {
		return nil, err
	}
	dst, err := parseCIDR("destinationCidrBlock", in.DestinationCidrBlock)
	if err != nil {
		return nil, err
	}
	i := r.find(dst)
	if i < 0 {
		return nil, wire.Refuse("InvalidRoute.NotFound", "no route with destination-cidr-block %s in route table %s", dst, r.ID)
	}
	if r.Routes[i].Gateway == "local" {
		return nil, invalidValue("cannot remove local route %s in route table %s", dst, r.ID)
	}
	r.Routes = slices.Delete(r.Routes, i, i+1)
	return done{true}, nil
}

// createdRoutes returns the number of routes without the local one.
func (r *routeTable) createdRoutes() int {
	return len(r.Routes) - 1
}

func (r *routeTable) find(dst netip.Prefix) int {
	return slices.IndexFunc(r.Routes, func(x route) bool { return x.Destination == dst })
}

// routeTarget checks a CreateRoute or ReplaceRoute request.
func (t *tx) routeTarget(in *routeRequest) (*routeTable, route, error) {
	fail := func(err error) (*routeTable, route, error) { return nil, route{}, err }
	r, err := find(t, kindRouteTable, t.st.RouteTables, "routeTableId", in.RouteTableId)
	if err != nil {
		return fail(err)
	}
	dst, err := parseCIDR("destinationCidrBlock", in.DestinationCidrBlock)
	if err != nil {
		return fail(err)
	}
	x := route{Destination: dst}
	targets := len(one(in.GatewayId)) + len(one(in.NatGatewayId)) + len(one(in.NetworkInterfaceId)) + len(one(in.InstanceId))
	switch {
	case targets == 0:
		return fail(missing("gatewayId, natGatewayId, networkInterfaceId or instanceId"))
	case targets > 1:
		return fail(wire.Refuse("InvalidParameterCombination", "Only one of the route targets may be specified"))
	case in.GatewayId != "":
		g, err := find(t, kindRouteGateway, t.st.Gateways, "gatewayId", in.GatewayId)
		if err != nil {
			return fail(err)
		}
		if asSeen(t, g.ID, g).VPC != r.VPC {
			return fail(invalidValue("route table %s and network gateway %s belong to different networks", r.ID, g.ID))
		}
		if v := t.st.VPCs[r.VPC]; v.CIDR != dst && v.CIDR.Overlaps(dst) && dst.Bits() > v.CIDR.Bits() {
			return fail(invalidValue("The destination CIDR block %s is equal to or more specific than one of this VPC's CIDR blocks. This route can target only an interface or an instance.", dst))
		}
		x.Gateway = g.ID
	case in.NatGatewayId != "":
		g, err := t.targetNATGateway(in.NatGatewayId)
		if err != nil {
			return fail(err)
		}
		if g.VPC != r.VPC {
			return fail(invalidValue("route table %s and network gateway %s belong to different networks", r.ID, g.ID))
		}
		x.NATGateway = g.ID
	default:
		e, err := t.targetInterface(in)
		if err != nil {
			return fail(err)
		}
		if err := managed(e); err != nil {
			return fail(err)
		}
		if e.VPC != r.VPC {
			return fail(invalidValue("route table %s and interface %s belong to different networks", r.ID, e.ID))
		}
		x.Interface = e.ID
	}
	return r, x, nil
}

// targetNATGateway returns the NAT gateway of a route. Routes know a NAT gateway once it is available, and
// until its deletion begins.
func (t *tx) targetNATGateway(id string) (*natGateway, error) {
	g, err := find(t, kindNATGateway, t.natGateways(), "natGatewayId", id)
	if err != nil && wire.AsError(err).Code != kindNATGateway.notFound {
		return nil, err
	}
	if err != nil || !t.available(id) {
		return nil, wire.Refuse("InvalidNatGatewayID.NotFound", "The natGateway ID '%s' does not exist", id)
	}
	return g, nil
}

// available reports whether a NAT gateway forwards.
func (t *tx) available(natGateway string) bool {
	g := t.st.NATGateways[natGateway]
	return g != nil && g.State == natAvailable
}

func (t *tx) targetInterface(in *routeRequest) (*iface, error) {
	if in.InstanceId == "" {
		return find(t, kindInterface, t.st.Interfaces, "networkInterfaceId", in.NetworkInterfaceId)
	}
	i, err := find(t, kindInstance, t.st.Instances, "instanceId", in.InstanceId)
	if err != nil {
		return nil, err
	}
	e, ok := t.st.Interfaces[i.Interface]
	if !ok {
		return nil, wire.Refuse("InvalidInstanceID", "The instance '%s' has no network interface", i.ID)
	}
	return e, nil
}

type routeItem struct {
	Destination     string `xml:"destinationCidrBlock"`
	GatewayID       string `xml:"gatewayId,omitempty"`
	NATGatewayID    string `xml:"natGatewayId,omitempty"`
	InstanceID      string `xml:"instanceId,omitempty"`
	InstanceOwnerID string `xml:"instanceOwnerId,omitempty"`
	InterfaceID     string `xml:"networkInterfaceId,omitempty"`
	State           string `xml:"state"`
	Origin          string `xml:"origin"`
}

// routeItem returns a route with its state, which is blackhole if the target cannot receive packets
// (gateway detached, NAT gateway or interface deleted, instance not running).
func (t *tx) routeItem(vpcID string, x route) routeItem {
	item := routeItem{Destination: x.Destination.String(), GatewayID: x.Gateway, NATGatewayID: x.NATGateway, InterfaceID: x.Interface, State: "active", Origin: x.Origin}
	switch {
	case x.NATGateway != "":
		if !t.available(x.NATGateway) {
			item.State = "blackhole"
		}
	case x.Interface != "":
		e := t.st.Interfaces[x.Interface]
		if e == nil || !t.st.Instances[e.Instance].up() {
			item.State = "blackhole"
		}
		if e != nil {
			item.InstanceID, item.InstanceOwnerID = e.Instance, t.c.cfg.AccountID
		}
	case x.Gateway != "local":
		if g := t.st.Gateways[x.Gateway]; g == nil || g.VPC != vpcID {
			item.State = "blackhole"
		}
	}
	return item
}
