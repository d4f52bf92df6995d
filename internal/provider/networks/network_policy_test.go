package networks_test

import (
	"testing"

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
