// Package need adds up what a plan of Terraform makes in an account, less what it deletes, in the units of AWS's
// quotas. It does no I/O, and does not know what the account has.
package need

import (
	"maps"
	"slices"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// Machine is what says which vCPUs of a machine count.
type Machine struct {
	Type string
	Spot bool
}

// VPC is a VPC that a cluster's network leaves.
type VPC struct{ ID, Cluster string }

// Plan is what a plan makes, less what it deletes. A number below zero says that it deletes more.
type Plan struct {
	Region   string          // that the configuration of the provider names; empty if it names none
	Own      []string        // arguments of the provider that choose its credentials, sorted
	Machines map[Machine]int // that run
	Counts   map[Kind]int    // of all kinds but those of the fields
	NAT      map[string]int  // NAT gateways by availability zone. Those in "" may be in any: at most one of each network is in the same zone
	Routes   map[string]int  // that every route table of a VPC gets, by the VPC's id, or by the cluster whose network makes the VPC
	Leaves   []VPC           // only their tags say whether they are deleted, or belong to somebody else
}

// Types returns the instance types of the machines.
func (p Plan) Types() []string {
	types := map[string]bool{}
	for m := range p.Machines {
		types[m.Type] = true
	}
	return slices.Sorted(maps.Keys(types))
}

// VCPUs returns how many vCPUs the machines with a quota of Standard instances need. each has the vCPUs of the instance
// types.
func (p Plan) VCPUs(spot bool, each map[string]int) (n int) {
	for m, count := range p.Machines {
		if m.Spot == spot && Standard(m.Type) {
			n += count * each[m.Type]
		}
	}
	return n
}

// Running returns how many more machines with a quota of Standard instances run.
func (p Plan) Running(spot bool) (n int) {
	for m, count := range p.Machines {
		if m.Spot == spot && Standard(m.Type) {
			n += count
		}
	}
	return n
}

// resource is what quotas limit in the values of a resource, before or after the plan. What is not known yet is empty.
type resource struct {
	Cluster string   `json:"cluster"`
	VPC     string   `json:"vpc_id"`
	VPCCIDR string   `json:"vpc_cidr"`
	NAT     string   `json:"nat_gateways"`
	Zones   []string `json:"availability_zones"`
	Connect bool     `json:"instance_connect_endpoint"`

	InstanceType string    `json:"instance_type"`
	Spot         *struct{} `json:"spot"`
	PowerState   string    `json:"power_state"`
	RootType     string    `json:"root_volume_type"`
	RootSize     int       `json:"root_volume_size"`
	PodCIDR      string    `json:"pod_cidr"`
	Network      struct {
		Cluster string   `json:"cluster"`
		VPC     string   `json:"vpc_id"`
		Subnets []subnet `json:"subnets"`
	} `json:"network"`

	Size int    `json:"size"`
	Type string `json:"type"`

	Public     *bool  `json:"public"`
	Allocation string `json:"allocation_id"`

	KeyStore    string           `json:"key_store"`
	Generations *pki.Generations `json:"generations"`
}

type subnet struct {
	Zone   string `json:"availability_zone"`
	Public bool   `json:"public"`
}

// unknown says which values are known only after the apply.
type unknown struct {
	VPC        bool `json:"vpc_id"`
	Allocation bool `json:"allocation_id"`
}

const (
	gp3           = "gp3"
	defaultVolume = 20 // GiB of a root volume whose size is not known yet
)

// count adds a resource n times.
func (p *Plan) count(kind string, r resource, u unknown, n int) {
	switch kind {
	case "k8s_network":
		p.countNetwork(r, u, n)
	case "k8s_machine":
		p.countMachine(r, n)
	case "k8s_volume":
		if r.Type == gp3 {
			p.Counts[GP3] += n * r.Size
		}
	case "k8s_lb":
		if u.Allocation || r.Allocation != "" {
			p.Counts[Addresses] += n
		}
	case "k8s_nlb":
		balancers := 1
		if r.Public == nil || *r.Public {
			balancers = 2
		}
		p.Counts[LoadBalancers] += n * balancers
		p.Counts[TargetGroups] += n * balancers
		p.Counts[Interfaces] += n * balancers * zonesOf(r)
	case "k8s_pki":
		if r.KeyStore != pki.StoreSSM {
			break
		}
		generations := pki.Generations{}
		if r.Generations != nil {
			generations = *r.Generations
		}
		p.Counts[Parameters] += n * (len(pki.Names(generations)) + 1) // and the store's owner
	}
}

func (p *Plan) countNetwork(r resource, u unknown, n int) {
	groups := len(infraaws.MachineRoles()) + 1 // and that of SSH
	// The network of an adopted VPC is planned to take it from the VPC, and is not known either.
	if u.VPC && r.VPCCIDR != "" {
		groups++ // the default group
		p.Counts[VPCs] += n
		p.Counts[InternetGateways] += n
		p.Routes[r.Cluster] += n // the default route
	}
	if r.Connect {
		groups++
		p.Counts[ConnectEndpoints] += n
		p.Counts[Interfaces] += n
	}
	p.Counts[SecurityGroups] += n * groups
	var zones []string // that have a NAT gateway
	switch r.NAT {
	case "one":
		zones = append(r.Zones, "")[:1]
	case "per_zone":
		zones = r.Zones
	}
	p.Counts[Addresses] += n * len(zones)
	p.Counts[Interfaces] += n * len(zones)
	some := false
	for _, zone := range zones {
		if zone != "" {
			p.NAT[zone] += n
		}
		some = some || zone == ""
	}
	if some {
		p.NAT[""] += n
	}
}

func (p *Plan) countMachine(r resource, n int) {
	p.Counts[Interfaces] += n
	if r.PowerState != "stopped" {
		p.Machines[Machine{r.InstanceType, r.Spot != nil}] += n
	}
	if r.RootType == gp3 {
		size := r.RootSize
		if size == 0 {
			size = defaultVolume
		}
		p.Counts[GP3] += n * size
	}
	if r.PodCIDR == "" {
		return
	}
	if r.Network.VPC != "" {
		p.Routes[r.Network.VPC] += n
	} else {
		p.Routes[r.Network.Cluster] += n
	}
}

// zonesOf returns in how many availability zones a load balancer is, each with an interface. Where the zones are not
// known, every subnet of the same sort is in another one.
func zonesOf(r resource) int {
	if len(r.Zones) > 0 {
		return len(r.Zones)
	}
	zones, sorts := map[string]bool{}, map[bool]int{}
	for _, s := range r.Network.Subnets {
		zones[s.Zone] = true
		sorts[s.Public]++
	}
	if len(zones) > 0 && !zones[""] {
		return len(zones)
	}
	return max(1, sorts[true], sorts[false])
}
