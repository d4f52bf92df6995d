package topologies_test

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/company"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// proxyPort is where the bastion of TestProxy has its proxy.
const proxyPort = 3128

// behindProxy turns examples/ha-cluster into a cluster in a private subnet without a way to the internet. Its bastion, in
// a public subnet, runs an HTTP proxy, and serves release files and images by HTTPS with a certificate of a company.
const behindProxy = `
provider "k8s" {
  alias = "direct"
}

resource "k8s_machine" "bastion" {
  provider           = k8s.direct
  name               = "bastion"
  role               = "lb"
  network            = k8s_network.this.ref
  subnet_id          = %[2]q
  private_ip         = "10.240.1.4"
  security_group_ids = [%[3]q]
  user_data          = <<-EOT
    #cloud-config
    write_files:
      - path: /etc/tinyproxy/tinyproxy.conf
        content: |
          User tinyproxy
          Group tinyproxy
          Port %[1]d
          Timeout 600
          LogFile "/var/log/tinyproxy/tinyproxy.log"
          LogLevel Connect
          Allow 10.240.0.0/16
      - path: /etc/haproxy/company.pem
        permissions: "0600"
        content: |
          ${indent(6, %[4]q)}
      - path: /etc/haproxy/haproxy.cfg
        content: |
          defaults
            mode http
            timeout connect 5s
            timeout client 600s
            timeout server 600s
          frontend files
            bind :8443 ssl crt /etc/haproxy/company.pem
            default_backend files
          backend files
            server files %[5]s
          frontend images
            bind :8444 ssl crt /etc/haproxy/company.pem
            default_backend images
          backend images
            server images %[6]s
    packages: [tinyproxy, haproxy]
  EOT
}

output "bastion" {
  value = { address = k8s_machine.bastion.public_ip, host_key = k8s_machine.bastion.host_key }
}
`

const behindProxyOverride = `
provider "k8s" {
  ssh = {
    bastion = { address = k8s_machine.bastion.public_ip, host_keys = [k8s_machine.bastion.host_key] }
  }
  machine_proxy = {
    http     = "http://10.240.1.4:%[5]d"
    https    = "http://10.240.1.4:%[5]d"
    no_proxy = [".internal.example.com"]
  }
%[6]s}

resource "k8s_network" "this" {
  provider     = k8s.direct
  vpc_id       = %[1]q
  subnet_ids   = [%[2]q, %[3]q]
  bastion_role = "lb"
}

resource "k8s_machine" "controller" {
  subnet_id                   = %[2]q
  private_ip                  = cidrhost("10.240.0.0/24", 10 + count.index)
  associate_public_ip_address = false
  instance_profile            = %[4]q
}

resource "k8s_machine" "worker" {
  subnet_id                   = %[2]q
  private_ip                  = cidrhost("10.240.0.0/24", 20 + count.index)
  associate_public_ip_address = false
  instance_profile            = "workers"
}

resource "k8s_machine" "lb" {
  subnet_id                   = %[2]q
  private_ip                  = "10.240.0.4"
  associate_public_ip_address = false
}

resource "k8s_lb" "this" {
  public = false
}
`

// ofCompany are the arguments of the provider and of the pool with which everything comes from servers of the company.
const ofCompany = `
  artifact_mirror     = "https://10.240.1.4:8443%s"
  machine_authorities = %q
`

const imagesOfCompany = `
resource "k8s_worker_pool" "this" {
  registries = merge(jsondecode(replace(jsonencode(var.elsewhere.registries), %q, "https://10.240.1.4:8444")), {
    "` + ecr + `" = { mirrors = [{ url = "https://10.240.1.4:8444" }] }
  })
%s}
`

// ecr is the registry of the account, of which the lab's registry is a mirror for those who have a token.
const ecr = "123456789012.dkr.ecr.us-east-1.amazonaws.com"

// withECR are the arguments of the guide Registries. The plugin asks the local EC2.
const withECR = `
  extra_args = {
    kubelet = {
      image-credential-provider-config  = "/etc/credential-providers.yaml"
      image-credential-provider-bin-dir = "/opt/credential-providers"
    }
  }
  extra_files = {
    "/etc/credential-providers.yaml" = {
      restarts = ["kubelet.service"]
      content  = <<-EOT
        apiVersion: kubelet.config.k8s.io/v1
        kind: CredentialProviderConfig
        providers:
          - name: ecr-credential-provider
            apiVersion: credentialprovider.kubelet.k8s.io/v1
            matchImages:
              - "*.dkr.ecr.*.amazonaws.com"
            defaultCacheDuration: 12h
            env:
              - name: AWS_ENDPOINT_URL_ECR
                value: ${var.elsewhere.aws_endpoint}
      EOT
    }
  }
`

