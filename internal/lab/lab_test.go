package lab_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/errgroup"

	process "github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
)

// blocked is how long the tests wait for a connection that must not succeed.
const blocked = 700 * time.Millisecond

// command is the k8s-lab program on a lab of the test's own.
type command struct {
	program, dir string
}

func build(t *testing.T) command {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	c := command{filepath.Join(t.TempDir(), "k8s-lab"), filepath.Join(t.TempDir(), "lab")}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", c.program, "../../cmd/k8s-lab").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := c.run(context.WithoutCancel(t.Context()), "down"); err != nil {
			t.Errorf("k8s-lab down: %v\n%s", err, out)
		}
	})
	return c
}

func (c command) run(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, c.program, append([]string{"--state-dir", c.dir}, args...)...).CombinedOutput()
	return string(out), err
}

func (c command) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.run(t.Context(), args...)
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(c.dir, "daemon.log"))
		t.Fatalf("k8s-lab %v: %v\n%s\n%s", args, err, out, log)
	}
	return out
}

// daemon asks the lab about its process.
func (c command) daemon(ctx context.Context) (d process.Daemon, err error) {
	l, err := process.New(c.dir, "", nil)
	if err == nil {
		err = l.Control(ctx, "GET", "/_lab/daemon", nil, &d)
	}
	return d, err
}

// client returns an SDK client that is configured only by what `k8s-lab env` exports.
func (c command) client(t *testing.T) *ec2.Client {
	t.Helper()
	for line := range strings.Lines(c.must(t, "env")) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		t.Setenv(name, value)
	}
	cfg, err := config.LoadDefaultConfig(t.Context(), config.WithSharedConfigFiles(nil), config.WithSharedCredentialsFiles(nil))
	if err != nil {
		t.Fatal(err)
	}
	return ec2.NewFromConfig(cfg)
}

// world is a VPC with an internet gateway in a running lab.
type world struct {
	*ec2.Client
	vpc, subnet, gateway, group, table string
	key                                ed25519.PrivateKey
	signer                             ssh.Signer
}

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

func newWorld(t *testing.T, api *ec2.Client) *world {
	t.Helper()
	ctx := t.Context()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Client: api, key: key, signer: must[ssh.Signer](t)(ssh.NewSignerFromKey(key))}
	must[*ec2.ImportKeyPairOutput](t)(api.ImportKeyPair(ctx, &ec2.ImportKeyPairInput{KeyName: aws.String("test"), PublicKeyMaterial: ssh.MarshalAuthorizedKey(w.signer.PublicKey())}))
	w.vpc = *must[*ec2.CreateVpcOutput](t)(api.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: aws.String("10.240.0.0/16")})).Vpc.VpcId
	w.subnet = *must[*ec2.CreateSubnetOutput](t)(api.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: &w.vpc, CidrBlock: aws.String("10.240.0.0/24"), AvailabilityZone: aws.String("us-east-1a")})).Subnet.SubnetId
	w.gateway = *must[*ec2.CreateInternetGatewayOutput](t)(api.CreateInternetGateway(ctx, &ec2.CreateInternetGatewayInput{})).InternetGateway.InternetGatewayId
	must[*ec2.AttachInternetGatewayOutput](t)(api.AttachInternetGateway(ctx, &ec2.AttachInternetGatewayInput{VpcId: &w.vpc, InternetGatewayId: &w.gateway}))
	tables := must[*ec2.DescribeRouteTablesOutput](t)(api.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{}))
	w.table = *tables.RouteTables[0].RouteTableId
	must[*ec2.CreateRouteOutput](t)(api.CreateRoute(ctx, &ec2.CreateRouteInput{RouteTableId: &w.table, DestinationCidrBlock: aws.String("0.0.0.0/0"), GatewayId: &w.gateway}))
	w.group = *must[*ec2.CreateSecurityGroupOutput](t)(api.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{VpcId: &w.vpc, GroupName: aws.String("test"), Description: aws.String("test")})).GroupId
	return w
}

