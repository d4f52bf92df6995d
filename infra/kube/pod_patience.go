package kube

import (
	"cmp"
	"slices"
	"time"
)

const (
	// failGrace is how long a pod may fail before a wait for it ends. The kubelet backs off for ten
	// seconds after the second crash, so a container starts three times within this time, and what
	// it depends on has time to come up.
	failGrace = 20 * time.Second
	// failedAttempts is how many attempts must have failed if only events report them, where all
	// those before the wait count as one. Between two events it is unknown whether the current
	// attempt will succeed, for example because it pulls the sandbox image. The kubelet tries again
	// 10 to 15 seconds after a failed attempt (backOffPeriod in pkg/kubelet/kubelet.go of
	// Kubernetes).
	failedAttempts = 3
	// firstSteady is how long a container without a readiness probe must have been up; most
	// containers that crash do so at once.
	firstSteady = 3 * time.Second
	// lookInterval is the interval at which pods are observed in a wait.
	lookInterval = time.Second
	// longestStep is the most time that counts between two observations: while the API server does
	// not answer, no pod counts as failing.
	longestStep = 3 * time.Second
)

// podPatience measures how long pods have been failing.
type podPatience struct {
	last   time.Time
	spells map[spellKey]*spell
}

// spellKey is what fails. A pod created again under the same name continues to fail.
type spellKey struct{ namespace, pod, container string }

// spell is a period in which something fails again and again.
type spell struct {
	lasts time.Duration // since its first failure
	calm  time.Duration // since its last failure
	// reported is Trouble.Attempts at the last observation. attempts is how many of them the wait
	// counts.
	reported, attempts int
}

// count adds the attempts that events report now. Events may expire, and a pod that is created
// again has none at first.
func (s *spell) count(reported int) {
	if reported > s.reported {
		s.attempts++
	}
	s.reported = reported
}

// lost takes the troubles of all pods and returns those that have lasted too long, the longest
// first. A container that has restarted counts as failing until it has stayed up for as long.
func (p *podPatience) lost(now time.Time, troubles []Trouble) []Trouble {
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

func (p *podPatience) of(t Trouble) *spell { return p.spells[t.key()] }

func (t Trouble) key() spellKey { return spellKey{t.Namespace, t.Pod, t.Container} }
