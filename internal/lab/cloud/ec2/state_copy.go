package ec2

import (
	"maps"
	"slices"
)

// copied returns a copy of the state that shares nothing with it that can change.
func (s *state) copied() *state {
	out := *s
	out.VPCs, out.Subnets, out.Gateways = copies(s.VPCs), copies(s.Subnets), copies(s.Gateways)
	out.NATGateways, out.Groups, out.Rules = copies(s.NATGateways), copies(s.Groups), copies(s.Rules)
	out.PlacementGroups, out.Addresses, out.KeyPairs = copies(s.PlacementGroups), copies(s.Addresses), copies(s.KeyPairs)
	out.Profiles = copies(s.Profiles)
	out.RouteTables = copies(s.RouteTables)
	for _, t := range out.RouteTables {
		t.Routes, t.Associations = slices.Clone(t.Routes), slices.Clone(t.Associations)
	}
	out.Instances = copies(s.Instances)
	for _, i := range out.Instances {
		i.Spot, i.Events = shallow(i.Spot), slices.Clone(i.Events)
	}
	out.Interfaces = copies(s.Interfaces)
	for _, i := range out.Interfaces {
		i.Groups = slices.Clone(i.Groups)
	}
	out.ConnectEndpoints = copies(s.ConnectEndpoints)
	for _, e := range out.ConnectEndpoints {
		e.Groups = slices.Clone(e.Groups)
	}
	out.Volumes = copies(s.Volumes)
	for _, v := range out.Volumes {
		v.Modification, v.Modified = shallow(v.Modification), slices.Clone(v.Modified)
	}
	out.Images, out.Snapshots = copies(s.Images), copies(s.Snapshots)
	out.Tags = maps.Clone(s.Tags)
	for id, tags := range out.Tags {
		out.Tags[id] = maps.Clone(tags)
	}
	out.Tokens = maps.Clone(s.Tokens)
	for key, t := range out.Tokens {
		t.IDs = slices.Clone(t.IDs)
		out.Tokens[key] = t
	}
	out.Held = maps.Clone(s.Held)
	out.Settings.ImageOwners = slices.Clone(s.Settings.ImageOwners)
	return &out
}

func copies[T any](m map[string]*T) map[string]*T {
	out := make(map[string]*T, len(m))
	for k, v := range m {
		out[k] = shallow(v)
	}
	return out
}

func shallow[T any](v *T) *T {
	if v == nil {
		return nil
	}
	out := *v
	return &out
}
