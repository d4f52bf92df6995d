package aws

import (
	"crypto/rand"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
	"sigs.k8s.io/yaml"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

func TestPermissionsRoundTrip(t *testing.T) {
	groups := map[Role]string{RoleLoadBalancer: "sg-l", RoleController: "sg-c", RoleEtcd: "sg-e", RoleWorker: "sg-w"}
	spec := NetworkSpec{AdminCIDRs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.0.2.0/24")}}
	for role, rules := range wantedRules(spec, groups) {
		missing, unexpected := diffRules(rules, rulesOf(permissions(rules)))
		if len(missing)+len(unexpected) > 0 {
			t.Errorf("%s: lost %v, gained %v", role, missing, unexpected)
		}
	}
	foreign := []rule{{"tcp", 1, 2, "2001:db8::/32"}, {"udp", 53, 53, "pl-123"}, {"-1", 0, 0, "sg-other"}}
	if got := rulesOf(permissions(foreign)); !slices.Equal(got, foreign) {
		t.Errorf("got %v, wanted %v", got, foreign)
	}
	want := []string{"tcp 1-2 from 2001:db8::/32", "udp 53 from pl-123", "all traffic from sg-other"}
	for i, r := range foreign {
		if r.String() != want[i] {
			t.Errorf("got %q, wanted %q", r, want[i])
		}
	}
}

// TestSSHFromBastions checks that machines reach each other's SSH only from the role of bastions, and
// that bastions reach the API servers.
func TestSSHFromBastions(t *testing.T) {
	groups := map[Role]string{RoleLoadBalancer: "sg-l", RoleController: "sg-c", RoleEtcd: "sg-e", RoleWorker: "sg-w"}
	for _, bastions := range []Role{RoleLoadBalancer, RoleController, RoleWorker, ""} {
		rules := wantedRules(NetworkSpec{BastionRole: bastions}, groups)
		for _, role := range Roles() {
			var from []string
			for _, r := range rules[role] {
				if r.protocol == "tcp" && r.from <= portSSH && portSSH <= r.to {
					from = append(from, r.source)
				}
			}
			if want := groups[bastions]; strings.Join(from, " ") != want {
				t.Errorf("with bastions %q, SSH to %s is open from %q, wanted %q", bastions, role, from, want)
			}
			if api := (rule{"tcp", portAPI, portAPI, groups[bastions]}); bastions != "" && (role == RoleLoadBalancer || role == RoleController) && !slices.Contains(rules[role], api) {
				t.Errorf("with bastions %q, %s lacks the rule %s", bastions, role, api)
			}
		}
	}
}

func TestCloudConfig(t *testing.T) {
	spec := MachineSpec{Name: "worker-0", User: "admin", AuthorizedKeys: []string{"ssh-ed25519 AAAA op"}}
	body, err := userData(spec, hostKeyPair{authorized: "ssh-ed25519 BBBB", pem: "-----BEGIN\nxyz\n-----END\n"})
	if err != nil {
		t.Fatal(err)
	}
	want := `#cloud-config
disable_root: true
hostname: worker-0
preserve_hostname: false
ssh_deletekeys: true
ssh_keys:
  ed25519_private: |
    -----BEGIN
    xyz
    -----END
  ed25519_public: ssh-ed25519 BBBB
ssh_pwauth: false
users:
- gecos: Administrator
  groups:
  - adm
  - systemd-journal
  lock_passwd: true
  name: admin
  shell: /bin/bash
  ssh_authorized_keys:
  - ssh-ed25519 AAAA op
  sudo: ALL=(ALL) NOPASSWD:ALL
`
	if diff := cmp.Diff(want, string(body)); diff != "" {
		t.Error(diff)
	}
	if _, err := userData(MachineSpec{Name: "x"}, hostKeyPair{}); err == nil {
		t.Error("a machine nobody can log in to")
	}
}

// TestBootCommand checks that cloud-init gets the command, that the first host key can still be read from
// user data with it, and that their length is known before the launch.
func TestBootCommand(t *testing.T) {
	for _, length := range []int{0, 9 << 10, 16 << 10} {
		command := strings.Repeat("x", length)
		spec := MachineSpec{Name: "worker-0", User: "admin", AuthorizedKeys: []string{"ssh-ed25519 AAAA op"}, BootCommand: command}
		key, err := newHostKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		body, err := userData(spec, key)
		if n, foretold := spec.UserDataBytes(rand.Reader); err != nil || foretold != nil || n != len(body) || (n > MaxUserData) != (length == 16<<10) {
			t.Errorf("%d bytes of user data (%v), foretold were %d (%v)", len(body), err, n, foretold)
		}
		var parsed cloudInit
		if err := yaml.Unmarshal(body, &parsed); err != nil || parsed.HostKeys["ed25519_public"] != key.authorized {
			t.Errorf("host keys %v: %v", parsed.HostKeys, err)
		}
		var want [][]string
		if length > 0 {
			want = [][]string{{"cloud-init-per", "instance", "k8s-from-scratch", "sh", "-c", command}}
		}
		if d := cmp.Diff(want, parsed.BootCommands); d != "" {
			t.Errorf("a command of %d bytes: %s", length, d)
		}
	}
}

func TestNewHostKey(t *testing.T) {
	k, err := newHostKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey([]byte(k.pem))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))); got != k.authorized {
		t.Errorf("public half %q, wanted %q", k.authorized, got)
	}
}

