package provider

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"golang.org/x/crypto/ssh"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	labcloud "github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// TestMain removes everything from the environment that the provider would read.
func TestMain(m *testing.M) {
	serveIfPlugin()
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "AWS_") || strings.HasPrefix(name, "K8S_") || name == "SSH_AUTH_SOCK" {
			os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

func sshKey(t *testing.T) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block))
}

// cloud is a provider that is configured for its own account.
type cloud struct {
	*core
	account *account.Account
	client  *infraaws.Client
	duty    *session.FindDuty // what machines are found to do; nothing at first

	provider *Provider
	machines *account.Machines
	key      string // for SSH
	ssh      values // the provider's ssh; key when nil
	agent    string // SSH_AUTH_SOCK
	reached  func(remote.Host)
	dead     func(remote.Host) bool // nil if every host answers
	more     values                 // arguments of the provider, beside those that processAt sets
	wire     *wire                  // carries what the provider asks of AWS and of machines
}

func newCloud(t *testing.T, change ...func(*labcloud.Config)) cloud {
	t.Helper()
	a := account.New(t, change...)
	client, err := infraaws.New(t.Context(), infraaws.Config{
		Region: "us-east-1", AccessKey: account.AccessKey, SecretKey: account.SecretKey,
		Endpoints: infraaws.Endpoints{EC2: a.URL, ELB: a.URL, S3: a.URL, SSM: a.URL, STS: a.URL},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := cloud{account: a, client: client, machines: account.NewMachines(t, client), key: sshKey(t)}
	var duty session.FindDuty = func(context.Context, fleet.Target) (*maintenance.Duty, error) { return &maintenance.Duty{}, nil }
	c.duty = &duty
	return c.process(t)
}

// process starts another process of the provider for the same account. It knows nothing but the
// state that it is given.
func (c cloud) process(t *testing.T) cloud { t.Helper(); return c.processOver(t, &wire{}) }

// processOver is process with a wire of its own.
func (c cloud) processOver(t *testing.T, w *wire) cloud {
	t.Helper()
	c.wire = w
	return c.processAt(t, w.serve(t, c.account))
}

// processAt is process with another way to the account.
func (c cloud) processAt(t *testing.T, url string) cloud {
	t.Helper()
	p := New("test")
	p.duty = func(ctx context.Context, t fleet.Target) (*maintenance.Duty, error) { return (*c.duty)(ctx, t) }
	p.shell = func(h remote.Host) awsmachine.Shell {
		if c.reached != nil {
			c.reached(h)
		}
		if c.dead != nil && c.dead(h) {
			return refusing{h.Name}
		}
		found := awsmachine.Machine{Name: h.Name}
		for _, i := range c.account.Cloud.Overview().Instances {
			if i.PublicIP == h.Address || h.Instance != "" && h.Instance == i.ID || h.Bastion != nil && i.PrivateIP == h.Address {
				found.ID = i.ID
			}
		}
		return mortalShell{c.machines.Connect(found, h.HostKeys), c.wire}
	}
	p.environment.getenv = func(name string) string {
		if name == "SSH_AUTH_SOCK" {
			return c.agent
		}
		return os.Getenv(name)
	}
	if c.ssh == nil {
		c.ssh = values{"private_key": c.key}
	}
	c.provider = p
	c.core = newCore(t, p, with(values{
		"region": "us-east-1", "access_key": account.AccessKey, "secret_key": account.SecretKey,
		"default_tags": values{"team": "lab"},
		"endpoints":    values{"ec2": url, "elbv2": url, "s3": url, "ssm": url, "sts": url},
		"ssh":          c.ssh,
	}, c.more))
	return c
}

// calls returns what the provider has asked of AWS and of machines, in order.
func (c cloud) calls() []string { return c.wire.made() }

func networkConfig() values {
	return values{"cluster": "demo", "admin_cidrs": []any{"198.51.100.7/32"}}
}

func workerConfig(network *instance) values {
	return values{
		"name": "worker-0", "role": "worker", "network": network.get("ref"), "private_ip": "10.240.0.20", "pod_cidr": "10.200.0.0/24",
	}
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, worker, keys := c.instance("k8s_network"), c.instance("k8s_machine"), c.instance("k8s_pki")

	// Everything that can be known before creation is planned.
	ch := network.plan(networkConfig())
	planned, _ := plain(ch.planned).(values)
	ref, _ := planned["ref"].(values)
	if !reflect.DeepEqual(planned["node_cidrs"], []any{"10.240.0.0/24"}) || ref["node_cidr"] != "10.240.0.0/24" || ref["cluster"] != "demo" || ref["vpc_id"] != unknown || planned["id"] != "demo" {
		t.Errorf("planned %v", planned)
	}
	machine := values{"name": "worker-0", "role": "worker", "network": ref, "private_ip": "10.240.0.20", "pod_cidr": "10.200.0.0/24"}
	ch = worker.plan(machine)
	planned, _ = plain(ch.planned).(values)
	host, _ := planned["host"].(values)
	if host["name"] != "worker-0" || host["private_ip"] != "10.240.0.20" || host["user"] != "admin" || host["host_key"] != unknown {
		t.Errorf("planned host %v, %s", host, ch.failure())
	}

	network.must(networkConfig())
	network.settled(networkConfig())
	worker.must(workerConfig(network))
	worker.settled(workerConfig(network))
	keys.must(values{"cluster": "demo"})
	keys.settled(values{"cluster": "demo"})
	for _, i := range []*instance{network, worker, keys} {
		i.leaks()
	}
	if worker.get("instance_state") != "running" || worker.get("image_id") != account.ImageID {
		t.Errorf("machine %v", worker.state)
	}

	t.Run("import", func(t *testing.T) {
		imported := c.instance("k8s_network")
		imported.imports("demo")
		imported.settled(networkConfig())
		machine := c.instance("k8s_machine")
		machine.imports(worker.get("id").(string))
		machine.settled(workerConfig(network))
		pki := c.instance("k8s_pki")
		pki.imports("demo")
		pki.settled(values{"cluster": "demo"})
	})

	for _, i := range []*instance{worker, network, keys} {
		c.fatal(i.apply(i.plan(nil)))
	}
	c.account.Empty()
}

// TestDriftShows changes things outside Terraform. The next plan reports the drift and changes
// nothing else, and apply repairs it.
func TestDriftShows(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, worker, keys := c.instance("k8s_network"), c.instance("k8s_machine"), c.instance("k8s_pki")
	network.must(networkConfig())
	worker.must(workerConfig(network))
	keys.must(values{"cluster": "demo"})
	api, id := c.client.EC2, worker.get("id").(string)
	groups := network.get("security_group_ids").(values)
	workers := groups["worker"].(string)
	closed := []types.IpPermission{{
		IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(10250), ToPort: sdk.Int32(10250),
		UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: sdk.String(groups["controller"].(string))}},
	}}

	for _, test := range []struct {
		name     string
		resource *instance
		config   values
		damage   func() error
		changes  string
	}{{
		"a security-group rule", network, networkConfig(), func() error {
			_, err := api.RevokeSecurityGroupIngress(t.Context(), &ec2.RevokeSecurityGroupIngressInput{GroupId: &workers, IpPermissions: closed})
			return err
		}, `AttributeName("drift").ElementKeyString("security group worker"): rule tcp 10250 from group controller: missing -> absent
AttributeName("drift"): map[security group worker:rule tcp 10250 from group controller: missing] -> map[]`,
	}, {
		"a route", worker, workerConfig(network), func() error {
			out, err := api.DescribeRouteTables(t.Context(), &ec2.DescribeRouteTablesInput{Filters: []types.Filter{
				{Name: sdk.String("route.destination-cidr-block"), Values: []string{"10.200.0.0/24"}}}})
			if err != nil {
				return err
			}
			_, err = api.DeleteRoute(t.Context(), &ec2.DeleteRouteInput{RouteTableId: out.RouteTables[0].RouteTableId, DestinationCidrBlock: sdk.String("10.200.0.0/24")})
			return err
		}, "",
	}, {
		"a certificate in the key store", keys, values{"cluster": "demo"}, func() error {
			_, err := c.client.SSM.DeleteParameter(t.Context(), &ssm.DeleteParameterInput{Name: sdk.String("/k8s/demo/pki/" + pki.CertEtcdCA)})
			return err
		}, `AttributeName("drift").ElementKeyString("key store"): etcd-ca.crt: missing -> absent
AttributeName("drift"): map[key store:etcd-ca.crt: missing] -> map[]`,
	}} {
		t.Run(test.name, func(t *testing.T) {
			if err := test.damage(); err != nil {
				t.Fatal(err)
			}
			test.resource.refresh()
			ch := test.resource.plan(test.config)
			if got := test.resource.differences(ch); test.changes != "" && got != test.changes || !strings.Contains(got, "drift") {
				t.Errorf("plan:\n%s\nwanted:\n%s", got, test.changes)
			}
			c.fatal(test.resource.apply(ch))
			test.resource.settled(test.config)
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
		worker.refresh()
		ch := worker.plan(workerConfig(network))
		planned, _ := plain(ch.planned).(values)
		if got := worker.differences(ch); !strings.Contains(got, "instance type: found t3.large") || planned["public_ip"] != unknown {
			t.Errorf("plan:\n%s", got)
		}
		c.fatal(worker.apply(ch))
		worker.settled(workerConfig(network))
	})

	t.Run("a stopped machine", func(t *testing.T) {
		stop(t)
		worker.refresh()
		ch := worker.plan(workerConfig(network))
		planned, _ := plain(ch.planned).(values)
		host, _ := planned["host"].(values)
		if worker.get("instance_state") != "stopped" || planned["instance_state"] != "running" || host["address"] != unknown || host["host_key"] == unknown {
			t.Errorf("planned %v", planned)
		}
		c.fatal(worker.apply(ch))
		worker.settled(workerConfig(network))
	})

	t.Run("a private key lost from the key store", func(t *testing.T) {
		if _, err := c.client.SSM.DeleteParameter(t.Context(), &ssm.DeleteParameterInput{Name: sdk.String("/k8s/demo/pki/" + pki.KeyEtcdCA)}); err != nil {
			t.Fatal(err)
		}
		keys.refresh()
		failed := change{errors: keys.apply(keys.plan(values{"cluster": "demo"}))}
		if got := failed.failure(); !strings.Contains(got, "etcd-ca.key is gone and cannot be created again") {
			t.Errorf("got %s", got)
		}
	})

	t.Run("a terminated machine", func(t *testing.T) {
		if err := awsmachine.Delete(t.Context(), c.client, id, awsmachine.Spec{Claim: claimOf(t, worker)}); err != nil {
			t.Fatal(err)
		}
		if worker.refresh(); !worker.state.IsNull() {
			t.Error("it is still in the state")
		}
	})
}

// TestInPlace changes everything that can be changed in place.
func TestInPlace(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	config := workerConfig(network)
	worker.must(config)
	id, key := worker.get("id"), worker.get("host_key")

	with := func(changes values) values {
		out := workerConfig(network)
		for k, v := range changes {
			out[k] = v
		}
		return out
	}
	for name, changes := range map[string]values{
		"instance_type":    {"instance_type": "t3.large"},
		"root_volume_size": {"instance_type": "t3.large", "root_volume_size": 30},
		"pod_cidr":         {"instance_type": "t3.large", "root_volume_size": 30, "pod_cidr": "10.200.7.0/24"},
		"tags":             {"instance_type": "t3.large", "root_volume_size": 30, "pod_cidr": "10.200.7.0/24", "tags": values{"room": "12"}},
		"ami":              {"instance_type": "t3.large", "root_volume_size": 30, "ami": "ami-0fedcba9876543210"},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "instance_type" {
				changes["root_volume_size"] = 30
			} else if size, _ := worker.get("root_volume_size").(string); strings.Contains(size, "30") {
				changes["root_volume_size"] = 30
			}
			ch := worker.plan(with(changes))
			if len(ch.replace) > 0 {
				t.Fatalf("would replace the machine because of %v", ch.replace)
			}
			c.fatal(worker.apply(ch))
			worker.settled(with(changes))
			if worker.get("id") != id || worker.get("host_key") != key {
				t.Error("it is another machine")
			}
		})
	}
	for name, changes := range map[string]values{
		"name": {"name": "worker-9"}, "role": {"role": "controller", "pod_cidr": nil}, "private_ip": {"private_ip": "10.240.0.30"}, "user": {"user": "ubuntu"},
	} {
		t.Run("replaces: "+name, func(t *testing.T) {
			changes["root_volume_size"] = 30
			if ch := worker.plan(with(changes)); len(ch.replace) == 0 {
				t.Errorf("would not replace the machine: %s", ch.failure())
			}
		})
	}
}

