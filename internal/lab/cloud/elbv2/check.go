package elbv2

import (
	"context"
	"net/netip"
	"slices"
	"time"
)

// checkTick is how often the loop of health checks looks for what is due.
const checkTick = time.Second

// checkKey names a target that is checked. A target that is registered again is another one.
type checkKey struct {
	group, id  string
	port       int
	registered time.Time
}

// check is what is remembered of a target's checks.
type check struct {
	next          time.Time
	running       bool
	passes, fails int // in a row
}

// probe is one health check.
type probe struct {
	key           checkKey
	of            healthCheck
	networkDevice string // of the node that checks
	to            netip.AddrPort
}

// startChecks starts the loop of health checks, unless it runs or has nothing to do.
func (s *Service) startChecks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.checking && s.ctx.Err() == nil && s.st.hasTargets() {
		s.checking = true
		s.wg.Go(s.checkLoop)
	}
}

func (st *state) hasTargets() bool {
	for _, g := range st.TargetGroups {
		if len(g.Targets) > 0 {
			return true
		}
	}
	return false
}

func (s *Service) checkLoop() {
	for s.stillChecking() {
		s.retire()
		for _, p := range s.due() {
			s.wg.Go(func() {
				ctx, cancel := context.WithTimeout(s.ctx, time.Duration(p.of.Timeout)*time.Second)
				defer cancel()
				err := p.run(ctx, s.cfg.Network)
				if s.ctx.Err() == nil {
					s.found(p.key, err)
				}
			})
		}
		select {
		case <-s.ctx.Done():
		case <-s.cfg.Clock.After(checkTick):
		}
	}
}

func (s *Service) stillChecking() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checking = s.ctx.Err() == nil && s.st.hasTargets()
	return s.checking
}

func keyOf(g *targetGroup, x target) checkKey {
	return checkKey{g.ARN, x.ID, x.Port, x.Registered.UTC()}
}

// due returns the checks whose time has come, and takes note that they run.
func (s *Service) due() []probe {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &tx{s: s, st: s.st, now: s.cfg.Clock.Now()}
	var out []probe
	known := map[checkKey]bool{}
	for _, g := range sorted(s.st.TargetGroups) {
		b := s.st.balancerOf(g.ARN)
		if b == nil || b.state(t.now) != stateActive {
			continue
		}
		for _, x := range g.Targets {
			i, ok := s.cfg.Compute.Instance(x.ID)
			if !ok || i.State != instanceRunning && i.State != instancePending || !x.Deregistered.IsZero() || !t.reachable(b, g, i.Zone) {
				continue
			}
			key := keyOf(g, x)
			known[key] = true
			c := s.checks[key]
			if c == nil {
				c = &check{}
				s.checks[key] = c
			}
			if c.running || t.now.Before(c.next) {
				continue
			}
			c.running, c.next = true, t.now.Add(time.Duration(g.Check.Interval)*time.Second)
			n, own := b.nodeIn(i.Zone)
			if !own {
				n = b.Nodes[0]
			}
			out = append(out, probe{key, g.Check, n.Interface, netip.AddrPortFrom(i.PrivateIP, uint16(g.checkPort(x)))})
		}
	}
	for key, c := range s.checks {
		if !known[key] && !c.running {
			delete(s.checks, key)
		}
	}
	return out
}

// found takes note of what a check has found: nil if the target is well.
func (s *Service) found(key checkKey, failure error) {
	s.mu.Lock()
	c := s.checks[key]
	if c == nil {
		s.mu.Unlock()
		return
	}
	c.running = false
	if failure == nil {
		c.passes, c.fails = c.passes+1, 0
	} else {
		c.passes, c.fails = 0, c.fails+1
	}
	passes, fails := c.passes, c.fails
	g := s.st.TargetGroups[key.group]
	needed := g != nil && g.note(key, passes, fails) != nil
	s.mu.Unlock()
	if !needed {
		return
	}
	err := s.update("", func(t *tx) error {
		g := t.st.TargetGroups[key.group]
		if g == nil {
			return nil
		}
		changed := g.note(key, passes, fails)
		if changed == nil {
			return nil
		}
		was := g.target(key.id, key.port)
		ended := changed.Health == healthUnhealthy && was.Health == healthHealthy && g.attribute(unhealthyEndKey) == "true"
		moved := changed.Health != was.Health
		*was = *changed
		if !moved {
			return nil
		}
		s.cfg.Log.Info("a target's health has changed", "group", g.Name, "target", key.id, "health", changed.Health, "reason", failure)
		t.changed()
		if ended {
			t.endFlows(g, *changed)
		}
		return nil
	})
	if err != nil {
		s.cfg.Log.Error("the health of a target could not be saved", "error", err)
	}
}

// note returns a target as it is after so many checks in a row that passed or failed; nil if that is as
// it was.
func (g *targetGroup) note(key checkKey, passes, fails int) *target {
	x := g.target(key.id, key.port)
	if x == nil || keyOf(g, *x) != key {
		return nil
	}
	after := *x
	after.Checked = true
	switch {
	case passes >= g.Check.Healthy:
		after.Health = healthHealthy
	case fails >= g.Check.Unhealthy:
		after.Health = healthUnhealthy
	}
	if after == *x {
		return nil
	}
	return &after
}

// endFlows resets the connections to a target after the commit.
func (t *tx) endFlows(g *targetGroup, x target) {
	b := t.st.balancerOf(g.ARN)
	i, ok := t.s.cfg.Compute.Instance(x.ID)
	if b == nil || !ok {
		return
	}
	to := netip.AddrPortFrom(i.PrivateIP, uint16(x.Port))
	nodes := b.interfaces()
	t.afterCommit(func() {
		for _, id := range nodes {
			if err := t.s.cfg.Network.EndFlows(t.s.ctx, id, to); err != nil {
				t.s.cfg.Log.Error("connections to a target could not be ended", "target", x.ID, "error", err)
			}
		}
	})
}

// retire deregisters terminated instances, drops targets that have been drained, and forgets the health of
// targets that are not in use: once they are, they are initial again.
func (s *Service) retire() {
	step := func(t *tx) bool {
		changed := false
		for _, g := range sorted(t.st.TargetGroups) {
			for i := range g.Targets {
				x := &g.Targets[i]
				found, ok := s.cfg.Compute.Instance(x.ID)
				gone := !ok || found.State == instanceTerminated
				switch {
				case gone && x.Deregistered.IsZero():
					x.Deregistered, changed = t.now, true
				case x.Deregistered.IsZero() && x.Checked && t.health(g, *x).State == healthUnused:
					x.Health, x.Checked, changed = healthInitial, false, true
				case !x.Deregistered.IsZero() && !t.now.Before(g.drained(*x)):
					changed = true
					if g.attribute(drainedEndKey) == "true" {
						t.endFlows(g, *x)
					}
				}
			}
			g.Targets = slices.DeleteFunc(g.Targets, func(x target) bool {
				return !x.Deregistered.IsZero() && (!t.now.Before(g.drained(x)) || t.st.balancerOf(g.ARN) == nil)
			})
		}
		return changed
	}
	s.mu.Lock()
	copied, err := decodeState(s.raw)
	due := err == nil && step(&tx{s: s, st: copied, now: s.cfg.Clock.Now()})
	s.mu.Unlock()
	if !due {
		return
	}
	err = s.update("", func(t *tx) error {
		step(t)
		t.changed()
		return nil
	})
	if err != nil {
		s.cfg.Log.Error("drained targets could not be dropped", "error", err)
	}
}
