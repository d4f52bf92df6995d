package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/quotas/need"
)

// planned is what AWS would bill for a plan, and the versions in the plan.
type planned struct {
	needs            need.Plan // machines, volumes, and the account's quotas
	addresses        int       // public IPv4
	kubernetes, etcd string
}

// readPlan reads the machines of a plan, as `terraform show -json` prints it.
func readPlan(text []byte) (planned, error) {
	var plan struct {
		Values struct {
			Root struct {
				Resources []struct {
					Type   string `json:"type"`
					Values struct {
						Associate *bool  `json:"associate_public_ip_address"`
						Version   string `json:"version"`
					} `json:"values"`
				} `json:"resources"`
			} `json:"root_module"`
		} `json:"planned_values"`
	}
	var p planned
	if err := json.Unmarshal(text, &plan); err != nil {
		return p, fmt.Errorf("reading the plan: %w", err)
	}
	for _, r := range plan.Values.Root.Resources {
		switch r.Type {
		case "k8s_machine":
			if r.Values.Associate == nil || *r.Values.Associate {
				p.addresses++ // the load balancer's address is replaced by its Elastic IP
			}
		case "k8s_control_plane":
			p.kubernetes = r.Values.Version
		case "k8s_etcd_cluster":
			p.etcd = r.Values.Version
		}
	}
	var err error
	if p.needs, err = need.Read(text); err == nil && len(p.needs.Machines) == 0 {
		err = errors.New("the plan makes no machine")
	}
	return p, err
}

// instances returns the number of machines by type.
func (p planned) instances() map[string]int {
	out := map[string]int{}
	for m, n := range p.needs.Machines {
		out[m.Type] += n
	}
	return out
}

// gib returns the size of the gp3 volumes.
func (p planned) gib() int { return p.needs.Counts[need.GP3] }

// hourly returns what AWS bills for an hour in a region, in US dollars. ok is false if the table
// does not have the region or one of the types.
func (p planned) hourly(region string) (usd float64, ok bool) {
	price, ok := prices[region]
	if !ok {
		return 0, false
	}
	for typ, n := range p.instances() {
		each, known := price.instance[typ]
		if !known {
			return 0, false
		}
		usd += float64(n) * each
	}
	return usd + float64(p.gib())*price.gp3/hoursInMonth + float64(p.addresses)*publicIPv4, true
}

// costLine says what the cluster costs while it exists.
func costLine(p planned, region string) string {
	var parts []string
	instances := p.instances()
	for _, typ := range slices.Sorted(maps.Keys(instances)) {
		parts = append(parts, fmt.Sprintf("%d %s", instances[typ], typ))
	}
	parts = append(parts, fmt.Sprintf("%d GiB of gp3", p.gib()), fmt.Sprintf("%d public IPv4 addresses", p.addresses))
	what := strings.Join(parts, ", ")
	usd, ok := p.hourly(region)
	if !ok {
		return fmt.Sprintf("unknown in %s: this command has no prices for it. AWS bills %s while they exist; see %s", region, what, priceList)
	}
	return fmt.Sprintf("about $%.2f an hour in %s while the cluster exists, without tax and traffic: %s. Prices noted on %s; today's are at %s", usd, region, what, pricesNoted, priceList)
}
