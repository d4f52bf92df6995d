package provider_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsaddress "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/address"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestRebuiltAtOnce destroys a machine and keys, and makes them again, while EC2 no longer
// shows the terminated instances but remembers their client tokens, holds their address for
// a moment, and Parameter Store does not let the names be used again.
func TestRebuiltAtOnce(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	c.Account.Fault(fault.Fault{Kind: fault.Forget, Seconds: 0.001})
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	seen := map[any]bool{}
	for range 2 { // nearly a minute each, most of it the wait for Parameter Store
		c = c.Ends(t)
		worker, keys := c.Instance("k8s_machine"), c.Instance("k8s_pki")
		keys.Must(providertest.Values{"cluster": "demo"})
		worker.Must(providertest.WorkerConfig(network))
		if id := worker.Get("id"); seen[id] {
			t.Fatalf("%s was terminated before", id)
		} else {
			seen[id] = true
		}
		for _, i := range []*providertest.Instance{worker, keys} {
			if gone := i.Dismiss(); len(gone.Errors) > 0 {
				t.Fatal(gone.Failure())
			}
		}
	}
}

// TestThrottled makes a network, keys and six machines while EC2 refuses every fifth call.
func TestThrottled(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	c.Account.Fault(fault.Fault{Kind: fault.Throttle, Fraction: 0.2})
	network, keys := c.Instance("k8s_network"), c.Instance("k8s_pki")
	network.Must(providertest.NetworkConfig())
	keys.Must(providertest.Values{"cluster": "demo"})
	var machines []*providertest.Instance
	var all sync.WaitGroup
	for n := range 6 {
		m := c.Instance("k8s_machine")
		machines = append(machines, m)
		config := providertest.With(providertest.WorkerConfig(network), providertest.Values{
			"name": fmt.Sprint("worker-", n), "private_ip": fmt.Sprint("10.240.0.2", n), "pod_cidr": fmt.Sprintf("10.200.%d.0/24", n),
		})
		all.Go(func() { m.Must(config) })
	}
	all.Wait()
	for _, i := range append(machines, keys, network) {
		if gone := i.Dismiss(); len(gone.Errors) > 0 {
			t.Fatal(gone.Failure())
		}
	}
	c.Account.Empty()
}

// TestTypeRefused: EC2 refuses a new instance type only at the start. The machine then runs as
// before, and the error says which zones offer the type.
func TestTypeRefused(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.With(providertest.NetworkConfig(), providertest.Values{"availability_zones": []any{"us-east-1c"}, "instance_types": []any{"m5.large"}}))
	config := providertest.With(providertest.WorkerConfig(network), providertest.Values{"instance_type": "m5.large"})
	worker.Must(config)
	runs := func(instanceType string) {
		t.Helper()
		out, err := c.Client.EC2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{worker.Get("id").(string)}})
		if err != nil {
			t.Fatal(err)
		}
		if i := out.Reservations[0].Instances[0]; i.State.Name != types.InstanceStateNameRunning || string(i.InstanceType) != instanceType {
			t.Errorf("the machine is %s, a %s", i.State.Name, i.InstanceType)
		}
	}
	providertest.Mention(t, worker.Attempt(providertest.With(config, providertest.Values{"instance_type": "t3.small"})), "start it as t3.small", "Unsupported", "t3.small is offered in us-east-1a, us-east-1b, us-east-1d, us-east-1e.")
	runs("m5.large")
	c.Account.Fault(fault.Fault{Kind: fault.Capacity, Action: "StartInstances", Count: 1})
	providertest.Mention(t, worker.Attempt(providertest.With(config, providertest.Values{"instance_type": "m5.xlarge"})), "InsufficientInstanceCapacity", "m5.xlarge is offered in us-east-1a, us-east-1b, us-east-1c, us-east-1d, us-east-1e.", "no capacity")
	runs("m5.large")
	worker.Refresh()
	worker.Converged(config)
	other := c.Instance("k8s_machine")
	providertest.Mention(t, other.Attempt(providertest.With(providertest.WorkerConfig(network), providertest.Values{"name": "worker-1", "private_ip": "10.240.0.21", "instance_type": "t3.small"})),
		"Unsupported", "t3.small is offered in us-east-1a, us-east-1b, us-east-1d, us-east-1e.")
}

