package awstest

import (
	"bytes"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/balancer"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/keystore"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/snapshot"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
)

// tape keeps what is sent and answered.
type tape struct {
	mu             sync.Mutex
	sent, answered bytes.Buffer
}

func (p *tape) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(answer))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent.WriteString(strings.ReplaceAll(string(body), "%3A", ":") + "\n")
	p.answered.Write(answer)
	return resp, nil
}

var (
	anyARN    = regexp.MustCompile(`arn:aws[a-z-]*:`)
	anyDomain = regexp.MustCompile(`\.(?:elb|compute)\.[a-z0-9.-]+`)
)

// TestPartitions makes and removes a network, keys, a machine and a load balancer in a region of each partition.
func TestPartitions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ region, arn, domain, s3 string }{
		{"us-east-1", "arn:aws:", "amazonaws.com", "https://s3.us-east-1.amazonaws.com"},
		{"us-gov-west-1", "arn:aws-us-gov:", "amazonaws.com", "https://s3.us-gov-west-1.amazonaws.com"},
		{"cn-north-1", "arn:aws-cn:", "amazonaws.com.cn", "https://s3.cn-north-1.amazonaws.com.cn"},
	} {
		t.Run(tt.region, func(t *testing.T) {
			t.Parallel()
			a, ctx, p := account.New(t, func(c *cloud.Config) { c.Region = tt.region }), deadline(t), &tape{}
			c, err := infraaws.New(ctx, infraaws.Config{Region: tt.region, AccessKey: account.AccessKey, SecretKey: account.SecretKey,
				Endpoints: infraaws.Endpoints{EC2: a.URL, ELB: a.URL, SSM: a.URL, STS: a.URL}, HTTPClient: p})
			if err != nil {
				t.Fatal(err)
			}
			_, caller, err := c.Caller(ctx)
			if err != nil || !strings.HasPrefix(caller, tt.arn) {
				t.Errorf("the caller is %s, %v", caller, err)
			}
			n := ensured(ctx, t, c, networkSpec())
			if _, err := pki.Bootstrap(ctx, keystore.New(c, keystore.Config{Cluster: "demo"}), "demo", time.Now(), random, pki.Options{Store: pki.StoreSSM}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.SSM.GetParametersByPath(ctx, &ssm.GetParametersByPathInput{Path: sdk.String("/k8s/demo/pki")}); err != nil {
				t.Fatal(err)
			}
			images, err := c.EC2.DescribeImages(ctx, &ec2.DescribeImagesInput{})
			if err != nil {
				t.Fatal(err)
			}
			spec := machineSpecs(n)[0]
			spec.Image, spec.RootVolumeKey = *images.Images[0].ImageId, "alias/demo"
			m := made(ctx, t, c, machines{a.NewMachines(t, c)}.on(&wire{}), []machine.Spec{spec})[0]
			nlb := balancer.Spec{Cluster: "demo", Name: balancer.Public, Public: true, VPCID: n.VPCID, GroupID: n.SecurityGroups[infraaws.RoleLoadBalancer],
				Subnets: map[string][]balancer.Subnet{n.Subnets[0].AvailabilityZone: {{ID: n.Subnets[0].ID}}}, InstanceIDs: []string{m.ID}}
			b, err := balancer.Ensure(ctx, c, "", nlb)
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range []error{balancer.Delete(ctx, c, b.ARN, nlb), machine.Delete(ctx, c, m.ID, spec), network.Delete(ctx, c, networkSpec())} {
				if err != nil {
					t.Fatal(err)
				}
			}

			seen := map[string]bool{}
			for what, text := range map[string]string{"sent": p.sent.String(), "answered": p.answered.String()} {
				for _, arn := range anyARN.FindAllString(text, -1) {
					seen[what] = true
					if arn != tt.arn {
						t.Errorf("%s: %s", what, arn)
					}
				}
			}
			if !seen["sent"] || !seen["answered"] {
				t.Errorf("ARNs in both directions: %v", seen)
			}
			for _, name := range append(anyDomain.FindAllString(p.answered.String(), -1), b.DNSName) {
				if !strings.HasSuffix(name, "."+tt.domain) && !strings.HasSuffix(name, ".compute.internal") {
					t.Errorf("the name %s is not in %s", name, tt.domain)
				}
			}
			if got := snapshot.Endpoint(tt.region); got != tt.s3 {
				t.Errorf("S3 is at %s", got)
			}
		})
	}
}

// TestNoPartition: the library and the provider write no partition into their sources.
func TestNoPartition(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"../../../infra", "../../provider"} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || filepath.Ext(path) == ".txt" || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "providertest") || strings.Contains(path, "testdata") {
				return err
			}
			text, err := os.ReadFile(path)
			if found := anyARN.Find(text); found != nil {
				t.Errorf("%s has %s", path, found)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
