package ec2

import (
	"cmp"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// placementGroup is a placement group. The instances of one are all on this host: only its rules are here.
type placementGroup struct {
	ID         string
	Name       string
	Strategy   string // cluster, spread or partition
	Partitions int
}

var placementGroupActions = map[string]action{
	"CreatePlacementGroup":    writes(createPlacementGroup),
	"DescribePlacementGroups": reads(describePlacementGroups),
	"DeletePlacementGroup":    writes(deletePlacementGroup),
	"ModifyInstancePlacement": writes(modifyPlacement),
}

const (
	strategyCluster   = "cluster"
	strategySpread    = "spread"
	strategyPartition = "partition"

	// spreadInstances is how many instances of a spread group run in one zone.
	// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/placement-strategies.html
	spreadInstances = 7
	maxPartitions   = 7
	maxGroupName    = 255
)

// placementGroup returns the group with a name, nil if there is none.
func (t *tx) placementGroup(name string) *placementGroup {
	for _, g := range t.st.PlacementGroups {
		if g.Name == name {
			return g
		}
	}
	return nil
}

// findPlacementGroup returns the group with the name that a request gives.
func (t *tx) findPlacementGroup(name string) (*placementGroup, error) {
	if g := t.placementGroup(name); g != nil && !t.c.faults.Hidden(g.ID, t.now) {
		return g, nil
	}
	return nil, wire.Refuse("InvalidPlacementGroup.Unknown", "The Placement Group '%s' is unknown.", name)
}

type createPlacementGroupRequest struct {
	request
	GroupName         string
	Strategy          string
	PartitionCount    int
	SpreadLevel       string
	TagSpecifications []tagSpecification `query:"TagSpecification"`
}

func createPlacementGroup(t *tx, in *createPlacementGroupRequest) (any, error) {
	g := &placementGroup{Name: in.GroupName, Strategy: cmp.Or(in.Strategy, strategyCluster), Partitions: in.PartitionCount}
	switch {
	case g.Name == "":
		return nil, missing("groupName")
	case len(g.Name) > maxGroupName:
		return nil, invalidValue("Value (%s) for parameter groupName is invalid. It has at most %d characters.", g.Name, maxGroupName)
	case !slices.Contains([]string{strategyCluster, strategySpread, strategyPartition}, g.Strategy):
		return nil, invalidValue("Value (%s) for parameter strategy is invalid.", g.Strategy)
	case in.SpreadLevel != "" && (g.Strategy != strategySpread || in.SpreadLevel != "rack"): // "host" is for Outposts
		return nil, invalidValue("Value (%s) for parameter spreadLevel is invalid.", in.SpreadLevel)
	case g.Strategy != strategyPartition && g.Partitions != 0:
		return nil, wire.Refuse("InvalidParameterCombination", "The parameter partitionCount is valid with the strategy partition only.")
	case g.Partitions < 0 || g.Partitions > maxPartitions:
		return nil, invalidValue("Value (%d) for parameter partitionCount is invalid. It is 1 to %d.", g.Partitions, maxPartitions)
	case t.placementGroup(g.Name) != nil:
		return nil, wire.Refuse("InvalidPlacementGroup.Duplicate", "The Placement Group '%s' already exists.", g.Name)
	}
	if g.Strategy == strategyPartition {
		g.Partitions = cmp.Or(g.Partitions, 2)
	}
	if err := checkSpecs(in.TagSpecifications, kindPlacementGroup); err != nil {
		return nil, err
	}
	g.ID = t.newID(kindPlacementGroup.prefix)
	t.st.PlacementGroups[g.ID] = g
	if err := t.applySpecs(in.TagSpecifications, kindPlacementGroup, g.ID); err != nil {
		return nil, err
	}
	return struct {
		Group placementGroupItem `xml:"placementGroup"`
	}{t.placementGroupItem(g)}, nil
}

type placementGroupItem struct {
	ID          string `xml:"groupId"`
	ARN         string `xml:"groupArn"`
	Name        string `xml:"groupName"`
	State       string `xml:"state"`
	Strategy    string `xml:"strategy"`
	SpreadLevel string `xml:"spreadLevel,omitempty"`
	Partitions  int    `xml:"partitionCount,omitempty"`
	Tags        []tag  `xml:"tagSet>item"`
}

func (t *tx) placementGroupItem(g *placementGroup) placementGroupItem {
	item := placementGroupItem{
		ID: g.ID, ARN: t.c.arn("placement-group/" + g.Name), Name: g.Name,
		State: "available", Strategy: g.Strategy, Partitions: g.Partitions, Tags: t.tags(g.ID),
	}
	if g.Strategy == strategySpread {
		item.SpreadLevel = "rack"
	}
	return item
}

var placementGroupFields = fields[placementGroup]{
	"group-name":   func(_ *tx, g *placementGroup) []string { return one(g.Name) },
	"group-arn":    func(t *tx, g *placementGroup) []string { return one(t.placementGroupItem(g).ARN) },
	"state":        func(*tx, *placementGroup) []string { return one("available") },
	"strategy":     func(_ *tx, g *placementGroup) []string { return one(g.Strategy) },
	"spread-level": func(t *tx, g *placementGroup) []string { return one(t.placementGroupItem(g).SpreadLevel) },
}

type describePlacementGroupsRequest struct {
	describeRequest
	GroupIds   []string `query:"GroupId"`
	GroupNames []string `query:"GroupName"`
}

func describePlacementGroups(t *tx, in *describePlacementGroupsRequest) (any, error) {
	ids := in.GroupIds
	for _, name := range in.GroupNames {
		g, err := t.findPlacementGroup(name)
		if err != nil {
			return nil, err
		}
		ids = append(ids, g.ID)
	}
	items, _, err := describe(t, selection[placementGroup]{kindPlacementGroup, t.st.PlacementGroups, "groupId", ids, placementGroupFields, in.describeRequest, 0}, t.placementGroupItem)
	return struct {
		Groups []placementGroupItem `xml:"placementGroupSet>item"`
	}{items}, err
}

type placementGroupRequest struct {
	request
	GroupName string
}

// deletePlacementGroup deletes a group without instances that are on. Stopped ones do not hold it, and
// cannot be started without it.
func deletePlacementGroup(t *tx, in *placementGroupRequest) (any, error) {
	if in.GroupName == "" {
		return nil, missing("groupName")
	}
	g, err := t.findPlacementGroup(in.GroupName)
	if err != nil {
		return nil, err
	}
	for _, i := range t.st.Instances {
		if i.Group == g.Name && i.State != stateStopped && i.State != stateTerminated {
			return nil, wire.Refuse("InvalidPlacementGroup.InUse", "The placement group '%s' is in use and may not be deleted.", g.Name)
		}
	}
	t.drop(g.ID)
	delete(t.st.PlacementGroups, g.ID)
	return done{true}, nil
}

// placeable refuses to run instances of a type in a zone in a placement group, and returns how many of the
// wanted ones may, at least least of them.
func (t *tx) placeable(group, instanceType, zone string, least, wanted int) (int, error) {
	if group == "" {
		return wanted, nil
	}
	g, err := t.findPlacementGroup(group)
	if err != nil {
		return 0, err
	}
	up := map[string]int{} // by zone
	for _, i := range t.st.Instances {
		if i.Group == g.Name && i.up() {
			up[i.Zone]++
		}
	}
	if g.Strategy == strategyCluster {
		if burstable(instanceType) {
			return 0, wire.Refuse("InvalidParameterCombination", "Placement groups may not be used with instances of type '%s'.", instanceType)
		}
		for z := range up {
			if z != zone {
				return 0, wire.Refuse("InvalidPlacementGroup.InUse", "The placement group '%s' is in use in another availability zone: %s", g.Name, z)
			}
		}
	}
	n := wanted
	if g.Strategy == strategySpread {
		n = min(wanted, spreadInstances-up[zone])
	}
	if n < least {
		return 0, wire.RefuseWith(500, "InsufficientInstanceCapacity",
			"We currently do not have sufficient capacity to launch %d more instances in the placement group '%s' in %s: it runs at most %d there.", least, g.Name, zone, spreadInstances)
	}
	return n, nil
}

type modifyPlacementRequest struct {
	request
	InstanceId string
	GroupName  *string // empty takes the instance out of its group
	Tenancy    string
	Affinity   string
}

func modifyPlacement(t *tx, in *modifyPlacementRequest) (any, error) {
	i, err := find(t, kindInstance, t.st.Instances, "instanceId", in.InstanceId)
	if err != nil {
		return nil, err
	}
	switch {
	case in.Tenancy != "" || in.Affinity != "":
		return nil, wire.Refuse("UnsupportedOperation", "The local EC2 has no dedicated hosts.")
	case in.GroupName == nil:
		return nil, missing("groupName")
	case i.State != stateStopped:
		return nil, wire.Refuse("IncorrectInstanceState", "The instance '%s' is not in the 'stopped' state.", i.ID)
	}
	if *in.GroupName != "" {
		if _, err := t.findPlacementGroup(*in.GroupName); err != nil {
			return nil, err
		}
	}
	i.Group = *in.GroupName
	return done{true}, nil
}