func (w *world) launch(t *testing.T, release, name, privateIP string) string {
	t.Helper()
	userData := "#cloud-config\nwrite_files:\n- {path: /etc/made-by-user-data, content: '" + name + "'}\n"
	return *must[*ec2.RunInstancesOutput](t)(w.RunInstances(t.Context(), &ec2.RunInstancesInput{
		ImageId: aws.String(w.image(t, release)), InstanceType: types.InstanceTypeT3Small, MinCount: aws.Int32(1), MaxCount: aws.Int32(1), KeyName: aws.String("test"),
		UserData:          aws.String(base64.StdEncoding.EncodeToString([]byte(userData))),
		MetadataOptions:   &types.InstanceMetadataOptionsRequest{HttpTokens: types.HttpTokensStateRequired, HttpPutResponseHopLimit: aws.Int32(1)},
		NetworkInterfaces: []types.InstanceNetworkInterfaceSpecification{{DeviceIndex: aws.Int32(0), SubnetId: &w.subnet, Groups: []string{w.group}, PrivateIpAddress: &privateIP, AssociatePublicIpAddress: aws.Bool(true)}},
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{{Key: aws.String("Name"), Value: &name}}}},
	})).Instances[0].InstanceId
}

// image returns the id of Debian's newest image of a release ("13").
func (w *world) image(t *testing.T, release string) string {
	t.Helper()
	images := must[*ec2.DescribeImagesOutput](t)(w.DescribeImages(t.Context(), &ec2.DescribeImagesInput{
		Owners: []string{"136693071363"}, Filters: []types.Filter{{Name: aws.String("name"), Values: []string{"debian-" + release + "-amd64-*"}}},
	})).Images
	if len(images) != 1 {
		t.Fatalf("images of Debian %s: %+v", release, images)
	}
	return *images[0].ImageId
}

func (w *world) await(t *testing.T, id string, state types.InstanceStateName) types.Instance {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		out := must[*ec2.DescribeInstancesOutput](t)(w.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{id}}))
		i := out.Reservations[0].Instances[0]
		if i.State.Name == state {
			return i
		}
		if time.Now().After(end) {
			t.Fatalf("%s is %s and not %s: %v", id, i.State.Name, state, aws.ToString(i.StateTransitionReason))
		}
	}
}

// sh runs a script as admin on the machine behind a public address, waiting for sshd to come up.
func (w *world) sh(t *testing.T, address, script string) string {
	t.Helper()
	conf := &ssh.ClientConfig{User: "admin", Auth: []ssh.AuthMethod{ssh.PublicKeys(w.signer)}, Timeout: time.Second,
		HostKeyCallback: ssh.InsecureIgnoreHostKey()} //nolint:gosec // host keys are not tested here
	var conn *ssh.Client
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		var err error
		if conn, err = ssh.Dial("tcp", address+":22", conf); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("ssh admin@%s: %v", address, err)
		}
	}
	defer conn.Close() //nolint:errcheck // read only
	s := must[*ssh.Session](t)(conn.NewSession())
	out, err := s.CombinedOutput(script)
	if err != nil {
		t.Fatalf("on %s: %s: %v\n%s", address, script, err, out)
	}
	return strings.TrimSpace(string(out))
}

func open(t *testing.T, address string) bool {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: blocked}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// raised are the quotas of a lab in which more runs than in a new account.
const raised = "--quota=vcpus=32,elastic-ips=32,vpcs=64"

