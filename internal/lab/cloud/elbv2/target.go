package elbv2

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

var targetActions = map[string]action{
	"DeregisterTargets":    writes(deregisterTargets),
	"DescribeTargetHealth": reads(describeTargetHealth),
	"RegisterTargets":      writes(registerTargets),
}

// The states of a target.
const (
	healthInitial   = "initial"
	healthHealthy   = "healthy"
	healthUnhealthy = "unhealthy"
	healthDraining  = "draining"
	healthUnused    = "unused"
)

// The states of an instance that say something of a target.
const (
	instanceRunning    = "running"
	instancePending    = "pending"
	instanceTerminated = "terminated"
)

type targetDescription struct {
	ID               string `query:"Id"`
	Port             *int
	AvailabilityZone string
}

type targetsRequest struct {
	TargetGroupArn string
	Targets        []targetDescription `query:"Targets.member"`
}

// is reports whether a description names a target. Without a port it names the target at every port, as
// deregistrations do.
func (d targetDescription) is(x target) bool {
	return x.ID == d.ID && (d.Port == nil || *d.Port == x.Port)
}

func (g *targetGroup) target(id string, port int) *target {
	i := slices.IndexFunc(g.Targets, func(x target) bool { return x.ID == id && x.Port == port })
	if i < 0 {
		return nil
	}
	return &g.Targets[i]
}

func registerTargets(t *tx, in *targetsRequest) (any, error) {
	g, err := t.targetGroup(in.TargetGroupArn)
	if err != nil {
		return nil, err
	}
	if len(in.Targets) == 0 {
		return nil, invalid("At least one target must be specified")
	}
	for _, d := range in.Targets {
		i, ok := t.s.cfg.Compute.Instance(d.ID)
		switch {
		case !strings.HasPrefix(d.ID, "i-"):
			return nil, invalid("Instance ID '%s' is not valid", d.ID)
		case d.AvailabilityZone != "":
			return nil, badConfiguration("You cannot specify an Availability Zone for targets of the type 'instance'")
		case d.Port != nil && (*d.Port < 1 || *d.Port > 65535):
			return nil, invalid("1 validation error detected: Value '%d' at 'targets.port' failed to satisfy constraint: Member must be between 1 and 65535", *d.Port)
		case !ok || i.State == instanceTerminated:
			return nil, wire.Refuse("InvalidTarget", "The following targets do not exist: '%s'", d.ID)
		case i.State != instanceRunning: // nor pending
			return nil, wire.Refuse("InvalidTarget", "The following targets are not in a running state and cannot be registered: '%s'", d.ID)
		case i.VPC != g.VPC:
			return nil, wire.Refuse("InvalidTarget", "The following targets are not in the target group VPC '%s': '%s'", g.VPC, d.ID)
		}
		port := g.Port
		if d.Port != nil {
			port = *d.Port
		}
		fresh := target{ID: d.ID, Port: port, Registered: t.now, Health: healthInitial}
		switch there := g.target(d.ID, port); {
		case there == nil:
			g.Targets = append(g.Targets, fresh)
		case !there.Deregistered.IsZero():
			*there = fresh
		}
	}
	if len(g.Targets) > maxTargets {
		return nil, wire.Refuse("TooManyTargets", "You cannot register more than %d targets with target group '%s'", maxTargets, g.ARN)
	}
	t.changed()
	t.afterCommit(t.s.startChecks)
	return none{}, nil
}

// deregisterTargets leaves alone what is not registered.
func deregisterTargets(t *tx, in *targetsRequest) (any, error) {
	g, err := t.targetGroup(in.TargetGroupArn)
	if err != nil {
		return nil, err
	}
	if len(in.Targets) == 0 {
		return nil, invalid("At least one target must be specified")
	}
	for _, d := range in.Targets {
		if !strings.HasPrefix(d.ID, "i-") {
			return nil, invalid("Instance ID '%s' is not valid", d.ID)
		}
		for i := range g.Targets {
			if x := &g.Targets[i]; d.is(*x) && x.Deregistered.IsZero() {
				x.Deregistered = t.now
			}
		}
	}
	t.dropUnused(g)
	t.changed()
	t.afterCommit(t.s.startChecks)
	return none{}, nil
}