// TestZoneChosen: the subnet is made in a zone that offers the instance types.
func TestZoneChosen(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, zone, refused string
		more                providertest.Values
	}{
		{"by itself", "us-east-1a", "", nil},
		{"for types that every zone has", "us-east-1a", "", providertest.Values{"instance_types": []any{"m5.large"}}},
		{"named, types not", "us-east-1c", "", providertest.Values{"availability_zones": []any{"us-east-1c"}}},
		{"named, without the type", "", "us-east-1c does not offer all of instance_types: m5.large is offered in us-east-1a, us-east-1b, us-east-1c, us-east-1d, us-east-1e; t3.small is offered in us-east-1a, us-east-1b, us-east-1d, us-east-1e.",
			providertest.Values{"availability_zones": []any{"us-east-1c"}, "instance_types": []any{"t3.small", "m5.large"}}},
		{"unknown type", "", "m5.gigantic is not offered in this region", providertest.Values{"instance_types": []any{"m5.gigantic"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := providertest.NewCloud(t)
			network := c.Instance("k8s_network")
			if tc.refused != "" {
				providertest.Mention(t, network.Attempt(providertest.With(providertest.NetworkConfig(), tc.more)), tc.refused)
				return
			}
			network.Must(providertest.With(providertest.NetworkConfig(), tc.more))
			if zone := fmt.Sprint(network.Get("availability_zones")); zone != "["+tc.zone+"]" {
				t.Errorf("the subnet is in %v", zone)
			}
			c = c.Ends(t)
			imported := c.Instance("k8s_network")
			imported.Imports("demo")
			if tc.more["instance_types"] == nil {
				imported.Converged(providertest.With(providertest.NetworkConfig(), tc.more))
			}
		})
	}
}

// TestSessionsExpire: sessions of a role that end soon are renewed before that, with each call here: they are due a minute
// before their end.
func TestSessionsExpire(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	c.Account.Fault(fault.Fault{Kind: fault.ShortSessions, Seconds: 50})
	c.Role("terraform", "")
	c.More = providertest.Values{"assume_role": providertest.Values{"role_arn": "arn:aws:iam::123456789012:role/terraform", "session_name": "apply"}}
	c = c.Process(t)
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	for range 3 {
		if failure := network.Refreshed(); failure != "" {
			t.Fatal(failure)
		}
	}
	if n := count(c.Calls(), "AssumeRole"); n < 3 {
		t.Errorf("the role was assumed %d times", n)
	}
}

func count(calls []string, action string) (n int) {
	for _, c := range calls {
		if c == action {
			n++
		}
	}
	return n
}

// workspaces is the OpenID Connect provider app.terraform.io of an account. token returns the token of a run.
func workspaces(t *testing.T, c providertest.Cloud) (token func(expires time.Time) string) {
	t.Helper()
	issuer := cloudtest.NewIssuer(t)
	providertest.Answer[iam.Issuer](t)(c.Account.Cloud.Identities().PutIssuer(iam.Issuer{URL: "https://app.terraform.io", ClientIDs: []string{"aws.workload.identity"}, Keys: issuer.Keys}))
	return func(expires time.Time) string {
		return issuer.Sign(t, map[string]any{
			"iss": "https://app.terraform.io", "sub": "organization:acme:workspace:demo", "aud": []string{"aws.workload.identity"}, "exp": expires.Unix(),
		})
	}
}