// pullOnly is what AWS's policy AmazonEC2ContainerRegistryPullOnly allows, for one repository.
const pullOnly = `{"Version":"2012-10-17","Statement":[
  {"Effect":"Allow","Action":"ecr:GetAuthorizationToken","Resource":"*"},
  {"Effect":"Allow","Action":["ecr:BatchGetImage","ecr:GetDownloadUrlForLayer"],"Resource":"arn:aws:ecr:us-east-1:123456789012:repository/k8s-lab/*"}]}`

// ofECR is a pod whose image only who has a token gets.
const ofECR = `
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: default}
spec:
  containers: [{name: main, image: ` + ecr + `/%[2]s, imagePullPolicy: Always, command: [sleep, infinity]}]
  terminationGracePeriodSeconds: 1
`

// TestProxy builds a cluster whose machines reach the internet through a proxy only, upgrades it, takes the proxy out of
// its settings, and destroys it. What the proxy has logged shows who used it.
func TestProxy(t *testing.T) {
	inSoak(t)
	office := newOffice(t)
	suite.KeepSnapshots(t)
	policy := filepath.Join(t.TempDir(), "pull-only.json")
	if err := os.WriteFile(policy, []byte(pullOnly), 0o600); err != nil {
		t.Fatal(err)
	}
	suite.MachineRole(t, "workers", "demo", policy)
	c := suite.Cluster(suite.Workspace(t, "proxy", suite.CLI, filepath.Join(suite.Root, "examples", "ha-cluster")))
	destroyIfFailed(t, c.WS)
	c.Bastion = "bastion"
	write := func(t *testing.T, name, text string) {
		t.Helper()
		if err := c.WS.WriteFile(name, text); err != nil {
			t.Fatal(err)
		}
	}
	version := func(t *testing.T, v string) {
		t.Helper()
		write(t, "proxy.auto.tfvars", fmt.Sprintf("ami = null\ncontrollers = 1\nworkers = 2\nkubernetes_version = %q\nsnapshot_bucket = %q\n", v, harness.SnapshotBucket))
	}
	version(t, harness.KubernetesVersion)
	root := company.Root(t, "Example Root") // no machine knows it
	authority := root.Certificate()
	certificate, key := root.Server(t, net.IPv4(10, 240, 1, 4))
	mirror := harness.Must[*url.URL](t)(url.Parse(suite.Getenv("K8S_ARTIFACT_MIRROR")))
	registry := &url.URL{Scheme: "http", Host: net.JoinHostPort(mirror.Hostname(), "5000")}
	write(t, "proxy.tf", fmt.Sprintf(behindProxy, proxyPort, office.public, office.group, certificate+key, mirror.Host, registry.Host))
	override := func(provider, more string) string {
		return fmt.Sprintf(behindProxyOverride, office.vpc, office.private, office.public, harness.SnapshotProfile, proxyPort, provider) + more
	}
	provider := fmt.Sprintf(ofCompany, mirror.Path, authority)
	settings := override(provider, fmt.Sprintf(imagesOfCompany, registry.String(), ""))
	write(t, "private_override.tf", settings)
	step := harness.Steps(t)
	step("apply", func(t *testing.T) { c.Apply(t) })
	step("second plan is empty", c.NoChanges)
	step("no other way leads out", func(t *testing.T) {
		at := suite.Getenv("K8S_ARTIFACT_MIRROR") + "/"
		out := suite.Console(t, "worker-0", "curl -s -m 5 -o /dev/null "+at+" || echo no way; curl -s -m 5 -o /dev/null -x http://10.240.1.4:3128 "+at+" && echo by the proxy")
		if out != "no way\nby the proxy\n" {
			t.Errorf("worker-0 reaches the mirror: %q", out)
		}
	})
	step("the proxy has served machines, images and snapshots", func(t *testing.T) {
		// A snapshot may still be due a few seconds later.
		harness.Eventually(t, 2*time.Minute, "lines of the proxy's log", func() error {
			log := suite.Console(t, "bastion", "cat /var/log/tinyproxy/tinyproxy.log")
			for _, want := range []string{"CONNECT 10.240.1.4:8443", "CONNECT 10.240.1.4:8444", "/debian", "/" + harness.SnapshotBucket} {
				if !strings.Contains(log, want) {
					return fmt.Errorf("nobody has asked the proxy for %s:\n%.3000s", want, log)
				}
			}
			return nil
		})
	})
	var bastion struct {
		Address string
		HostKey string `json:"host_key"`
	}
	if err := c.WS.Output(t.Context(), "bastion", &bastion); err != nil {
		t.Fatal(err)
	}
	c.LearnThrough(t, "socks5://"+suite.SOCKS(t, bastion.Address, "22", bastion.HostKey))
	step("a pod", func(t *testing.T) {
		c.Create(t, harness.Web)
		c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=120s")
		c.Kubectl(t, "logs", "deployment/web")
	})
	step("images of ECR", func(t *testing.T) {
		c.Create(t, fmt.Sprintf(ofECR, "early", "k8s-lab/toolbox:1"))
		harness.Eventually(t, time.Minute, "the pull is refused", func() error {
			return failedPull(t, c, "early", "no basic auth credentials")
		})
		plugin := ecrPlugin(t)
		for _, worker := range []string{"worker-0", "worker-1"} {
			if err := c.Send(t.Context(), worker, bytes.NewReader(plugin), "sh -c 'mkdir -p /opt/credential-providers && cd /opt/credential-providers && cat >ecr-credential-provider && chmod 0755 ecr-credential-provider'"); err != nil {
				t.Fatal(err)
			}
		}
		settings = override(provider, fmt.Sprintf(imagesOfCompany, registry.String(), withECR))
		write(t, "private_override.tf", settings)
		c.Apply(t)
		c.NoChanges(t)
		c.Kubectl(t, "delete", "pod", "early", "--ignore-not-found")
		c.Create(t, fmt.Sprintf(ofECR, "own", "k8s-lab/toolbox:1"))
		c.Kubectl(t, "wait", "pod/own", "--for=condition=Ready", "--timeout=60s")
		c.Create(t, fmt.Sprintf(ofECR, "foreign", "others/toolbox:1"))
		harness.Eventually(t, time.Minute, "another team's image is refused", func() error {
			return failedPull(t, c, "foreign", "403 Forbidden")
		})
		c.Kubectl(t, "delete", "pod", "own", "foreign")
	})
	step("upgrade", func(t *testing.T) {
		version(t, harness.NextKubernetesVersion)
		c.Apply(t)
		c.NoChanges(t)
		c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=120s")
	})
	step("a proxy's variables that were changed by hand are drift", func(t *testing.T) {
		suite.Console(t, "worker-0", "sed -i /_proxy=/d /etc/systemd/system/containerd.service && systemctl daemon-reload")
		changes, text, err := c.WS.Plan(t.Context())
		if err != nil || !changes {
			t.Fatalf("changes %t, %v", changes, err)
		}
		harness.Says(t, text, "k8s_worker_pool.this", "containerd.service", "http_proxy=http://10.240.1.4")
		c.Apply(t)
	})
	step("without the proxy", func(t *testing.T) {
		before, after, _ := strings.Cut(settings, "  machine_proxy = {")
		_, after, _ = strings.Cut(after, "\n  }\n")
		write(t, "private_override.tf", before+after)
		c.Apply(t, "-target=k8s_worker_pool.this") // snapshots have no other way to S3
		if out := suite.Console(t, "worker-0", "grep _proxy= /etc/systemd/system/containerd.service /etc/systemd/system/kubelet.service || echo none"); out != "none\n" {
			t.Errorf("left on worker-0: %s", out)
		}
		write(t, "private_override.tf", settings)
		c.Apply(t)
		c.NoChanges(t)
	})
	step("a machine that has forgotten the company's authority is drift", func(t *testing.T) {
		suite.Console(t, "worker-0", "rm /usr/local/share/ca-certificates/k8s-from-scratch-1.crt && update-ca-certificates")
		changes, text, err := c.WS.Plan(t.Context())
		if err != nil || !changes {
			t.Fatalf("changes %t, %v", changes, err)
		}
		harness.Says(t, text, "k8s_worker_pool.this", "file /etc/k8s-from-scratch/authorities.crt: its authorities are not trusted by the programs of the machine")
		c.Apply(t)
		c.NoChanges(t)
	})
	step("without the company", func(t *testing.T) {
		write(t, "private_override.tf", override("", ""))
		c.Apply(t)
		c.NoChanges(t)
		for _, machine := range []string{"controller-0", "worker-0", "worker-1", "lb-0"} {
			if left := suite.Console(t, machine, "ls /etc/k8s-from-scratch /usr/local/share/ca-certificates 2>/dev/null; grep -c "+strings.Split(authority, "\n")[2]+" /etc/ssl/certs/ca-certificates.crt || :"); left != "/usr/local/share/ca-certificates:\n0\n" {
				t.Errorf("left on %s: %s", machine, left)
			}
		}
		write(t, "private_override.tf", settings)
		c.Apply(t)
		c.NoChanges(t)
	})
	step("destroy leaves nothing", func(t *testing.T) {
		if _, err := c.WS.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		office.delete(t)
		suite.Empty(t)
	})
}

