package provider_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

func TestLifecycle(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker, keys := c.Instance("k8s_network"), c.Instance("k8s_machine"), c.Instance("k8s_pki")

	// Everything that can be known before creation is planned.
	ch := network.Plan(providertest.NetworkConfig())
	planned, _ := providertest.Plain(ch.Planned).(providertest.Values)
	ref, _ := planned["ref"].(providertest.Values)
	if !reflect.DeepEqual(planned["node_cidrs"], []any{"10.240.0.0/24"}) || ref["node_cidr"] != "10.240.0.0/24" || ref["cluster"] != "demo" || ref["vpc_id"] != providertest.Unknown || planned["id"] != "demo" {
		t.Errorf("planned %v", planned)
	}
	machine := providertest.Values{"name": "worker-0", "role": "worker", "network": ref, "private_ip": "10.240.0.20", "pod_cidr": "10.200.0.0/24"}
	ch = worker.Plan(machine)
	planned, _ = providertest.Plain(ch.Planned).(providertest.Values)
	host, _ := planned["host"].(providertest.Values)
	if host["name"] != "worker-0" || host["private_ip"] != "10.240.0.20" || host["user"] != "admin" || host["host_key"] != providertest.Unknown {
		t.Errorf("planned host %v, %s", host, ch.Failure())
	}

	network.Must(providertest.NetworkConfig())
	network.Converged(providertest.NetworkConfig())
	worker.Must(providertest.WorkerConfig(network))
	worker.Converged(providertest.WorkerConfig(network))
	keys.Must(providertest.Values{"cluster": "demo"})
	keys.Converged(providertest.Values{"cluster": "demo"})
	for _, i := range []*providertest.Instance{network, worker, keys} {
		i.Leaks()
	}
	if worker.Get("instance_state") != "running" || worker.Get("image_id") != account.ImageID {
		t.Errorf("machine %v", worker.State)
	}

	t.Run("import", func(t *testing.T) {
		imported := c.Instance("k8s_network")
		imported.Imports("demo")
		imported.Converged(providertest.NetworkConfig())
		machine := c.Instance("k8s_machine")
		machine.Imports(worker.Get("id").(string))
		machine.Converged(providertest.WorkerConfig(network))
		pki := c.Instance("k8s_pki")
		pki.Imports("demo")
		pki.Converged(providertest.Values{"cluster": "demo"})
	})

	for _, i := range []*providertest.Instance{worker, network, keys} {
		c.Fatal(i.Apply(i.Plan(nil)))
	}
	c.Account.Empty()
}

