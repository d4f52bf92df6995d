package ec2

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
)

// state is everything that the account owns. It is saved as JSON. A change is made on a copy, which
// then replaces the state, so that a refused or dry-run action changes nothing.
type state struct {
	BootID      string // the host's boot in which the machines last ran
	SpotRole    bool   // the account has the service-linked role for Spot instances
	PublicTurn  int    // where the search for a free public address continues
	VPCs        map[string]*vpc
	Subnets     map[string]*subnet
	Gateways    map[string]*gateway
	NATGateways map[string]*natGateway
	RouteTables map[string]*routeTable
	Groups      map[string]*group
	Rules       map[string]*rule
	Instances   map[string]*instance
	Interfaces  map[string]*iface

	ConnectEndpoints map[string]*connectEndpoint
	PlacementGroups  map[string]*placementGroup
	LaunchTemplates  map[string]*launchTemplate
	Volumes          map[string]*volume
	Images           map[string]*Image // the account's own, but for those that k8s-lab publishes
	Snapshots        map[string]*snapshot
	Addresses        map[string]*address
	KeyPairs         map[string]*keyPair
	Profiles         map[string]*profileAssociation // of instances
	Settings         settings
	Tags             map[string]map[string]string // resource id -> key -> value
	Tokens           map[string]clientToken       // action/token -> what it made
	Held             map[string]time.Time         // subnet/private address -> when its interface was deleted
}

// clientToken is an idempotent request and its result.
type clientToken struct {
	Fingerprint string
	IDs         []string
	Used        time.Time
}

func newState() *state {
	return &state{
		VPCs: map[string]*vpc{}, Subnets: map[string]*subnet{}, Gateways: map[string]*gateway{},
		NATGateways: map[string]*natGateway{}, ConnectEndpoints: map[string]*connectEndpoint{}, PlacementGroups: map[string]*placementGroup{}, LaunchTemplates: map[string]*launchTemplate{},
		RouteTables: map[string]*routeTable{}, Groups: map[string]*group{}, Rules: map[string]*rule{},
		Instances: map[string]*instance{}, Interfaces: map[string]*iface{}, Volumes: map[string]*volume{},
		Images: map[string]*Image{}, Snapshots: map[string]*snapshot{},
		Addresses: map[string]*address{}, KeyPairs: map[string]*keyPair{}, Profiles: map[string]*profileAssociation{},
		Tags: map[string]map[string]string{}, Tokens: map[string]clientToken{}, Held: map[string]time.Time{}, Settings: newSettings(),
	}
}

func decodeState(raw []byte) (*state, error) {
	st := newState()
	if len(raw) == 0 {
		return st, nil
	}
	if err := json.Unmarshal(raw, st); err != nil {
		return nil, fmt.Errorf("decoding the state: %w", err)
	}
	return st, nil
}

func readStateFile(name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the state: %w", err)
	}
	return raw, nil
}

// writeStateFile replaces the file atomically. It is private (0600), since user data may contain
// keys.
func writeStateFile(name string, st *state) error {
	if name == "" {
		return nil
	}
	raw, err := json.Marshal(st)
	if err != nil {
		return fmt.Errorf("encoding the state: %w", err)
	}
	if err := file.Replace(name, raw, 0o600); err != nil {
		return fmt.Errorf("saving the state: %w", err)
	}
	return nil
}

// sorted returns the values of m ordered by key.
func sorted[T any](m map[string]*T) []*T {
	out := make([]*T, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
}

// copied returns a copy of the state that shares nothing with it that can change.
func (s *state) copied() *state {
	out := *s
	out.VPCs, out.Subnets, out.Gateways = copies(s.VPCs), copies(s.Subnets), copies(s.Gateways)
	out.NATGateways, out.Groups, out.Rules = copies(s.NATGateways), copies(s.Groups), copies(s.Rules)
	out.PlacementGroups, out.Addresses, out.KeyPairs = copies(s.PlacementGroups), copies(s.Addresses), copies(s.KeyPairs)
	out.Profiles = copies(s.Profiles)
	out.LaunchTemplates = copies(s.LaunchTemplates)
	for _, l := range out.LaunchTemplates {
		l.Versions = slices.Clone(l.Versions)
	}
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