// TestStateKeyStore keeps keys in the state. It needs no AWS, and the keys are marked as sensitive.
func TestStateKeyStore(t *testing.T) {
	t.Parallel()
	c := newCore(t, New("test"), values{})
	keys := c.instance("k8s_pki")
	config := values{"cluster": "demo", "key_store": "state"}
	keys.must(config)
	keys.settled(config)
	ref := keys.get("ref").(values)
	if got := ref["keys"].(values); len(got) != 5 || !strings.Contains(got[pki.KeyKubernetesCA].(string), "PRIVATE KEY") {
		t.Errorf("%d keys", len(got))
	}
	c.fatal(keys.apply(keys.plan(nil)))
}

// TestFailedCreation checks that after a failed creation the state contains objects that cost
// money, but no keys.
func TestFailedCreation(t *testing.T) {
	t.Parallel()
	a := account.New(t)
	p := New("test")
	p.shell = func(h remote.Host) awsmachine.Shell { return refusing{h.Name} }
	c := newCore(t, p, values{
		"region": "us-east-1", "access_key": account.AccessKey, "secret_key": account.SecretKey,
		"endpoints": values{"ec2": a.URL, "ssm": a.URL, "sts": a.URL}, "ssh": values{"private_key": sshKey(t)},
	})
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	failed := change{errors: worker.apply(worker.plan(workerConfig(network)))}
	for _, want := range []string{"worker-0", "wait for SSH", "admin_cidrs"} {
		if !strings.Contains(failed.failure(), want) {
			t.Errorf("the error does not mention %q: %s", want, failed.failure())
		}
	}
	if id, _ := worker.get("id").(string); !strings.HasPrefix(id, "i-") {
		t.Fatalf("the instance is forgotten: %v", worker.state)
	}
	c.fatal(worker.apply(worker.plan(nil)))
	c.fatal(network.apply(network.plan(nil)))
	a.Empty()
}