// TestLab runs a real lab: it launches and reaches instances, moves an address, kills the daemon,
// stops and terminates instances, and takes the lab down.
func TestLab(t *testing.T) {
	lab := build(t)
	began := time.Now()
	if out := lab.must(t, "up", "--quota=elastic-ips=32"); !strings.Contains(out, "is up") {
		t.Errorf("up says %q", out)
	}
	t.Logf("up: %s", time.Since(began))
	w := newWorld(t, lab.client(t))
	ctx := t.Context()

	began = time.Now()
	first, second := w.launch(t, "13", "first", "10.240.0.10"), w.launch(t, "12", "second", "10.240.0.11")
	one, two := w.await(t, first, types.InstanceStateNameRunning), w.await(t, second, types.InstanceStateNameRunning)
	if open(t, *one.PublicIpAddress+":22") {
		t.Fatal("SSH gets through although no rule allows it")
	}
	operator := operatorCIDR(t, lab)
	must[*ec2.AuthorizeSecurityGroupIngressOutput](t)(w.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &w.group, IpPermissions: []types.IpPermission{
		{IpProtocol: aws.String("tcp"), FromPort: aws.Int32(22), ToPort: aws.Int32(22), IpRanges: []types.IpRange{{CidrIp: &operator}}},
		{IpProtocol: aws.String("icmp"), FromPort: aws.Int32(-1), ToPort: aws.Int32(-1), UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: &w.group}}},
	}}))

	t.Run("user data and metadata", func(t *testing.T) {
		if got := w.sh(t, *one.PublicIpAddress, "cloud-init status --wait >/dev/null; cat /etc/made-by-user-data"); got != "first" {
			t.Errorf("user data made %q", got)
		}
		t.Logf("user data applied and seen %s after the launch", time.Since(began))
		const imds = "http://169.254.169.254/latest/"
		if got := w.sh(t, *one.PublicIpAddress, "curl -s -o /dev/null -w '%{http_code}' "+imds+"meta-data/instance-id"); got != "401" {
			t.Errorf("without a token the metadata service answers %s", got)
		}
		got := w.sh(t, *one.PublicIpAddress, `token=$(curl -sf -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' `+imds+`api/token)
			for p in instance-id local-ipv4 public-ipv4 placement/availability-zone; do curl -sf -H "X-aws-ec2-metadata-token: $token" `+imds+`meta-data/$p; echo; done`)
		want := strings.Join([]string{first, "10.240.0.10", *one.PublicIpAddress, "us-east-1a"}, "\n")
		if got != want {
			t.Errorf("the metadata service tells\n%s\nwant\n%s", got, want)
		}
		if got := w.sh(t, *one.PublicIpAddress, "getent hosts ip-10-240-0-11.ec2.internal; hostname; getent hosts nobody.example || echo none"); got != "10.240.0.11     ip-10-240-0-11.ec2.internal\nip-10-240-0-10\nnone" {
			t.Errorf("names: %q", got)
		}
	})
	// Public names resolve, and packages can be installed.
	t.Run("the outside", func(t *testing.T) {
		for release, i := range map[string]types.Instance{"13": one, "12": two} {
			script := `. /etc/os-release; echo "$VERSION_ID"; ! sudo which nft haproxy
				cloud-init status --wait >/dev/null
				(sudo apt-get -q update && sudo DEBIAN_FRONTEND=noninteractive apt-get -q -y install nftables haproxy) >/tmp/apt 2>&1 || cat /tmp/apt
				sudo nft list tables; /usr/sbin/haproxy -v >/dev/null && curl -s http://outside.k8s-lab.test/`
			if got, want := w.sh(t, *i.PublicIpAddress, script), release+"\n"+*i.PublicIpAddress; got != want {
				t.Errorf("Debian %s prints %q, want %q", release, got, want)
			}
		}
	})
	// The two machines have four vCPUs of the five.
	t.Run("quotas of a running lab", func(t *testing.T) {
		in := &ec2.RunInstancesInput{ImageId: aws.String(w.image(t, "13")), InstanceType: types.InstanceTypeT3Small, MinCount: aws.Int32(1), MaxCount: aws.Int32(1), SubnetId: &w.subnet}
		if _, err := w.RunInstances(t.Context(), in); err == nil || !strings.Contains(err.Error(), "VcpuLimitExceeded") {
			t.Errorf("a third machine: %v", err)
		}
		lab.must(t, "up", raised)
		lab.must(t, "up", "--quota=vcpus=6") // quotas are only raised
		third := must[*ec2.RunInstancesOutput](t)(w.RunInstances(t.Context(), in)).Instances[0].InstanceId
		must[*ec2.TerminateInstancesOutput](t)(w.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{*third}}))
		w.await(t, *third, types.InstanceStateNameTerminated)
	})
	// A computer with ufw or firewalld drops connections that others open.
	t.Run("a firewall of the host", func(t *testing.T) {
		slice := strings.TrimSpace(string(must[[]byte](t)(os.ReadFile(filepath.Join(lab.dir, "slice")))))
		rules := "table inet k8s_lab_test {\n chain in {\n type filter hook input priority 0; policy accept;\n iifname kl" + slice + " tcp flags & (syn | ack) == syn drop\n }\n}\n"
		load := exec.CommandContext(ctx, "nft", "-f", "-")
		load.Stdin = strings.NewReader(rules)
		if out, err := load.CombinedOutput(); err != nil {
			t.Fatalf("nft: %v\n%s", err, out)
		}
		defer func() {
			if out, err := exec.CommandContext(context.WithoutCancel(ctx), "nft", "delete", "table", "inet", "k8s_lab_test").CombinedOutput(); err != nil {
				t.Errorf("nft: %v\n%s", err, out)
			}
		}()
		registry := must[process.Endpoints](t)(must[*process.Lab](t)(process.New(lab.dir, "", nil)).Endpoints()).Images
		script := "for url in " + os.Getenv("K8S_ARTIFACT_MIRROR") + "/SHA256SUMS " + registry + "/v2/; do curl -s -m 60 -o /dev/null -w '%{http_code} ' $url || true; done"
		if got := w.sh(t, *one.PublicIpAddress, script); got != "200 200" {
			t.Errorf("mirror and registry answer %s", got)
		}
	})
	t.Run("S3", func(t *testing.T) {
		if out := lab.must(t, "bucket", "backups") + lab.must(t, "bucket", "backups"); strings.Count(out, "There is a bucket backups") != 2 {
			t.Errorf("bucket says %q", out)
		}
		if out := lab.must(t, "status"); !strings.Contains(out, "Buckets\n  backups\n") {
			t.Errorf("the status shows\n%s", out)
		}
		// The curl of Debian 12 does not send the header that S3 wants.
		curl := fmt.Sprintf("curl -s -w '%%{http_code}' -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' --aws-sigv4 aws:amz:us-east-1:s3 --user '%s:%s' ", os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"))
		const at = "http://aws.k8s-lab.test/backups/of/first"
		for release, i := range map[string]types.Instance{"13": one, "12": two} {
			script := "echo saved >object; " + curl + "-T object " + at + "; " + curl + at + "; curl -s -o /dev/null -w '%{http_code}' " + at
			if got, want := w.sh(t, *i.PublicIpAddress, script), "200saved\n200403"; got != want {
				t.Errorf("on Debian %s: %q, want %q", release, got, want)
			}
		}
	})
	t.Run("the hop limit keeps pods out", func(t *testing.T) {
		w.sh(t, *one.PublicIpAddress, `sudo sh -ec '
			ip netns add pod; ip link add p0 type veth peer name p1 netns pod; ip addr add 172.30.0.1/24 dev p0; ip link set p0 up
			ip -n pod addr add 172.30.0.2/24 dev p1; ip -n pod link set p1 up; ip -n pod route add default via 172.30.0.1
			sysctl -qw net.ipv4.ip_forward=1; nft add table ip pod; nft "add chain ip pod post { type nat hook postrouting priority 100; }"
			nft add rule ip pod post ip saddr 172.30.0.2 oifname ens5 masquerade'`)
		ask := func(seconds string) string {
			return w.sh(t, *one.PublicIpAddress, "sudo ip netns exec pod curl -s -m "+seconds+" -o /dev/null -w '%{http_code}' http://169.254.169.254/ || true")
		}
		if got := ask("1"); got != "000" {
			t.Errorf("with a hop limit of 1 a pod got %s", got)
		}
		must[*ec2.ModifyInstanceMetadataOptionsOutput](t)(w.ModifyInstanceMetadataOptions(ctx, &ec2.ModifyInstanceMetadataOptionsInput{InstanceId: &first, HttpPutResponseHopLimit: aws.Int32(2)}))
		if got := ask("60"); got != "401" {
			t.Errorf("with a hop limit of 2 a pod got %s", got)
		}
	})
	t.Run("another lab beside it", func(t *testing.T) {
		neighbour := command{lab.program, filepath.Join(t.TempDir(), "neighbour")}
		defer neighbour.must(t, "down")
		var ups errgroup.Group // two at once make one lab
		for range 2 {
			ups.Go(func() error {
				if out, err := neighbour.run(t.Context(), "up", raised, "--bare"); err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			})
		}
		if err := ups.Wait(); err != nil {
			t.Fatal(err)
		}
		if out := neighbour.must(t, "env"); !strings.Contains(out, "AWS_ENDPOINT_URL") || strings.Contains(out, "K8S_ARTIFACT") {
			t.Errorf("the environment of a bare lab: %s", out)
		}
		if out, err := neighbour.run(t.Context(), "env", "--tfvars"); err == nil || !strings.Contains(out, "is bare") {
			t.Errorf("variables of a bare lab: %s", out)
		}
		if a, b := operatorCIDR(t, lab), operatorCIDR(t, neighbour); a == b {
			t.Errorf("both labs have the operator %s", a)
		}
		if out := neighbour.must(t, "status"); !strings.Contains(out, "Instances: none") {
			t.Errorf("the neighbour shows\n%s", out)
		}
		neighbour.must(t, "up") // completes it
		if out := neighbour.must(t, "env", "--tfvars"); !strings.Contains(out, "registry.k8s.io") {
			t.Errorf("variables of the completed lab: %s", out)
		}
	})
	t.Run("what k8s-lab shows of a machine", func(t *testing.T) {
		key := filepath.Join(t.TempDir(), "key")
		block := must[*pem.Block](t)(ssh.MarshalPrivateKey(w.key, ""))
		if err := os.WriteFile(key, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if out := lab.must(t, "ssh", "-i", key, "first", "--", "hostname; id -un"); out != "ip-10-240-0-10\nadmin\n" {
			t.Errorf("ssh says %q", out)
		}
		if out := lab.must(t, "exec", "first", "--", "id", "-u"); out != "0\n" {
			t.Errorf("exec says %q", out)
		}
		if out := lab.must(t, "console", "first"); !strings.Contains(out, "cloud-init") && !strings.Contains(out, "Cloud-init") {
			t.Errorf("the console says %q", out)
		}
		if out := lab.must(t, "logs"); !strings.Contains(out, "the lab is up") {
			t.Errorf("the log says %q", out)
		}
		if out := lab.must(t, "logs", "--calls"); !strings.Contains(out, `"action":"RunInstances"`) {
			t.Errorf("the calls are %q", out)
		}
		var status process.Status
		if err := json.Unmarshal([]byte(lab.must(t, "status", "--json")), &status); err != nil || len(status.Account.Instances) != 2 || status.Endpoints.API == "" {
			t.Errorf("status --json: %+v, %v", status, err)
		}
	})
	t.Run("groups reach", func(t *testing.T) {
		w.sh(t, *one.PublicIpAddress, "ping -c 1 -W 60 10.240.0.11")
		if got := w.sh(t, *one.PublicIpAddress, "timeout 1 bash -c '</dev/tcp/10.240.0.11/22' 2>/dev/null && echo open || echo closed"); got != "closed" {
			t.Errorf("port 22 of the neighbour is %s", got)
		}
	})
	t.Run("an address moves", func(t *testing.T) {
		eip := must[*ec2.AllocateAddressOutput](t)(w.AllocateAddress(t.Context(), &ec2.AllocateAddressInput{}))
		spare := must[*ec2.AllocateAddressOutput](t)(w.AllocateAddress(t.Context(), &ec2.AllocateAddressInput{}))
		for _, to := range []struct{ allocation, id, name, ip string }{
			{*eip.AllocationId, first, "first", *eip.PublicIp}, {*eip.AllocationId, second, "second", *eip.PublicIp}, {*spare.AllocationId, first, "first", *spare.PublicIp},
		} {
			must[*ec2.AssociateAddressOutput](t)(w.AssociateAddress(t.Context(), &ec2.AssociateAddressInput{AllocationId: &to.allocation, InstanceId: &to.id, AllowReassociation: aws.Bool(true)}))
			if got := w.sh(t, to.ip, "cat /etc/made-by-user-data"); got != to.name {
				t.Errorf("%s leads to %s instead of %s", to.ip, got, to.name)
			}
		}
		if open(t, *two.PublicIpAddress+":22") {
			t.Error("the address from the launch still leads somewhere")
		}
	})
	var data disk
	t.Run("volumes", func(t *testing.T) { data = checkHotPlug(t, w, lab, first, second) })
	t.Run("a crash of the daemon", func(t *testing.T) {
		before := must[process.Daemon](t)(lab.daemon(t.Context()))
		if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			now, err := lab.daemon(t.Context())
			if err == nil && now.PID != before.PID && now.Keeper == before.Keeper {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the daemon does not come back: %+v, %v", now, err)
			}
		}
		must[*ec2.DescribeVpcsOutput](t)(w.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{}))
		data.on(t, first, "cat /mnt/file; echo unsynced > /mnt/unsynced; blkid -o value -s TYPE "+data.link(), "kept\next4")
	})
	t.Run("the end of the keeper", func(t *testing.T) {
		if err := syscall.Kill(must[process.Daemon](t)(lab.daemon(t.Context())).Keeper, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) { // the daemon ends after it
			if _, err := lab.run(t.Context(), "status"); err != nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the daemon outlives its keeper")
			}
		}
		lab.must(t, "up", raised)
		w.Client = lab.client(t)
		for _, id := range []string{first, second} {
			i := w.await(t, id, types.InstanceStateNameRunning)
			w.sh(t, *i.PublicIpAddress, "test $(cut -d. -f1 /proc/uptime) -gt 0 && curl -s -o /dev/null http://169.254.169.254/")
		}
		if out := lab.must(t, "status"); !strings.Contains(out, "first") || !strings.Contains(out, second) || strings.Contains(out, os.Getenv("AWS_SECRET_ACCESS_KEY")) {
			t.Errorf("status shows\n%s", out)
		} else {
			t.Log("\n" + out)
		}
		lab.must(t, "up") // again, and nothing changes
	})
	t.Run("stop and start", func(t *testing.T) {
		w.sh(t, *w.await(t, first, types.InstanceStateNameRunning).PublicIpAddress, "sudo touch /var/kept && sudo ip route add blackhole 10.99.0.0/16")
		must[*ec2.StopInstancesOutput](t)(w.StopInstances(t.Context(), &ec2.StopInstancesInput{InstanceIds: []string{first}}))
		w.await(t, first, types.InstanceStateNameStopped)
		must[*ec2.StartInstancesOutput](t)(w.StartInstances(t.Context(), &ec2.StartInstancesInput{InstanceIds: []string{first}}))
		i := w.await(t, first, types.InstanceStateNameRunning)
		if got := w.sh(t, *i.PublicIpAddress, "ls /var/kept; cat /etc/made-by-user-data; ip route show 10.99.0.0/16"); got != "/var/kept\nfirst" {
			t.Errorf("after a stop and a start: %q", got)
		}
		data.on(t, first, "mount "+data.link()+" /mnt; cat /mnt/file /mnt/unsynced", "kept\nunsynced")
	})
	t.Run("reboot from inside", func(t *testing.T) {
		boot := func() string { // empty while the machine cannot be asked
			out, _ := lab.run(t.Context(), "exec", first, "--", "systemctl", "show", "-p", "UserspaceTimestampMonotonic", "--value")
			if _, err := strconv.Atoi(strings.TrimSpace(out)); err != nil {
				return ""
			}
			return out
		}
		i, before := w.await(t, first, types.InstanceStateNameRunning), boot()
		w.sh(t, *i.PublicIpAddress, "sudo systemd-run --no-block sh -c 'sleep 0.2; systemctl reboot' >/dev/null 2>&1")
		for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			if now := boot(); now != "" && now != before {
				break
			}
			if time.Now().After(end) {
				t.Fatal("the machine does not reboot")
			}
		}
		if now := w.await(t, first, types.InstanceStateNameRunning); *now.PublicIpAddress != *i.PublicIpAddress || !now.LaunchTime.Equal(*i.LaunchTime) {
			t.Errorf("after a reboot from inside the instance is %+v", now)
		}
		data.on(t, first, "mount "+data.link()+" /mnt; cat /mnt/file", "kept")
	})
	t.Run("shutdown from inside", func(t *testing.T) {
		i := w.await(t, first, types.InstanceStateNameRunning)
		w.sh(t, *i.PublicIpAddress, "sudo systemd-run --no-block sh -c 'sleep 0.2; systemctl poweroff' >/dev/null 2>&1")
		w.await(t, first, types.InstanceStateNameStopped)
	})
	t.Run("terminate", func(t *testing.T) {
		must[*ec2.TerminateInstancesOutput](t)(w.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{first, second}}))
		w.await(t, first, types.InstanceStateNameTerminated)
		w.await(t, second, types.InstanceStateNameTerminated)
		for _, left := range must[[]string](t)(machine.Leftovers(lab.dir)) {
			if strings.Contains(left, "process") || strings.Contains(left, "mount") {
				t.Errorf("after the termination there is still the %s", left)
			}
		}
		checkNoLoops(t, lab)
		if got := data.state(t); got != "available" {
			t.Errorf("the volume of a terminated instance is %s", got)
		}
		if got, want := volumeFiles(t, lab), "["+filepath.Join(lab.dir, "volumes", data.id)+"]"; got != want {
			t.Errorf("files of volumes: %s, want %s", got, want)
		}
	})

	again := w.launch(t, "13", "third", "10.240.0.12") // so that down has something to end
	w.await(t, again, types.InstanceStateNameRunning)
	data.attach(t, again)
	data.on(t, again, "mount "+data.link()+" /mnt; cat /mnt/file", "kept")
	slice := strings.TrimSpace(string(must[[]byte](t)(os.ReadFile(filepath.Join(lab.dir, "slice")))))
	began = time.Now()
	lab.must(t, "down")
	t.Logf("down: %s", time.Since(began))
	checkNoLoops(t, lab)
	if _, err := os.Stat(lab.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state directory is still there: %v", err)
	}
	links := string(must[[]byte](t)(exec.CommandContext(ctx, "sh", "-c", "ip -o link; ip netns; ip route").Output()))
	if strings.Contains(links, "kl"+slice) {
		t.Errorf("left of the network:\n%s", links)
	}
	if out := lab.must(t, "down"); !strings.Contains(out, "nothing is left") {
		t.Errorf("down again says %q", out)
	}
}

func operatorCIDR(t *testing.T, lab command) string {
	t.Helper()
	_, rest, _ := strings.Cut(lab.must(t, "status"), "operator ")
	address, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(address) + "/32"
}
