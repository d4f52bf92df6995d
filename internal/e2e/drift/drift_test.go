// Package drift_test damages a running cluster by hand in many ways. The plan must name each
// damage, apply must repair it, and nothing else may be touched.
//
// Independent damages share a round, which is one plan and one apply. The checks of each stay the
// same: every finding in the plan must belong to one damage, every damage must have its findings,
// and exactly the units that the damages name must restart.
package drift_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

var suite *harness.Suite

func TestMain(m *testing.M) { os.Exit(harness.Main(m, func(s *harness.Suite) { suite = s })) }

// world is the cluster under test and the account it lives in.
type world struct {
	*harness.Cluster
	ec2 *ec2.Client
	ssm *ssm.Client

	broken bool // a step did not finish
}

// damage is one change that someone makes to the cluster by hand.
type damage struct {
	name     string
	resource string // the resource whose plan must contain it
	thing    string // key in the resource's drift map: a machine, or a thing in AWS or Kubernetes
	hurt     func(*testing.T, *world)
	// look returns the state of what is damaged, without the provider. It must be the same before
	// the damage and after the repair, and different in between.
	look func(*testing.T, *world) string
	late bool // the look changes a moment after the damage and the repair, as with a reload
	// says has one pattern for each finding, which must match the whole finding.
	says []string
	// restarts are the units that the repair must restart: "machine/unit", or "machine/*" for all
	// units of a machine.
	restarts []string
	// changes are attributes besides drift that may change.
	changes []string
}

// round is a set of damages that one apply repairs.
type round struct {
	name    string
	damages []damage
	follows []string // resources that change because damaged ones do
	warns   bool     // something cannot be reached, and the plan says so
}

// change is the part of a plan that concerns one resource.
type change struct {
	Address string `json:"address"`
	Change  struct {
		Actions []string       `json:"actions"`
		Before  map[string]any `json:"before"`
		After   map[string]any `json:"after"`
	} `json:"change"`
}

func TestDrift(t *testing.T) {
	cfg := suite.AWS()
	w := &world{
		Cluster: suite.Cluster(suite.Workspace(t, "drift", suite.CLI, filepath.Join(suite.Root, "examples", "ha-cluster"))),
		ec2:     ec2.NewFromConfig(cfg), ssm: ssm.NewFromConfig(cfg),
	}
	if err := w.WS.WriteFile("quota_override.tf", fmt.Sprintf(smallQuota, quotaMiB)); err != nil {
		t.Fatal(err)
	}
	w.copyLabs(t)
	w.Apply(t)
	w.Learn(t)
	// The first refresh reads the addresses that the Elastic IP has replaced.
	w.NoChanges(t)
	w.step(t, "prepared machines", w.testPrepared)
	w.step(t, "faults of the exercise", w.testFaults)
	for _, r := range rounds() {
		w.step(t, r.name, func(t *testing.T) { w.run(t, r) })
	}
	w.step(t, "terminated", w.testTerminated)
	w.step(t, "private key gone", w.testKeyGone)
	w.step(t, "quota larger than the disk", w.testQuotaTooLarge)
	w.step(t, "fragmented etcd", w.testFragmented)
	w.step(t, "full etcd", w.testFull)
	if os.Getenv("K8S_ETCD_FULL") != "" {
		w.step(t, "etcd full of data", w.testFullOfData)
	}
	w.step(t, "cloud controllers", w.testCloudControllers) // a worker is gone afterwards
}

// step runs f, after which the cluster must be whole again. After a failed step no other one is
// run.
func (w *world) step(t *testing.T, name string, f func(*testing.T)) {
	t.Run(name, func(t *testing.T) {
		if w.broken {
			t.Skip("the step before left damage behind")
		}
		w.broken = true
		f(t)
		w.broken = false
	})
}

