package roles_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/roles"
)

// TestLeftInAnotherRegion: a machine that has left a role is forgotten once EC2 says that it is
// gone, but not in another region than its own, where EC2 has never known it.
func TestLeftInAnotherRegion(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	mine := c.NewCluster()
	mine.Make()
	client, d := c.Client, c.Provider.Sessions[0]
	used, err := d.LoadAWS()
	if err != nil {
		t.Fatal(err)
	}
	const gone = "i-0123456789abcdef0"
	var running string
	for _, i := range mine.All() {
		if i.TypeName == "k8s_machine" {
			running = i.Get("id").(string) //nolint:forcetypeassert // an id is a string
		}
	}
	home := roles.Place{Account: "123456789012", Region: client.Region}
	rec := roles.RoleRecord{Places: map[string]roles.Place{gone: home, "i-other": home}, Record: rollout.Record{Left: map[string]rollout.Leftover{
		"gone": {Target: fleet.Target{Node: component.Node{InstanceID: gone}}}, "running": {Target: fleet.Target{Node: component.Node{InstanceID: running}}}, "elsewhere": {}}}}
	forget := func(region string, places map[string]roles.Place, left ...string) {
		t.Helper()
		used.Region = region
		roles.ForgetTerminated(t.Context(), d, &rec)
		if got := slices.Sorted(maps.Keys(rec.Record.Left)); !slices.Equal(got, left) || !maps.Equal(rec.Places, places) {
			t.Errorf("in %s: left %q at %v, want %q at %v", region, got, rec.Places, left, places)
		}
	}
	away := roles.Place{Account: home.Account, Region: "eu-central-1"}
	forget(away.Region, map[string]roles.Place{gone: home, running: away}, "elsewhere", "gone", "running")
	forget(home.Region, map[string]roles.Place{running: away}, "elsewhere", "running")
	rec.Places = nil
	forget(home.Region, map[string]roles.Place{running: home}, "elsewhere", "running")
}
