package controlplane

import (
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

func TestGuardKubernetes(t *testing.T) {
	for _, tt := range []struct{ serving, want, refusal string }{
		{"1.37.1 1.37.1", "1.36.4", "go on to 1.37.1, or bring back c, where"}, // c does not answer
		{"1.36.4 1.36.4 1.36.4", "1.37.1", ""},
		{"1.36.4 1.37.1 1.37.1", "1.37.1", ""},
		{"1.37.1 1.36.4 1.36.4", "1.36.4", ""}, // halfway, and back
		{"1.37.1 1.37.1 1.37.1", "1.36.4", "refusing to roll the API servers to 1.36.4: cannot go from 1.37.1 back to 1.36.4"},
		{"1.37.1 1.35.8", "1.37.1", "cannot go from 1.35.8 to 1.37.1 in one step"},
		{"", "1.37.1", ""},
	} {
		parse := func(s string) version.Version {
			v, err := version.Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		var serving []version.Version
		for _, s := range strings.Fields(tt.serving) {
			serving = append(serving, parse(s))
		}
		var silent []string
		if len(serving) == 2 {
			silent = []string{"c"}
		}
		err := guardKubernetes(parse(tt.want), serving, silent)
		if (err == nil) != (tt.refusal == "") || err != nil && !strings.Contains(err.Error(), tt.refusal) {
			t.Errorf("%s to %s: %v", tt.serving, tt.want, err)
		}
	}
}

func TestPlanControlPlane(t *testing.T) {
	for _, tt := range []struct {
		name        string
		controllers []controllerFacts
		want        string
	}{
		{"first installation", []controllerFacts{
			{name: "a", reachable: true, changes: true, restarts: true, managers: true},
			{name: "b", reachable: true, changes: true, restarts: true, managers: true},
		}, `
1. a: install (none serves yet), then wait: healthy
1. b: install (none serves yet), then wait: healthy
`},
		{"nothing to do", []controllerFacts{{name: "a", reachable: true, serving: true}}, "\n"},
		{"upgrade: API servers first", []controllerFacts{
			{name: "a", reachable: true, serving: true, changes: true, restarts: true, managers: true},
			{name: "b", reachable: true, serving: true, changes: true, restarts: true, managers: true},
			{name: "c", reachable: true, serving: true, changes: true, restarts: true, managers: true},
		}, `
1. a: apply with restart, when all others healthy, then wait: healthy
2. b: apply with restart, when all others healthy, then wait: healthy
3. c: apply with restart, when all others healthy, then wait: healthy
4. a: apply to managers
5. b: apply to managers
6. c: apply to managers
`},
		{"the broken one first, the quiet ones together", []controllerFacts{
			{name: "a", reachable: true, serving: true, changes: true, restarts: true},
			{name: "b", reachable: true, serving: true, changes: true},
			{name: "c", reachable: true, serving: true, changes: true},
			{name: "d", reachable: true, changes: true, managers: true},
		}, `
1. d: install (not serving), then wait: healthy
2. b: apply without restart
2. c: apply without restart
3. a: apply with restart, when all others healthy, then wait: healthy
`},
		{"a scheduler flag", []controllerFacts{
			{name: "a", reachable: true, serving: true, managers: true}, {name: "b", reachable: true, serving: true},
		}, `
1. a: apply to managers
`},
		{"one unreachable of three", []controllerFacts{
			{name: "a", reachable: true, serving: true, changes: true, restarts: true},
			{name: "b", reachable: true, serving: true},
			{name: "c"},
		}, `
1. a: apply with restart, when all others healthy, then wait: healthy
`},
		{"a roll that stopped because the load balancer left out the first", []controllerFacts{
			{name: "a", reachable: true, serving: true, unproven: true},
			{name: "b", reachable: true, serving: true, changes: true, restarts: true},
			{name: "c", reachable: true, serving: true, changes: true, restarts: true},
		}, `
1. a: ask again (changed before, and not known to be behind the load balancer), then wait: healthy
2. b: apply with restart, when all others healthy, then wait: healthy
3. c: apply with restart, when all others healthy, then wait: healthy
`},
		{"its cause is removed: the one that is left out first", []controllerFacts{
			{name: "a", reachable: true, serving: true, changes: true, restarts: true},
			{name: "b", reachable: true, serving: true, changes: true, restarts: true, unproven: true},
		}, `
1. b: apply with restart, when all others healthy, then wait: healthy
2. a: apply with restart, when all others healthy, then wait: healthy
`},
		{"the only one that serves", []controllerFacts{
			{name: "a", reachable: true, serving: true, changes: true, restarts: true, managers: true},
			{name: "b"},
		}, `
refusing to restart the API server on a: it is the only one that serves, and b cannot be reached; apply again when they answer
`},
		{"the only controller", []controllerFacts{{name: "a", reachable: true, serving: true, changes: true, restarts: true}}, `
1. a: apply with restart, when all others healthy, then wait: healthy
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := "\n" + outcome(planControlPlane(tt.controllers)); got != tt.want {
				t.Errorf("plan:%s\nwanted:%s", got, tt.want)
			}
		})
	}
}

func TestOfManagers(t *testing.T) {
	managers, rest := splitManagers([]host.Change{
		change(finding.File, "ca.crt", component.APIServerUnit, component.ControllerManagerUnit),
		change(finding.File, "manager.kubeconfig", component.ControllerManagerUnit),
		change(finding.Binary, "kube-apiserver", component.APIServerUnit),
		change(finding.Binary, "kube-scheduler", component.SchedulerUnit),
		change(finding.File, "scheduler.crt"),
		change(finding.Unit, component.SchedulerUnit),
		change(finding.Unit, component.APIServerUnit),
	})
	if got, want := targetsOf(managers), []string{"manager.kubeconfig", "kube-scheduler", component.SchedulerUnit}; !slices.Equal(got, want) {
		t.Errorf("managers' = %q, wanted %q", got, want)
	}
	if got, want := targetsOf(rest), []string{"ca.crt", "kube-apiserver", "scheduler.crt", component.APIServerUnit}; !slices.Equal(got, want) {
		t.Errorf("the rest = %q, wanted %q", got, want)
	}
}

// outcome returns the plan's text, followed by the error if there is one.
func outcome(p rollout.Plan, err error) string {
	out := p.String()
	if err != nil {
		out += err.Error() + "\n"
	}
	return out
}

func change(kind finding.Kind, target string, restarts ...string) host.Change {
	return host.Change{Finding: finding.Finding{Kind: kind, Target: target}, Restarts: restarts}
}

func targetsOf(changes []host.Change) []string {
	var out []string
	for _, c := range changes {
		out = append(out, c.Target)
	}
	return out
}
