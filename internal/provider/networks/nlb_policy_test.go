package networks_test

import (
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestBalancerPolicy makes, repairs, changes and deletes load balancers under the policies of
// examples/iam: each action of the policy for load balancers is called, and without it an error
// names it.
func TestBalancerPolicy(t *testing.T) {
	t.Parallel()
	everyday, balancers, destroy := providertest.ReadPolicy(t, "everyday.json"), providertest.ReadPolicy(t, "load-balancers.json"), providertest.ReadPolicy(t, "destroy.json")
	whole := providertest.NewRestricted(t, everyday.Without(""), balancers.Without(""))
	if failure := whole.BalancerJob(balancers.Without(""), destroy.Without("")); failure != "" {
		t.Fatal(failure)
	}
	called := whole.Account.Calls()
	for _, s := range balancers.Statement {
		for _, action := range providertest.StatementActions(s) {
			service, name, _ := strings.Cut(action, ":")
			if service == "ec2" { // Elastic Load Balancing asks EC2 with the caller's permissions, and not all of that is documented
				continue
			}
			if called[name] == 0 {
				t.Errorf("nobody calls %s: remove it from the policy", action)
			}
			if !providertest.EveryKill && name != "SetSubnets" && name != "AddTags" && name != "DescribeTags" {
				continue
			}
			t.Run(action, func(t *testing.T) {
				t.Parallel()
				without := balancers.Without(action)
				providertest.Missed(t, action, providertest.NewRestricted(t, everyday.Without(""), without).BalancerJob(without, destroy.Without("")))
			})
		}
	}
}
