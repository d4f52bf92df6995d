// Package cloud is the local AWS account: one endpoint for unchanged SDK clients, and behind it the
// account's services in one region. It checks signatures, injects faults, asks for permission, and
// passes each call to its service. S3 is a program of its own, which asks this account for keys and
// permissions. A control endpoint beside the AWS APIs manages the faults and shows what the account
// holds.
//
// Packages ec2, elbv2, ssm, sts and iam implement the actions, wire the protocols, and fault decides when the
// cloud misbehaves. This package must not know state directories, listeners, command lines or
// Kubernetes.
package cloud

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/elbv2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iamapi"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ssm"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/sts"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/metadata"
)

// DefaultAccountID is the number of the account.
const DefaultAccountID = "123456789012"

// Config is an Account's configuration.
type Config struct {
	Region      string          // default us-east-1
	AccountID   string          // default DefaultAccountID
	Credentials aws.Credentials // the owner's access key; requests are signed with it or with one that STS issued
	Images      []ec2.Image     // what instances are made from
	ARM         bool            // whether zones offer types with arm64 processors
	PublicIPs   []netip.Addr    // public addresses that EC2 may assign
	Quotas      ec2.Quotas

	// ParameterReuse is how long after its deletion a parameter's name is refused; default 30 seconds.
	ParameterReuse time.Duration

	StateFile      string // where EC2's state is kept; empty keeps it in memory
	ParametersFile string // likewise for SSM parameters
	SessionsFile   string // likewise for STS sessions
	IdentitiesFile string // likewise for IAM's users and roles
	BalancersFile  string // likewise for load balancers
	BucketsFile    string // likewise for settings of buckets
	BootID         string // identifies the host's boot: machines recorded under another are started again

	Network  Network
	Machines ec2.Machines
	Objects  Objects   // S3; nil if this account has none
	Clock    ec2.Clock // default the host's
	Rand     io.Reader // for ids and keys; default crypto/rand
	Seed     uint64    // for random faults
	Log      *slog.Logger
	Calls    *slog.Logger // gets one record for each call of an action; nil discards them
}

// hostClock is the host's clock.
type hostClock struct{}

func (hostClock) Now() time.Time                         { return time.Now().UTC().Round(0) } // saved times have no monotonic clock either
func (hostClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Account is one AWS account in one region.
type Account struct {
	cfg      Config
	log      *slog.Logger
	faults   *fault.Injector
	compute  *ec2.Compute
	elb      *elbv2.Service
	params   *ssm.Store
	tokens   *sts.Service
	calls    counter
	tunnels  tunnels
	ecr      ecrTokens
	blocks   *accessBlocks
	controls http.Handler

	identities *iam.Directory
	iam        *iamapi.Service
}

// Open makes an Account from the saved files. It starts nothing before Start.
func Open(cfg Config) (*Account, error) {
	cfg.Region = cmp.Or(cfg.Region, "us-east-1")
	cfg.AccountID = cmp.Or(cfg.AccountID, DefaultAccountID)
	if cfg.Clock == nil {
		cfg.Clock = hostClock{}
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Calls == nil {
		cfg.Calls = slog.New(slog.DiscardHandler)
	}
	a := &Account{cfg: cfg, log: cfg.Log, faults: fault.New(cfg.Seed)}
	var err error
	a.compute, err = ec2.Open(ec2.Config{
		Region: cfg.Region, AccountID: cfg.AccountID, Images: cfg.Images, ARM: cfg.ARM, PublicIPs: cfg.PublicIPs, Quotas: cfg.Quotas, Profile: a.profile,
		StateFile: cfg.StateFile, BootID: cfg.BootID, Network: cfg.Network, Machines: cfg.Machines,
		Clock: cfg.Clock, Rand: cfg.Rand, Faults: a.faults, Log: cfg.Log,
		Nodes: func() ec2.Nodes { return a.elb.Nodes() }, EndTunnels: a.tunnels.end,
	})
	if err != nil {
		return nil, err
	}
	a.elb, err = elbv2.Open(elbv2.Config{
		Region: cfg.Region, AccountID: cfg.AccountID, File: cfg.BalancersFile, Unthrottled: cfg.Quotas.Unthrottled,
		Compute: balancing{a.compute}, Network: cfg.Network, Clock: cfg.Clock, Rand: cfg.Rand, Faults: a.faults, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	a.params, err = ssm.Open(ssm.Config{
		File: cfg.ParametersFile, Region: cfg.Region, AccountID: cfg.AccountID, Now: cfg.Clock.Now, Reuse: cfg.ParameterReuse, Unthrottled: cfg.Quotas.Unthrottled, Public: func(name string) (string, bool) { return a.compute.PublicParameter(name) },
	})
	if err != nil {
		return nil, err
	}
	a.identities, err = iam.Open(iam.Config{File: cfg.IdentitiesFile, AccountID: cfg.AccountID, Region: cfg.Region, Rand: cfg.Rand})
	if err != nil {
		return nil, err
	}
	a.iam = &iamapi.Service{
		Directory: a.identities, Now: cfg.Clock.Now, MadeProfile: a.madeProfile, Thumbprint: a.thumbprintOf,
		MadeIssuer: func(arn string) { a.faults.Created("CreateOpenIDConnectProvider", []string{arn}, cfg.Clock.Now()) },
		Hidden:     func(arn string) bool { return a.faults.Hidden(arn, cfg.Clock.Now()) },
	}
	if a.blocks, err = openAccessBlocks(cfg.BucketsFile); err != nil {
		return nil, err
	}
	a.tokens, err = sts.Open(sts.Config{
		File: cfg.SessionsFile, AccountID: cfg.AccountID, Partition: wire.Partition(cfg.Region), Owner: cfg.Credentials,
		User: a.user, Trusts: a.trusts, Verify: a.verify, CheckPolicy: checkPolicy, Managed: a.identities.Document, Now: cfg.Clock.Now, Rand: cfg.Rand, Lifetime: a.faults.SessionLifetime,
	})
	if err != nil {
		return nil, err
	}
	a.controls = a.newControl()
	return a, nil
}

// Start builds the network of the saved state and continues with the machines as the last run left
// them, see ec2.Compute.
func (a *Account) Start(ctx context.Context) error {
	if err := a.compute.Start(ctx); err != nil {
		return err
	}
	return a.elb.Start()
}

// Close waits for running transitions and starts no more. Machines and network keep running, for
// the next Open.
func (a *Account) Close() {
	a.tunnels.close()
	a.elb.Close()
	a.compute.Close()
}

// Instances returns the instances, for the metadata service.
func (a *Account) Instances() metadata.Source { return instances{a.compute, a} }

// Publish adds an image, which is the newest one of its release and architecture from now on.
func (a *Account) Publish(i ec2.Image) { a.compute.Publish(i) }
