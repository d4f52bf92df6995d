package provider_test

import (
	"net/netip"
	"strings"
	"testing"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsaddress "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/address"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestAnotherRegion refreshes, changes and deletes in another region than the state's. Nothing is
// forgotten or changed.
func TestAnotherRegion(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	mine := c.NewCluster()
	mine.Make()
	c = c.Ends(t)
	for _, d := range c.Provider.Sessions {
		client, err := d.LoadAWS()
		if err != nil {
			t.Fatal(err)
		}
		client.Region = "eu-central-1"
	}
	before := c.Account.Cloud.Overview().Total
	for _, i := range mine.All() {
		there := c.Taken(i)
		providertest.Mention(t, there.Refreshed(), "account 123456789012, region us-east-1", "region eu-central-1", "Nothing was")
		config := mine.Config(i, mine.Network)
		config["tags"] = providertest.Values{"a": "b"}
		providertest.Mention(t, there.Attempt(config), "region eu-central-1")
		d := there.Dismiss()
		if providertest.Mention(t, d.Failure(), "region eu-central-1"); there.State.IsNull() {
			t.Errorf("%s is forgotten", i.TypeName)
		}
	}
	if after := c.Account.Cloud.Overview().Total; after != before {
		t.Errorf("%d things were %d", after, before)
	}
}

// TestUnreadable checks that what cannot be read does not count as ownerless.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	mine := c.NewCluster()
	mine.Make()
	c = c.Ends(t)
	for action, n := range map[string]int{"DescribeVpcs": 0, "GetParameter": 1, "DescribeInstances": 2} {
		c.Account.Fault(fault.Fault{Kind: fault.Fail, Action: action, Code: "AccessDenied"})
		theirs := c.NewCluster().All()[n]
		if got := theirs.Attempt(mine.Config(mine.All()[n], mine.Network)); got == "" || !theirs.State.IsNull() {
			t.Errorf("%s was refused, and the create was not: %s", action, got)
		}
		kept := c.Taken(mine.All()[n])
		if d := kept.Dismiss(); len(d.Errors) == 0 || kept.State.IsNull() {
			t.Errorf("%s was refused, and the delete was not: %v", action, d.Warnings)
		}
		c.Account.Calm()
	}
	for _, i := range mine.All() {
		c.Taken(i).Converged(mine.Config(i, mine.Network))
	}
}

// TestSettleRefused refreshes with credentials that may only read, as for a plan. It is no error.
func TestSettleRefused(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	c.More = providertest.Values{"patience": 20} // for settling
	c = c.Process(t)
	mine := c.NewCluster()
	mine.Make()
	c = c.Process(t) // killed: nothing is settled
	for _, action := range []string{"CreateTags", "PutParameter"} {
		c.Account.Fault(fault.Fault{Kind: fault.Fail, Action: action, Code: "UnauthorizedOperation"})
	}
	for _, i := range mine.All() {
		here := c.Taken(i)
		if seen := here.Look(); len(seen.Warnings) > 0 {
			t.Errorf("%s: %v", i.TypeName, seen.Warnings)
		}
		here.Converged(mine.Config(i, mine.Network))
	}
	c.Account.Calm()
	for _, i := range mine.All() { // the next refresh settles
		c.Taken(i).Refresh()
		providertest.Mention(t, c.Process(t).NewCluster().All()[indexOf(mine, i)].Attempt(mine.Config(i, mine.Network)), "belongs to another state")
	}
}

func indexOf(o providertest.OwnedCluster, i *providertest.Instance) int {
	for n, other := range o.All() {
		if other == i {
			return n
		}
	}
	return -1
}

// TestTaintedAfterResume is a create that fails after it has resumed an interrupted create. The
// tainted machine is destroyed, and no error mentions create_before_destroy.
func TestTaintedAfterResume(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, lost := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	lost.Must(providertest.WorkerConfig(network)) // its state was never saved
	c = c.Process(t)
	network, tainted := c.Taken(network), c.Instance("k8s_machine")
	network.Refresh()
	c.Account.Fault(fault.Fault{Kind: fault.Fail, Action: "DescribeVolumes", Code: "InternalFailure", Status: 400})
	if got := tainted.Attempt(providertest.WorkerConfig(network)); got == "" || tainted.State.IsNull() {
		t.Fatalf("the create: %q, %v", got, tainted.State)
	}
	c.Account.Calm()
	if d := tainted.Dismiss(); len(d.Errors)+len(d.Warnings) > 0 {
		t.Errorf("%v %v", d.Errors, d.Warnings)
	}
	c.Fatal(network.Dismiss().Errors)
	c.Account.Empty()
}