// TestDriftShows changes things outside Terraform. The next plan reports the drift and changes
// nothing else, and apply repairs it.
func TestDriftShows(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker, keys := c.Instance("k8s_network"), c.Instance("k8s_machine"), c.Instance("k8s_pki")
	network.Must(providertest.NetworkConfig())
	worker.Must(providertest.WorkerConfig(network))
	keys.Must(providertest.Values{"cluster": "demo"})
	api, id := c.Client.EC2, worker.Get("id").(string)
	groups := network.Get("security_group_ids").(providertest.Values)
	workers := groups["worker"].(string)
	closed := []types.IpPermission{{
		IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(10250), ToPort: sdk.Int32(10250),
		UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: sdk.String(groups["controller"].(string))}},
	}}

	for _, test := range []struct {
		name     string
		resource *providertest.Instance
		config   providertest.Values
		damage   func() error
		changes  string
	}{{
		"a security-group rule", network, providertest.NetworkConfig(), func() error {
			_, err := api.RevokeSecurityGroupIngress(t.Context(), &ec2.RevokeSecurityGroupIngressInput{GroupId: &workers, IpPermissions: closed})
			return err
		}, `AttributeName("drift").ElementKeyString("security group worker"): rule tcp 10250 from group controller: missing -> absent
AttributeName("drift"): map[security group worker:rule tcp 10250 from group controller: missing] -> map[]`,
	}, {
		"a route", worker, providertest.WorkerConfig(network), func() error {
			out, err := api.DescribeRouteTables(t.Context(), &ec2.DescribeRouteTablesInput{Filters: []types.Filter{
				{Name: sdk.String("route.destination-cidr-block"), Values: []string{"10.200.0.0/24"}}}})
			if err != nil {
				return err
			}
			_, err = api.DeleteRoute(t.Context(), &ec2.DeleteRouteInput{RouteTableId: out.RouteTables[0].RouteTableId, DestinationCidrBlock: sdk.String("10.200.0.0/24")})
			return err
		}, "",
	}, {
		"a certificate in the key store", keys, providertest.Values{"cluster": "demo"}, func() error {
			_, err := c.Client.SSM.DeleteParameter(t.Context(), &ssm.DeleteParameterInput{Name: sdk.String("/k8s/demo/pki/" + pki.CertEtcdCA)})
			return err
		}, `AttributeName("drift").ElementKeyString("key store"): etcd-ca.crt: missing -> absent
AttributeName("drift"): map[key store:etcd-ca.crt: missing] -> map[]`,
	}} {
		t.Run(test.name, func(t *testing.T) {
			if err := test.damage(); err != nil {
				t.Fatal(err)
			}
			test.resource.Refresh()
			ch := test.resource.Plan(test.config)
			if got := test.resource.Differences(ch); test.changes != "" && got != test.changes || !strings.Contains(got, "drift") {
				t.Errorf("plan:\n%s\nwanted:\n%s", got, test.changes)
			}
			c.Fatal(test.resource.Apply(ch))
			test.resource.Converged(test.config)
		})
	}

	stop := func(t *testing.T) {
		if _, err := api.StopInstances(t.Context(), &ec2.StopInstancesInput{InstanceIds: []string{id}}); err != nil {
			t.Fatal(err)
		}
		if err := ec2.NewInstanceStoppedWaiter(api, func(o *ec2.InstanceStoppedWaiterOptions) { o.MinDelay, o.MaxDelay = 50*time.Millisecond, time.Second }).
			Wait(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{id}}, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("another instance type", func(t *testing.T) {
		stop(t)
		if _, err := api.ModifyInstanceAttribute(t.Context(), &ec2.ModifyInstanceAttributeInput{
			InstanceId: &id, InstanceType: &types.AttributeValue{Value: sdk.String("t3.large")}}); err != nil {
			t.Fatal(err)
		}
		if _, err := api.StartInstances(t.Context(), &ec2.StartInstancesInput{InstanceIds: []string{id}}); err != nil {
			t.Fatal(err)
		}
		worker.Refresh()
		ch := worker.Plan(providertest.WorkerConfig(network))
		planned, _ := providertest.Plain(ch.Planned).(providertest.Values)
		if got := worker.Differences(ch); !strings.Contains(got, "instance type: found t3.large") || planned["public_ip"] != providertest.Unknown {
			t.Errorf("plan:\n%s", got)
		}
		c.Fatal(worker.Apply(ch))
		worker.Converged(providertest.WorkerConfig(network))
	})

	t.Run("a stopped machine", func(t *testing.T) {
		stop(t)
		worker.Refresh()
		ch := worker.Plan(providertest.WorkerConfig(network))
		planned, _ := providertest.Plain(ch.Planned).(providertest.Values)
		host, _ := planned["host"].(providertest.Values)
		if worker.Get("instance_state") != "stopped" || planned["instance_state"] != "running" || host["address"] != providertest.Unknown || host["host_key"] == providertest.Unknown {
			t.Errorf("planned %v", planned)
		}
		c.Fatal(worker.Apply(ch))
		worker.Converged(providertest.WorkerConfig(network))
	})

	t.Run("a private key lost from the key store", func(t *testing.T) {
		if _, err := c.Client.SSM.DeleteParameter(t.Context(), &ssm.DeleteParameterInput{Name: sdk.String("/k8s/demo/pki/" + pki.KeyEtcdCA)}); err != nil {
			t.Fatal(err)
		}
		keys.Refresh()
		failed := providertest.Change{Errors: keys.Apply(keys.Plan(providertest.Values{"cluster": "demo"}))}
		if got := failed.Failure(); !strings.Contains(got, "etcd-ca.key is gone and cannot be created again") {
			t.Errorf("got %s", got)
		}
	})

	t.Run("a terminated machine", func(t *testing.T) {
		if err := awsmachine.Delete(t.Context(), c.Client, id, awsmachine.Spec{Claim: providertest.ClaimOf(t, worker)}); err != nil {
			t.Fatal(err)
		}
		if worker.Refresh(); !worker.State.IsNull() {
			t.Error("it is still in the state")
		}
	})
}

