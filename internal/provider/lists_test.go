package provider_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/keystore"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestLists makes two clusters and lists their resources. A list returns the same resource as an
// import.
func TestLists(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	made := map[string][]*providertest.Instance{}
	make := func(typeName string, config providertest.Values) *providertest.Instance {
		t.Helper()
		i := c.Instance(typeName)
		i.Must(config)
		made[typeName] = append(made[typeName], i)
		return i
	}
	for _, cluster := range []string{"demo", "prod"} {
		network := make("k8s_network", providertest.With(providertest.NetworkConfig(), providertest.Values{"cluster": cluster}))
		make("k8s_volume", providertest.VolumeConfig(network))
		machine := make("k8s_machine", providertest.Values{"name": "controller-0", "role": "controller", "network": network.Get("ref")})
		make("k8s_nlb", providertest.Values{"network": network.Get("ref"), "controllers": []any{machine.Get("host")}})
		make("k8s_pki", providertest.Values{"cluster": cluster})
	}
	make("k8s_pki", providertest.Values{"cluster": "other", "prefix": "/keys/of/other/"})
	make("k8s_pki", providertest.Values{"cluster": "offline", "key_store": "state"})
	made["k8s_pki"] = made["k8s_pki"][:3] // keys in a state are not in AWS

	for typeName, all := range made {
		found, said := c.List(typeName, nil, 100, false)
		c.Fatal(said.Errors)
		if want := identities(all); !reflect.DeepEqual(listed(found), want) {
			t.Errorf("%s: found %v, and there are %v", typeName, listed(found), want)
		}
		one, said := c.List(typeName, providertest.Values{"cluster": "prod"}, 100, true)
		c.Fatal(said.Errors)
		if len(one) != 1 || len(said.Warnings) > 0 || !reflect.DeepEqual(one[0].Identity, all[1].Identified()) {
			t.Errorf("%s of prod: %v %s", typeName, one, providertest.Warnings(said))
			continue
		}
		imported := c.Instance(typeName)
		imported.Imports(one[0].Name)
		if want, _ := providertest.Plain(imported.State).(providertest.Values); !reflect.DeepEqual(one[0].Resource, want) {
			t.Errorf("%s: listed as %v, and imported as %v", typeName, one[0].Resource, want)
		}
		if nothing, said := c.List(typeName, providertest.Values{"cluster": "nowhere"}, 100, true); len(nothing)+len(said.Errors)+len(said.Warnings) > 0 {
			t.Errorf("%s of a cluster that does not exist: %v %s", typeName, nothing, said.Failure())
		}
		if first, _ := c.List(typeName, nil, 1, false); len(first) != 1 {
			t.Errorf("%s: %d for a limit of 1", typeName, len(first))
		}
	}

	// Only a create, a change or a refresh settles a claim.
	tags := slices.DeleteFunc(c.Calls(), func(call string) bool { return call != "CreateTags" })
	if _, said := c.List("k8s_machine", nil, 100, true); len(said.Errors) > 0 || len(slices.DeleteFunc(c.Calls(), func(call string) bool { return call != "CreateTags" })) != len(tags) {
		t.Errorf("a list writes tags: %s", said.Failure())
	}
}

func identities(of []*providertest.Instance) (out []string) {
	for _, i := range of {
		out = append(out, fmt.Sprint(i.Identified()))
	}
	slices.Sort(out)
	return out
}

func listed(found []providertest.Listed) (out []string) {
	for _, l := range found {
		out = append(out, fmt.Sprint(l.Identity))
	}
	slices.Sort(out)
	return out
}

// TestListInPages lists more machines than EC2 returns in a page, and asks for no page that nobody wants.
func TestListInPages(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t, account.Large)
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	image := c.Instance("k8s_machine")
	image.Must(providertest.WorkerConfig(network))
	const machines = 150
	out, err := c.Client.EC2.RunInstances(t.Context(), &ec2.RunInstancesInput{
		ImageId: sdk.String(image.Get("image_id").(string)), SubnetId: sdk.String(network.Get("subnet_id").(string)), InstanceType: types.InstanceTypeT3Small,
		MinCount: sdk.Int32(machines - 1), MaxCount: sdk.Int32(machines - 1),
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: c.Found(t, image).Tags}},
	})
	if err != nil || len(out.Instances) != machines-1 {
		t.Fatal(err)
	}
	for _, test := range []struct {
		limit        int64
		found, pages int
	}{{0, machines, 2}, {1000, machines, 2}, {100, 100, 1}, {101, 101, 2}, {5, 5, 1}} {
		before := len(c.Calls())
		found, said := c.List("k8s_machine", nil, test.limit, false)
		pages := slices.DeleteFunc(c.Calls()[before:], func(call string) bool { return call != "DescribeInstances" })
		if len(found) != test.found || len(pages) != test.pages || len(said.Errors) > 0 {
			t.Errorf("limit %d: %d machines in %d pages: %s", test.limit, len(found), len(pages), said.Failure())
		}
	}
}

