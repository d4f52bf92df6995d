package ec2

import (
	"cmp"
	"maps"
	"net/url"
	"strconv"
	"strings"
)

// Resource is a resource as authorization sees it.
type Resource struct {
	Type, Name string // as its ARN has them: "vpc" and "vpc-0123"
	Tags       map[string]string
	Keys       map[string]string // further condition keys
}

// Resources returns the resources that a request's parameter names: those that an association or an instance
// profile's association connects, otherwise one. A resource that does not exist or is not visible yet has no tags and
// no condition keys.
// https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html
func (c *Compute) Resources(parameter, value string) []Resource {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch parameter {
	case "KeyName":
		for id, k := range c.st.KeyPairs {
			if k.Name == value {
				return []Resource{c.resource(id)}
			}
		}
		return []Resource{{Type: kindKeyPair.typ, Name: value}}
	case "GroupName":
		if g := (&tx{c: c, st: c.st}).placementGroup(value); g != nil {
			return []Resource{c.resource(g.ID)}
		}
		return []Resource{{Type: kindPlacementGroup.typ, Name: value}}
	case "PublicIp":
		for _, a := range c.st.Addresses {
			if a.PublicIP.String() == value {
				return c.connected(a.ID, a.Interface)
			}
		}
		return []Resource{{Type: kindAddress.typ, Name: "*"}}
	case "AssociationId":
		return c.associated(value)
	}
	return []Resource{c.resource(value)}
}

// Defaults returns the ids of what EC2 takes where a call names nothing, by the parameters that would name it: the VPC
// of a new security group, and subnet and security group of a launch. EC2 does not say which default subnet it takes.
// So all default subnets are returned, or that of the zone of the launch.
func (c *Compute) Defaults(action string, given url.Values) url.Values {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, out := c.looking(), url.Values{}
	add := func(parameter, id string) {
		if id != "" && !given.Has(parameter) {
			out.Add(parameter, id)
		}
	}
	vpc := ""
	if v := t.defaultVPC(); v != nil {
		vpc = v.ID
	}
	switch {
	case action == "CreateSecurityGroup":
		add("VpcId", vpc)
	case action == "RunInstances" && !given.Has("NetworkInterfaceId"):
		for _, s := range t.defaultSubnets(given.Get("Placement.AvailabilityZone")) {
			add("SubnetId", s.ID)
		}
		if s := t.st.Subnets[given.Get("SubnetId")]; s != nil {
			vpc = s.VPC
		} else if given.Has("SubnetId") {
			vpc = "" // the launch is refused
		}
		add("SecurityGroupId", t.defaultGroup(vpc))
	}
	return out
}

// allows says whether the caller may do an action as well, such as "DeleteSnapshot", on the resource that its parameter
// names, such as "SnapshotId".
type allows = func(action, parameter string, on Resource) bool

// associated returns what an association connects. It begins with the type that one of an unknown association has.
func (c *Compute) associated(id string) []Resource {
	if c.faults.Hidden(id, c.cfg.Clock.Now()) {
		prefix, _, _ := strings.Cut(id, "-")
		id = prefix + "-" // its kind only
	}
	if a := c.st.Profiles[id]; a != nil { // its permission is asked for on the instance
		return c.connected(a.Instance)
	}
	for _, a := range c.st.Addresses {
		if a.AssociationID == id {
			return c.connected(a.ID, a.Interface)
		}
	}
	for _, r := range c.st.RouteTables {
		for _, a := range r.Associations {
			if a.ID == id {
				return c.connected(r.ID, a.Subnet)
			}
		}
	}
	typ := kindInstance.typ
	switch prefix, _, _ := strings.Cut(id, "-"); prefix {
	case "eipassoc":
		typ = kindAddress.typ
	case associationPrefix:
		typ = kindRouteTable.typ
	}
	return []Resource{{Type: typ, Name: "*"}}
}

func (c *Compute) connected(ids ...string) []Resource {
	var out []Resource
	for _, id := range ids {
		if id != "" {
			out = append(out, c.resource(id))
		}
	}
	return out
}

// resource returns the resource with an id.
func (c *Compute) resource(id string) Resource {
	switch prefix, _, _ := strings.Cut(id, "-"); prefix {
	case kindImage.prefix:
		out := Resource{Type: kindImage.typ, Name: id, Keys: map[string]string{}, Tags: maps.Clone(c.st.Tags[id])}
		if i, err := c.looking().findImage(id); err == nil {
			out.Keys["ec2:Owner"] = cmp.Or(i.Owner, debianOwner)
		}
		return out
	case kindSnapshot.prefix:
		out := Resource{Type: kindSnapshot.typ, Name: id, Keys: map[string]string{}, Tags: maps.Clone(c.st.Tags[id])}
		if s := c.st.Snapshots[id]; s != nil {
			out.Keys["ec2:Owner"], out.Keys["ec2:ParentVolume"], out.Keys["ec2:VolumeSize"] = c.cfg.AccountID, c.arn("volume/"+s.Volume), strconv.Itoa(s.SizeGiB)
		}
		return out
	}
	k, ok := kindOf(id)
	if !ok {
		return Resource{Type: "*", Name: "*"}
	}
	out := Resource{Type: k.typ, Name: id}
	if pair := c.st.KeyPairs[id]; pair != nil {
		out.Name = pair.Name
	}
	if g := c.st.PlacementGroups[id]; g != nil {
		out.Name = g.Name
	}
	if !c.faults.Hidden(id, c.cfg.Clock.Now()) {
		out.Tags, out.Keys = maps.Clone(c.st.Tags[id]), c.keys(id)
	}
	return out
}

// keys returns condition keys of a resource that exists.
func (c *Compute) keys(id string) map[string]string {
	out := map[string]string{}
	in := func(vpc string) {
		out["ec2:Vpc"] = c.arn("vpc/" + vpc)
	}
	if s := c.st.Subnets[id]; s != nil {
		in(s.VPC)
		out["ec2:AvailabilityZone"] = s.Zone
	}
	if g := c.st.Groups[id]; g != nil {
		in(g.VPC)
	}
	if r := c.st.RouteTables[id]; r != nil {
		in(r.VPC)
	}
	if e := c.st.Interfaces[id]; e != nil {
		in(e.VPC)
		out["ec2:Subnet"] = c.arn("subnet/" + e.Subnet)
	}
	if i := c.st.Instances[id]; i != nil {
		out["ec2:InstanceType"], out["ec2:AvailabilityZone"] = i.Type, i.Zone
		for _, a := range c.st.Profiles {
			if a.Instance == id && a.Ended.IsZero() {
				out["ec2:InstanceProfile"] = a.Profile.ARN
			}
		}
	}
	if v := c.st.Volumes[id]; v != nil {
		out["ec2:VolumeSize"], out["ec2:VolumeType"], out["ec2:AvailabilityZone"] = strconv.Itoa(v.SizeGiB), v.Type, v.Zone
		out["ec2:Encrypted"] = strconv.FormatBool(v.Encrypted)
	}
	return out
}