// TestInPlace changes everything that can be changed in place.
func TestInPlace(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	config := providertest.WorkerConfig(network)
	worker.Must(config)
	id, key := worker.Get("id"), worker.Get("host_key")

	with := func(changes providertest.Values) providertest.Values {
		out := providertest.WorkerConfig(network)
		for k, v := range changes {
			out[k] = v
		}
		return out
	}
	for name, changes := range map[string]providertest.Values{
		"instance_type":    {"instance_type": "t3.large"},
		"root_volume_size": {"instance_type": "t3.large", "root_volume_size": 30},
		"pod_cidr":         {"instance_type": "t3.large", "root_volume_size": 30, "pod_cidr": "10.200.7.0/24"},
		"tags":             {"instance_type": "t3.large", "root_volume_size": 30, "pod_cidr": "10.200.7.0/24", "tags": providertest.Values{"room": "12"}},
		"ami":              {"instance_type": "t3.large", "root_volume_size": 30, "ami": "ami-0fedcba9876543210"},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "instance_type" {
				changes["root_volume_size"] = 30
			} else if size, _ := worker.Get("root_volume_size").(string); strings.Contains(size, "30") {
				changes["root_volume_size"] = 30
			}
			ch := worker.Plan(with(changes))
			if len(ch.Replace) > 0 {
				t.Fatalf("would replace the machine because of %v", ch.Replace)
			}
			c.Fatal(worker.Apply(ch))
			worker.Converged(with(changes))
			if worker.Get("id") != id || worker.Get("host_key") != key {
				t.Error("the machine was replaced")
			}
		})
	}
	for name, changes := range map[string]providertest.Values{
		"name": {"name": "worker-9"}, "role": {"role": "controller", "pod_cidr": nil}, "private_ip": {"private_ip": "10.240.0.30"}, "user": {"user": "ubuntu"},
	} {
		t.Run("replaces: "+name, func(t *testing.T) {
			changes["root_volume_size"] = 30
			if ch := worker.Plan(with(changes)); len(ch.Replace) == 0 {
				t.Errorf("would not replace the machine: %s", ch.Failure())
			}
		})
	}
}

// TestStateKeyStore keeps keys in the state. It needs no AWS, and the keys are marked as sensitive.
func TestStateKeyStore(t *testing.T) {
	t.Parallel()
	c := providertest.NewCore(t, provider.New("test"), providertest.Values{})
	keys := c.Instance("k8s_pki")
	config := providertest.Values{"cluster": "demo", "key_store": "state"}
	keys.Must(config)
	keys.Converged(config)
	ref := keys.Get("ref").(providertest.Values)
	if got := ref["keys"].(providertest.Values); len(got) != 5 || !strings.Contains(got[pki.KeyKubernetesCA].(string), "PRIVATE KEY") {
		t.Errorf("%d keys", len(got))
	}
	c.Fatal(keys.Apply(keys.Plan(nil)))
}

// TestFailedCreation checks that after a failed creation the state contains objects that cost
// money, but no keys.
func TestFailedCreation(t *testing.T) {
	t.Parallel()
	a := account.New(t)
	p := provider.New("test")
	p.Shell = func(h remote.Host) awsmachine.Shell { return providertest.Refusing{Name: h.Name} }
	c := providertest.NewCore(t, p, providertest.Values{
		"region": "us-east-1", "access_key": account.AccessKey, "secret_key": account.SecretKey,
		"endpoints": providertest.Values{"ec2": a.URL, "elbv2": a.URL, "ssm": a.URL, "sts": a.URL}, "ssh": providertest.Values{"private_key": providertest.SSHKey(t)},
	})
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	failed := providertest.Change{Errors: worker.Apply(worker.Plan(providertest.WorkerConfig(network)))}
	for _, want := range []string{"worker-0", "wait for SSH", "admin_cidrs"} {
		if !strings.Contains(failed.Failure(), want) {
			t.Errorf("the error does not mention %q: %s", want, failed.Failure())
		}
	}
	if id, _ := worker.Get("id").(string); !strings.HasPrefix(id, "i-") {
		t.Fatalf("the instance is forgotten: %v", worker.State)
	}
	c.Fatal(worker.Apply(worker.Plan(nil)))
	c.Fatal(network.Apply(network.Plan(nil)))
	a.Empty()
}

