package provider_test

import (
	"errors"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// TestUnknownDefaultTags: a refresh under default_tags that are known only after the apply, such as timestamp(),
// finds what differs. Only the tags are unknown in the plan.
func TestUnknownDefaultTags(t *testing.T) {
	t.Parallel()
	for name, tags := range map[string]any{"a value": providertest.Values{"team": "lab", "built": providertest.Unknown}, "all of them": providertest.Unknown} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := providertest.NewCloud(t)
			all := map[*providertest.Instance]providertest.Values{}
			network, keys := c.Instance("k8s_network"), c.Instance("k8s_pki")
			all[network], all[keys] = providertest.NetworkConfig(), providertest.Values{"cluster": "demo"}
			network.Must(all[network])
			keys.Must(all[keys])
			worker, volume := c.Instance("k8s_machine"), c.Instance("k8s_volume")
			all[worker], all[volume] = providertest.WorkerConfig(network), providertest.Values{"name": "data", "network": network.Get("ref"), "size": 4}
			worker.Must(all[worker])
			volume.Must(all[volume])
			id := worker.Get("id").(string)
			providertest.Answer[*ec2.DeleteTagsOutput](t)(c.Client.EC2.DeleteTags(t.Context(), &ec2.DeleteTagsInput{
				Resources: []string{id, volume.Get("id").(string), network.Get("vpc_id").(string)}, Tags: []types.Tag{{Key: sdk.String("Name")}}}))

			c.More = providertest.Values{"default_tags": tags}
			c = c.Ends(t)
			for i, config := range all {
				here := c.Taken(i)
				seen := here.Look()
				if len(seen.Warnings) > 0 {
					t.Errorf("%s: %s", i.TypeName, seen.Warnings[0].Detail)
				}
				drift, _ := here.Get("drift").(providertest.Values)
				if wanted := i != keys; len(drift) > 0 != wanted {
					t.Errorf("%s: drift is %v", i.TypeName, drift)
				}
				ch := here.Plan(config)
				planned, _ := providertest.Plain(ch.Planned).(providertest.Values)
				if planned["tags_all"] != providertest.Unknown || len(ch.Replace)+len(ch.Errors) > 0 {
					t.Errorf("%s: tags_all is planned as %v, replaced by %q, %s", i.TypeName, planned["tags_all"], ch.Replace, ch.Failure())
				}
				for attribute, value := range planned {
					if value == providertest.Unknown && attribute != "tags_all" {
						t.Errorf("%s: %s is planned as unknown", i.TypeName, attribute)
					}
				}
			}
			imported := c.Instance("k8s_machine")
			imported.Imports(id)
			if !imported.State.IsFullyKnown() {
				t.Errorf("imported as %v", providertest.Plain(imported.State))
			}

			// In the apply they are known.
			c.More = providertest.Values{"default_tags": providertest.Values{"built": "today"}}
			c = c.Ends(t)
			for i, config := range all {
				here := c.Taken(i)
				here.Refresh()
				here.Must(config)
				here.Converged(config)
			}
			found := c.Found(t, c.Taken(worker))
			var text []string
			for _, tag := range found.Tags {
				text = append(text, *tag.Key+"="+*tag.Value)
			}
			if all := strings.Join(text, " "); !strings.Contains(all, "built=today") || strings.Contains(all, "team=lab") {
				t.Errorf("the machine has the tags %s", all)
			}
		})
	}
}