// TestListWhileOthersDelete: what somebody deletes between two calls of a list is not listed, and all else is.
func TestListWhileOthersDelete(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	machine := c.Instance("k8s_machine")
	machine.Must(providertest.Values{"name": "controller-0", "role": "controller", "network": network.Get("ref")})
	c.Instance("k8s_nlb").Must(providertest.Values{"network": network.Get("ref"), "controllers": []any{machine.Get("host")}})
	out, err := c.Client.ELB.DescribeLoadBalancers(t.Context(), &elb.DescribeLoadBalancersInput{})
	if err != nil || len(out.LoadBalancers) != 2 {
		t.Fatalf("%v %v", out, err)
	}
	there := []string{*out.LoadBalancers[0].LoadBalancerArn, *out.LoadBalancers[1].LoadBalancerArn}
	for i := range 3 {
		tags, err := c.Client.TagsOfELB(t.Context(), slices.Insert(slices.Clone(there), i, there[0]+"0", there[1]+"0"))
		if err != nil || len(tags) != 2 || len(tags[there[0]]) == 0 || len(tags[there[1]]) == 0 {
			t.Errorf("%v %v", tags, err)
		}
	}

	clusters := []string{"demo", "other", "prod"}
	for _, cluster := range clusters {
		c.Instance("k8s_pki").Must(providertest.Values{"cluster": cluster})
	}
	var found []string
	for at, err := range keystore.List(t.Context(), c.Client, "") {
		if err != nil {
			t.Fatal(err)
		}
		if found = append(found, at.Cluster); len(found) > 1 {
			continue
		}
		gone := clusters[(slices.Index(clusters, at.Cluster)+1)%len(clusters)]
		clusters = slices.DeleteFunc(clusters, func(cluster string) bool { return cluster == gone })
		if _, err := c.Client.SSM.DeleteParameter(t.Context(), &ssm.DeleteParameterInput{Name: sdk.String(keystore.DefaultPrefix(gone) + pki.NameOwner)}); err != nil {
			t.Fatal(err)
		}
	}
	if slices.Sort(found); !slices.Equal(found, clusters) {
		t.Errorf("listed %v, and there are %v", found, clusters)
	}
}

// TestListErrors: a list reports errors in diagnostics.
func TestListErrors(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	_, said := c.List("k8s_machine", providertest.Values{"cluster": "Not a name"}, 100, false)
	providertest.Mention(t, said.Failure(), `"cluster"`)
	unconfigured := providertest.Open(t, provider.New("test"))
	_, said = unconfigured.List("k8s_machine", nil, 100, false)
	providertest.Mention(t, said.Failure(), "Cannot list the machines", "the provider is not configured")

	everyday := providertest.ReadPolicy(t, "everyday.json")
	r := providertest.NewRestricted(t, everyday.Without("ec2:DescribeVolumes"), providertest.ReadPolicy(t, "destroy.json").Without(""))
	for typeName, action := range map[string]string{"k8s_volume": "ec2:DescribeVolumes", "k8s_pki": "ssm:DescribeParameters", "k8s_nlb": "elasticloadbalancing:DescribeLoadBalancers"} {
		found, said := r.List(typeName, nil, 100, false)
		if providertest.Mention(t, said.Failure(), "Cannot list the", action); len(found) > 0 {
			t.Errorf("%s: %v", typeName, found)
		}
	}
	network := r.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	found, said := r.List("k8s_network", nil, 100, true)
	if c.Fatal(said.Errors); len(found) != 1 {
		t.Errorf("%v", found)
	}
	// Tags can be copied, and an object can lack the other things that it needs. Neither hides the
	// object.
	tags := map[string]string{"k8s-from-scratch/cluster": "gone", "k8s-from-scratch/kind": "volume", "k8s-from-scratch/name": "etcd-0"}
	for range 2 {
		volumeWith(t, c, tags)
	}
	found, said = c.List("k8s_volume", nil, 100, true)
	if len(said.Errors) > 0 || len(found) != 2 || found[0].Resource["id"] == found[1].Resource["id"] || strings.Count(providertest.Warnings(said), "Of gone/etcd-0 only the id is known") != 2 {
		t.Errorf("%v: %s%s", found, said.Failure(), providertest.Warnings(said))
	}
	providertest.Mention(t, providertest.Warnings(said), "network of cluster gone")
}

// volumeWith makes a volume with tags, by hand.
func volumeWith(t *testing.T, c providertest.Cloud, tags map[string]string) {
	t.Helper()
	var list []types.Tag
	for k, v := range tags {
		list = append(list, types.Tag{Key: sdk.String(k), Value: sdk.String(v)})
	}
	if _, err := c.Client.EC2.CreateVolume(t.Context(), &ec2.CreateVolumeInput{
		AvailabilityZone: sdk.String("us-east-1a"), Size: sdk.Int32(1),
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeVolume, Tags: list}},
	}); err != nil {
		t.Fatal(err)
	}
}
