package elbv2

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// The states of a load balancer.
const (
	stateProvisioning = "provisioning"
	stateActive       = "active"
)

const (
	// provisioning is how long a new load balancer does not forward. On AWS it is minutes.
	provisioning = 3 * time.Second
	// leaving is how long the interfaces of a deleted load balancer stay, and what they use with them. On
	// AWS it is up to minutes.
	leaving = 5 * time.Second
)

// The quotas of AWS, which cannot be raised here.
// https://docs.aws.amazon.com/elasticloadbalancing/latest/network/load-balancer-limits.html
const (
	MaxLoadBalancers  = 50
	MaxTargetGroups   = 3000
	maxListeners      = 50   // of a load balancer
	maxTargets        = 1000 // of a target group
	minFreeAddresses  = 8    // of a subnet for a node
	maxSecurityGroups = 5
)

var loadBalancerActions = map[string]action{
	"CreateLoadBalancer":    writes(createLoadBalancer),
	"DeleteLoadBalancer":    writes(deleteLoadBalancer),
	"DescribeLoadBalancers": reads(describeLoadBalancers),
	"SetSecurityGroups":     writes(setSecurityGroups),
	"SetSubnets":            writes(setSubnets),
}

func (b *loadBalancer) state(now time.Time) string {
	if now.Before(b.Created.Add(provisioning)) {
		return stateProvisioning
	}
	return stateActive
}

type subnetMapping struct {
	SubnetId           string
	AllocationId       string
	PrivateIPv4Address string
}

type createLoadBalancerRequest struct {
	Name           string
	Type           string
	Scheme         string
	IpAddressType  string
	Subnets        []string        `query:"Subnets.member"`
	SubnetMappings []subnetMapping `query:"SubnetMappings.member"`
	SecurityGroups []string        `query:"SecurityGroups.member"`
	Tags           []tag           `query:"Tags.member"`
}

type loadBalancersAnswer struct {
	LoadBalancers []loadBalancerItem `xml:"LoadBalancers>member"`
	NextMarker    string             `xml:"NextMarker,omitempty"`
}