// TestUnknownAWS: while AWS cannot be asked, since it is not known yet who would answer, a refresh
// keeps what is known and says so once. Nothing asks AWS with only the known part of the
// configuration, such as the region of the environment.
func TestUnknownAWS(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		more providertest.Values
		says string
	}{
		"the region":        {providertest.Values{"region": providertest.Unknown}, "only after the apply: region."},
		"a role":            {providertest.Values{"assume_role": providertest.Values{"role_arn": providertest.Unknown}}, "only after the apply: assume_role."},
		"a server and keys": {providertest.Values{"endpoints": providertest.Values{"ec2": providertest.Unknown}, "secret_key": providertest.Unknown}, "only after the apply: endpoints, secret_key."},
		"an account":        {providertest.Values{"allowed_account_ids": []any{providertest.Unknown}}, "only after the apply: allowed_account_ids."},
		"retries":           {providertest.Values{"max_retries": providertest.Unknown, "retry_mode": providertest.Unknown}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := providertest.NewCloud(t)
			network, keys, lb := c.Instance("k8s_network"), c.Instance("k8s_pki"), c.Instance("k8s_lb")
			network.Must(providertest.NetworkConfig())
			keys.Must(providertest.Values{"cluster": "demo"})
			volume := c.Instance("k8s_volume")
			volume.Must(providertest.Values{"name": "data", "network": network.Get("ref"), "size": 4})
			host := providertest.Values{"name": "lb-0", "address": "203.0.113.9", "private_ip": "10.240.0.30", "host_key": providertest.PublicKey(t), "instance_id": "i-0123456789abcdef0"}
			controller := providertest.Values{"name": "controller-0", "address": "203.0.113.8", "private_ip": "10.240.0.10", "host_key": providertest.PublicKey(t)}
			c.Account.Fault(fault.Fault{Kind: fault.Fail, Action: "AssociateAddress", Code: "UnauthorizedOperation"})
			if failure := lb.Attempt(providertest.Values{"host": host, "controllers": []any{controller}, "pki": keys.Get("ref")}); lb.State.IsNull() {
				t.Fatal(failure)
			}

			c.More = test.more
			c = c.Ends(t)
			providertest.RoleSet{Core: c.Core, Data: c.Provider.Sessions[0]}.Unconnected()
			c.Calls()
			var said []string
			for _, i := range []*providertest.Instance{network, keys, volume, lb} {
				here := c.Taken(i)
				for _, w := range here.Look().Warnings {
					said = append(said, w.Summary+": "+w.Detail)
				}
				if test.says != "" && !here.State.Equal(i.State) {
					t.Errorf("%s: the refresh has changed %s", i.TypeName, here.Differences(providertest.Change{Planned: i.State}))
				}
			}
			var about []string
			for _, w := range said {
				if strings.HasPrefix(w, "What is in AWS is not compared") {
					about = append(about, w)
				}
			}
			if test.says == "" {
				if len(about) > 0 || len(c.Calls()) == 0 {
					t.Errorf("AWS was asked %q, and the warnings are %q", c.Calls(), about)
				}
				return
			}
			if calls := c.Calls(); len(about) != 1 || !strings.Contains(about[0], test.says) || !strings.Contains(about[0], "with -target") || len(calls) > 0 {
				t.Errorf("AWS was asked %q, and the warnings are %q", calls, said)
			}
			store := pki.Ref{Cluster: "demo", Store: pki.StoreSSM, Prefix: "/k8s/demo/", Region: "us-east-1"}
			if _, err := c.Provider.Sessions[0].Store(store); !errors.Is(err, session.ErrNotYetKnown) {
				t.Errorf("the key store is opened: %v", err)
			}
		})
	}
}

// TestUnknownChecksums: the files of a role are unknown in a plan under artifact_checksums that are
// known only after the apply, and the built-in checksums are not used in their place.
func TestUnknownChecksums(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	configs := map[string]providertest.Values{"k8s_etcd_cluster": c.Etcd, "k8s_control_plane": c.ControlPlane, "k8s_worker_pool": c.Pool}
	later := providertest.NewCore(t, provider.New("test"), providertest.Values{"ssh": providertest.Values{"private_key": providertest.SSHKey(t)}, "artifact_checksums": providertest.Unknown, "artifact_mirror": providertest.Unknown})
	for resource, config := range configs {
		before := c.Applied(resource, config)
		for what, i := range map[string]*providertest.Instance{"made": later.Instance(resource), "changed": later.Instance(resource)} {
			if what == "changed" {
				i.State, i.Private = before.State, before.Private
			}
			ch := i.Plan(config)
			planned, _ := providertest.Plain(ch.Planned).(providertest.Values)
			if ch.Failure() != "" || planned["files"] != providertest.Unknown {
				t.Errorf("%s, %s: files are planned as %v, %s", resource, what, planned["files"], ch.Failure())
			}
			if runc, has := planned["runc_version"]; has && what == "made" && runc != providertest.Unknown {
				t.Errorf("%s: runc_version is planned as %v", resource, runc)
			}
		}
	}
}
