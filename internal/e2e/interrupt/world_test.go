package interrupt_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// overview is the part of GET /_lab/state that these tests use.
type overview struct {
	Instances []struct {
		ID, Name, State string
	} `json:"instances"`
	VPCs        []thing `json:"vpcs"`
	Subnets     []thing `json:"subnets"`
	Gateways    []thing `json:"internet_gateways"`
	RouteTables []thing `json:"route_tables"`
	Groups      []thing `json:"security_groups"`
	Interfaces  []thing `json:"network_interfaces"`
	Volumes     []thing `json:"volumes"`
	Addresses   []thing `json:"addresses"`
	KeyPairs    []thing `json:"key_pairs"`
	Parameters  []string
}

type thing struct{ ID string }

// world is everything that must survive an interruption.
type world struct {
	overview
	// identity is what must never be created again: ids of machines, VPC and address, digests of
	// certificates and keys, and the cluster's own id.
	identity map[string]string
}

// ask returns what exists in the local EC2.
func ask(t *testing.T) overview {
	t.Helper()
	var o overview
	if err := suite.Control(t.Context(), "GET", "/_lab/state", nil, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// look returns the present world. It reads the cluster's id only if the cluster serves.
func look(t *testing.T, c *cluster, serves bool) world {
	t.Helper()
	w := world{overview: ask(t), identity: map[string]string{}}
	for _, i := range w.Instances {
		if i.State != "shutting-down" {
			w.identity["instance "+i.Name+" "+i.ID] = i.ID
		}
	}
	for kind, things := range map[string][]thing{"VPC": w.VPCs, "address": w.Addresses} {
		for _, x := range things {
			w.identity[kind+" "+x.ID] = x.ID
		}
	}
	for name, sum := range suite.Parameters(t) {
		w.identity["parameter "+name] = sum
	}
	if serves {
		// The uid of this namespace identifies the cluster.
		c.Learn(t)
		w.identity["cluster"] = c.Kubectl(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
	}
	return w
}

// kept fails the test if anything of before is missing or different in w.
func (w world) kept(t *testing.T, before world) {
	t.Helper()
	for _, what := range slices.Sorted(maps.Keys(before.identity)) {
		if now := w.identity[what]; now != before.identity[what] {
			t.Errorf("%s was %s before the interruption and is %q now", what, before.identity[what], now)
		}
	}
}

// whole fails the test unless the world contains exactly the parts of one cluster.
func (w world) whole(t *testing.T) {
	t.Helper()
	var machines []string
	for _, i := range w.Instances {
		machines = append(machines, strings.TrimPrefix(i.Name, "demo-")+" "+i.State)
	}
	slices.Sort(machines)
	got := fmt.Sprintf("%s; VPCs %d, subnets %d, gateways %d, route tables %d, groups %d, interfaces %d, volumes %d, addresses %d, key pairs %d, parameters %d",
		strings.Join(machines, ", "), len(w.VPCs), len(w.Subnets), len(w.Gateways), len(w.RouteTables), len(w.Groups),
		len(w.Interfaces), len(w.Volumes), len(w.Addresses), len(w.KeyPairs), len(w.Parameters))
	const want = "controller-0 running, controller-1 running, controller-2 running, lb-0 running, worker-0 running, worker-1 running; " +
		"VPCs 1, subnets 1, gateways 1, route tables 2, groups 6, interfaces 6, volumes 6, addresses 1, key pairs 0, parameters 10"
	if got != want {
		t.Errorf("the cluster has\n%s\nwanted\n%s", got, want)
	}
}
