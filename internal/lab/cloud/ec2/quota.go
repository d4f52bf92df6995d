package ec2

import (
	"cmp"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Quotas are the account's limits. A zero field takes the default.
type Quotas struct {
	VCPUs              int // of running On-Demand Standard instances, default 32
	SpotVCPUs          int // of running Standard Spot instances, default 32
	Addresses          int // Elastic IPs, default 32
	VPCs               int // default 64
	RulesPerGroup      int // per direction, default 60 as on AWS
	GroupsPerInterface int // default 5 as on AWS
	RoutesPerTable     int // without the local one, default 500 as on AWS
	NATGatewaysPerZone int // default 5 as on AWS
	ConnectEndpoints   int // of EC2 Instance Connect, default 5 as on AWS
	// Unthrottled lets any number of calls through, for tests whose clock stands still.
	Unthrottled bool
}

func (q Quotas) withDefaults() Quotas {
	return Quotas{
		cmp.Or(q.VCPUs, 32), cmp.Or(q.SpotVCPUs, 32), cmp.Or(q.Addresses, 32), cmp.Or(q.VPCs, 64),
		cmp.Or(q.RulesPerGroup, 60), cmp.Or(q.GroupsPerInterface, 5), cmp.Or(q.RoutesPerTable, 500),
		cmp.Or(q.NATGatewaysPerZone, 5), cmp.Or(q.ConnectEndpoints, 5), q.Unthrottled,
	}
}

// standard reports whether a type counts against the quota of Standard instances, whose families
// begin with these letters. Other families have quotas of their own, which are not enforced here.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-on-demand-instances.html
func standard(instanceType string) bool { return strings.Contains("acdhimrtz", instanceType[:1]) }

// freeVCPUs returns how many vCPUs more may run. Stopped instances do not count.
func (t *tx) freeVCPUs(spot bool) int {
	free := t.c.cfg.Quotas.VCPUs
	if spot {
		free = t.c.cfg.Quotas.SpotVCPUs
	}
	for _, i := range t.st.Instances {
		if (i.Spot != nil) == spot && (i.up() || i.State == stateStopping) && standard(i.Type) {
			free -= instanceTypes[i.Type].vcpus
		}
	}
	return free
}

// roomFor returns how many of the wanted instances of a type the zone has room for, at least least of
// them.
func (t *tx) roomFor(instanceType, zone string, least, wanted int) (int, error) {
	n := t.c.faults.Room(t.action, instanceType, zone, least, wanted, func(match func(instanceType, zone string) bool) int {
		up := 0
		for _, i := range t.st.Instances {
			if i.up() && match(i.Type, i.Zone) {
				up++
			}
		}
		return up
	})
	if n >= least {
		return n, nil
	}
	others := slices.DeleteFunc(t.c.zones(), func(z string) bool { return z == zone || !t.c.offered(instanceType, z) })
	return 0, wire.RefuseWith(500, "InsufficientInstanceCapacity",
		"We currently do not have sufficient %s capacity in the Availability Zone you requested (%s). Our system will be working on provisioning additional capacity. "+
			"You can currently get %s capacity by not specifying an Availability Zone in your request or choosing %s.", instanceType, zone, instanceType, strings.Join(others, ", "))
}

// launchable returns how many of the wanted instances of a type may run, at least least of them.
func (t *tx) launchable(instanceType string, spot bool, least, wanted int) (int, error) {
	if !standard(instanceType) {
		return wanted, nil
	}
	n := min(wanted, max(0, t.freeVCPUs(spot))/instanceTypes[instanceType].vcpus)
	if n < least && spot {
		return 0, wire.Refuse("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
	}
	if n < least {
		return 0, wire.Refuse("VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit of %d allows for the instance bucket that the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.", t.c.cfg.Quotas.VCPUs)
	}
	return n, nil
}
