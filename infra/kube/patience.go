package kube

import (
	"cmp"
	"slices"
	"time"
)

const (
	// failGrace is how long a pod may fail before a wait for it is given up.
	// The kubelet backs off for ten seconds after the second crash: within
	// this time a container is started three times, and what it needs and is
	// started along with it has time to come up.
	failGrace = 20 * time.Second
	// failedAttempts is how many attempts of which only events tell must have
	// failed, those before the wait counting as one: between two events nobody
	// knows whether the attempt at work will succeed, such as one that pulls the
	// sandbox image. The kubelet makes the next one 10 to 15 seconds after a
	// failed one (backOffPeriod in pkg/kubelet/kubelet.go of Kubernetes).
	failedAttempts = 3
	// firstSteady is how long a container without a readiness probe must have
	// been up; most that crash do so at once.
	firstSteady = 3 * time.Second
	// lookInterval is how often pods are looked at during a wait.
	lookInterval = time.Second
	// longestStep is how much time one look can make pass: while the API
	// server does not answer, nothing is held against a pod.
	longestStep = 3 * time.Second
)

// patience remembers how long pods have been failing.
type patience struct {
	last   time.Time
	spells map[spellKey]*spell
}

// spellKey is what fails; a pod that is made anew under its name goes on failing.
type spellKey struct{ namespace, pod, container string }

// spell is a time in which something fails again and again.
type spell struct {
	lasts time.Duration // since it failed first
	calm  time.Duration // since it failed last
	// told is Trouble.Attempts at the last look, attempts how many of them the
	// wait counts.
	told, attempts int
}

// count takes what events tell by now. Events may also be forgotten, and a pod
// that is made anew has none at first.
func (s *spell) count(told int) {
	if told > s.told {
		s.attempts++
	}
	s.told = told
}

// lost takes what a look at all pods has found, and returns those for which
// waiting is over, the longest failing first. A container that is started
// again meanwhile goes on failing unless it stays up for as long.
func (p *patience) lost(now time.Time, troubles []Trouble) []Trouble {
	step := min(now.Sub(p.last), longestStep)
	if p.last.IsZero() {
		step = 0
	}
	p.last = now
	if p.spells == nil {
		p.spells = map[spellKey]*spell{}
	}
	for _, s := range p.spells {
		s.lasts += step
		s.calm += step
	}
	var over []Trouble
	for _, t := range troubles {
		if t.Passing {
			continue
		}
		s := p.of(t)
		if s == nil {
			s = &spell{}
			p.spells[t.key()] = s
		}
		s.calm = 0
		s.count(t.Attempts)
		if s.lasts >= failGrace && (t.Attempts == 0 || s.attempts >= failedAttempts) {
			over = append(over, t)
		}
	}
	for k, s := range p.spells {
		if s.calm >= failGrace {
			delete(p.spells, k)
		}
	}
	slices.SortStableFunc(over, func(a, b Trouble) int {
		return cmp.Or(cmp.Compare(p.of(b).lasts, p.of(a).lasts), cmp.Compare(a.String(), b.String()))
	})
	return over
}

func (p *patience) of(t Trouble) *spell { return p.spells[t.key()] }

func (t Trouble) key() spellKey { return spellKey{t.Namespace, t.Pod, t.Container} }
