package cloud_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awselb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/network"
)

// The account that labs have: its images, and its owner's access key.
const (
	testImage  = "ami-0123456789abcdef0" // Debian 13
	olderImage = "ami-0123456789abcdef1" // Debian 12
	testKey    = "AKIATEST"
	testSecret = "secret"
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

// lab is an account that is served over HTTP, with SDK clients of its owner or of somebody else.
type lab struct {
	*awsec2.Client
	ssm       *awsssm.Client
	sts       *awssts.Client
	elb       *awselb.Client
	url       string
	aws       aws.Config
	cloud     *cloud.Account
	clock     *clock
	network   *fakeNetwork
	packets   *network.Manager // instead of network, if it is not nil; see withPackets
	machines  *fakeMachines
	dir       string // of the account's files
	quotas    ec2.Quotas
	throttled bool // whether calls are throttled: the clock stands still
	calls     *slog.Logger
	objects   cloud.Objects                               // S3; nil without
	started   func(context.Context, *cloud.Account) error // told of the account when it is open, if it is not nil
	bootID    string                                      // of the host
}

// newLab opens an account in a directory of its own, until the test ends. Each change is applied before.
func newLab(t *testing.T, change ...func(*lab)) *lab {
	t.Helper()
	dir := t.TempDir()
	l := &lab{
		clock: &clock{now: time.Now().UTC().Truncate(time.Second)}, network: &fakeNetwork{}, dir: dir, bootID: "boot-1",
		machines: &fakeMachines{running: map[string]machine.Spec{}, exits: make(chan machine.Exit), dir: dir, volumes: map[string]machine.Volume{}, mounted: map[string]bool{}},
	}
	for _, f := range change {
		f(l)
	}
	l.open(t)
	return l
}

// open starts the cloud from its files, as the daemon does.
func (l *lab) open(t *testing.T) {
	t.Helper()
	var ips []netip.Addr
	for a := netip.MustParseAddr("203.0.113.3"); len(ips) < 8; a = a.Next() {
		ips = append(ips, a)
	}
	var packets cloud.Network = l.network
	if l.packets != nil {
		packets, ips = l.packets, l.packets.Slice().PublicIPs()
	}
	l.quotas.Unthrottled = !l.throttled
	account, err := cloud.Open(cloud.Config{
		Objects:     l.objects,
		Credentials: aws.Credentials{AccessKeyID: testKey, SecretAccessKey: testSecret}, Images: []ec2.Image{
			{ID: testImage, Name: "debian-13-amd64-lab", Release: "13"}, {ID: olderImage, Name: "debian-12-amd64-lab", Release: "12"},
		},
		PublicIPs: ips, Quotas: l.quotas, StateFile: filepath.Join(l.dir, "state.json"), ParametersFile: filepath.Join(l.dir, "ssm.json"),
		SessionsFile: filepath.Join(l.dir, "sts.json"), IdentitiesFile: filepath.Join(l.dir, "iam.json"),
		BalancersFile: filepath.Join(l.dir, "elb.json"),
		BootID:        l.bootID, Network: packets, Machines: l.machines, Clock: l.clock, Seed: 1, Calls: l.calls,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := account.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l.started != nil {
		if err := l.started(t.Context(), account); err != nil {
			t.Fatal(err)
		}
	}
	srv := httptest.NewServer(account)
	t.Cleanup(func() {
		srv.Close()
		account.Close()
	})
	t.Setenv("AWS_ENDPOINT_URL", srv.URL)
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_ACCESS_KEY_ID", testKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", testSecret)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	cfg, err := config.LoadDefaultConfig(t.Context(), config.WithRetryMaxAttempts(1))
	if err != nil {
		t.Fatal(err)
	}
	cfg.HTTPClient = wholeResponses{}
	l.cloud, l.url, l.aws = account, srv.URL, cfg
	l.use(cfg)
}

// use makes the clients.
func (l *lab) use(cfg aws.Config) {
	l.Client = awsec2.NewFromConfig(cfg, func(o *awsec2.Options) { o.HTTPSignerV4 = l.clock })
	l.ssm = awsssm.NewFromConfig(cfg, func(o *awsssm.Options) { o.HTTPSignerV4 = l.clock })
	l.sts = awssts.NewFromConfig(cfg, func(o *awssts.Options) { o.HTTPSignerV4 = l.clock })
	l.elb = awselb.NewFromConfig(cfg, func(o *awselb.Options) { o.HTTPSignerV4 = l.clock })
}

// with returns the lab as it is seen with other credentials.
func (l *lab) with(key, secret, token string) *lab {
	cfg := l.aws.Copy()
	cfg.Credentials = credentials.NewStaticCredentialsProvider(key, secret, token)
	return l.seen(cfg)
}

// in returns the lab as it is seen by a client that takes it for another region.
func (l *lab) in(region string) *lab {
	cfg := l.aws.Copy()
	cfg.Region = region
	return l.seen(cfg)
}

func (l *lab) seen(cfg aws.Config) *lab {
	other := *l
	other.aws = cfg
	other.use(cfg)
	return &other
}

// code returns the AWS error code of err, "" for nil.
func code(err error) string {
	if err == nil {
		return ""
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return fmt.Sprintf("not an API error: %v", err)
}

// refused asserts that err has an AWS error code.
func refused(t *testing.T, err error, want string) {
	t.Helper()
	if got := code(err); got != want {
		t.Errorf("got %q, want %q (%v)", got, want, err)
	}
}

// must returns the result of a call that must succeed.
func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// eventually fails the test if f is not true within five seconds.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came to this: %s", what)
		}
	}
}

