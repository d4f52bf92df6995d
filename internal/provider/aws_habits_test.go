package provider

import (
	"encoding/base64"
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
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
)

// TestRebuiltAtOnce destroys a machine and keys, and makes them again, while EC2 no longer
// shows the terminated instances but remembers their client tokens, holds their address for
// a moment, and Parameter Store does not let the names be used again.
func TestRebuiltAtOnce(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.account.Fault(fault.Fault{Kind: fault.Forget, Seconds: 0.001})
	network := c.instance("k8s_network")
	network.must(networkConfig())
	seen := map[any]bool{}
	for range 2 { // nearly a minute each, most of it the wait for Parameter Store
		c = c.ends(t)
		worker, keys := c.instance("k8s_machine"), c.instance("k8s_pki")
		keys.must(values{"cluster": "demo"})
		worker.must(workerConfig(network))
		if id := worker.get("id"); seen[id] {
			t.Fatalf("%s was terminated before", id)
		} else {
			seen[id] = true
		}
		for _, i := range []*instance{worker, keys} {
			if gone := i.dismiss(); len(gone.errors) > 0 {
				t.Fatal(gone.failure())
			}
		}
	}
}

// TestThrottled makes a network, keys and six machines while EC2 refuses every fifth call.
func TestThrottled(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.account.Fault(fault.Fault{Kind: fault.Throttle, Fraction: 0.2})
	network, keys := c.instance("k8s_network"), c.instance("k8s_pki")
	network.must(networkConfig())
	keys.must(values{"cluster": "demo"})
	var machines []*instance
	var all sync.WaitGroup
	for n := range 6 {
		m := c.instance("k8s_machine")
		machines = append(machines, m)
		config := with(workerConfig(network), values{
			"name": fmt.Sprint("worker-", n), "private_ip": fmt.Sprint("10.240.0.2", n), "pod_cidr": fmt.Sprintf("10.200.%d.0/24", n),
		})
		all.Go(func() { m.must(config) })
	}
	all.Wait()
	for _, i := range append(machines, keys, network) {
		if gone := i.dismiss(); len(gone.errors) > 0 {
			t.Fatal(gone.failure())
		}
	}
	c.account.Empty()
}

// TestTypeRefused: EC2 refuses a new instance type only at the start. The machine then runs as
// before, and the error says which zones offer the type.
func TestTypeRefused(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(with(networkConfig(), values{"availability_zones": []any{"us-east-1c"}, "instance_types": []any{"m5.large"}}))
	config := with(workerConfig(network), values{"instance_type": "m5.large"})
	worker.must(config)
	runs := func(instanceType string) {
		t.Helper()
		out, err := c.client.EC2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{worker.get("id").(string)}})
		if err != nil {
			t.Fatal(err)
		}
		if i := out.Reservations[0].Instances[0]; i.State.Name != types.InstanceStateNameRunning || string(i.InstanceType) != instanceType {
			t.Errorf("the machine is %s, a %s", i.State.Name, i.InstanceType)
		}
	}
	mention(t, worker.attempt(with(config, values{"instance_type": "t3.small"})), "start it as t3.small", "Unsupported", "t3.small is offered in us-east-1a, us-east-1b, us-east-1d.")
	runs("m5.large")
	c.account.Fault(fault.Fault{Kind: fault.Capacity, Action: "StartInstances", Count: 1})
	mention(t, worker.attempt(with(config, values{"instance_type": "m5.xlarge"})), "InsufficientInstanceCapacity", "m5.xlarge is offered in us-east-1a, us-east-1b, us-east-1c, us-east-1d.", "no capacity")
	runs("m5.large")
	worker.refresh()
	worker.settled(config)
	other := c.instance("k8s_machine")
	mention(t, other.attempt(with(workerConfig(network), values{"name": "worker-1", "private_ip": "10.240.0.21", "instance_type": "t3.small"})),
		"Unsupported", "t3.small is offered in us-east-1a, us-east-1b, us-east-1d.")
}