// TestCreateBeforeDestroy acts as Terraform with create_before_destroy, or for a machine that was
// renamed without moved: the new object is created while the old one still has the machine. It is
// refused, even in the process that made the machine.
func TestCreateBeforeDestroy(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, old, replacement := c.Instance("k8s_network"), c.Instance("k8s_machine"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	old.Must(providertest.WorkerConfig(network))
	id := old.Get("id")
	providertest.Mention(t, replacement.Attempt(providertest.WorkerConfig(network)), "belongs to another state", "create_before_destroy", "moved")

	c = c.Ends(t)
	network, old, replacement = c.Taken(network), c.Taken(old), c.Instance("k8s_machine")
	providertest.Mention(t, replacement.Attempt(providertest.WorkerConfig(network)), "belongs to another state", "create_before_destroy", "moved")
	if !replacement.State.IsNull() {
		t.Errorf("the new object has a state: %v", replacement.State)
	}
	other := providertest.WorkerConfig(network)
	other["private_ip"] = "10.240.0.30"
	providertest.Mention(t, replacement.Attempt(other), "belongs to another state")
	if old.Converged(providertest.WorkerConfig(network)); old.Get("id") != id {
		t.Errorf("the machine is %v, and was %v", old.Get("id"), id)
	}

	// Destroyed first, it is made again.
	if done := old.Dismiss(); len(done.Errors)+len(done.Warnings) > 0 {
		t.Errorf("deleting the old object: %v %v", done.Errors, done.Warnings)
	}
	replacement.Must(providertest.WorkerConfig(network))
	c.Fatal(replacement.Dismiss().Errors)
	c.Fatal(network.Dismiss().Errors)
	c.Account.Empty()
}

// TestMostTags launches a machine with as many tags as a plan allows. EC2 takes 50 with those that
// the provider sets itself, at the launch and later.
func TestMostTags(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	tags := providertest.Values{}
	for n := range argument.MaxTags - 1 { // default_tags has one
		tags[fmt.Sprint("tag", n)] = "x"
	}
	worker.Must(providertest.With(providertest.WorkerConfig(network), providertest.Values{"tags": tags}))
	c = c.Ends(t)
	m, err := awsmachine.Describe(t.Context(), c.Client, worker.Get("id").(string))
	if err != nil || m.Tags[infraaws.TagHostKey] == "" || m.Tags[infraaws.TagSettled] == "" {
		t.Errorf("tags %v: %v", m.Tags, err)
	}
	if own := len(m.Tags) - argument.MaxTags; own+argument.MaxTags != 50 {
		t.Errorf("the provider sets %d tags itself, and allows %d others: EC2 takes 50 together", own, argument.MaxTags)
	}
	worker = c.Taken(worker)
	worker.Converged(providertest.With(providertest.WorkerConfig(network), providertest.Values{"tags": tags}))

	tags["one-more"] = "x"
	for name, config := range map[string]providertest.Values{"k8s_machine": providertest.WorkerConfig(network), "k8s_network": providertest.NetworkConfig(), "k8s_pki": {"cluster": "demo"}} {
		providertest.Mention(t, c.Instance(name).Plan(providertest.With(config, providertest.Values{"tags": tags})).Failure(), "Too many tags", "default_tags are 39 tags", "At most 38")
	}
	tags["another"] = "x"
	providertest.Mention(t, c.Instance("k8s_network").Plan(providertest.With(providertest.NetworkConfig(), providertest.Values{"tags": tags})).Failure(), "at most 38")
}
