package ec2

import (
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

type routeTable struct {
	ID           string
	VPC          string
	Routes       []route
	Associations []association
}

// association associates a table with a subnet, or with the VPC if Main.
type association struct {
	ID     string
	Subnet string
	Main   bool
}

const associationPrefix = "rtbassoc"

var routeTableActions = map[string]action{
	"CreateRouteTable":             writes(createRouteTable),
	"DeleteRouteTable":             writes(deleteRouteTable),
	"DescribeRouteTables":          reads(describeRouteTables),
	"AssociateRouteTable":          writes(associateRouteTable),
	"DisassociateRouteTable":       writes(disassociateRouteTable),
	"ReplaceRouteTableAssociation": writes(replaceRouteTableAssociation),
}

func (r *routeTable) main() bool {
	return slices.ContainsFunc(r.Associations, func(a association) bool { return a.Main })
}

func (r *routeTable) dissociateSubnet(id string) {
	r.Associations = slices.DeleteFunc(r.Associations, func(a association) bool { return a.Subnet == id })
}

func (t *tx) newRouteTable(v *vpc, main bool) *routeTable {
	r := &routeTable{ID: t.newID(kindRouteTable.prefix), VPC: v.ID}
	r.Routes = []route{{Destination: v.CIDR, Gateway: "local", Origin: "CreateRouteTable"}}
	if main {
		r.Associations = []association{{ID: t.newID(associationPrefix), Main: true}}
	}
	t.st.RouteTables[r.ID] = r
	return r
}

// tableOf returns the effective route table of a subnet.
func (t *tx) tableOf(s *subnet) *routeTable {
	var main *routeTable
	for _, r := range t.st.RouteTables {
		for _, a := range r.Associations {
			if a.Subnet == s.ID {
				return r
			}
			if a.Main && r.VPC == s.VPC {
				main = r
			}
		}
	}
	return main
}

type createRouteTableRequest struct {
	request
	VpcId             string
	ClientToken       string
	TagSpecifications []tagSpecification `query:"TagSpecification"`
}

type routeTableResponse struct {
	RouteTable  routeTableItem `xml:"routeTable"`
	ClientToken string         `xml:"clientToken,omitempty"`
}

func createRouteTable(t *tx, in *createRouteTableRequest) (any, error) {
	ids, token, err := t.resultOf(in.ClientToken)
	if err != nil {
		return nil, err
	}
	if len(ids) == 1 && t.st.RouteTables[ids[0]] != nil {
		return routeTableResponse{t.routeTableItem(t.st.RouteTables[ids[0]]), in.ClientToken}, nil
	}
	v, err := find(t, kindVPC, t.st.VPCs, "vpcId", in.VpcId)
	if err != nil {
		return nil, err
	}
	if err := checkSpecs(in.TagSpecifications, kindRouteTable); err != nil {
		return nil, err
	}
	r := t.newRouteTable(v, false)
	t.saveResult(token, r.ID)
	if err := t.applySpecs(in.TagSpecifications, kindRouteTable, r.ID); err != nil {
		return nil, err
	}
	return routeTableResponse{t.routeTableItem(r), in.ClientToken}, nil
}

type routeTableIDRequest struct {
	request
	RouteTableId string
}

func deleteRouteTable(t *tx, in *routeTableIDRequest) (any, error) {
	r, err := find(t, kindRouteTable, t.st.RouteTables, "routeTableId", in.RouteTableId)
	if err != nil {
		return nil, err
	}
	if len(r.Associations) > 0 {
		return nil, dependency("The routeTable '%s' has dependencies and cannot be deleted.", r.ID)
	}
	t.drop(r.ID)
	delete(t.st.RouteTables, r.ID)
	return done{true}, nil
}

type associateRouteTableRequest struct {
	request
	RouteTableId string
	SubnetId     string
}

type associationResponse struct {
	ID    string `xml:"associationId,omitempty"`
	NewID string `xml:"newAssociationId,omitempty"`
	State string `xml:"associationState>state"`
}

func associateRouteTable(t *tx, in *associateRouteTableRequest) (any, error) {
	r, err := find(t, kindRouteTable, t.st.RouteTables, "routeTableId", in.RouteTableId)
	if err != nil {
		return nil, err
	}
	s, err := find(t, kindSubnet, t.st.Subnets, "subnetId", in.SubnetId)
	if err != nil {
		return nil, err
	}
	if r.VPC != s.VPC {
		return nil, invalidValue("Route table %s and subnet %s belong to different networks", r.ID, s.ID)
	}
	for _, other := range t.st.RouteTables {
		for _, a := range other.Associations {
			if a.Subnet != s.ID {
				continue
			}
			if other == r {
				return associationResponse{ID: a.ID, State: "associated"}, nil
			}
			return nil, wire.Refuse("Resource.AlreadyAssociated", "the specified association for route table %s conflicts with an existing association", r.ID)
		}
	}
	a := association{ID: t.newID(associationPrefix), Subnet: s.ID}
	r.Associations = append(r.Associations, a)
	return associationResponse{ID: a.ID, State: "associated"}, nil
}

// association returns the association with an id, and its table.
func (t *tx) association(id string) (*routeTable, association, error) {
	if id == "" {
		return nil, association{}, missing("associationId")
	}
	for _, r := range t.st.RouteTables {
		for _, a := range r.Associations {
			if a.ID == id && !t.c.faults.Hidden(id, t.now) {
				return r, a, nil
			}
		}
	}
	return nil, association{}, wire.Refuse("InvalidAssociationID.NotFound", "The association ID '%s' does not exist", id)
}

type associationIDRequest struct {
	request
	AssociationId string
	RouteTableId  string
}

func disassociateRouteTable(t *tx, in *associationIDRequest) (any, error) {
	r, a, err := t.association(in.AssociationId)
	if err != nil {
		return nil, err
	}
	if a.Main {
		return nil, invalidValue("cannot disassociate the main route table association %s", a.ID)
	}
	r.dissociateSubnet(a.Subnet)
	return done{true}, nil
}

func replaceRouteTableAssociation(t *tx, in *associationIDRequest) (any, error) {
	from, a, err := t.association(in.AssociationId)
	if err != nil {
		return nil, err
	}
	to, err := find(t, kindRouteTable, t.st.RouteTables, "routeTableId", in.RouteTableId)
	if err != nil {
		return nil, err
	}
	if to.VPC != from.VPC {
		return nil, invalidValue("Route tables %s and %s belong to different networks", from.ID, to.ID)
	}
	from.Associations = slices.DeleteFunc(from.Associations, func(x association) bool { return x.ID == a.ID })
	a.ID = t.newID(associationPrefix)
	to.Associations = append(to.Associations, a)
	return associationResponse{NewID: a.ID, State: "associated"}, nil
}

type routeTableItem struct {
	ID           string            `xml:"routeTableId"`
	OwnerID      string            `xml:"ownerId"`
	VPCID        string            `xml:"vpcId"`
	Routes       []routeItem       `xml:"routeSet>item"`
	Associations []associationItem `xml:"associationSet>item"`
	Tags         []tag             `xml:"tagSet>item"`
}

type associationItem struct {
	ID           string `xml:"routeTableAssociationId"`
	RouteTableID string `xml:"routeTableId"`
	SubnetID     string `xml:"subnetId,omitempty"`
	Main         bool   `xml:"main"`
	State        string `xml:"associationState>state"`
}

func (t *tx) routeTableItem(r *routeTable) routeTableItem {
	item := routeTableItem{ID: r.ID, OwnerID: t.c.cfg.AccountID, VPCID: r.VPC, Tags: t.tags(r.ID)}
	for _, a := range r.Associations {
		item.Associations = append(item.Associations, associationItem{a.ID, r.ID, a.Subnet, a.Main, "associated"})
	}
	for _, x := range r.Routes {
		item.Routes = append(item.Routes, t.routeItem(r.VPC, x))
	}
	return item
}

func (r *routeTable) collect(f func(association) string) []string {
	var out []string
	for _, a := range r.Associations {
		out = append(out, one(f(a))...)
	}
	return out
}

func eachRoute(f func(routeItem) string) func(*tx, *routeTable) []string {
	return func(t *tx, r *routeTable) []string {
		var out []string
		for _, x := range r.Routes {
			out = append(out, one(f(t.routeItem(r.VPC, x)))...)
		}
		return out
	}
}

var routeTableFields = fields[routeTable]{
	"route-table-id": func(_ *tx, r *routeTable) []string { return one(r.ID) },
	"vpc-id":         func(_ *tx, r *routeTable) []string { return one(r.VPC) },
	"owner-id":       func(t *tx, _ *routeTable) []string { return one(t.c.cfg.AccountID) },
	"association.main": func(_ *tx, r *routeTable) []string {
		return r.collect(func(a association) string { return strings.Join(yesNo(a.Main), "") })
	},
	"association.route-table-association-id": func(_ *tx, r *routeTable) []string {
		return r.collect(func(a association) string { return a.ID })
	},
	"association.route-table-id": func(_ *tx, r *routeTable) []string {
		return r.collect(func(association) string { return r.ID })
	},
	"association.subnet-id": func(_ *tx, r *routeTable) []string {
		return r.collect(func(a association) string { return a.Subnet })
	},
	"route.destination-cidr-block": eachRoute(func(x routeItem) string { return x.Destination }),
	"route.gateway-id":             eachRoute(func(x routeItem) string { return x.GatewayID }),
	"route.nat-gateway-id":         eachRoute(func(x routeItem) string { return x.NATGatewayID }),
	"route.instance-id":            eachRoute(func(x routeItem) string { return x.InstanceID }),
	"route.origin":                 eachRoute(func(x routeItem) string { return x.Origin }),
	"route.state":                  eachRoute(func(x routeItem) string { return x.State }),
}

type describeRouteTablesRequest struct {
	describeRequest
	RouteTableIds []string `query:"RouteTableId"`
}

type describeRouteTablesResponse struct {
	RouteTables []routeTableItem `xml:"routeTableSet>item"`
	NextToken   string           `xml:"nextToken,omitempty"`
}

// withVisibleAssociations returns the table without associations that a fault hides.
func (t *tx) withVisibleAssociations(r *routeTable) *routeTable {
	out := *r
	out.Associations = slices.DeleteFunc(slices.Clone(r.Associations), func(a association) bool { return t.c.faults.Hidden(a.ID, t.now) })
	return &out
}

func describeRouteTables(t *tx, in *describeRouteTablesRequest) (any, error) {
	visible := make(map[string]*routeTable, len(t.st.RouteTables))
	for id, r := range t.st.RouteTables {
		visible[id] = t.withVisibleAssociations(r)
	}
	items, next, err := describe(t, selection[routeTable]{kindRouteTable, visible, "routeTableId", in.RouteTableIds, routeTableFields, in.describeRequest, 5}, t.routeTableItem)
	return describeRouteTablesResponse{items, next}, err
}
