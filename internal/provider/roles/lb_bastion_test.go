package roles_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/loadbalancer"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/roles"
)

// TestBastionOfTheBalancer checks that the load balancer's machine, when it is the bastion, is
// reached directly at its Elastic IP, also while the bastion's address is still the one before.
func TestBastionOfTheBalancer(t *testing.T) {
	t.Parallel()
	var described resource.SchemaResponse
	roles.NewLB().Schema(t.Context(), resource.SchemaRequest{}, &described)
	for bastion, want := range map[string]string{"203.0.113.9": "198.51.100.50", "198.51.100.50": "198.51.100.50", "10.240.0.30": "10.240.0.30", "192.0.2.1": "through"} {
		p := provider.New("test")
		r := providertest.NewRoles(t)
		providertest.NewCore(t, p, providertest.Values{"ssh": providertest.Values{"private_key": providertest.SSHKey(t), "bastion": providertest.Values{"address": bastion, "host_keys": []any{providertest.PublicKey(t)}}}})
		host := providertest.With(r.Pool["hosts"].([]any)[0].(providertest.Values), providertest.Values{"name": "lb-0", "private_ip": "10.240.0.30", "public_ip": "203.0.113.9", "pod_cidr": nil})
		config := buildObject(t, described, providertest.Values{"host": host, "controllers": r.ControlPlane["hosts"], "pki": r.Etcd["pki"],
			"allocation_id": "eipalloc-0", "public_ip": "198.51.100.50"})
		var lb roles.LBModel
		var diags diag.Diagnostics
		diags.Append(tfsdk.State{Schema: described.Schema, Raw: config}.Get(t.Context(), &lb)...)
		var spec loadbalancer.LoadBalancer
		roles.CompleteLB(t.Context(), p.Sessions[0], &lb, &spec, &diags)
		if diags.HasError() {
			t.Fatal(diags)
		}
		got := spec.Targets[0].Host
		if at := got.Address; got.Bastion != nil && want != "through" || got.Bastion == nil && at != want {
			t.Errorf("with the bastion %s it is reached at %s, through %v", bastion, at, got.Bastion)
		}
		if spec.Targets[0].Node.PublicIP.String() != "198.51.100.50" {
			t.Errorf("its address is %s", spec.Targets[0].Node.PublicIP)
		}
	}
}
