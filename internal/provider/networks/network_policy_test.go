package networks_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// as starts a process of the provider as a user of the account.
func as(t *testing.T, c providertest.Cloud, name string, e iam.Entity) providertest.Cloud {
	t.Helper()
	u := providertest.Answer[iam.User](t)(c.Account.Cloud.Identities().PutUser(name, e))
	c.More = providertest.Values{"access_key": u.AccessKeyID, "secret_key": u.SecretAccessKey}
	return c.Process(t)
}

// TestTeacherRemoves: with teacher.json, a teacher destroys the machines, volumes and network that somebody else has made.
func TestTeacherRemoves(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, volume, worker := c.Instance("k8s_network"), c.Instance("k8s_volume"), c.Instance("k8s_machine")
	network.Must(providertest.With(providertest.NetworkConfig(), providertest.Values{
		"node_cidr": "10.240.8.0/24", "public_cidr": "10.240.0.0/24", "nat_gateways": "one", "instance_connect_endpoint": true, "timeouts": providertest.Values{"delete": "30s"},
	}))
	volume.Must(providertest.VolumeConfig(network))
	worker.Must(providertest.With(providertest.WorkerConfig(network), providertest.Values{
		"data_volume": providertest.Values{"id": volume.Get("id"), "mount_point": "/var/lib/data"},
	}))
	teacher := as(t, c, "teacher", iam.Entity{Policies: []string{providertest.ReadPolicy(t, "teacher.json").Without("")}})
	for _, made := range []*providertest.Instance{worker, volume, network} {
		if failure := teacher.Taken(made).Dismiss().Failure(); failure != "" {
			t.Fatal(failure)
		}
	}
	c.Account.Empty()
}

// TestMemberLeftovers: a member destroys a network in which controllers have left objects only with leftovers.json, and leaves what
// another cluster's controllers have made.
func TestMemberLeftovers(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	document := func(name string) string { return providertest.ReadPolicy(t, name).Without("") }
	identities := c.Account.Cloud.Identities()
	boundary := providertest.Answer[iam.Managed](t)(identities.PutPolicy("k8s-boundary", "", document("boundary.json")))
	e := iam.Entity{Policies: []string{document("member.json")}, Boundary: boundary.ARN, Tags: map[string]string{"k8s-cluster": "demo"}}
	network := as(t, c, "member", e).Instance("k8s_network")
	network.Must(providertest.With(providertest.NetworkConfig(), providertest.Values{"delete_leftovers": true}))
	k := controllers{c, t, network}
	owned, balanced := map[string]string{"kubernetes.io/cluster/demo": "owned"}, map[string]string{"elbv2.k8s.aws/cluster": "demo"}
	workers := network.Get("security_group_ids").(providertest.Values)["worker"].(string)
	group := k.group("k8s-traffic-demo", balanced)
	k.lets(workers, group)
	k.lets(group, workers)
	k.balancer(group, balanced)
	k.volume(owned)
	k.nic(owned)
	k.group("k8s-owned-demo", owned)
	others := k.volume(map[string]string{"kubernetes.io/cluster/other": "owned"})

	providertest.Mention(t, network.Dismiss().Failure(), "not authorized to perform elasticloadbalancing:DeleteLoadBalancer")
	e.Policies = append(e.Policies, strings.ReplaceAll(document("leftovers.json"), "CLUSTER", "demo"))
	providertest.Answer[iam.User](t)(identities.PutUser("member", e))
	if failure := network.Dismiss().Failure(); failure != "" {
		t.Fatal(failure)
	}
	providertest.Answer[*ec2.DeleteVolumeOutput](t)(c.Client.EC2.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: &others}))
	c.Account.Empty()
}