var validName = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?$`)

// checkName checks the name of a load balancer or a target group.
func checkName(what, name string) error {
	switch {
	case name == "":
		return invalid("A %s name must be specified", what)
	case len(name) > 32:
		return invalid("The %s name '%s' cannot be longer than '32' characters", what, name)
	case strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-"):
		return invalid("The %s name '%s' cannot begin or end with a hyphen", what, name)
	case !validName.MatchString(name):
		return invalid("The %s name '%s' can only contain characters that are alphanumeric characters and hyphens(-)", what, name)
	case strings.HasPrefix(name, "internal-"):
		return invalid("The %s name '%s' cannot begin with 'internal-'", what, name)
	}
	return nil
}

func createLoadBalancer(t *tx, in *createLoadBalancerRequest) (any, error) {
	if err := checkName("load balancer", in.Name); err != nil {
		return nil, err
	}
	in.Scheme = cmp.Or(in.Scheme, "internet-facing")
	switch {
	case in.Type != "network":
		return nil, badConfiguration("The local EC2 has load balancers of the type network only")
	case in.Scheme != "internet-facing" && in.Scheme != "internal":
		return nil, invalid("Load balancer scheme '%s' must be one of 'internet-facing', 'internal'", in.Scheme)
	case in.IpAddressType != "" && in.IpAddressType != "ipv4":
		return nil, badConfiguration("The local EC2 has load balancers of the IP address type ipv4 only")
	}
	mappings, err := asMappings(in.Subnets, in.SubnetMappings)
	if err != nil {
		return nil, err
	}
	tags, err := checkTags(in.Tags)
	if err != nil {
		return nil, err
	}
	for _, b := range sorted(t.st.LoadBalancers) {
		if b.Name == in.Name {
			if !b.madeOf(in, mappings) || !maps.Equal(t.st.Tags[b.ARN], tags) {
				return nil, wire.Refuse("DuplicateLoadBalancerName", "A load balancer with the same name '%s' exists, but with different settings", in.Name)
			}
			return loadBalancersAnswer{LoadBalancers: []loadBalancerItem{t.loadBalancerItem(b)}}, nil
		}
	}
	if len(t.st.LoadBalancers) >= MaxLoadBalancers {
		return nil, wire.Refuse("TooManyLoadBalancers", "The maximum number of load balancers has been reached")
	}
	b := &loadBalancer{
		Name: in.Name, ID: t.newID(), Scheme: in.Scheme, Created: t.now, Groups: slices.Sorted(slices.Values(in.SecurityGroups)),
		Grouped: len(in.SecurityGroups) > 0, Attributes: map[string]string{},
	}
	b.ARN = t.arn("loadbalancer/" + b.path())
	b.DNSName = b.Name + "-" + b.ID + ".elb." + t.s.cfg.Region + "." + wire.Domain(t.s.cfg.Region)
	if b.VPC, err = t.checkMappings("", b.Scheme, mappings); err != nil {
		return nil, err
	}
	if err := t.checkGroups(b.VPC, b.Groups); err != nil {
		return nil, err
	}
	if err := t.addNodes(b, mappings); err != nil {
		return nil, err
	}
	t.st.LoadBalancers[b.ARN] = b
	t.setTags(b.ARN, tags)
	t.created = append(t.created, b.ARN)
	t.changed()
	t.afterCommit(func() { t.s.after(provisioning, t.s.cfg.Compute.Changed) })
	return loadBalancersAnswer{LoadBalancers: []loadBalancerItem{t.loadBalancerItem(b)}}, nil
}

// path is the name of a load balancer in ARNs and in the descriptions of its interfaces.
func (b *loadBalancer) path() string { return "net/" + b.Name + "/" + b.ID }

// madeOf reports whether a request would make what a load balancer is.
func (b *loadBalancer) madeOf(in *createLoadBalancerRequest, mappings []subnetMapping) bool {
	if b.Scheme != in.Scheme || len(b.Nodes) != len(mappings) || !slices.Equal(b.Groups, slices.Sorted(slices.Values(in.SecurityGroups))) {
		return false
	}
	for _, m := range mappings {
		if !slices.ContainsFunc(b.Nodes, func(n node) bool { return n.matches(m) }) {
			return false
		}
	}
	return true
}

func (n node) matches(m subnetMapping) bool {
	return n.Subnet == m.SubnetId && n.Allocation == m.AllocationId && n.PrivateIP == m.PrivateIPv4Address
}

// asMappings returns the subnets of a request, however they are given.
func asMappings(subnets []string, mappings []subnetMapping) ([]subnetMapping, error) {
	if len(subnets) > 0 && len(mappings) > 0 {
		return nil, invalid("You must specify either subnets or subnet mappings, but not both")
	}
	for _, id := range subnets {
		mappings = append(mappings, subnetMapping{SubnetId: id})
	}
	if len(mappings) == 0 {
		return nil, invalid("At least one subnet must be specified")
	}
	return mappings, nil
}

// checkMappings checks where the nodes of a load balancer are to be, and returns its VPC. vpc is empty for
// a new load balancer.
func (t *tx) checkMappings(vpc, scheme string, mappings []subnetMapping) (string, error) {
	zones, allocations := map[string]bool{}, map[string]bool{}
	for _, m := range mappings {
		s, ok := t.s.cfg.Compute.Subnet(m.SubnetId)
		switch {
		case !ok:
			return "", wire.Refuse("SubnetNotFound", "The subnet ID '%s' does not exist", m.SubnetId)
		case vpc != "" && s.VPC != vpc:
			return "", badConfiguration("All subnets must belong to the same VPC: '%s'", vpc)
		case zones[s.Zone]:
			return "", badConfiguration("A load balancer cannot be attached to multiple subnets in the same Availability Zone")
		case scheme == "internet-facing" && !s.Internet:
			return "", wire.Refuse("InvalidSubnet", "VPC %s has no internet gateway", s.VPC)
		case m.AllocationId != "" && scheme == "internal":
			return "", badConfiguration("Allocation IDs can be specified for internet-facing load balancers only")
		case m.PrivateIPv4Address != "" && scheme == "internet-facing":
			return "", badConfiguration("A private IPv4 address can be specified for internal load balancers only")
		case allocations[m.AllocationId]:
			return "", badConfiguration("The allocation ID '%s' is specified more than once", m.AllocationId)
		}
		vpc, zones[s.Zone], allocations[m.AllocationId] = s.VPC, true, m.AllocationId != ""
	}
	return vpc, nil
}

// addNodes gives a load balancer nodes.
func (t *tx) addNodes(b *loadBalancer, mappings []subnetMapping) error {
	var wanted []NodeRequest
	for _, m := range mappings {
		if s, _ := t.s.cfg.Compute.Subnet(m.SubnetId); s.Free < minFreeAddresses {
			return wire.Refuse("InvalidSubnet", "Not enough IP space available in %s. ELB requires at least %d free IP addresses in each subnet.", s.ID, minFreeAddresses)
		}
		if m.AllocationId != "" {
			switch exists, used := t.s.cfg.Compute.ElasticIP(m.AllocationId); {
			case !exists:
				return wire.Refuse("AllocationIdNotFound", "The allocation IDs '%s' do not exist", m.AllocationId)
			case used:
				return wire.Refuse("ResourceInUse", "The allocation IDs are not available for use")
			}
		}
		wanted = append(wanted, NodeRequest{m.SubnetId, m.PrivateIPv4Address, m.AllocationId, b.Scheme == "internet-facing"})
	}
	interfaces, err := t.s.cfg.Compute.AddNodes(b.path(), b.Groups, wanted)
	if err != nil {
		return badConfiguration("%s", wire.AsError(err).Message)
	}
	t.undo = append(t.undo, func() {
		if err := t.s.cfg.Compute.RemoveNodes(interfaces); err != nil {
			t.s.cfg.Log.Error("the interfaces of a load balancer that was not made could not be removed", "error", err)
		}
	})
	for i, m := range mappings {
		s, _ := t.s.cfg.Compute.Subnet(m.SubnetId)
		b.Nodes = append(b.Nodes, node{s.ID, s.Zone, interfaces[i], m.AllocationId, m.PrivateIPv4Address})
	}
	slices.SortFunc(b.Nodes, func(x, y node) int { return cmp.Compare(x.Zone, y.Zone) })
	return nil
}

// release lets interfaces go after a while.
func (t *tx) release(interfaces ...string) {
	for _, id := range interfaces {
		t.st.Leaving[id] = t.now.Add(leaving)
	}
	t.changed()
	t.afterCommit(func() { t.s.after(leaving, t.s.removeLeaving) })
}

// removeLeaving removes the interfaces whose time has come. If that fails, it tries again.
func (s *Service) removeLeaving() {
	err := s.update("", func(t *tx) error {
		var due []string
		for _, id := range t.st.leaving() {
			if !t.now.Before(t.st.Leaving[id]) {
				due = append(due, id)
				delete(t.st.Leaving, id)
			}
		}
		t.changed()
		return t.s.cfg.Compute.RemoveNodes(due)
	})
	if err != nil {
		s.cfg.Log.Error("interfaces of a load balancer could not be removed; trying again", "error", err)
		s.after(leaving, s.removeLeaving)
	}
}

func (t *tx) checkGroups(vpc string, groups []string) error {
	if len(groups) > maxSecurityGroups {
		return badConfiguration("You cannot specify more than %d security groups", maxSecurityGroups)
	}
	for i, id := range groups {
		if !t.s.cfg.Compute.HasGroup(vpc, id) || i > 0 && groups[i-1] == id {
			return wire.Refuse("InvalidSecurityGroup", "One or more security groups are invalid: %s", id)
		}
	}
	return nil
}

type loadBalancerRequest struct{ LoadBalancerArn string }

// loadBalancer returns the load balancer with an ARN.
func (t *tx) loadBalancer(arn string) (*loadBalancer, error) {
	if !strings.HasPrefix(arn, t.arn("loadbalancer/")) {
		return nil, invalid("'%s' is not a valid load balancer ARN", arn)
	}
	b := t.st.LoadBalancers[arn]
	if b == nil || t.s.cfg.Faults.Hidden(arn, t.now) {
		return nil, wire.Refuse("LoadBalancerNotFound", "Load balancer '%s' not found", arn)
	}
	return b, nil
}

// deleteLoadBalancer also deletes listeners. Who deletes what does not exist is told that it worked.
func deleteLoadBalancer(t *tx, in *loadBalancerRequest) (any, error) {
	if !strings.HasPrefix(in.LoadBalancerArn, t.arn("loadbalancer/")) {
		return nil, invalid("'%s' is not a valid load balancer ARN", in.LoadBalancerArn)
	}
	b := t.st.LoadBalancers[in.LoadBalancerArn]
	if b == nil {
		return none{}, nil
	}
	if b.attribute(deletionProtectionKey) == "true" {
		return nil, wire.Refuse("OperationNotPermitted", "Load balancer '%s' cannot be deleted because deletion protection is enabled", b.ARN)
	}
	for _, l := range t.st.listenersOf(b.ARN) {
		t.dropListener(l)
	}
	t.release(b.interfaces()...)
	delete(t.st.LoadBalancers, b.ARN)
	delete(t.st.Tags, b.ARN)
	return none{}, nil
}