// TestZoneChosen: the subnet is made in a zone that offers the instance types.
func TestZoneChosen(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, zone, refused string
		more                values
	}{
		{"by itself", "us-east-1a", "", nil},
		{"for types that every zone has", "us-east-1a", "", values{"instance_types": []any{"m5.large"}}},
		{"named, types not", "us-east-1c", "", values{"availability_zones": []any{"us-east-1c"}}},
		{"named, without the type", "", "us-east-1c does not offer all of instance_types: m5.large is offered in us-east-1a, us-east-1b, us-east-1c, us-east-1d; t3.small is offered in us-east-1a, us-east-1b, us-east-1d.",
			values{"availability_zones": []any{"us-east-1c"}, "instance_types": []any{"t3.small", "m5.large"}}},
		{"unknown type", "", "m5.gigantic is not offered in this region", values{"instance_types": []any{"m5.gigantic"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			network := c.instance("k8s_network")
			if tc.refused != "" {
				mention(t, network.attempt(with(networkConfig(), tc.more)), tc.refused)
				return
			}
			network.must(with(networkConfig(), tc.more))
			if zone := fmt.Sprint(network.get("availability_zones")); zone != "["+tc.zone+"]" {
				t.Errorf("the subnet is in %v", zone)
			}
			c = c.ends(t)
			imported := c.instance("k8s_network")
			imported.imports("demo")
			if tc.more["instance_types"] == nil {
				imported.settled(with(networkConfig(), tc.more))
			}
		})
	}
}

// TestSessionsExpire: sessions of a role that end after a second are renewed in time. No other test runs
// beside it: a call must arrive within that second.
func TestSessionsExpire(t *testing.T) {
	c := newCloud(t)
	c.account.Fault(fault.Fault{Kind: fault.ShortSessions, Seconds: 1})
	c.role("terraform", "")
	c.more = values{"assume_role": values{"role_arn": "arn:aws:iam::123456789012:role/terraform", "session_name": "apply"}}
	c = c.process(t)
	network := c.instance("k8s_network")
	network.must(networkConfig())
	for began := time.Now(); time.Since(began) < 3*time.Second; time.Sleep(100 * time.Millisecond) {
		if failure := network.refreshed(); failure != "" {
			t.Fatal(failure)
		}
	}
	if n := count(c.calls(), "AssumeRole"); n < 3 {
		t.Errorf("the role was assumed %d times", n)
	}
}

