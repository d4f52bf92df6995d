package session

import (
	"maps"
	"slices"
	"sync"
)

// Successions is what the plan of a resource has to know of the plans of others: which etcd clusters are new, which
// machines an object of a role loses because it is destroyed, and which machines another object gets. Terraform
// plans in any order, and applies such changes at the same time. It is safe for concurrent use.
type Successions struct {
	mu      sync.Mutex
	ended   map[machineOf]string // claims of objects that are destroyed
	arrives map[machineOf]bool
	fresh   map[string]bool // clusters with a new etcd
	places  []Place
}

// Place is a file that a resource places on a machine.
type Place struct{ Owner, Machine, Path string }

// Places notes the files that the plan of an owner places on machines, instead of those of an earlier plan. It returns
// those that another owner places there too.
func (s *Successions) Places(owner string, machines, paths []string) (others []Place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = slices.DeleteFunc(s.places, func(p Place) bool { return p.Owner == owner })
	for _, p := range s.places {
		if slices.Contains(machines, p.Machine) && slices.Contains(paths, p.Path) {
			others = append(others, p)
		}
	}
	for _, machine := range machines {
		for _, path := range paths {
			s.places = append(s.places, Place{owner, machine, path})
		}
	}
	return others
}

// machineOf is a machine of a role.
type machineOf struct{ role, id string }

// Ends notes that a plan destroys the object with a claim. It returns those of its machines, which are names by
// identity, that another object gets in this plan.
func (s *Successions) Ends(role, claim string, machines map[string]string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = map[machineOf]string{}
	}
	var out []string
	for id, name := range machines {
		at := machineOf{role, id}
		if s.ended[at] = claim; s.arrives[at] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Gets notes the machines that a plan gives to an object. It returns those that another object loses in this
// plan.
func (s *Successions) Gets(role string, machines map[string]string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.arrives == nil {
		s.arrives = map[machineOf]bool{}
	}
	var out []string
	for id, name := range machines {
		at := machineOf{role, id}
		s.arrives[at] = true
		if _, ended := s.ended[at]; ended {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Applied forgets what the objects of a role get: the plan is over.
func (s *Successions) Applied(role string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.arrives, func(m machineOf, _ bool) bool { return m.role == role })
}

// Gone forgets an object that has been destroyed.
func (s *Successions) Gone(claim string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.ended, func(_ machineOf, c string) bool { return c == claim })
}

// Fresh notes whether the plan makes a new etcd for a cluster, without data. The plan of a replacement says first
// that it does not.
func (s *Successions) Fresh(cluster string, anew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fresh == nil {
		s.fresh = map[string]bool{}
	}
	s.fresh[cluster] = anew
}

// IsFresh reports whether this plan makes a new etcd for a cluster. Resources that depend on etcd are planned
// after it.
func (s *Successions) IsFresh(cluster string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fresh[cluster]
}
