// Package cloud is the local AWS account: one endpoint that unchanged SDK
// clients speak to, and behind it the account's services in one region. It
// checks signatures, lets faults strike, and hands each call to its service; a
// control endpoint beside the AWS APIs makes the cloud misbehave and tells what
// it holds.
//
// What an action means is up to ec2, ssm and sts, how it is written to wire, and
// when the cloud misbehaves to fault. The account knows nothing of state
// directories, listeners, command lines or of Kubernetes, and must not import
// them.
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
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ssm"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/sts"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/metadata"
)

// Config is what an Account is made of.
type Config struct {
	Region      string          // default us-east-1
	AccountID   string          // default 123456789012
	Credentials aws.Credentials // the access key every request must be signed with, or one that STS gave out
	Images      []ec2.Image     // what instances are made from
	PublicIPs   []netip.Addr    // what EC2 may hand out
	Quotas      ec2.Quotas

	StateFile      string // where EC2's state is kept; empty keeps it in memory
	ParametersFile string // likewise for SSM parameters
	SessionsFile   string // likewise for what STS gave out
	BootID         string // identifies the host's boot: machines recorded under another are started again

	Network  ec2.Network
	Machines ec2.Machines
	Clock    ec2.Clock // default the host's
	Rand     io.Reader // of ids and keys; default crypto/rand
	Seed     uint64    // of random faults
	Log      *slog.Logger
}

// hostClock is the host's clock.
type hostClock struct{}

func (hostClock) Now() time.Time                         { return time.Now().UTC() }
func (hostClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Account is one AWS account in one region.
type Account struct {
	cfg      Config
	log      *slog.Logger
	faults   *fault.Injector
	compute  *ec2.Compute
	params   *ssm.Store
	tokens   *sts.Service
	calls    counter
	controls http.Handler
}

// Open makes an Account from the files kept earlier. Nothing moves before Start.
func Open(cfg Config) (*Account, error) {
	cfg.Region = cmp.Or(cfg.Region, "us-east-1")
	cfg.AccountID = cmp.Or(cfg.AccountID, "123456789012")
	if cfg.Clock == nil {
		cfg.Clock = hostClock{}
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	a := &Account{cfg: cfg, log: cfg.Log, faults: fault.New(cfg.Seed)}
	var err error
	a.compute, err = ec2.Open(ec2.Config{
		Region: cfg.Region, AccountID: cfg.AccountID, Images: cfg.Images, PublicIPs: cfg.PublicIPs, Quotas: cfg.Quotas,
		StateFile: cfg.StateFile, BootID: cfg.BootID, Network: cfg.Network, Machines: cfg.Machines,
		Clock: cfg.Clock, Rand: cfg.Rand, Faults: a.faults, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	a.params, err = ssm.Open(ssm.Config{
		File: cfg.ParametersFile, Region: cfg.Region, AccountID: cfg.AccountID, Now: cfg.Clock.Now, Public: a.publicParameter,
	})
	if err != nil {
		return nil, err
	}
	a.tokens, err = sts.Open(sts.Config{
		File: cfg.SessionsFile, AccountID: cfg.AccountID, Owner: cfg.Credentials, Now: cfg.Clock.Now, Rand: cfg.Rand,
	})
	if err != nil {
		return nil, err
	}
	a.controls = a.newControl()
	return a, nil
}

// Start builds the network the state describes and takes the machines up where
// the last run left them, see ec2.Compute.
func (a *Account) Start(ctx context.Context) error { return a.compute.Start(ctx) }

// Close stops moving things and waits for what is under way to end. Machines
// and network stay as they are, for the next Open.
func (a *Account) Close() { a.compute.Close() }

// Instances knows the instances for the metadata service.
func (a *Account) Instances() metadata.Source { return a.compute }

// publicParameter is a parameter that AWS publishes: the id of an image.
func (a *Account) publicParameter(name string) (string, bool) {
	for _, i := range a.cfg.Images {
		if name == ec2.PublicImageParameter(i.Release) {
			return i.ID, true
		}
	}
	return "", false
}
