package provider

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
)

// rolled is a cluster whose machines are replaced for newer images.
type rolled struct {
	cloud
	network  *instance
	machines map[string]*instance
	failing  map[string]error
}

func newRolled(t *testing.T, names ...string) *rolled {
	t.Helper()
	r := &rolled{cloud: newCloud(t), machines: map[string]*instance{}}
	r.works(nil)
	r.network = r.instance("k8s_network")
	r.network.must(networkConfig())
	for _, name := range names {
		r.machines[name] = r.instance("k8s_machine")
		r.machines[name].must(r.config(name, nil))
	}
	return r
}

// works makes every machine do something for the cluster, but those with an error.
func (r *rolled) works(failing map[string]error) {
	for _, d := range r.provider.data {
		d.Works = func(_ context.Context, t fleet.Target) error { return failing[t.Node.Name] }
	}
	r.failing = failing
}

func (r *rolled) config(name string, more values) values {
	role, _, _ := strings.Cut(name, "-")
	return with(values{"name": name, "role": role, "network": r.network.get("ref"), "image_policy": "roll"}, more)
}

// next is another run: it refreshes and plans all machines, and returns the plans by name.
func (r *rolled) next(t *testing.T, more values) map[string]change {
	t.Helper()
	r.cloud = r.ends(t)
	r.works(r.failing)
	r.network = r.taken(r.network)
	plans := map[string]change{}
	for name, m := range r.machines {
		r.machines[name] = r.taken(m)
	}
	for name, m := range r.machines {
		m.refresh()
		plans[name] = m.plan(r.config(name, more))
	}
	return plans
}

// replaced returns which machines the plans replace.
func replaced(plans map[string]change) (out []string) {
	for name, p := range plans {
		if len(p.replace) > 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

const newImage = "ami-00000000000000002"

func publish(r *rolled) {
	r.account.Cloud.Publish(ec2.Image{ID: newImage, Name: "debian-13-amd64-2", Release: "13", Created: time.Now()})
}

// TestImageRoll: with each apply one machine is replaced for the newer image, in the order of roles and names,
// until all have it.
func TestImageRoll(t *testing.T) {
	t.Parallel()
	r := newRolled(t, "worker-0", "controller-1", "lb-0", "controller-0")
	for name, p := range r.next(t, nil) {
		if !r.machines[name].empty(p) {
			t.Errorf("%s: the plan is not empty: %s", name, r.machines[name].differences(p))
		}
	}
	publish(r)
	order := []string{"controller-0", "controller-1", "lb-0", "worker-0"}
	for n, name := range order {
		plans := r.next(t, nil)
		if got := replaced(plans); !slices.Equal(got, []string{name}) {
			t.Fatalf("apply %d replaces %v, wanted %s", n, got, name)
		}
		said := plans[name].warnings
		if len(said) != 1 {
			t.Fatalf("%s: warnings %v", name, said)
		}
		want := "It is the last one."
		if n < len(order)-1 {
			want = strings.Join(order[n+1:], ", ") + " follow"
		}
		mention(t, said[0].Summary+said[0].Detail, name+" is replaced for a newer image", account.ImageID, newImage, want)
		for other, p := range plans {
			if other != name && !r.machines[other].empty(p) {
				t.Errorf("%s changes too: %s", other, r.machines[other].differences(p))
			}
		}
		r.fatal(r.machines[name].dismiss().errors)
		r.machines[name].must(r.config(name, nil))
		if got := r.machines[name].get("image_id"); got != newImage {
			t.Errorf("%s has %v", name, got)
		}
	}
	for name, p := range r.next(t, nil) {
		if !r.machines[name].empty(p) {
			t.Errorf("%s: the plan is not empty: %s", name, r.machines[name].differences(p))
		}
	}
}

// TestImageRollWaits: nothing is replaced while another machine does not do its work, and what is stopped,
// protected, or keeps its image is left out.
func TestImageRollWaits(t *testing.T) {
	t.Parallel()
	r := newRolled(t, "controller-0", "controller-1", "worker-0")
	publish(r)
	r.works(map[string]error{"controller-1": errors.New("etcd is not healthy")})
	plans := r.next(t, nil)
	if got := replaced(plans); len(got) > 0 {
		t.Errorf("%v is replaced", got)
	}
	mention(t, plans["controller-0"].warnings[0].Summary+plans["controller-0"].warnings[0].Detail, "controller-0 waits with its newer image", "controller-1: etcd is not healthy")
	if said := plans["worker-0"].warnings; len(said) > 0 {
		t.Errorf("warnings %v", said)
	}
	r.works(nil)

	// The first one leaves the roll, so that it is the turn of the second one.
	r.machines["controller-0"].must(r.config("controller-0", values{"image_policy": "launch"}))
	r.cloud = r.ends(t)
	r.works(nil)
	for name, m := range r.machines {
		r.machines[name] = r.taken(m)
		r.machines[name].refresh()
	}
	if p := r.machines["controller-0"].plan(r.config("controller-0", values{"image_policy": "launch"})); !r.machines["controller-0"].empty(p) {
		t.Errorf("without the policy: %s", r.machines["controller-0"].differences(p))
	}
	if p := r.machines["controller-1"].plan(r.config("controller-1", nil)); len(p.replace) != 1 {
		t.Errorf("controller-1 is not replaced: %v", p.warnings)
	}
	r.machines["controller-1"].must(r.config("controller-1", values{"image_policy": "launch"}))
	protected := values{"deletion_protection": true}
	r.machines["worker-0"].must(r.config("worker-0", protected))
	delete(r.machines, "controller-0")
	delete(r.machines, "controller-1")
	if p := r.next(t, protected)["worker-0"]; len(p.replace)+len(p.errors)+len(p.warnings) > 0 {
		t.Errorf("a protected machine: %v %v %v", p.replace, p.errors, p.warnings)
	}
}