// failedPull returns an error unless the events of a pod say why no image was pulled.
func failedPull(t *testing.T, c *harness.Cluster, pod, why string) error {
	t.Helper()
	said := c.Kubectl(t, "get", "events", "--field-selector", "reason=Failed,involvedObject.name="+pod, "-o", "jsonpath={.items[*].message}")
	if !strings.Contains(said, why) {
		return fmt.Errorf("the events of pod %s do not say %q: %s", pod, why, said)
	}
	return nil
}

// ecrPlugin builds the kubelet's plugin for ECR as the guide Registries does.
func ecrPlugin(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	const program = "k8s.io/cloud-provider-aws/cmd/ecr-credential-provider"
	for _, args := range [][]string{{"mod", "init", "ecr"}, {"get", program + "@v1.37.1"}, {"build", "-trimpath", "-o", "plugin", program}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	return harness.Must[[]byte](t)(os.ReadFile(filepath.Join(dir, "plugin")))
}

// office is a VPC with a private subnet, from which no route leads out, and a public one.
type office struct {
	api                                         *ec2.Client
	vpc, gateway, private, public, table, group string
}

func newOffice(t *testing.T) *office {
	t.Helper()
	ctx, o := t.Context(), &office{api: ec2.NewFromConfig(suite.AWS())}
	o.vpc = *harness.Must[*ec2.CreateVpcOutput](t)(o.api.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: aws.String("10.240.0.0/16")})).Vpc.VpcId
	o.gateway = *harness.Must[*ec2.CreateInternetGatewayOutput](t)(o.api.CreateInternetGateway(ctx, &ec2.CreateInternetGatewayInput{})).InternetGateway.InternetGatewayId
	harness.Must[*ec2.AttachInternetGatewayOutput](t)(o.api.AttachInternetGateway(ctx, &ec2.AttachInternetGatewayInput{InternetGatewayId: &o.gateway, VpcId: &o.vpc}))
	for cidr, id := range map[string]*string{"10.240.0.0/24": &o.private, "10.240.1.0/24": &o.public} {
		*id = *harness.Must[*ec2.CreateSubnetOutput](t)(o.api.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: &o.vpc, CidrBlock: &cidr, AvailabilityZone: aws.String("us-east-1a")})).Subnet.SubnetId
	}
	o.table = *harness.Must[*ec2.CreateRouteTableOutput](t)(o.api.CreateRouteTable(ctx, &ec2.CreateRouteTableInput{VpcId: &o.vpc})).RouteTable.RouteTableId
	harness.Must[*ec2.AssociateRouteTableOutput](t)(o.api.AssociateRouteTable(ctx, &ec2.AssociateRouteTableInput{RouteTableId: &o.table, SubnetId: &o.public}))
	harness.Must[*ec2.CreateRouteOutput](t)(o.api.CreateRoute(ctx, &ec2.CreateRouteInput{RouteTableId: &o.table, DestinationCidrBlock: aws.String("0.0.0.0/0"), GatewayId: &o.gateway}))
	o.group = *harness.Must[*ec2.CreateSecurityGroupOutput](t)(o.api.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{
		VpcId: &o.vpc, GroupName: aws.String("proxy"), Description: aws.String("HTTP proxy")})).GroupId
	harness.Must[*ec2.AuthorizeSecurityGroupIngressOutput](t)(o.api.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{
		GroupId: &o.group, IpPermissions: []types.IpPermission{{IpProtocol: aws.String("tcp"), FromPort: aws.Int32(proxyPort), ToPort: aws.Int32(proxyPort),
			IpRanges: []types.IpRange{{CidrIp: aws.String("10.240.0.0/24")}}}}}))
	return o
}

// delete deletes the VPC. It fails the test if the cluster left anything in it.
func (o *office) delete(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	harness.Must[*ec2.DeleteSecurityGroupOutput](t)(o.api.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &o.group}))
	for _, id := range []string{o.private, o.public} {
		harness.Must[*ec2.DeleteSubnetOutput](t)(o.api.DeleteSubnet(ctx, &ec2.DeleteSubnetInput{SubnetId: &id}))
	}
	harness.Must[*ec2.DeleteRouteTableOutput](t)(o.api.DeleteRouteTable(ctx, &ec2.DeleteRouteTableInput{RouteTableId: &o.table}))
	harness.Must[*ec2.DetachInternetGatewayOutput](t)(o.api.DetachInternetGateway(ctx, &ec2.DetachInternetGatewayInput{InternetGatewayId: &o.gateway, VpcId: &o.vpc}))
	harness.Must[*ec2.DeleteInternetGatewayOutput](t)(o.api.DeleteInternetGateway(ctx, &ec2.DeleteInternetGatewayInput{InternetGatewayId: &o.gateway}))
	harness.Must[*ec2.DeleteVpcOutput](t)(o.api.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: &o.vpc}))
}
