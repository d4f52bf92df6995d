package provider

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsaddress "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/address"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
)

// TestAnotherRegion refreshes, changes and deletes in another region than the state's. Nothing is
// forgotten or changed.
func TestAnotherRegion(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	mine := c.newCluster()
	mine.make()
	c = c.ends(t)
	for _, d := range c.provider.data {
		client, err := d.LoadAWS()
		if err != nil {
			t.Fatal(err)
		}
		client.Region = "eu-central-1"
	}
	before := c.account.Cloud.Overview().Total
	for _, i := range mine.all() {
		there := c.taken(i)
		mention(t, there.refreshed(), "account 123456789012, region us-east-1", "region eu-central-1", "Nothing was")
		config := mine.config(i, mine.network)
		config["tags"] = values{"a": "b"}
		mention(t, there.attempt(config), "region eu-central-1")
		d := there.dismiss()
		if mention(t, d.failure(), "region eu-central-1"); there.state.IsNull() {
			t.Errorf("%s is forgotten", i.typeName)
		}
	}
	if after := c.account.Cloud.Overview().Total; after != before {
		t.Errorf("%d things were %d", after, before)
	}
}

// TestLeftInAnotherRegion: a machine that has left a role is forgotten once EC2 says that it is
// gone, but not in another region than its own, where EC2 has never known it.
func TestLeftInAnotherRegion(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	mine := c.newCluster()
	mine.make()
	client, d := c.client, c.provider.data[0]
	used, err := d.LoadAWS()
	if err != nil {
		t.Fatal(err)
	}
	const gone = "i-0123456789abcdef0"
	var running string
	for _, i := range mine.all() {
		if i.typeName == "k8s_machine" {
			running = i.get("id").(string) //nolint:forcetypeassert // an id is a string
		}
	}
	home := place{Account: "123456789012", Region: client.Region}
	rec := roleRecord{Places: map[string]place{gone: home, "i-other": home}, Record: rollout.Record{Left: map[string]rollout.Leftover{
		"gone": {Target: fleet.Target{ID: gone}}, "running": {Target: fleet.Target{ID: running}}, "elsewhere": {}}}}
	forget := func(region string, places map[string]place, left ...string) {
		t.Helper()
		used.Region = region
		forgetTerminated(t.Context(), d, &rec)
		if got := slices.Sorted(maps.Keys(rec.Record.Left)); !slices.Equal(got, left) || !maps.Equal(rec.Places, places) {
			t.Errorf("in %s: left %q at %v, want %q at %v", region, got, rec.Places, left, places)
		}
	}
	away := place{Account: home.Account, Region: "eu-central-1"}
	forget(away.Region, map[string]place{gone: home, running: away}, "elsewhere", "gone", "running")
	forget(home.Region, map[string]place{running: away}, "elsewhere", "running")
	rec.Places = nil
	forget(home.Region, map[string]place{running: home}, "elsewhere", "running")
}

// TestUnreadable checks that what cannot be read does not count as ownerless.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	mine := c.newCluster()
	mine.make()
	c = c.ends(t)
	for action, n := range map[string]int{"DescribeVpcs": 0, "GetParameter": 1, "DescribeInstances": 2} {
		c.account.Fault(fault.Fault{Kind: fault.Fail, Action: action, Code: "AccessDenied"})
		theirs := c.newCluster().all()[n]
		if got := theirs.attempt(mine.config(mine.all()[n], mine.network)); got == "" || !theirs.state.IsNull() {
			t.Errorf("%s was refused, and the create was not: %s", action, got)
		}
		kept := c.taken(mine.all()[n])
		if d := kept.dismiss(); len(d.errors) == 0 || kept.state.IsNull() {
			t.Errorf("%s was refused, and the delete was not: %v", action, d.warnings)
		}
		c.account.Calm()
	}
	for _, i := range mine.all() {
		c.taken(i).settled(mine.config(i, mine.network))
	}
}

// TestSettleRefused refreshes with credentials that may only read, as for a plan. It is no error.
func TestSettleRefused(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	mine := c.newCluster()
	mine.make()
	c = c.process(t) // killed: nothing is settled
	for _, action := range []string{"CreateTags", "PutParameter"} {
		c.account.Fault(fault.Fault{Kind: fault.Fail, Action: action, Code: "UnauthorizedOperation"})
	}
	for _, i := range mine.all() {
		here := c.taken(i)
		if seen := here.look(); len(seen.warnings) > 0 {
			t.Errorf("%s: %v", i.typeName, seen.warnings)
		}
		here.settled(mine.config(i, mine.network))
	}
	c.account.Calm()
	for _, i := range mine.all() { // the next refresh settles
		c.taken(i).refresh()
		mention(t, c.process(t).newCluster().all()[indexOf(mine, i)].attempt(mine.config(i, mine.network)), "is another's")
	}
}

func indexOf(o ownedCluster, i *instance) int {
	for n, other := range o.all() {
		if other == i {
			return n
		}
	}
	return -1
}

