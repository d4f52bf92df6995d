package ec2

import (
	"fmt"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Quotas are the account's limits. A zero field takes the default, that of a new account of AWS.
type Quotas struct {
	VCPUs              int // of running On-Demand Standard instances
	SpotVCPUs          int // of running Standard Spot instances
	Addresses          int // Elastic IPs
	VPCs               int // and internet gateways, whose quota follows that of VPCs
	SecurityGroups     int
	Interfaces         int
	GP3                int // TiB of gp3 volumes
	RulesPerGroup      int // per direction
	GroupsPerInterface int
	RoutesPerTable     int // without the local one
	NATGatewaysPerZone int
	ConnectEndpoints   int // of EC2 Instance Connect
	Images             int // AMIs
	Snapshots          int
	PendingSnapshots   int // of a gp3 volume at a time
	// Unthrottled lets any number of calls through, for tests whose clock stands still.
	Unthrottled bool
}

func (q Quotas) withDefaults() Quotas {
	for _, named := range NamedQuotas {
		if value := named.of(&q); *value == 0 {
			*value = named.Default
		}
	}
	return q
}

// NamedQuota is a quota that can be raised, as by a support case.
type NamedQuota struct {
	Name          string // of k8s-lab up --quota; empty if it follows another quota
	Service, Code string // of Service Quotas; no code where AWS publishes none
	Title         string
	Default       int // of a new account
	of            func(*Quotas) *int
}

// NamedQuotas are the quotas that are enforced. The first ones are those that a new account of AWS needs raised soonest.
var NamedQuotas = []NamedQuota{
	{"vcpus", "ec2", "L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", 5, func(q *Quotas) *int { return &q.VCPUs }},
	{"spot-vcpus", "ec2", "L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", 5, func(q *Quotas) *int { return &q.SpotVCPUs }},
	{"elastic-ips", "ec2", "L-0263D0A3", "EC2-VPC Elastic IPs", 5, func(q *Quotas) *int { return &q.Addresses }},
	{"vpcs", "vpc", "L-F678F1CE", "VPCs per Region", 5, func(q *Quotas) *int { return &q.VPCs }},
	{"", "vpc", "L-A4707A72", "Internet gateways per Region", 5, func(q *Quotas) *int { return &q.VPCs }},
	{"nat-gateways", "vpc", "L-FE5A380F", "NAT gateways per Availability Zone", 5, func(q *Quotas) *int { return &q.NATGatewaysPerZone }},
	{"connect-endpoints", "ec2", "", "EC2 Instance Connect Endpoints", 5, func(q *Quotas) *int { return &q.ConnectEndpoints }},
	{"security-groups", "vpc", "L-E79EC296", "VPC security groups per Region", 2500, func(q *Quotas) *int { return &q.SecurityGroups }},
	{"network-interfaces", "vpc", "L-DF5E4CA3", "Network interfaces per Region", 5000, func(q *Quotas) *int { return &q.Interfaces }},
	{"gp3-tib", "ebs", "L-7A658B76", "Storage for General Purpose SSD (gp3) volumes, in TiB", 50, func(q *Quotas) *int { return &q.GP3 }},
	{"amis", "ec2", "L-B665C33B", "AMIs", 50000, func(q *Quotas) *int { return &q.Images }},
	{"snapshots", "ebs", "L-309BACF6", "Snapshots per Region", 100000, func(q *Quotas) *int { return &q.Snapshots }},
	{"concurrent-snapshots", "ebs", "", "Concurrent snapshots per General Purpose SSD (gp3) volume", 5, func(q *Quotas) *int { return &q.PendingSnapshots }},
	{"routes", "vpc", "L-93826ACB", "Routes per route table", 500, func(q *Quotas) *int { return &q.RoutesPerTable }},
	{"rules", "vpc", "L-0EA8095F", "Inbound or outbound rules per security group", 60, func(q *Quotas) *int { return &q.RulesPerGroup }},
	{"groups-per-interface", "vpc", "L-2AFB9258", "Security groups per network interface", 5, func(q *Quotas) *int { return &q.GroupsPerInterface }},
}

// QuotasOf returns the quotas with these values by name, and the defaults of all others.
func QuotasOf(values map[string]int) (Quotas, error) {
	var q Quotas
	for name, n := range values {
		i := slices.IndexFunc(NamedQuotas, func(named NamedQuota) bool { return name != "" && named.Name == name })
		switch {
		case i < 0:
			return q, fmt.Errorf("there is no quota %q: want one of %s", name, strings.Join(QuotaNames(), ", "))
		case n <= 0:
			return q, fmt.Errorf("%s=%d: a quota is a positive number", name, n)
		}
		*NamedQuotas[i].of(&q) = n
	}
	return q, nil
}

// QuotaNames returns the names of the quotas that can be raised.
func QuotaNames() (out []string) {
	for _, q := range NamedQuotas {
		if q.Name != "" {
			out = append(out, q.Name)
		}
	}
	return out
}

// Quota returns the account's value of a quota.
func (c *Compute) Quota(q NamedQuota) int { return *q.of(&c.cfg.Quotas) }

// roomForVolume refuses a new gp3 volume above the account's quota.
func (t *tx) roomForVolume(v *volume) error {
	if v.Type != "gp3" {
		return nil
	}
	gib := v.SizeGiB
	for _, other := range t.st.Volumes {
		if other.Type == v.Type {
			gib += other.SizeGiB
		}
	}
	if limit := t.c.cfg.Quotas.GP3; gib > limit*1024 {
		return wire.Refuse("VolumeLimitExceeded", "You have exceeded your maximum gp3 storage limit of %d TiB in this region. Please contact AWS Support to request an Elastic Block Store service limit increase.", limit)
	}
	return nil
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

// freeTier are the types that accounts of the free plan may have, of those made since July 2025.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-free-tier-usage.html
var freeTier = []string{"t3.micro", "t3.small", "t4g.micro", "t4g.small", "c7i-flex.large", "m7i-flex.large"}

// launchable returns how many of the wanted instances of a type may run, at least least of them.
func (t *tx) launchable(instanceType string, spot bool, least, wanted int) (int, error) {
	if !slices.Contains(freeTier, instanceType) && t.c.faults.OnFreePlan(t.action) {
		return 0, wire.Refuse("InvalidParameterCombination", "The specified instance type is not eligible for Free Tier. For a list of Free Tier instance types, run 'describe-instance-types' with the filter 'free-tier-eligible=true'.")
	}
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
