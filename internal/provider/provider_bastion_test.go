package provider

import (
	"strings"
	"sync"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// TestBastionOfTheCluster checks that machines are reached through a bastion of their own cluster,
// that the bastion is reached directly, and that the network lets SSH in from it only when asked
// to.
func TestBastionOfTheCluster(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, lb := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	bastion := values{"name": "lb-0", "role": "lb", "network": network.get("ref"), "private_ip": "10.240.0.30"}
	lb.must(bastion)
	groups := network.get("security_group_ids").(values)
	from := func(role string) (out []string) {
		t.Helper()
		found := answer[*ec2.DescribeSecurityGroupsOutput](t)(c.client.EC2.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{GroupIds: []string{groups[role].(string)}}))
		for _, p := range found.SecurityGroups[0].IpPermissions {
			for _, pair := range p.UserIdGroupPairs {
				if sdk.ToInt32(p.FromPort) == 22 {
					out = append(out, *pair.GroupId)
				}
			}
		}
		return out
	}
	for role := range groups {
		if got := from(role); len(got) > 0 {
			t.Errorf("SSH to %s is open from %v", role, got)
		}
	}

	config := networkConfig()
	config["bastion_role"] = "lb"
	network.must(config)
	network.settled(config)
	lb.settled(bastion)
	for role := range groups {
		if got := from(role); len(got) != 1 || got[0] != groups["lb"] {
			t.Errorf("SSH to %s is open from %v", role, got)
		}
	}
	imported := c.instance("k8s_network")
	imported.imports("demo")
	if got := imported.get("bastion_role"); got != "lb" {
		t.Errorf("imported as %v", got)
	}

	var mu sync.Mutex
	reached := map[string]remote.Host{}
	c.reached = func(h remote.Host) { mu.Lock(); reached[h.Name] = h; mu.Unlock() }
	c.ssh = values{"private_key": c.key, "bastion": values{"address": lb.get("public_ip"), "host_keys": []any{lb.get("host_key")}}}
	c = c.process(t)
	network, lb = c.taken(network), c.taken(lb)
	worker := c.instance("k8s_machine")
	worker.must(workerConfig(network))
	if h := reached["worker-0"]; h.Bastion == nil || h.Bastion.Address != lb.get("public_ip") || h.Address != "10.240.0.20" {
		t.Errorf("the worker is reached at %+v", h)
	}
	lb.must(with(bastion, values{"root_volume_size": 40}))
	if h := reached["lb-0"]; h.Bastion != nil || h.Address != lb.get("public_ip") || h.HostKeys[0] != lb.get("host_key") {
		t.Errorf("the bastion is reached at %+v", h)
	}

	delete(config, "bastion_role")
	network.must(config)
	if got := from("worker"); len(got) > 0 {
		t.Errorf("SSH to workers is still open from %v", got)
	}
	config["bastion_role"] = "worker"
	if said := network.plan(config); len(said.warnings) != 1 || !strings.Contains(said.warnings[0].Detail, "pods") {
		t.Errorf("a bastion with pods: %v", said.warnings)
	}
	config["bastion_role"] = "jump"
	mention(t, network.plan(config).failure(), "bastion_role", `"lb" "controller" "worker"`)
	config["bastion_role"] = "controller" // the groups refer to each other
	if said := network.plan(config); len(said.warnings) != 0 {
		t.Errorf("a bastion without pods: %v", said.warnings)
	}
	if said := network.plan(with(config, values{"controller_pods": true})); len(said.warnings) != 1 || !strings.Contains(said.warnings[0].Detail, "tell a controller from the pods") {
		t.Errorf("a controller with pods as the bastion: %v", said.warnings)
	}
	network.must(config)
	c.fatal(worker.apply(worker.plan(nil)))
	c.fatal(lb.apply(lb.plan(nil)))
	c.fatal(network.apply(network.plan(nil)))
	c.account.Empty()
}

// TestBastionOfTheBalancer checks that the load balancer's machine, when it is the bastion, is
// reached directly at its Elastic IP, also while the bastion's address is still the one before.
func TestBastionOfTheBalancer(t *testing.T) {
	t.Parallel()
	var described resource.SchemaResponse
	NewLB().Schema(t.Context(), resource.SchemaRequest{}, &described)
	for bastion, want := range map[string]string{"203.0.113.9": "198.51.100.50", "198.51.100.50": "198.51.100.50", "10.240.0.30": "10.240.0.30", "192.0.2.1": "through"} {
		p := New("test")
		r := newRoles(t)
		newCore(t, p, values{"ssh": values{"private_key": sshKey(t), "bastion": values{"address": bastion, "host_keys": []any{publicKey(t)}}}})
		host := with(r.pool["hosts"].([]any)[0].(values), values{"name": "lb-0", "private_ip": "10.240.0.30", "public_ip": "203.0.113.9", "pod_cidr": nil})
		config := buildObject(t, described, values{"cluster": "demo", "host": host, "controllers": r.controlPlane["hosts"], "pki": r.pool["pki"],
			"allocation_id": "eipalloc-0", "public_ip": "198.51.100.50"})
		var lb lbModel
		var diags diag.Diagnostics
		diags.Append(tfsdk.State{Schema: described.Schema, Raw: config}.Get(t.Context(), &lb)...)
		spec := lbSpec(t.Context(), p.data[0], &lb, &diags)
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

// TestUnknownBastion checks that a provider whose bastion is made in the same apply plans
// everything, and that a refresh keeps what it cannot compare.
func TestUnknownBastion(t *testing.T) {
	t.Parallel()
	for _, ssh := range []any{
		values{"bastion": unknown}, values{"bastion": values{"address": unknown, "host_keys": unknown}},
		values{"bastion": values{"address": "192.0.2.1", "host_keys": []any{unknown}}},
	} {
		r := newRoles(t)
		etcd := r.applied("k8s_etcd_cluster", r.etcd)
		p := New("test")
		c := newCore(t, p, values{"ssh": ssh, "artifact_checksums": downloads})
		if said := c.instance("k8s_worker_pool").plan(r.pool); said.failure() != "" {
			t.Errorf("a plan: %s", said.failure())
		}
		later := c.instance("k8s_etcd_cluster")
		later.state, later.private = etcd.state, etcd.private
		seen := later.look()
		if len(seen.errors) > 0 || len(seen.warnings) != 1 || seen.warnings[0].Summary != "The machines are not compared" || !later.state.Equal(etcd.state) {
			t.Errorf("a refresh: %s %v", seen.failure(), seen.warnings)
		}
	}
}
