package provider_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestEveryResourceHasAnIdentity fails for a resource that is not in package identity.
func TestEveryResourceHasAnIdentity(t *testing.T) {
	t.Parallel()
	c := providertest.Open(t, provider.New("test"))
	for name := range c.Schemas.ResourceSchemas {
		s := c.Identities(name)
		if s == nil {
			t.Errorf("%s has no identity", name)
			continue
		}
		required := 0
		for _, a := range s.IdentityAttributes {
			if a.RequiredForImport {
				required++
			}
			if a.Description == "" || a.RequiredForImport == a.OptionalForImport {
				t.Errorf("%s.%s: %+v", name, a.Name, a)
			}
		}
		if required == 0 {
			t.Errorf("an identity of %s is valid without an attribute", name)
		}
	}
}

// placed returns an identity in the account of tests.
func placed(parts providertest.Values) providertest.Values {
	return providertest.With(providertest.Values{"account_id": "123456789012", "region": "us-east-1"}, parts)
}

// TestIdentities makes one of each resource that needs no program on machines. Its identity stays the same in every
// operation, and leads back to it.
func TestIdentities(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	c.Account.S3.Make(providertest.Copies, "us-east-1")
	_, recipient := providertest.AgeIdentity(t)
	made := map[string]*providertest.Instance{}
	make := func(typeName string, config, change providertest.Values, identity providertest.Values) {
		t.Helper()
		i := c.Instance(typeName)
		check := func(when string) {
			t.Helper()
			if got := i.Identified(); !reflect.DeepEqual(got, identity) {
				t.Errorf("%s %s has the identity %v", when, typeName, got)
			}
		}
		i.Must(config)
		check("a new")
		i.Refresh()
		check("a refreshed")
		i.Must(providertest.With(config, change))
		check("a changed")
		i.Identity = nil // as in a state that was written by a release of Terraform without identities
		i.Refresh()
		check("an old")
		made[typeName] = i
	}
	tags := providertest.Values{"tags": providertest.Values{"room": "12"}}
	cluster := providertest.Values{"cluster": "demo"}
	make("k8s_network", providertest.NetworkConfig(), tags, placed(cluster))
	network := made["k8s_network"]
	make("k8s_volume", providertest.VolumeConfig(network), tags, placed(providertest.Values{"cluster": "demo", "name": "etcd-0"}))
	make("k8s_machine", providertest.WorkerConfig(network), tags, placed(providertest.Values{"cluster": "demo", "name": "worker-0"}))
	controller := c.Instance("k8s_machine")
	controller.Must(providertest.Values{"name": "controller-0", "role": "controller", "network": network.Get("ref")})
	make("k8s_nlb", providertest.Values{"network": network.Get("ref"), "controllers": []any{controller.Get("host")}}, tags, placed(cluster))
	make("k8s_pki", providertest.Values{"cluster": "demo", "prefix": "/keys/of/demo/"}, tags, placed(providertest.Values{"cluster": "demo", "prefix": "/keys/of/demo/"}))

	// Resources with an identity that AWS can resolve are imported by it.
	for typeName, i := range made {
		again := c.Instance(typeName)
		if failure := again.ImportsAs(i.Identified()); failure != "" {
			t.Errorf("%s: %s", typeName, failure)
			continue
		}
		again.Refresh()
		if again.Get("id") != i.Get("id") || again.Get("claim") != i.Get("claim") || !reflect.DeepEqual(again.Identified(), i.Identified()) {
			t.Errorf("the imported %s is %v, with the identity %v", typeName, again.Get("id"), again.Identified())
		}
		for name, elsewhere := range map[string]string{"account_id": "999999999999", "region": "eu-central-1"} {
			if failure := c.Instance(typeName).ImportsAs(providertest.With(i.Identified(), providertest.Values{name: elsewhere})); !strings.Contains(failure, name+" = \""+elsewhere+"\", and the provider works in account 123456789012, region us-east-1") {
				t.Errorf("%s of %s: %s", typeName, elsewhere, failure)
			}
		}
	}

	// A state without an identity may also be of something that is gone.
	gone := c.Instance("k8s_volume")
	gone.Must(providertest.With(providertest.VolumeConfig(network), providertest.Values{"name": "gone"}))
	if _, err := c.Client.EC2.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: sdk.String(gone.Get("id").(string))}); err != nil {
		t.Fatal(err)
	}
	gone.Identity = nil
	if gone.Refresh(); !gone.State.IsNull() {
		t.Errorf("the deleted volume is %v", gone.Get("id"))
	}

	// A kubeconfig and a copy of keys have an identity that changes with their arguments, and cannot be imported.
	keys := made["k8s_pki"].Get("ref")
	for typeName, test := range map[string]struct{ config, change, before, after providertest.Values }{
		"k8s_kubeconfig": {providertest.Values{"control_plane": providertest.With(providertest.NewRoles(t).Pool["control_plane"].(providertest.Values), providertest.Values{"pki": keys}), "endpoint": "https://203.0.113.1:6443"}, providertest.Values{"user": "jane"},
			providertest.Values{"cluster": "demo", "user": "admin"}, providertest.Values{"cluster": "demo", "user": "jane"}},
		"k8s_pki_copy": {providertest.Values{"pki": keys, "bucket": providertest.Copies, "recipients": []any{recipient}}, providertest.Values{"prefix": "other/"},
			providertest.Values{"bucket": providertest.Copies, "prefix": "k8s/demo/keys/"}, providertest.Values{"bucket": providertest.Copies, "prefix": "other/"}},
	} {
		i := c.Instance(typeName)
		i.Must(test.config)
		before := i.Identified()
		i.Must(providertest.With(test.config, test.change))
		i.Refresh()
		if !reflect.DeepEqual(before, test.before) || !reflect.DeepEqual(i.Identified(), test.after) {
			t.Errorf("%s: %v and then %v", typeName, before, i.Identified())
		}
		if failure := c.Instance(typeName).ImportsAs(test.after); !strings.Contains(failure, "cannot be imported") {
			t.Errorf("%s: %s", typeName, failure)
		}
	}
}