func TestClientToken(t *testing.T) {
	a := clientToken("demo", "machine", "worker-0", "")
	if a != clientToken("demo", "machine", "worker-0", "") || len(a) != 64 {
		t.Errorf("token %q is not deterministic, or longer than EC2 takes", a)
	}
	for _, b := range []string{
		clientToken("demo", "machine", "worker-0", "1"), clientToken("demo", "machine", "worker-1", ""), clientToken("dem", "omachine", "worker-0", ""),
	} {
		if a == b {
			t.Error("different things share a token")
		}
	}
}

func TestRetry(t *testing.T) {
	code := func(c string) error { return &smithy.GenericAPIError{Code: c, Message: c} }
	p := &codeRetryer{Retryer: newRetryer(Config{MaxRetries: 2}), codes: []string{"InvalidVpcID.NotFound"}, limit: 3}
	for i, want := range []bool{true, true, false} {
		if got := p.IsErrorRetryable(code("InvalidVpcID.NotFound")); got != want {
			t.Errorf("attempt %d: retryable %v, wanted %v", i+1, got, want)
		}
	}
	if !p.IsErrorRetryable(code("RequestLimitExceeded")) || p.IsErrorRetryable(code("InsufficientInstanceCapacity")) || p.IsErrorRetryable(errors.New("x")) {
		t.Error("the SDK's own judgement is gone")
	}
	p = &codeRetryer{Retryer: p.Retryer, codes: p.codes, limit: settleAttempts}
	var first, total time.Duration
	for i := 1; p.IsErrorRetryable(code("InvalidVpcID.NotFound")); i++ {
		d, err := p.RetryDelay(i, code("InvalidVpcID.NotFound"))
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			first = d
		}
		total += d
	}
	if first != firstPoll || total < 20*time.Second || total > 40*time.Second {
		t.Errorf("waits %s at first and %s in all", first, total)
	}
}

func TestTagsDiffer(t *testing.T) {
	got := diffTags(map[string]string{"a": "1", "b": "2", "c": "3"}, map[string]string{"a": "1", "b": "x", "aws:other": "y"})
	if want := `tag b: found "x", wanted "2"; tag c: missing, wanted "3"`; finding.Words(got) != want {
		t.Errorf("got %v, wanted %v", got, want)
	}
	for key, reserved := range map[string]bool{"Name": true, TagCluster: true, "kubernetes.io/cluster/x": true, "aws:x": true, "team": false} {
		if ReservedTag(key) != reserved {
			t.Errorf("%s: reserved %v", key, !reserved)
		}
	}
}

// TestFindings checks the text of findings about the metadata service, the default route and rules.
func TestFindings(t *testing.T) {
	good := types.InstanceMetadataOptionsResponse{HttpTokens: types.HttpTokensStateRequired, HttpPutResponseHopLimit: sdk.Int32(1), HttpEndpoint: types.InstanceMetadataEndpointStateEnabled}
	bad := types.InstanceMetadataOptionsResponse{HttpTokens: types.HttpTokensStateOptional, HttpPutResponseHopLimit: sdk.Int32(2), HttpEndpoint: types.InstanceMetadataEndpointStateDisabled}
	route := func(to, gateway string, state types.RouteState) types.RouteTable {
		return types.RouteTable{Routes: []types.Route{{DestinationCidrBlock: &to, GatewayId: &gateway, State: state}}}
	}
	for _, tt := range []struct {
		found []finding.Finding
		want  string
	}{
		{diffMetadata(good), ""},
		{diffMetadata(bad), "metadata service: tokens are optional, wanted required, hop limit is 2, wanted 1, endpoint is disabled, wanted enabled"},
		{diffDefaultRoute(route("0.0.0.0/0", "igw-1", types.RouteStateActive), "igw-1"), ""},
		{diffDefaultRoute(route("0.0.0.0/0", "igw-1", types.RouteStateBlackhole), "igw-1"), "route 0.0.0.0/0: found igw-1 (blackhole), wanted igw-1"},
		{diffDefaultRoute(route("0.0.0.0/0", "igw-2", types.RouteStateActive), "igw-1"), "route 0.0.0.0/0: found igw-2 (active), wanted igw-1"},
		{diffDefaultRoute(route("10.0.0.0/8", "igw-1", types.RouteStateActive), "igw-1"), "route 0.0.0.0/0: missing, wanted igw-1"},
	} {
		if got := finding.Words(tt.found); got != tt.want {
			t.Errorf("%q, wanted %q", got, tt.want)
		}
	}
	groups := map[Role]string{RoleWorker: "sg-w"}
	for r, want := range map[rule][2]string{
		{"tcp", 22, 22, "0.0.0.0/0"}:     {"tcp 22 from 0.0.0.0/0", "outgoing tcp 22 to 0.0.0.0/0"},
		{"udp", 30000, 32767, "sg-w"}:    {"udp 30000-32767 from group worker", "outgoing udp 30000-32767 to group worker"},
		{protocol: "-1", source: "::/0"}: {"all traffic from ::/0", "outgoing all traffic to ::/0"},
	} {
		if in, out := r.in(groups, false), r.in(groups, true); in != want[0] || out != want[1] {
			t.Errorf("%q and %q, wanted %q", in, out, want)
		}
	}
}

func TestAdvice(t *testing.T) {
	if Advice(errors.New("x")) != "" || Advice(&smithy.GenericAPIError{Code: "UnauthorizedOperation"}) == "" {
		t.Error("advice does not follow the code")
	}
	c, err := New(t.Context(), Config{Region: "eu-central-1", AccessKey: "AKIAHALF"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Caller(t.Context()); !strings.HasPrefix(Advice(err), "No AWS credentials were found") {
		t.Errorf("of %v: %q", err, Advice(err))
	}
	if err := errors.New("get credentials: of somebody else"); Advice(err) != "" {
		t.Errorf("words are taken for an error of the SDK: %q", Advice(err))
	}
}
