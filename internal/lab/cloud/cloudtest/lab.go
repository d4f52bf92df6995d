// Package cloudtest has a local AWS account for tests: served over HTTP, with clients of the SDK, a clock that
// the test moves, and a network and machines that only keep what they are told. The tests of the account and of
// its services use it. What may not enter: what one service alone is asked, which its own tests know, and anything
// that checks a service.
package cloudtest

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	awselb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/middleware"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/network"
)

// The account that labs have: its images, and its owner's access key.
const (
	Image           = "ami-0123456789abcdef0" // Debian 13
	OlderImage      = "ami-0123456789abcdef1" // Debian 12
	AccessKeyID     = "AKIATEST"
	SecretAccessKey = "secret"
)

// wholeResponses reads each response to its end before the SDK gets it. Otherwise tests, which make
// a single attempt per call, would sometimes hit the race that wire/response.go describes.
type wholeResponses struct{}

func (wholeResponses) Do(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	body, err := io.ReadAll(resp.Body)
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, err
}

// Lab is an account that is served over HTTP, with SDK clients of its owner or of somebody else. The embedded one is
// EC2's. A test changes Packets, Quotas, Throttled, Calls, Objects, Started and BootID before the account is opened.
type Lab struct {
	*awsec2.Client
	SSM       *awsssm.Client
	STS       *awssts.Client
	ELB       *awselb.Client
	URL       string
	AWS       aws.Config // of the clients
	Account   *cloud.Account
	Clock     *Clock
	Network   *Network
	Packets   *network.Manager // instead of Network, if it is not nil; see WithPackets
	Machines  *Machines
	Dir       string // of the account's files
	Region    string // default us-east-1
	Quotas    ec2.Quotas
	Throttled bool // whether calls are throttled: the clock stands still
	Calls     *slog.Logger
	Objects   cloud.Objects                               // S3; nil without
	Started   func(context.Context, *cloud.Account) error // told of the account when it is open, if it is not nil
	BootID    string                                      // of the host
}

// New opens an account in a directory of its own, until the test ends. Each change is applied before.
func New(t *testing.T, change ...func(*Lab)) *Lab {
	t.Helper()
	dir := t.TempDir()
	l := &Lab{
		Clock: &Clock{now: time.Now().UTC().Truncate(time.Second)}, Network: &Network{}, Dir: dir, BootID: "boot-1",
		Quotas:   ec2.Quotas{VCPUs: 32, SpotVCPUs: 32, Addresses: 32, VPCs: 64}, // raised
		Machines: &Machines{running: map[string]machine.Spec{}, exits: make(chan machine.Exit), dir: dir, contents: map[string]machine.Volume{}, mounted: map[string]bool{}, taken: map[string]bool{}},
	}
	for _, f := range change {
		f(l)
	}
	l.Open(t)
	return l
}

// Open starts the cloud from its files, as the daemon does.
func (l *Lab) Open(t *testing.T) {
	t.Helper()
	var ips []netip.Addr
	for a := netip.MustParseAddr("203.0.113.3"); len(ips) < 8; a = a.Next() {
		ips = append(ips, a)
	}
	var packets cloud.Network = l.Network
	if l.Packets != nil {
		packets, ips = l.Packets, l.Packets.Slice().PublicIPs()
	}
	l.Quotas.Unthrottled = !l.Throttled
	account, err := cloud.Open(cloud.Config{
		Region: l.Region, Objects: l.Objects,
		Credentials: aws.Credentials{AccessKeyID: AccessKeyID, SecretAccessKey: SecretAccessKey}, Images: []ec2.Image{
			{ID: Image, Name: "debian-13-amd64-lab", Release: "13"}, {ID: OlderImage, Name: "debian-12-amd64-lab", Release: "12"},
		},
		PublicIPs: ips, Quotas: l.Quotas, StateFile: filepath.Join(l.Dir, "state.json"), ParametersFile: filepath.Join(l.Dir, "ssm.json"),
		SessionsFile: filepath.Join(l.Dir, "sts.json"), IdentitiesFile: filepath.Join(l.Dir, "iam.json"),
		BalancersFile: filepath.Join(l.Dir, "elb.json"), BucketsFile: filepath.Join(l.Dir, "s3.json"),
		BootID: l.BootID, Network: packets, Machines: l.Machines, Clock: l.Clock, Seed: 1, Calls: l.Calls,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := account.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l.Started != nil {
		if err := l.Started(t.Context(), account); err != nil {
			t.Fatal(err)
		}
	}
	srv := httptest.NewServer(account)
	t.Cleanup(func() {
		srv.Close()
		account.Close()
	})
	t.Setenv("AWS_ENDPOINT_URL", srv.URL)
	t.Setenv("AWS_REGION", cmp.Or(l.Region, "us-east-1"))
	t.Setenv("AWS_ACCESS_KEY_ID", AccessKeyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", SecretAccessKey)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	cfg, err := config.LoadDefaultConfig(t.Context(), config.WithRetryMaxAttempts(1))
	if err != nil {
		t.Fatal(err)
	}
	cfg.HTTPClient = wholeResponses{}
	l.Account, l.URL, l.AWS = account, srv.URL, cfg
	l.use(cfg)
}

// use makes the clients.
func (l *Lab) use(cfg aws.Config) {
	l.Client = awsec2.NewFromConfig(cfg, func(o *awsec2.Options) { o.HTTPSignerV4 = l.Clock })
	l.SSM = awsssm.NewFromConfig(cfg, func(o *awsssm.Options) { o.HTTPSignerV4 = l.Clock })
	l.STS = awssts.NewFromConfig(cfg, func(o *awssts.Options) { o.HTTPSignerV4 = l.Clock })
	l.ELB = awselb.NewFromConfig(cfg, func(o *awselb.Options) { o.HTTPSignerV4 = l.Clock })
}

// With returns the lab as it is seen with other credentials.
func (l *Lab) With(key, secret, token string) *Lab {
	cfg := l.AWS.Copy()
	cfg.Credentials = credentials.NewStaticCredentialsProvider(key, secret, token)
	return l.seen(cfg)
}

// In returns the lab as it is seen by a client that takes it for another region.
func (l *Lab) In(region string) *Lab {
	cfg := l.AWS.Copy()
	cfg.Region = region
	return l.seen(cfg)
}

// Through returns the lab as it is seen by clients whose calls pass what change adds.
func (l *Lab) Through(change func(*middleware.Stack) error) *Lab {
	cfg := l.AWS.Copy()
	cfg.APIOptions = append(cfg.APIOptions, change)
	return l.seen(cfg)
}

func (l *Lab) seen(cfg aws.Config) *Lab {
	other := *l
	other.AWS = cfg
	other.use(cfg)
	return &other
}

// PublicKey is the public key of somebody.
const PublicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFZ8yoFLHrLIuPZx4gCVWDnJTFlwFt0e3rV2XB2dVYzW test"