// TestIdentitiesOfRoles: a role has the name of its cluster, also where no machine answers.
func TestIdentitiesOfRoles(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	c.Unconnected()
	cluster := providertest.Values{"cluster": "demo"}
	lb := providertest.Values{"cluster": "demo", "host": c.Pool["hosts"].([]any)[0], "controllers": c.Etcd["hosts"], "pki": c.Etcd["pki"]}
	var made []*providertest.Instance
	var want []providertest.Values
	for typeName, test := range map[string]struct{ config, identity providertest.Values }{
		"k8s_etcd_cluster":  {c.Etcd, cluster},
		"k8s_etcd_backup":   {c.Backup(), cluster},
		"k8s_control_plane": {c.ControlPlane, cluster},
		"k8s_lb":            {lb, cluster},
		"k8s_worker_pool":   {providertest.With(c.Pool, providertest.Values{"name": "blue"}), providertest.Values{"cluster": "demo", "name": "blue"}},
	} {
		made = append(made, c.Applied(typeName, test.config))
		want = append(want, test.identity)
	}
	providertest.RefreshAll(made)
	for n, i := range made {
		if got := i.Identified(); !reflect.DeepEqual(got, want[n]) {
			t.Errorf("%s has the identity %v", i.TypeName, got)
		}
	}
}

// TestAmbiguousIdentity: tags can be copied, so an identity that leads to two objects imports none of them.
func TestAmbiguousIdentity(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, first, second := c.Instance("k8s_network"), c.Instance("k8s_volume"), c.Instance("k8s_volume")
	network.Must(providertest.NetworkConfig())
	first.Must(providertest.VolumeConfig(network))
	second.Must(providertest.With(providertest.VolumeConfig(network), providertest.Values{"name": "etcd-1"}))
	name := "k8s-from-scratch/name"
	value := "etcd-0"
	if _, err := c.Client.EC2.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{second.Get("id").(string)}, Tags: []types.Tag{{Key: &name, Value: &value}}}); err != nil {
		t.Fatal(err)
	}
	ids := []string{first.Get("id").(string), second.Get("id").(string)}
	slices.Sort(ids)
	failure := c.Instance("k8s_volume").ImportsAs(providertest.Values{"cluster": "demo", "name": "etcd-0"})
	if !strings.Contains(failure, "not the only one with its tags: choose one of "+strings.Join(ids, ", ")) {
		t.Error(failure)
	}
	if failure := c.Instance("k8s_machine").ImportsAs(providertest.Values{"cluster": "demo", "name": "worker-7"}); !strings.Contains(failure, "machine worker-7 of cluster demo does not exist") {
		t.Error(failure)
	}
}
