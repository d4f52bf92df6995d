package provider_test

import (
	"strings"
	"sync"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestBastionOfTheCluster checks that machines are reached through a bastion of their own cluster,
// that the bastion is reached directly, and that the network lets SSH in from it only when asked
// to.
func TestBastionOfTheCluster(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, lb := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	bastion := providertest.Values{"name": "lb-0", "role": "lb", "network": network.Get("ref"), "private_ip": "10.240.0.30"}
	lb.Must(bastion)
	groups := network.Get("security_group_ids").(providertest.Values)
	from := func(role string) (out []string) {
		t.Helper()
		found := providertest.Answer[*ec2.DescribeSecurityGroupsOutput](t)(c.Client.EC2.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{GroupIds: []string{groups[role].(string)}}))
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

	config := providertest.NetworkConfig()
	config["bastion_role"] = "lb"
	network.Must(config)
	network.Converged(config)
	lb.Converged(bastion)
	if got := from("ssh"); len(got) != 1 || got[0] != groups["lb"] {
		t.Errorf("SSH is open from %v", got)
	}
	imported := c.Instance("k8s_network")
	imported.Imports("demo")
	if got := imported.Get("bastion_role"); got != "lb" {
		t.Errorf("imported as %v", got)
	}

	var mu sync.Mutex
	reached := map[string]remote.Host{}
	c.Reached = func(h remote.Host) { mu.Lock(); reached[h.Name] = h; mu.Unlock() }
	c.SSH = providertest.Values{"private_key": c.Key, "bastion": providertest.Values{"address": lb.Get("public_ip"), "host_keys": []any{lb.Get("host_key")}}}
	c = c.Process(t)
	network, lb = c.Taken(network), c.Taken(lb)
	worker := c.Instance("k8s_machine")
	worker.Must(providertest.WorkerConfig(network))
	if h := reached["worker-0"]; h.Bastion == nil || h.Bastion.Address != lb.Get("public_ip") || h.Address != "10.240.0.20" {
		t.Errorf("the worker is reached at %+v", h)
	}
	lb.Must(providertest.With(bastion, providertest.Values{"root_volume_size": 40}))
	if h := reached["lb-0"]; h.Bastion != nil || h.Address != lb.Get("public_ip") || h.HostKeys[0] != lb.Get("host_key") {
		t.Errorf("the bastion is reached at %+v", h)
	}

	delete(config, "bastion_role")
	network.Must(config)
	if got := from("worker"); len(got) > 0 {
		t.Errorf("SSH to workers is still open from %v", got)
	}
	config["bastion_role"] = "worker"
	if said := network.Plan(config); len(said.Warnings) != 1 || !strings.Contains(said.Warnings[0].Detail, "pods") {
		t.Errorf("a bastion with pods: %v", said.Warnings)
	}
	config["bastion_role"] = "jump"
	providertest.Mention(t, network.Plan(config).Failure(), "bastion_role", `"lb" "controller" "worker"`)
	config["bastion_role"] = "controller" // the groups refer to each other
	if said := network.Plan(config); len(said.Warnings) != 0 {
		t.Errorf("a bastion without pods: %v", said.Warnings)
	}
	if said := network.Plan(providertest.With(config, providertest.Values{"controller_pods": true})); len(said.Warnings) != 1 || !strings.Contains(said.Warnings[0].Detail, "tell a controller from the pods") {
		t.Errorf("a controller with pods as the bastion: %v", said.Warnings)
	}
	network.Must(config)
	c.Fatal(worker.Apply(worker.Plan(nil)))
	c.Fatal(lb.Apply(lb.Plan(nil)))
	c.Fatal(network.Apply(network.Plan(nil)))
	c.Account.Empty()
}

// TestUnknownBastion checks that a provider whose bastion is made in the same apply plans
// everything, and that a refresh keeps what it cannot compare.
func TestUnknownBastion(t *testing.T) {
	t.Parallel()
	for _, ssh := range []any{
		providertest.Values{"bastion": providertest.Unknown}, providertest.Values{"bastion": providertest.Values{"address": providertest.Unknown, "host_keys": providertest.Unknown}},
		providertest.Values{"bastion": providertest.Values{"address": "192.0.2.1", "host_keys": []any{providertest.Unknown}}},
	} {
		r := providertest.NewRoles(t)
		etcd := r.Applied("k8s_etcd_cluster", r.Etcd)
		p := provider.New("test")
		c := providertest.NewCore(t, p, providertest.Values{"ssh": ssh, "artifact_checksums": providertest.Downloads})
		if said := c.Instance("k8s_worker_pool").Plan(r.Pool); said.Failure() != "" {
			t.Errorf("a plan: %s", said.Failure())
		}
		later := c.Instance("k8s_etcd_cluster")
		later.State, later.Private = etcd.State, etcd.Private
		seen := later.Look()
		if len(seen.Errors) > 0 || len(seen.Warnings) != 1 || seen.Warnings[0].Summary != "The machines are not compared" || !later.State.Equal(etcd.State) {
			t.Errorf("a refresh: %s %v", seen.Failure(), seen.Warnings)
		}
	}
}
