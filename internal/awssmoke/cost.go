package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/quotas/need"
)

// planned is what AWS would bill for a plan, and the versions in the plan.
type planned struct {
	instances        map[string]int // by type
	gib              int            // of gp3 volumes
	addresses        int            // public IPv4
	kubernetes, etcd string
	needs            need.Plan // of the account's quotas
}

// defaultVolume is the size of a machine's root volume in GiB, if the plan does not say it.
const defaultVolume = 20

// readPlan reads the machines of a plan, as `terraform show -json` prints it.
func readPlan(text []byte) (planned, error) {
	var plan struct {
		Values struct {
			Root struct {
				Resources []struct {
					Type   string `json:"type"`
					Values struct {
						InstanceType string `json:"instance_type"`
						Volume       int    `json:"root_volume_size"`
						Associate    *bool  `json:"associate_public_ip_address"`
						Version      string `json:"version"`
					} `json:"values"`
				} `json:"resources"`
			} `json:"root_module"`
		} `json:"planned_values"`
	}
	p := planned{instances: map[string]int{}}
	if err := json.Unmarshal(text, &plan); err != nil {
		return p, fmt.Errorf("reading the plan: %w", err)
	}
	for _, r := range plan.Values.Root.Resources {
		switch r.Type {
		case "k8s_machine":
			p.instances[r.Values.InstanceType]++
			if p.gib += r.Values.Volume; r.Values.Volume == 0 {
				p.gib += defaultVolume
			}
			if r.Values.Associate == nil || *r.Values.Associate {
				p.addresses++ // the load balancer's address is replaced by its Elastic IP
			}
		case "k8s_control_plane":
			p.kubernetes = r.Values.Version
		case "k8s_etcd_cluster":
			p.etcd = r.Values.Version
		}
	}
	if len(p.instances) == 0 {
		return p, fmt.Errorf("the plan makes no machine")
	}
	var err error
	p.needs, err = need.Read(text)
	return p, err
}

// hourly returns what AWS bills for an hour in a region, in US dollars. ok is false if the table
// does not have the region or one of the types.
func (p planned) hourly(region string) (usd float64, ok bool) {
	price, ok := prices[region]
	if !ok {
		return 0, false
	}
	for typ, n := range p.instances {
		each, known := price.instance[typ]
		if !known {
			return 0, false
		}
		usd += float64(n) * each
	}
	return usd + float64(p.gib)*price.gp3/hoursInMonth + float64(p.addresses)*publicIPv4, true
}

// costLine says what the cluster costs while it exists.
func costLine(p planned, region string) string {
	var parts []string
	for _, typ := range slices.Sorted(maps.Keys(p.instances)) {
		parts = append(parts, fmt.Sprintf("%d %s", p.instances[typ], typ))
	}
	parts = append(parts, fmt.Sprintf("%d GiB of gp3", p.gib), fmt.Sprintf("%d public IPv4 addresses", p.addresses))
	what := strings.Join(parts, ", ")
	usd, ok := p.hourly(region)
	if !ok {
		return fmt.Sprintf("unknown in %s: this command has no prices for it. AWS bills %s while they exist; see %s", region, what, priceList)
	}
	return fmt.Sprintf("about $%.2f an hour in %s while the cluster exists, without tax and traffic: %s. Prices noted on %s; today's are at %s", usd, region, what, pricesNoted, priceList)
}