// TestTaintedAfterResume is a create that fails after it has taken up what an interrupted one left.
// The tainted machine is destroyed, and nobody is told of create_before_destroy.
func TestTaintedAfterResume(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, lost := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	lost.must(workerConfig(network)) // its state was never saved
	c = c.process(t)
	network, tainted := c.taken(network), c.instance("k8s_machine")
	network.refresh()
	c.account.Fault(fault.Fault{Kind: fault.Fail, Action: "DescribeVolumes", Code: "InternalFailure", Status: 400})
	if got := tainted.attempt(workerConfig(network)); got == "" || tainted.state.IsNull() {
		t.Fatalf("the create: %q, %v", got, tainted.state)
	}
	c.account.Calm()
	if d := tainted.dismiss(); len(d.errors)+len(d.warnings) > 0 {
		t.Errorf("%v %v", d.errors, d.warnings)
	}
	c.fatal(network.dismiss().errors)
	c.account.Empty()
}

// TestImportOfAnotherCluster refuses to import the machine of another cluster: at once if the
// import id names a cluster, else in the plan that would replace it.
func TestImportOfAnotherCluster(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, worker, other := c.instance("k8s_network"), c.instance("k8s_machine"), c.instance("k8s_network")
	network.must(networkConfig())
	worker.must(workerConfig(network))
	config := networkConfig()
	config["cluster"] = "other"
	other.must(config)
	id := worker.get("id").(string)

	imported := c.instance("k8s_machine")
	if got := imported.tryImport("other/" + id); !strings.Contains(got, "is machine worker-0 of cluster demo, not of cluster other") {
		t.Errorf("got %q", got)
	}
	imported.imports("demo/" + id)
	imported.settled(workerConfig(network))
	imported = c.instance("k8s_machine")
	imported.imports(id)
	imported.refresh()
	mention(t, imported.plan(workerConfig(other)).failure(), "Imported machine of another cluster", "\"network\")", "terraform state rm")
}

// TestImportOfAnotherClustersKeys refuses the plan that would replace the keys or the network of
// another cluster after an import. What was made here is replaced.
func TestImportOfAnotherClustersKeys(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	for typeName, config := range map[string]values{"k8s_pki": {"cluster": "prod"}, "k8s_network": with(networkConfig(), values{"cluster": "prod"})} {
		made, imported := c.instance(typeName), c.instance(typeName)
		made.must(config)
		imported.imports("prod")
		imported.refresh()
		other := with(config, values{"cluster": "demo"})
		mention(t, imported.plan(other).failure(), "cluster", "of another cluster", "cluster prod", "terraform state rm", `set cluster = "prod"`)
		c.fatal(made.plan(other).errors)
		imported.settled(config)
		imported.must(with(config, values{"tags": values{"a": "b"}}))
		c.fatal(imported.plan(other).errors)
	}
}

// TestAddresses is two load balancers of one cluster, in one state or in two.
func TestAddresses(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	at := c.provider.now()
	claim := func(run, object string) infraaws.Claim {
		return infraaws.NewClaim(run+"-"+object, "arn:aws:iam::1:user/x", at)
	}
	spec := func(claim infraaws.Claim) awsaddress.Spec {
		return awsaddress.Spec{Cluster: "demo", Name: "lb", Claim: claim}
	}
	ensure := func(claim infraaws.Claim) (awsaddress.Address, error) {
		return awsaddress.Ensure(t.Context(), c.client, "", spec(claim))
	}
	first, err := ensure(claim("a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	refused := func(claim infraaws.Claim) {
		t.Helper()
		if a, err := ensure(claim); err == nil || a.AllocationID != "" || !strings.Contains(err.Error(), "is another's") {
			t.Errorf("%s has %+v: %v", claim.ID, a, err)
		}
	}
	refused(claim("a", "2")) // the same process, before anything is settled
	resumed, err := ensure(claim("b", "1"))
	if err != nil || resumed.AllocationID != first.AllocationID {
		t.Fatalf("an interrupted create was not resumed: %+v, %v", resumed, err)
	}
	if err := c.client.Settle(t.Context(), claim("a", "1"), first.Unsettled, at); err != nil {
		t.Fatal(err)
	}
	if _, err := ensure(claim("b", "1")); err != nil {
		t.Errorf("what the first process settled late: %v", err)
	}
	if err := c.client.Settle(t.Context(), claim("b", "1"), resumed.Unsettled, at); err != nil {
		t.Fatal(err)
	}
	refused(claim("c", "1"))
	if _, _, err := awsaddress.Observe(t.Context(), c.client, first.AllocationID, spec(claim("a", "1"))); err == nil || !strings.Contains(err.Error(), "is another's") {
		t.Errorf("the first owner sees: %v", err)
	}
	if err := awsaddress.Delete(t.Context(), c.client, first.AllocationID, claim("a", "1")); err == nil || !strings.Contains(err.Error(), "is another's") {
		t.Errorf("the first owner deleted it: %v", err)
	}
	taken := claim("c", "2")
	taken.Adopt = true
	if a, err := ensure(taken); err != nil || a.PublicIP == (netip.Addr{}) {
		t.Errorf("adopt: %+v, %v", a, err)
	}
	if err := awsaddress.Delete(t.Context(), c.client, first.AllocationID, taken); err != nil {
		t.Error(err)
	}
	c.account.Empty()
}