// role makes a role that may do everything. Without a trust policy it trusts the account.
func (c cloud) role(name, trust string) {
	c.t.Helper()
	if _, err := c.account.Cloud.Identities().PutRole(name, []string{`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`}, trust); err != nil {
		c.t.Fatal(err)
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

// token is an OpenID Connect token that expires at a time.
func token(expires time.Time) string {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return part(`{"alg":"RS256"}`) + "." + part(fmt.Sprintf(`{"iss":"https://app.terraform.io","sub":"organization:acme:workspace:demo","aud":["aws.workload.identity"],"exp":%d}`, expires.Unix())) + "." + part("signature")
}

// TestWebIdentity: a role is assumed with a token, and no access key; the token's file is read again
// when credentials are due. No other test runs beside it, as with TestSessionsExpire.
func TestWebIdentity(t *testing.T) {
	c := newCloud(t)
	file := filepath.Join(t.TempDir(), "token")
	write := func(expires time.Time) {
		if err := os.WriteFile(file, []byte(token(expires)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(time.Now().Add(time.Hour))
	c.account.Fault(fault.Fault{Kind: fault.ShortSessions, Seconds: 1})
	c.role("tfc", `{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"sts:AssumeRoleWithWebIdentity",
		"Principal":{"Federated":"arn:aws:iam::123456789012:oidc-provider/app.terraform.io"},
		"Condition":{"StringEquals":{"app.terraform.io:aud":"aws.workload.identity"},"StringLike":{"app.terraform.io:sub":"organization:acme:*"}}}}`)
	c.role("admin", "")
	identity := values{"role_arn": "arn:aws:iam::123456789012:role/tfc", "session_name": "run", "web_identity_token_file": file}
	c.more = values{"access_key": nil, "secret_key": nil, "assume_role_with_web_identity": identity}
	c = c.process(t)
	network := c.instance("k8s_network")
	network.must(networkConfig())
	if calls := c.calls(); calls[0] != "AssumeRoleWithWebIdentity" {
		t.Errorf("calls: %q", calls)
	}
	write(time.Now().Add(-time.Hour))
	time.Sleep(1100 * time.Millisecond)
	mention(t, network.refreshed(), "ExpiredTokenException")
	write(time.Now().Add(time.Hour))
	if failure := network.refreshed(); failure != "" {
		t.Error(failure)
	}

	c.more["assume_role_with_web_identity"] = with(identity, values{"web_identity_token_file": nil, "web_identity_token": "no token"})
	c = c.process(t)
	mention(t, c.taken(network).refreshed(), "InvalidIdentityToken")
	c.more["assume_role_with_web_identity"] = with(identity, values{"web_identity_token": "both"})
	mention(t, configure(t, New("test"), with(values{"region": "us-east-1"}, c.more)), "web_identity_token")

	// Both: the second role is assumed with the first.
	c.more["assume_role_with_web_identity"] = identity
	c.more["assume_role"] = values{"role_arn": "arn:aws:iam::123456789012:role/admin", "session_name": "run"}
	c = c.process(t)
	if failure := c.taken(network).refreshed(); failure != "" {
		t.Error(failure)
	}
	if calls := c.calls(); calls[0] != "AssumeRoleWithWebIdentity" || calls[1] != "AssumeRole" {
		t.Errorf("calls: %q", calls)
	}
}

// TestAccounts: another account is refused before anything is asked of it.
func TestAccounts(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	config := func(more values) values {
		return with(values{
			"region": "us-east-1", "access_key": account.AccessKey, "secret_key": account.SecretKey,
			"endpoints": values{"ec2": c.account.URL, "ssm": c.account.URL, "sts": c.account.URL}, "ssh": values{"private_key": c.key},
		}, more)
	}
	for _, tc := range []struct {
		name string
		more values
		want []string
	}{
		{"allowed", values{"allowed_account_ids": []any{"000000000000", "123456789012"}}, nil},
		{"not forbidden", values{"forbidden_account_ids": []any{"000000000000"}}, nil},
		{"not allowed", values{"allowed_account_ids": []any{"000000000000"}}, []string{"AWS account not allowed", "for account 123456789012, which is not one of 000000000000", "Nothing was read or changed"}},
		{"forbidden", values{"forbidden_account_ids": []any{"123456789012"}}, []string{"AWS account forbidden", "for account 123456789012"}},
		{"both", values{"allowed_account_ids": []any{"123456789012"}, "forbidden_account_ids": []any{"000000000000"}}, []string{"forbidden_account_ids"}},
		{"no id", values{"allowed_account_ids": []any{"1234"}}, []string{"has 12 digits"}},
		{"not to be found out", values{"allowed_account_ids": []any{"123456789012"}, "secret_key": "wrong"}, []string{"Cannot find out the AWS account", "SignatureDoesNotMatch"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := configure(t, New("test"), config(tc.more))
			if mention(t, got, tc.want...); tc.want == nil && got != "" {
				t.Error(got)
			}
		})
	}
}

// TestSharedFiles: credentials and region from files that the provider block names.
func TestSharedFiles(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	dir := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	c.more = values{
		"access_key": nil, "secret_key": nil, "region": nil, "profile": "lab",
		"shared_config_files":      []any{write("config", "[profile lab]\nregion = us-east-1\n")},
		"shared_credentials_files": []any{write("credentials", "[lab]\naws_access_key_id = "+account.AccessKey+"\naws_secret_access_key = "+account.SecretKey+"\n")},
	}
	c = c.process(t)
	network := c.instance("k8s_network")
	network.must(networkConfig())
}

// TestPendingMachine: an Elastic IP is associated once the machine runs.
func TestPendingMachine(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	worker.must(workerConfig(network))
	ids := []string{worker.get("id").(string)}
	if _, err := c.client.EC2.StopInstances(t.Context(), &ec2.StopInstancesInput{InstanceIds: ids}); err != nil {
		t.Fatal(err)
	}
	if err := ec2.NewInstanceStoppedWaiter(c.client.EC2, func(o *ec2.InstanceStoppedWaiterOptions) { o.MinDelay = 50 * time.Millisecond }).Wait(
		t.Context(), &ec2.DescribeInstancesInput{InstanceIds: ids}, time.Minute); err != nil {
		t.Fatal(err)
	}
	c.account.Fault(fault.Fault{Kind: fault.SlowStart, Seconds: 1})
	if _, err := c.client.EC2.StartInstances(t.Context(), &ec2.StartInstancesInput{InstanceIds: ids}); err != nil {
		t.Fatal(err)
	}
	spec := awsaddress.Spec{Cluster: "demo", Name: "lb", InstanceID: ids[0]}
	a, err := awsaddress.Ensure(t.Context(), c.client, "", spec)
	if err != nil || a.InstanceID != ids[0] {
		t.Errorf("%+v, %v", a, err)
	}
	gone := worker.dismiss()
	if len(gone.errors) > 0 {
		t.Fatal(gone.failure())
	}
	began := time.Now()
	if _, err := awsaddress.Ensure(t.Context(), c.client, a.AllocationID, spec); err == nil || !strings.Contains(err.Error(), "InvalidInstanceID") || time.Since(began) > 20*time.Second {
		t.Errorf("with a terminated machine, after %s: %v", time.Since(began), err)
	}
}