// dropUnused drops what is deregistered of a target group that no listener uses: it has no connections.
func (t *tx) dropUnused(g *targetGroup) {
	if t.st.balancerOf(g.ARN) == nil {
		g.Targets = slices.DeleteFunc(g.Targets, func(x target) bool { return !x.Deregistered.IsZero() })
	}
}

// drained says when a deregistered target has been drained.
func (g *targetGroup) drained(x target) time.Time {
	n, _ := strconv.Atoi(g.attribute(drainingKey)) // it was checked when it was set
	return x.Deregistered.Add(time.Duration(n) * time.Second)
}

type healthAnswer struct {
	Descriptions []healthItem `xml:"TargetHealthDescriptions>member"`
}

type healthItem struct {
	ID        string     `xml:"Target>Id"`
	Port      int        `xml:"Target>Port"`
	CheckPort int        `xml:"HealthCheckPort"`
	Health    healthInfo `xml:"TargetHealth"`
}

type healthInfo struct {
	State       string `xml:"State"`
	Reason      string `xml:"Reason,omitempty"`
	Description string `xml:"Description,omitempty"`
}

type targetHealthRequest struct {
	TargetGroupArn string
	Targets        []targetDescription `query:"Targets.member"`
}

func describeTargetHealth(t *tx, in *targetHealthRequest) (any, error) {
	g, err := t.targetGroup(in.TargetGroupArn)
	if err != nil {
		return nil, err
	}
	var out healthAnswer
	item := func(x target, h healthInfo) {
		out.Descriptions = append(out.Descriptions, healthItem{x.ID, x.Port, g.checkPort(x), h})
	}
	list := slices.SortedStableFunc(slices.Values(g.Targets), func(a, b target) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Port, b.Port))
	})
	if len(in.Targets) == 0 {
		for _, x := range list {
			if h := t.health(g, x); h.State != "" {
				item(x, h)
			}
		}
	}
	for _, d := range in.Targets {
		if !strings.HasPrefix(d.ID, "i-") {
			return nil, invalid("Instance ID '%s' is not valid", d.ID)
		}
		port := g.Port
		if d.Port != nil {
			port = *d.Port
		}
		x := g.target(d.ID, port)
		if x != nil && t.health(g, *x).State != "" {
			item(*x, t.health(g, *x))
			continue
		}
		if i, ok := t.s.cfg.Compute.Instance(d.ID); !ok || i.State == instanceTerminated {
			return nil, wire.Refuse("InvalidTarget", "The following targets are not registered and do not exist: '%s'", d.ID)
		}
		item(target{ID: d.ID, Port: port}, healthInfo{healthUnused, "Target.NotRegistered", "Target is not registered to the target group"})
	}
	return out, nil
}

// health returns the state of a target as AWS words it. It is empty once the target has been drained.
func (t *tx) health(g *targetGroup, x target) healthInfo {
	b := t.st.balancerOf(g.ARN)
	i, exists := t.s.cfg.Compute.Instance(x.ID)
	switch {
	case !x.Deregistered.IsZero():
		if !t.now.Before(g.drained(x)) {
			return healthInfo{}
		}
		return healthInfo{healthDraining, "Target.DeregistrationInProgress", "Target deregistration is in progress"}
	case b == nil:
		return healthInfo{healthUnused, "Target.NotInUse", "Target group is not configured to receive traffic from the load balancer"}
	case !exists:
		return healthInfo{healthUnused, "Target.InvalidState", "Target is in the terminated state"}
	case i.State != instanceRunning && i.State != instancePending:
		return healthInfo{healthUnused, "Target.InvalidState", "Target is in the " + i.State + " state"}
	case !t.reachable(b, g, i.Zone):
		return healthInfo{healthUnused, "Target.NotInUse", "Target is in an Availability Zone that is not enabled for the load balancer"}
	case x.Health == healthHealthy:
		return healthInfo{State: healthHealthy}
	case x.Health == healthUnhealthy:
		return healthInfo{healthUnhealthy, "Target.FailedHealthChecks", "Health checks failed"}
	case !x.Checked:
		return healthInfo{healthInitial, "Elb.RegistrationInProgress", "Target registration is in progress"}
	}
	return healthInfo{healthInitial, "Elb.InitialHealthChecking", "Initial health checks in progress"}
}

// reachable reports whether a node of a load balancer forwards to targets in a zone.
func (t *tx) reachable(b *loadBalancer, g *targetGroup, zone string) bool {
	_, ok := b.nodeIn(zone)
	return ok || b.crossZone(g)
}