// TestCreateBeforeDestroy acts as Terraform with create_before_destroy, or for a machine that was
// renamed without moved: the new object is created while the old one still has the machine. It is
// refused, also in the process that has made the machine.
func TestCreateBeforeDestroy(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, old, replacement := c.instance("k8s_network"), c.instance("k8s_machine"), c.instance("k8s_machine")
	network.must(networkConfig())
	old.must(workerConfig(network))
	id := old.get("id")
	mention(t, replacement.attempt(workerConfig(network)), "is another's", "create_before_destroy", "moved")

	c = c.ends(t)
	network, old, replacement = c.taken(network), c.taken(old), c.instance("k8s_machine")
	mention(t, replacement.attempt(workerConfig(network)), "is another's", "create_before_destroy", "moved")
	if !replacement.state.IsNull() {
		t.Errorf("the new object has a state: %v", replacement.state)
	}
	other := workerConfig(network)
	other["private_ip"] = "10.240.0.30"
	mention(t, replacement.attempt(other), "is another's")
	if old.settled(workerConfig(network)); old.get("id") != id {
		t.Errorf("the machine is %v, and was %v", old.get("id"), id)
	}

	// Destroyed first, it is made again.
	if done := old.dismiss(); len(done.errors)+len(done.warnings) > 0 {
		t.Errorf("deleting the old object: %v %v", done.errors, done.warnings)
	}
	replacement.must(workerConfig(network))
	c.fatal(replacement.dismiss().errors)
	c.fatal(network.dismiss().errors)
	c.account.Empty()
}