// TestImportOfAnotherCluster refuses to import the machine of another cluster: at once if the
// import id names a cluster, else in the plan that would replace it.
func TestImportOfAnotherCluster(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker, other := c.Instance("k8s_network"), c.Instance("k8s_machine"), c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	worker.Must(providertest.WorkerConfig(network))
	config := providertest.NetworkConfig()
	config["cluster"] = "other"
	other.Must(config)
	id := worker.Get("id").(string)

	imported := c.Instance("k8s_machine")
	if got := imported.TryImport("other/" + id); !strings.Contains(got, "is machine worker-0 of cluster demo, not of cluster other") {
		t.Errorf("got %q", got)
	}
	imported.Imports("demo/" + id)
	imported.Converged(providertest.WorkerConfig(network))
	imported = c.Instance("k8s_machine")
	imported.Imports(id)
	imported.Refresh()
	providertest.Mention(t, imported.Plan(providertest.WorkerConfig(other)).Failure(), "Imported machine of another cluster", "\"network\")", "terraform state rm")
}

// TestImportOfAnotherClustersKeys refuses the plan that would replace the keys or the network of
// another cluster after an import. Resources that were made here are replaced.
func TestImportOfAnotherClustersKeys(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	for typeName, config := range map[string]providertest.Values{"k8s_pki": {"cluster": "prod"}, "k8s_network": providertest.With(providertest.NetworkConfig(), providertest.Values{"cluster": "prod"})} {
		made, imported := c.Instance(typeName), c.Instance(typeName)
		made.Must(config)
		imported.Imports("prod")
		imported.Refresh()
		other := providertest.With(config, providertest.Values{"cluster": "demo"})
		providertest.Mention(t, imported.Plan(other).Failure(), "cluster", "of another cluster", "cluster prod", "terraform state rm", `set cluster = "prod"`)
		c.Fatal(made.Plan(other).Errors)
		imported.Converged(config)
		imported.Must(providertest.With(config, providertest.Values{"tags": providertest.Values{"a": "b"}}))
		c.Fatal(imported.Plan(other).Errors)
	}
}

// TestAddresses makes two load balancers of one cluster, in one state or in two.
func TestAddresses(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	at := c.Provider.Now()
	claim := func(run, object string) infraaws.Claim {
		return infraaws.NewClaim(run+"-"+object, "arn:aws:iam::1:user/x", at)
	}
	spec := func(claim infraaws.Claim) awsaddress.Spec {
		return awsaddress.Spec{Cluster: "demo", Name: "lb", Claim: claim}
	}
	ensure := func(claim infraaws.Claim) (awsaddress.Address, error) {
		return awsaddress.Ensure(t.Context(), c.Client, "", spec(claim))
	}
	first, err := ensure(claim("a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	refused := func(claim infraaws.Claim) {
		t.Helper()
		if a, err := ensure(claim); err == nil || a.AllocationID != "" || !strings.Contains(err.Error(), "belongs to another state") {
			t.Errorf("%s has %+v: %v", claim.ID, a, err)
		}
	}
	refused(claim("a", "2")) // the same process, before anything is settled
	resumed, err := ensure(claim("b", "1"))
	if err != nil || resumed.AllocationID != first.AllocationID {
		t.Fatalf("an interrupted create was not resumed: %+v, %v", resumed, err)
	}
	if err := c.Client.Settle(t.Context(), claim("a", "1"), first.Unsettled, at); err != nil {
		t.Fatal(err)
	}
	if _, err := ensure(claim("b", "1")); err != nil {
		t.Errorf("what the first process settled late: %v", err)
	}
	if err := c.Client.Settle(t.Context(), claim("b", "1"), resumed.Unsettled, at); err != nil {
		t.Fatal(err)
	}
	refused(claim("c", "1"))
	if _, _, err := awsaddress.Observe(t.Context(), c.Client, first.AllocationID, spec(claim("a", "1"))); err == nil || !strings.Contains(err.Error(), "belongs to another state") {
		t.Errorf("the first owner sees: %v", err)
	}
	if err := awsaddress.Delete(t.Context(), c.Client, first.AllocationID, claim("a", "1")); err == nil || !strings.Contains(err.Error(), "belongs to another state") {
		t.Errorf("the first owner deleted it: %v", err)
	}
	taken := claim("c", "2")
	taken.Adopt = true
	if a, err := ensure(taken); err != nil || a.PublicIP == (netip.Addr{}) {
		t.Errorf("adopt: %+v, %v", a, err)
	}
	if err := awsaddress.Delete(t.Context(), c.Client, first.AllocationID, taken); err != nil {
		t.Error(err)
	}
	c.Account.Empty()
}