func rounds() []round {
	return []round{
		{name: "exercise", damages: exercise()},
		{name: "files and units", damages: append(files(), units()...)},
		{name: "programs and certificates", damages: append(programs(), certificates()...)},
		{name: "objects and data", damages: append(objects(), lostData())},
		{name: "account and membership", damages: append(account(), removedMember(), strangeNode())},
		{name: "ways in", damages: waysIn(), warns: true},
		{name: "instances", damages: instances(), follows: []string{"k8s_worker_pool.this"}, warns: true},
	}
}

// run makes the damages of a round and checks that they are reported, repaired and then no longer
// reported.
func (w *world) run(t *testing.T, r round) {
	before := make([]string, len(r.damages))
	for i, d := range r.damages {
		before[i] = d.look(t, w)
	}
	started := w.Units(t)
	for _, d := range r.damages {
		d.hurt(t, w)
	}
	for i, d := range r.damages {
		if now := d.await(t, w, func(now string) bool { return now != before[i] }); now == before[i] {
			t.Fatalf("%s: nothing was damaged: %s", d.name, now)
		}
	}
	w.plan(t, r)
	at := time.Now()
	w.Apply(t, "drift.tfplan")
	t.Logf("%d damages repaired in %s", len(r.damages), time.Since(at).Round(time.Millisecond))
	w.LearnMachines(t)
	for i, d := range r.damages {
		if now := d.await(t, w, func(now string) bool { return now == before[i] }); now != before[i] {
			t.Errorf("%s: not repaired:\n%s\nbefore the damage:\n%s", d.name, now, before[i])
		}
	}
	var allowed []string
	for _, d := range r.damages {
		allowed = append(allowed, d.restarts...)
	}
	compareStarts(t, started, w.Units(t), allowed)
	w.NoChanges(t)
}

// await returns the look, if it is late only once it is right, for a minute.
func (d damage) await(t *testing.T, w *world, right func(string) bool) string {
	for began := time.Now(); ; time.Sleep(time.Second) {
		if now := d.look(t, w); right(now) || !d.late || time.Since(began) > time.Minute {
			return now
		}
	}
}

// slowDisk is a warning, in one line, that speaks only of a disk of etcd that is slow, as that of a busy computer is.
var slowDisk = regexp.MustCompile(`^The etcd cluster needs attention (with .* \{ )?` +
	`(\S+: disk of etcd: more than 1% of the writes took longer than \S+ since the member started \(\S+\): requests wait, and the leadership may change under load\. ?)+` +
	`(\(and [^)]* elsewhere\) ?)?(─.*)?$`)

// warnings returns the warnings in a plan but for those of a slow disk.
func warnings(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "Warning: ")[1:], func(w string) bool { return slowDisk.MatchString(harness.Flat(w)) })
}

