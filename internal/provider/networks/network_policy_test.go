package networks_test

import (
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
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

// member returns a user who is bound to the cluster demo.
func member(t *testing.T, c providertest.Cloud) iam.Entity {
	t.Helper()
	return c.Member(t, providertest.ReadPolicy(t, "member.json").Without(""), providertest.ReadPolicy(t, "boundary.json").Without(""))
}

// TestAdoptedNetwork adopts a VPC, although the answer to the creation of a group is lost, makes the group ssh again, which somebody has
// deleted, and takes everything away. A member can do so only if an administrator has given the VPC the cluster's tag.
func TestAdoptedNetwork(t *testing.T) {
	t.Parallel()
	document := func(name string) string { return providertest.ReadPolicy(t, name).Without("") }
	everyday := func(t *testing.T) *providertest.Restricted {
		return providertest.NewRestricted(t, document("everyday.json"), document("destroy.json"))
	}
	bound := func(t *testing.T) *providertest.Restricted {
		return providertest.NewMember(t, document("member.json"), document("boundary.json"))
	}
	for name, try := range map[string]struct {
		as             func(*testing.T) *providertest.Restricted
		tagged, refuse bool
	}{
		"everyday":           {as: everyday},
		"member, tagged VPC": {as: bound, tagged: true},
		"member":             {as: bound, refuse: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := try.as(t)
			site := providertest.NewSite(t, r.Cloud)
			if try.tagged {
				providertest.Answer[*ec2.CreateTagsOutput](t)(site.API.CreateTags(t.Context(), &ec2.CreateTagsInput{
					Resources: []string{site.Vpc, site.A, site.B, site.TableA, site.Main}, Tags: []types.Tag{{Key: sdk.String(infraaws.TagCluster), Value: sdk.String("demo")}},
				}))
			}
			var lost atomic.Bool
			r.Loses = func(action string) bool {
				return action == "CreateSecurityGroup" && lost.CompareAndSwap(false, true)
			}
			network := r.Instance("k8s_network")
			failure := network.Attempt(site.Network(site.A, site.B))
			if try.refuse {
				providertest.Mention(t, failure, "not authorized to perform ec2:CreateSecurityGroup on arn:aws:ec2:us-east-1:", ":vpc/"+site.Vpc)
				return
			}
			if failure != "" || !lost.Load() {
				t.Fatalf("an answer was lost: %t; %s", lost.Load(), failure)
			}
			ssh := network.Get("security_group_ids").(providertest.Values)["ssh"].(string)
			providertest.Answer[*ec2.DeleteSecurityGroupOutput](t)(site.API.DeleteSecurityGroup(t.Context(), &ec2.DeleteSecurityGroupInput{GroupId: &ssh}))
			network.Look()
			network.Must(site.Network(site.A, site.B))
			network.Converged(site.Network(site.A, site.B))
			if network.Get("security_group_ids").(providertest.Values)["ssh"].(string) == ssh {
				t.Error("the group ssh was not made again")
			}
			r.PermitDestroy()
			if failure := network.Dismiss().Failure(); failure != "" {
				t.Fatal(failure)
			}
			if left := r.Account.Cloud.Overview().Groups; len(left) != 1 { // the VPC's own
				t.Errorf("left: %+v", left)
			}
		})
	}
}

// TestTeacherRemoves: with teacher.json, a teacher destroys the machines, volumes and network that somebody else has made.
func TestTeacherRemoves(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, volume, worker := c.Instance("k8s_network"), c.Instance("k8s_volume"), c.Instance("k8s_machine")
	network.Must(providertest.With(providertest.NetworkConfig(), providertest.Values{
		"node_cidr": "10.240.8.0/24", "public_cidr": "10.240.0.0/24", "nat_gateways": "one", "instance_connect_endpoint": true, "timeouts": providertest.Values{"delete": "5m"},
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
	identities, e := c.Account.Cloud.Identities(), member(t, c)
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
