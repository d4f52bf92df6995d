package workerpool

import (
	"testing"
)

func TestPlanWorkers(t *testing.T) {
	up := func(name string, f workerFacts) workerFacts {
		f.name, f.reachable = name, true
		return f
	}
	roll := workerFacts{running: true, changes: true, rolls: true, drain: true}
	for _, tt := range []struct {
		name    string
		workers []workerFacts
		want    string
	}{
		{"first installation", []workerFacts{up("a", workerFacts{changes: true, rolls: true, drain: true}), up("b", workerFacts{changes: true})}, `
1. a: install (kubelet is not running)
1. b: install (kubelet is not running)
`},
		{"upgrade, of the two that need it", []workerFacts{up("a", roll), up("b", roll), up("c", workerFacts{running: true})}, `
1. a: drain, apply, uncordon, when all others healthy, then wait: node Ready, a pod started
1. b: drain, apply, uncordon, when all others healthy, then wait: node Ready, a pod started
`},
		{"where pods may not start, first", []workerFacts{up("a", roll), up("b", workerFacts{running: true, unproven: true, changes: true, rolls: true})}, `
1. b: apply with restart, when all others healthy, then wait: node Ready, a pod started
1. a: drain, apply, uncordon, when all others healthy, then wait: node Ready, a pod started
`},
		{"of three the broken ones first", []workerFacts{up("a", roll), up("b", workerFacts{running: true, unproven: true, changes: true, rolls: true}),
			up("c", workerFacts{running: true, unready: true, changes: true, rolls: true})}, `
1. c: apply with restart, when all others healthy, then wait: node Ready, a pod started
1. b: apply with restart, when all others healthy, then wait: node Ready, a pod started
1. a: drain, apply, uncordon, when all others healthy, then wait: node Ready, a pod started
`},
		{"kubelet configuration and a label", []workerFacts{up("a", workerFacts{running: true, changes: true, rolls: true}), up("b", workerFacts{running: true, changes: true}), {name: "c"}}, `
1. b: apply without restart
2. a: apply with restart, when all others healthy, then wait: node Ready, a pod started
`},
		{"a node more, so routes to it", []workerFacts{up("a", workerFacts{running: true, reloads: true}), up("b", workerFacts{changes: true, reloads: true}), {name: "c", running: true, reloads: true}}, `
1. a: reload
2. b: install (kubelet is not running)
`},
		{"a node more, and an upgrade", []workerFacts{up("a", workerFacts{running: true, reloads: true, changes: true, rolls: true, drain: true}), up("b", workerFacts{running: true, reloads: true})}, `
1. a: reload
1. b: reload
2. a: drain, apply, uncordon, when all others healthy, then wait: node Ready, a pod started
`},
		{"routes on a node without a kubelet", []workerFacts{up("a", workerFacts{reloads: true})}, `
1. a: install (kubelet is not running)
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := "\n" + planWorkers(tt.workers).String(); got != tt.want {
				t.Errorf("plan:%s\nwanted:%s", got, tt.want)
			}
		})
	}
}