// TestWebIdentity: a role is assumed with a token, and no access key; the token's file is read again
// when credentials are due, which is with each call, as in TestSessionsExpire.
func TestWebIdentity(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	token, file := workspaces(t, c), filepath.Join(t.TempDir(), "token")
	write := func(expires time.Time) {
		if err := os.WriteFile(file, []byte(token(expires)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(time.Now().Add(time.Hour))
	c.Account.Fault(fault.Fault{Kind: fault.ShortSessions, Seconds: 50})
	c.Role("tfc", `{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"sts:AssumeRoleWithWebIdentity",
		"Principal":{"Federated":"arn:aws:iam::123456789012:oidc-provider/app.terraform.io"},
		"Condition":{"StringEquals":{"app.terraform.io:aud":"aws.workload.identity"},"StringLike":{"app.terraform.io:sub":"organization:acme:*"}}}}`)
	c.Role("admin", "")
	identity := providertest.Values{"role_arn": "arn:aws:iam::123456789012:role/tfc", "session_name": "run", "web_identity_token_file": file}
	c.More = providertest.Values{"access_key": nil, "secret_key": nil, "assume_role_with_web_identity": identity}
	c = c.Process(t)
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	if calls := c.Calls(); calls[0] != "AssumeRoleWithWebIdentity" {
		t.Errorf("calls: %q", calls)
	}
	write(time.Now().Add(-time.Hour))
	providertest.Mention(t, network.Refreshed(), "ExpiredTokenException")
	write(time.Now().Add(time.Hour))
	failure := network.Refreshed()
	for end := time.Now().Add(time.Minute); strings.Contains(failure, "ExpiredTokenException") && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond) // the SDK shares a retrieval that is still under way, with the old token
		failure = network.Refreshed()
	}
	if failure != "" {
		t.Error(failure)
	}

	c.More["assume_role_with_web_identity"] = providertest.With(identity, providertest.Values{"web_identity_token_file": nil, "web_identity_token": "no token"})
	c = c.Process(t)
	providertest.Mention(t, c.Taken(network).Refreshed(), "InvalidIdentityToken")
	c.More["assume_role_with_web_identity"] = providertest.With(identity, providertest.Values{"web_identity_token": "both"})
	providertest.Mention(t, configure(t, provider.New("test"), providertest.With(providertest.Values{"region": "us-east-1"}, c.More)), "web_identity_token")

	// Both: the second role is assumed with the first.
	c.More["assume_role_with_web_identity"] = identity
	c.More["assume_role"] = providertest.Values{"role_arn": "arn:aws:iam::123456789012:role/admin", "session_name": "run"}
	c = c.Process(t)
	if failure := c.Taken(network).Refreshed(); failure != "" {
		t.Error(failure)
	}
	if calls := c.Calls(); calls[0] != "AssumeRoleWithWebIdentity" || calls[1] != "AssumeRole" {
		t.Errorf("calls: %q", calls)
	}
}

// TestAccounts: another account is refused before anything is asked of it.
func TestAccounts(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	config := func(more providertest.Values) providertest.Values {
		return providertest.With(providertest.Values{
			"region": "us-east-1", "access_key": account.AccessKey, "secret_key": account.SecretKey,
			"endpoints": providertest.Values{"ec2": c.Account.URL, "ssm": c.Account.URL, "sts": c.Account.URL}, "ssh": providertest.Values{"private_key": c.Key},
		}, more)
	}
	for _, tc := range []struct {
		name string
		more providertest.Values
		want []string
	}{
		{"allowed", providertest.Values{"allowed_account_ids": []any{"000000000000", "123456789012"}}, nil},
		{"not forbidden", providertest.Values{"forbidden_account_ids": []any{"000000000000"}}, nil},
		{"not allowed", providertest.Values{"allowed_account_ids": []any{"000000000000"}}, []string{"AWS account not allowed", "for account 123456789012, which is not one of 000000000000", "Nothing was read or changed"}},
		{"forbidden", providertest.Values{"forbidden_account_ids": []any{"123456789012"}}, []string{"AWS account forbidden", "for account 123456789012"}},
		{"both", providertest.Values{"allowed_account_ids": []any{"123456789012"}, "forbidden_account_ids": []any{"000000000000"}}, []string{"forbidden_account_ids"}},
		{"no id", providertest.Values{"allowed_account_ids": []any{"1234"}}, []string{"has 12 digits"}},
		{"an account that AWS does not tell", providertest.Values{"allowed_account_ids": []any{"123456789012"}, "secret_key": "wrong"}, []string{"Cannot find out the AWS account", "SignatureDoesNotMatch"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := configure(t, provider.New("test"), config(tc.more))
			if providertest.Mention(t, got, tc.want...); tc.want == nil && got != "" {
				t.Error(got)
			}
		})
	}
}

// TestSharedFiles: credentials and region from files that the provider block names.
func TestSharedFiles(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	dir := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	c.More = providertest.Values{
		"access_key": nil, "secret_key": nil, "region": nil, "profile": "lab",
		"shared_config_files":      []any{write("config", "[profile lab]\nregion = us-east-1\n")},
		"shared_credentials_files": []any{write("credentials", "[lab]\naws_access_key_id = "+account.AccessKey+"\naws_secret_access_key = "+account.SecretKey+"\n")},
	}
	c = c.Process(t)
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
}

// TestPendingMachine: an Elastic IP is associated once the machine runs.
func TestPendingMachine(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	worker.Must(providertest.WorkerConfig(network))
	ids := []string{worker.Get("id").(string)}
	if _, err := c.Client.EC2.StopInstances(t.Context(), &ec2.StopInstancesInput{InstanceIds: ids}); err != nil {
		t.Fatal(err)
	}
	if err := ec2.NewInstanceStoppedWaiter(c.Client.EC2, func(o *ec2.InstanceStoppedWaiterOptions) { o.MinDelay = 50 * time.Millisecond }).Wait(
		t.Context(), &ec2.DescribeInstancesInput{InstanceIds: ids}, time.Minute); err != nil {
		t.Fatal(err)
	}
	c.Account.Fault(fault.Fault{Kind: fault.SlowStart, Seconds: 1})
	if _, err := c.Client.EC2.StartInstances(t.Context(), &ec2.StartInstancesInput{InstanceIds: ids}); err != nil {
		t.Fatal(err)
	}
	spec := awsaddress.Spec{Cluster: "demo", Name: "lb", InstanceID: ids[0]}
	a, err := awsaddress.Ensure(t.Context(), c.Client, "", spec)
	if err != nil || a.InstanceID != ids[0] {
		t.Errorf("%+v, %v", a, err)
	}
	gone := worker.Dismiss()
	if len(gone.Errors) > 0 {
		t.Fatal(gone.Failure())
	}
	began := time.Now()
	if _, err := awsaddress.Ensure(t.Context(), c.Client, a.AllocationID, spec); err == nil || !strings.Contains(err.Error(), "InvalidInstanceID") || time.Since(began) > 2*time.Minute {
		t.Errorf("with a terminated machine, after %s: %v", time.Since(began), err)
	}
}

// TestSeenLate makes a network and a machine and changes the machine, while EC2 shows new things and changes only after
// a while. Nothing of that is drift.
func TestSeenLate(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	const late = 1000 * time.Millisecond
	c.Account.Fault(fault.Fault{Kind: fault.Eventual, Milliseconds: int(late / time.Millisecond)})
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	network.Converged(providertest.NetworkConfig())
	config := providertest.WorkerConfig(network)
	worker.Must(config)
	time.Sleep(late) // on EC2 a boot takes longer, and what was set meanwhile is visible then
	worker.Converged(config)
	config = providertest.With(config, providertest.Values{"security_group_ids": []any{c.Group(t, network, "further")}})
	worker.Must(config)
	worker.Converged(config)
	config = providertest.With(config, providertest.Values{"instance_type": "t3.large"})
	worker.Must(config)
	worker.Converged(config)
}

// TestAddressSeenLate starts a machine again while EC2 shows its new public address only after a while.
func TestAddressSeenLate(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	config := providertest.WorkerConfig(network)
	worker.Must(config)
	before := worker.Get("public_ip")
	c.Account.Fault(fault.Fault{Kind: fault.Eventual, Action: "StartInstances", Milliseconds: 1500})
	config = providertest.With(config, providertest.Values{"instance_type": "t3.large"})
	worker.Must(config)
	if now := worker.Get("public_ip"); now == nil || now == before {
		t.Errorf("the public address is %v, and was %v", now, before)
	}
	worker.Converged(config)
}