// site is a VPC ready for instances: 10.240.0.0/16 with the subnet 10.240.0.0/24 in us-east-1a, a route to an internet
// gateway, and a security group without rules for what comes in. The fields are ids.
type site struct {
	vpc, subnet, gateway, table, group string
}

// site makes one.
func (l *lab) site(t *testing.T) site {
	t.Helper()
	ctx := t.Context()
	v := must[*awsec2.CreateVpcOutput](t)(l.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.240.0.0/16")}))
	s := site{vpc: *v.Vpc.VpcId}
	sub := must[*awsec2.CreateSubnetOutput](t)(l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: &s.vpc, CidrBlock: aws.String("10.240.0.0/24"), AvailabilityZone: aws.String("us-east-1a")}))
	s.subnet = *sub.Subnet.SubnetId
	g := must[*awsec2.CreateInternetGatewayOutput](t)(l.CreateInternetGateway(ctx, &awsec2.CreateInternetGatewayInput{}))
	s.gateway = *g.InternetGateway.InternetGatewayId
	must[*awsec2.AttachInternetGatewayOutput](t)(l.AttachInternetGateway(ctx, &awsec2.AttachInternetGatewayInput{InternetGatewayId: &s.gateway, VpcId: &s.vpc}))
	r := must[*awsec2.CreateRouteTableOutput](t)(l.CreateRouteTable(ctx, &awsec2.CreateRouteTableInput{VpcId: &s.vpc}))
	s.table = *r.RouteTable.RouteTableId
	must[*awsec2.CreateRouteOutput](t)(l.CreateRoute(ctx, &awsec2.CreateRouteInput{RouteTableId: &s.table, DestinationCidrBlock: aws.String("0.0.0.0/0"), GatewayId: &s.gateway}))
	must[*awsec2.AssociateRouteTableOutput](t)(l.AssociateRouteTable(ctx, &awsec2.AssociateRouteTableInput{RouteTableId: &s.table, SubnetId: &s.subnet}))
	sg := must[*awsec2.CreateSecurityGroupOutput](t)(l.CreateSecurityGroup(ctx, &awsec2.CreateSecurityGroupInput{
		GroupName: aws.String("web"), Description: aws.String("web"), VpcId: &s.vpc,
	}))
	s.group = *sg.GroupId
	return s
}

// runInput returns a request to launch one instance in the site.
func (s site) runInput() *awsec2.RunInstancesInput {
	return &awsec2.RunInstancesInput{
		ImageId: aws.String(testImage), InstanceType: types.InstanceTypeT3Small, MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		SubnetId: aws.String(s.subnet), SecurityGroupIds: []string{s.group},
	}
}

// run launches an instance and waits until it is running.
func (l *lab) run(t *testing.T, in *awsec2.RunInstancesInput) types.Instance {
	t.Helper()
	out := must[*awsec2.RunInstancesOutput](t)(l.RunInstances(t.Context(), in))
	return l.await(t, *out.Instances[0].InstanceId, types.InstanceStateNameRunning)
}

// instance describes an instance.
func (l *lab) instance(t *testing.T, id string) types.Instance {
	t.Helper()
	out := must[*awsec2.DescribeInstancesOutput](t)(l.DescribeInstances(t.Context(), &awsec2.DescribeInstancesInput{InstanceIds: []string{id}}))
	return out.Reservations[0].Instances[0]
}

// await waits until an instance has a state.
func (l *lab) await(t *testing.T, id string, want types.InstanceStateName) types.Instance {
	t.Helper()
	var i types.Instance
	eventually(t, id+" "+string(want), func() bool {
		i = l.instance(t, id)
		return i.State.Name == want
	})
	return i
}

// tags returns the tags, keys and values by turns, that a new resource is to have.
func tags(resource types.ResourceType, pairs ...string) []types.TagSpecification {
	spec := types.TagSpecification{ResourceType: resource}
	for i := 0; i < len(pairs); i += 2 {
		spec.Tags = append(spec.Tags, types.Tag{Key: &pairs[i], Value: &pairs[i+1]})
	}
	return []types.TagSpecification{spec}
}

// filter returns a filter of a listing.
func filter(name string, values ...string) types.Filter {
	return types.Filter{Name: &name, Values: values}
}

// testPublicKey is the public key of somebody.
const testPublicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFZ8yoFLHrLIuPZx4gCVWDnJTFlwFt0e3rV2XB2dVYzW test"

// control sends in to the control endpoint as JSON, reads the answer into out unless it is nil, and returns the
// status.
func (l *lab) control(t *testing.T, method, path string, in, out any) int {
	t.Helper()
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, l.url+path, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	if out != nil {
		if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
			t.Fatal(err)
		}
	}
	return resp.StatusCode
}
