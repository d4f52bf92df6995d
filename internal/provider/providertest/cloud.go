// Package providertest is what tests of the provider have in common: the whole provider on an account of its own,
// Terraform's side of the plugin protocol, configurations of one cluster, and a process that dies at a chosen
// question. A test is in the package that it is about. Nothing of the program may import this package.
package providertest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/bake"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	labcloud "github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// Role makes a role that may do everything. Without a trust policy it trusts the account.
func (c Cloud) Role(name, trust string) {
	c.T.Helper()
	if _, err := c.Account.Cloud.Identities().PutRole(name, iam.Entity{Policies: []string{`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`}}, trust); err != nil {
		c.T.Fatal(err)
	}
}

// SSHKey returns a new private key.
func SSHKey(t *testing.T) string {
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

// Cloud is a provider that is configured for its own account.
type Cloud struct {
	*Core
	Account *account.Account
	Client  *infraaws.Client
	Duty    *session.FindDuty // what machines are found to do; nothing at first

	Provider *provider.Provider
	Machines *account.Machines
	Key      string // for SSH
	SSH      Values // the provider's ssh; key when nil
	Agent    string // SSH_AUTH_SOCK
	Reached  func(remote.Host)
	Dead     func(remote.Host) bool // nil if every host answers
	Now      func() time.Time       // the clock of the next process; nil is the real one
	More     Values                 // arguments of the provider, beside those that processAt sets
	Wire     *Wire                  // carries what the provider asks of AWS and of machines
}

func NewCloud(t *testing.T, change ...func(*labcloud.Config)) Cloud {
	t.Helper()
	a := account.New(t, change...)
	client, err := infraaws.New(t.Context(), infraaws.Config{
		Region: "us-east-1", AccessKey: account.AccessKey, SecretKey: account.SecretKey,
		Endpoints: infraaws.Endpoints{EC2: a.URL, ELB: a.URL, IAM: a.URL, S3: a.URL, SSM: a.URL, STS: a.URL},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := Cloud{Account: a, Client: client, Machines: a.NewMachines(t, client), Key: SSHKey(t)}
	var duty session.FindDuty = func(context.Context, fleet.Target) (*maintenance.Duty, error) { return &maintenance.Duty{}, nil }
	c.Duty = &duty
	return c.Process(t)
}

// Process starts another process of the provider for the same account. It knows nothing but the
// state that it is given.
func (c Cloud) Process(t *testing.T) Cloud { t.Helper(); return c.ProcessOver(t, &Wire{}) }

// ProcessOver is process with a wire of its own.
func (c Cloud) ProcessOver(t *testing.T, w *Wire) Cloud {
	t.Helper()
	c.Wire = w
	return c.processAt(t, w.serve(t, c.Account))
}

// processAt is process with another way to the account.
func (c Cloud) processAt(t *testing.T, url string) Cloud {
	t.Helper()
	p := provider.New("test")
	if c.Now != nil {
		p.Now = c.Now
	}
	p.Duty = func(ctx context.Context, t fleet.Target) (*maintenance.Duty, error) { return (*c.Duty)(ctx, t) }
	p.Shell = func(h remote.Host) awsmachine.Shell {
		if c.Reached != nil {
			c.Reached(h)
		}
		if c.Dead != nil && c.Dead(h) {
			return Refusing{h.Name}
		}
		found := awsmachine.Machine{Name: h.Name}
		for _, i := range c.Account.Cloud.Overview().Instances {
			if i.PublicIP == h.Address || h.Instance != "" && h.Instance == i.ID || h.Bastion != nil && i.PrivateIP == h.Address {
				found.ID = i.ID
			}
		}
		return mortalShell{c.Machines.Connect(found, h.HostKeys), c.Wire}
	}
	p.Bake = func(bake.Site) bake.Work { return quietWork{} }
	p.Environment.Getenv = func(name string) string {
		if name == "SSH_AUTH_SOCK" {
			return c.Agent
		}
		return os.Getenv(name)
	}
	if c.SSH == nil {
		c.SSH = Values{"private_key": c.Key}
	}
	c.Provider = p
	c.Core = NewCore(t, p, With(Values{
		"region": "us-east-1", "access_key": account.AccessKey, "secret_key": account.SecretKey,
		"default_tags": Values{"team": "lab"},
		"endpoints":    Values{"ec2": url, "elbv2": url, "iam": url, "s3": url, "ssm": url, "sts": url},
		"ssh":          c.SSH,
	}, c.More))
	return c
}

// Calls returns what the provider has asked of AWS and of machines, in order.
func (c Cloud) Calls() []string { return c.Wire.made() }

func NetworkConfig() Values {
	return Values{"cluster": "demo", "admin_cidrs": []any{"198.51.100.7/32"}}
}

func WorkerConfig(network *Instance) Values {
	return Values{
		"name": "worker-0", "role": "worker", "network": network.Get("ref"), "private_ip": "10.240.0.20", "pod_cidr": "10.200.0.0/24",
	}
}

// ClaimOf returns the claim in the private state of a resource.
func ClaimOf(t *testing.T, i *Instance) infraaws.Claim {
	t.Helper()
	var entries map[string][]byte
	if err := json.Unmarshal(i.Private, &entries); err != nil {
		t.Fatal(err)
	}
	var h session.Ownership
	if err := json.Unmarshal(entries[session.OwnershipKey], &h); err != nil {
		t.Fatal(err)
	}
	return h.Claim
}

// RunTests runs the tests of a package, for its TestMain, without anything in the environment that the provider
// would read.
func RunTests(m *testing.M) {
	serveIfPlugin()
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "AWS_") || strings.HasPrefix(name, "K8S_") || name == "SSH_AUTH_SOCK" {
			os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

// serveIfPlugin serves the provider if Terraform has started this test program as its plugin.
func serveIfPlugin() {
	if os.Getenv("TF_PLUGIN_MAGIC_COOKIE") == "" {
		return
	}
	if err := provider.Serve(context.Background(), "test", false); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}