// claimOf returns the claim in the private state of a resource.
func claimOf(t *testing.T, i *instance) infraaws.Claim {
	t.Helper()
	var entries map[string][]byte
	if err := json.Unmarshal(i.private, &entries); err != nil {
		t.Fatal(err)
	}
	var h session.Holding
	if err := json.Unmarshal(entries[session.HoldingKey], &h); err != nil {
		t.Fatal(err)
	}
	return h.Claim
}

// TestMostTags launches a machine with as many tags as a plan allows. EC2 takes 50 with those that
// the provider sets itself, at the launch and later.
func TestMostTags(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	tags := values{}
	for n := range argument.MaxTags - 1 { // default_tags has one
		tags[fmt.Sprint("tag", n)] = "x"
	}
	worker.must(with(workerConfig(network), values{"tags": tags}))
	c = c.ends(t)
	m, err := awsmachine.Describe(t.Context(), c.client, worker.get("id").(string))
	if err != nil || m.Tags[infraaws.TagHostKey] == "" || m.Tags[infraaws.TagSettled] == "" {
		t.Errorf("tags %v: %v", m.Tags, err)
	}
	if own := len(m.Tags) - argument.MaxTags; own+argument.MaxTags != 50 {
		t.Errorf("the provider sets %d tags itself, and allows %d others: EC2 takes 50 together", own, argument.MaxTags)
	}
	worker = c.taken(worker)
	worker.settled(with(workerConfig(network), values{"tags": tags}))

	tags["one-more"] = "x"
	for name, config := range map[string]values{"k8s_machine": workerConfig(network), "k8s_network": networkConfig(), "k8s_pki": {"cluster": "demo"}} {
		mention(t, c.instance(name).plan(with(config, values{"tags": tags})).failure(), "Too many tags", "default_tags are 39 tags", "At most 38")
	}
	tags["another"] = "x"
	mention(t, c.instance("k8s_network").plan(with(networkConfig(), values{"tags": tags})).failure(), "at most 38")
}