// plan plans a round and compares the whole plan with the damages.
func (w *world) plan(t *testing.T, r round) {
	at := time.Now()
	changes, text, err := w.WS.Plan(t.Context(), "-out=drift.tfplan")
	for again := range 2 { // when the computer is busy, no machine may answer in time
		if err != nil || r.warns || !strings.Contains(text, "cannot be reached") {
			break
		}
		t.Logf("plan %d did not reach every machine", again+1)
		changes, text, err = w.WS.Plan(t.Context(), "-out=drift.tfplan")
	}
	if err != nil {
		t.Fatal(err)
	}
	if !changes {
		t.Fatal("the plan saw nothing")
	}
	t.Logf("%d damages planned in %s", len(r.damages), time.Since(at).Round(time.Millisecond))
	if warned := warnings(text); len(warned) > 0 && !r.warns {
		t.Errorf("the plan warns: %s", strings.Join(warned, "\n"))
	}
	damaged := map[string][]damage{}
	for _, d := range r.damages {
		damaged[d.resource] = append(damaged[d.resource], d)
	}
	for address, c := range w.planned(t) {
		switch ds := damaged[address]; {
		case len(ds) > 0:
			c.compare(t, ds, text)
		case !slices.Contains(r.follows, address):
			t.Errorf("%s was not damaged, and the plan is to %v it", address, c.Change.Actions)
		}
		delete(damaged, address)
	}
	for _, ds := range damaged {
		for _, d := range ds {
			t.Errorf("%s: the plan does not change %s", d.name, d.resource)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// planned returns what the saved plan changes, by address.
func (w *world) planned(t *testing.T) map[string]change {
	t.Helper()
	out, err := w.WS.Run(t.Context(), "show", "-json", "drift.tfplan")
	if err != nil {
		t.Fatal(err)
	}
	var plan struct {
		Changes []change `json:"resource_changes"`
	}
	if err := json.Unmarshal([]byte(out), &plan); err != nil {
		t.Fatal(err)
	}
	found := map[string]change{}
	for _, c := range plan.Changes {
		if !slices.Equal(c.Change.Actions, []string{"no-op"}) {
			found[c.Address] = c
		}
	}
	return found
}

// read reports whether a person reads a finding in a plan: in quotes, or in a text of several lines.
func read(text, finding string) bool {
	if quoted := strconv.Quote(finding); strings.Contains(text, quoted[1:len(quoted)-1]) {
		return true
	}
	indented := regexp.MustCompile(`\n +`)
	return strings.Contains(indented.ReplaceAllString(text, "\n"), indented.ReplaceAllString(finding, "\n"))
}

// compare checks that the findings of one resource are those of its damages, each in the words that
// a person reads, and that nothing else changes.
func (c change) compare(t *testing.T, damages []damage, text string) {
	if !slices.Equal(c.Change.Actions, []string{"update"}) {
		t.Errorf("%s: the plan is to %v it", c.Address, c.Change.Actions)
	}
	allowed := []string{"drift"}
	findings := map[string][]string{}
	drift, _ := c.Change.Before["drift"].(map[string]any)
	for thing, words := range drift {
		findings[thing] = regexp.MustCompile(`\n\b`).Split(fmt.Sprint(words), -1) // details are indented
	}
	for _, d := range damages {
		allowed = append(allowed, d.changes...)
		for _, pattern := range d.says {
			whole := regexp.MustCompile("^(?:" + pattern + ")$")
			i := slices.IndexFunc(findings[d.thing], whole.MatchString)
			if i < 0 {
				t.Errorf("%s: %s does not say %q of %s: %q", d.name, c.Address, pattern, d.thing, findings[d.thing])
				continue
			}
			if !read(text, findings[d.thing][i]) {
				t.Errorf("%s: a person does not read %q", d.name, findings[d.thing][i])
			}
			findings[d.thing] = slices.Delete(findings[d.thing], i, i+1)
		}
	}
	for thing, left := range findings {
		if len(left) > 0 {
			t.Errorf("%s also says of %s: %q", c.Address, thing, left)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Change.Before)) {
		if !slices.Contains(allowed, name) && !reflect.DeepEqual(c.Change.Before[name], c.Change.After[name]) {
			t.Errorf("%s: %s changes as well: %v -> %v", c.Address, name, c.Change.Before[name], c.Change.After[name])
		}
	}
}

// compareStarts checks that exactly the allowed units were started again.
func compareStarts(t *testing.T, before, after map[string]harness.Unit, allowed []string) {
	t.Helper()
	wanted := map[string]bool{}
	for _, a := range allowed {
		for unit := range before {
			if machine, all := strings.CutSuffix(a, "/*"); a == unit || all && strings.HasPrefix(unit, machine+"/") {
				wanted[unit] = true
			}
		}
	}
	if len(allowed) > 0 && len(wanted) == 0 {
		t.Errorf("none of %v ran before", allowed)
	}
	for _, unit := range slices.Sorted(maps.Keys(before)) {
		switch at, runs := after[unit]; {
		case !runs:
			t.Errorf("%s does not run any more", unit)
		case at != before[unit] && !wanted[unit] && !harness.MayFollow(unit, at, slices.Collect(maps.Keys(wanted))):
			t.Errorf("%s was restarted, which nothing asked for", unit)
		case at == before[unit] && wanted[unit]:
			t.Errorf("%s was not restarted", unit)
		}
	}
}
