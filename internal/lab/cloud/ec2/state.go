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
		NATGateways: map[string]*natGateway{}, ConnectEndpoints: map[string]*connectEndpoint{}, PlacementGroups: map[string]*placementGroup{},
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
