package machines_test

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
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// rolled is a cluster whose machines are replaced for newer images.
type rolled struct {
	providertest.Cloud
	network  *providertest.Instance
	machines map[string]*providertest.Instance
	failing  map[string]error
}

func newRolled(t *testing.T, names ...string) *rolled {
	t.Helper()
	r := &rolled{Cloud: providertest.NewCloud(t), machines: map[string]*providertest.Instance{}}
	r.works(nil)
	r.network = r.Instance("k8s_network")
	r.network.Must(providertest.NetworkConfig())
	for _, name := range names {
		r.machines[name] = r.Instance("k8s_machine")
		r.machines[name].Must(r.config(name, nil))
	}
	return r
}

// works makes every machine do its work for the cluster, except the machines in failing.
func (r *rolled) works(failing map[string]error) {
	for _, d := range r.Provider.Sessions {
		d.Works = func(_ context.Context, t fleet.Target) error { return failing[t.Node.Name] }
	}
	r.failing = failing
}

func (r *rolled) config(name string, more providertest.Values) providertest.Values {
	role, _, _ := strings.Cut(name, "-")
	return providertest.With(providertest.Values{"name": name, "role": role, "network": r.network.Get("ref"), "image_policy": "roll"}, more)
}

// next is another run: it refreshes and plans all machines, and returns the plans by name.
func (r *rolled) next(t *testing.T, more providertest.Values) map[string]providertest.Change {
	t.Helper()
	r.Cloud = r.Ends(t)
	r.works(r.failing)
	r.network = r.Taken(r.network)
	plans := map[string]providertest.Change{}
	for name, m := range r.machines {
		r.machines[name] = r.Taken(m)
	}
	for name, m := range r.machines {
		m.Refresh()
		plans[name] = m.Plan(r.config(name, more))
	}
	return plans
}

// replaced returns which machines the plans replace.
func replaced(plans map[string]providertest.Change) (out []string) {
	for name, p := range plans {
		if len(p.Replace) > 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

const newImage = "ami-00000000000000002"

func publish(r *rolled) {
	r.Account.Cloud.Publish(ec2.Image{ID: newImage, Name: "debian-13-amd64-2", Release: "13", Created: time.Now()})
}

// TestImageRoll: with each apply one machine is replaced for the newer image, in the order of roles and names,
// until all have it.
func TestImageRoll(t *testing.T) {
	t.Parallel()
	r := newRolled(t, "worker-0", "controller-1", "lb-0", "controller-0")
	for name, p := range r.next(t, nil) {
		if !r.machines[name].Empty(p) {
			t.Errorf("%s: the plan is not empty: %s", name, r.machines[name].Differences(p))
		}
	}
	publish(r)
	order := []string{"controller-0", "controller-1", "lb-0", "worker-0"}
	for n, name := range order {
		plans := r.next(t, nil)
		if got := replaced(plans); !slices.Equal(got, []string{name}) {
			t.Fatalf("apply %d replaces %v, wanted %s", n, got, name)
		}
		said := plans[name].Warnings
		if len(said) != 1 {
			t.Fatalf("%s: warnings %v", name, said)
		}
		want := "It is the last one."
		if n < len(order)-1 {
			want = strings.Join(order[n+1:], ", ") + " follow"
		}
		providertest.Mention(t, said[0].Summary+said[0].Detail, name+" is replaced for a newer image", account.ImageID, newImage, want)
		for other, p := range plans {
			if other != name && !r.machines[other].Empty(p) {
				t.Errorf("%s changes too: %s", other, r.machines[other].Differences(p))
			}
		}
		r.Fatal(r.machines[name].Dismiss().Errors)
		r.machines[name].Must(r.config(name, nil))
		if got := r.machines[name].Get("image_id"); got != newImage {
			t.Errorf("%s has %v", name, got)
		}
	}
	for name, p := range r.next(t, nil) {
		if !r.machines[name].Empty(p) {
			t.Errorf("%s: the plan is not empty: %s", name, r.machines[name].Differences(p))
		}
	}
}

// TestImageRollWaits: nothing is replaced while another machine does not do its work. Machines that
// are stopped, protected or keep their image are left out.
func TestImageRollWaits(t *testing.T) {
	t.Parallel()
	r := newRolled(t, "controller-0", "controller-1", "worker-0")
	publish(r)
	r.works(map[string]error{"controller-1": errors.New("etcd is not healthy")})
	plans := r.next(t, nil)
	if got := replaced(plans); len(got) > 0 {
		t.Errorf("%v is replaced", got)
	}
	providertest.Mention(t, plans["controller-0"].Warnings[0].Summary+plans["controller-0"].Warnings[0].Detail, "controller-0 waits with its newer image", "controller-1: etcd is not healthy")
	if said := plans["worker-0"].Warnings; len(said) > 0 {
		t.Errorf("warnings %v", said)
	}
	r.works(nil)

	// The first one leaves the roll, so that it is the turn of the second one.
	r.machines["controller-0"].Must(r.config("controller-0", providertest.Values{"image_policy": "launch"}))
	r.Cloud = r.Ends(t)
	r.works(nil)
	for name, m := range r.machines {
		r.machines[name] = r.Taken(m)
		r.machines[name].Refresh()
	}
	if p := r.machines["controller-0"].Plan(r.config("controller-0", providertest.Values{"image_policy": "launch"})); !r.machines["controller-0"].Empty(p) {
		t.Errorf("without the policy: %s", r.machines["controller-0"].Differences(p))
	}
	if p := r.machines["controller-1"].Plan(r.config("controller-1", nil)); len(p.Replace) != 1 {
		t.Errorf("controller-1 is not replaced: %v", p.Warnings)
	}
	r.machines["controller-1"].Must(r.config("controller-1", providertest.Values{"image_policy": "launch"}))
	protected := providertest.Values{"deletion_protection": true}
	r.machines["worker-0"].Must(r.config("worker-0", protected))
	delete(r.machines, "controller-0")
	delete(r.machines, "controller-1")
	if p := r.next(t, protected)["worker-0"]; len(p.Replace)+len(p.Errors)+len(p.Warnings) > 0 {
		t.Errorf("a protected machine: %v %v %v", p.Replace, p.Errors, p.Warnings)
	}
}
