// Package clients_test lets clients that this project did not write use the local EC2: the AWS CLI,
// boto3 and Ansible's amazon.aws, as Debian 12 has them. Each creates a VPC with a machine and
// destroys it; what is done again changes nothing. K8S_CLIENT_ROUNDS=2 does all of it twice.
// The AWS CLI also makes the attacks of package isolation.
package clients_test

import (
	"cmp"
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
)

var suite *harness.Suite

func TestMain(m *testing.M) {
	if !harness.WithLong() { // no other test needs the lab
		os.Exit(m.Run())
	}
	os.Exit(harness.Main(m, func(s *harness.Suite) { suite = s }, "--bare"))
}

// client is a program that creates and destroys by the API.
type client struct {
	name    string
	create  []string
	destroy []string
	changed *regexp.Regexp // how it says how much it changed
}

// limit is for one command of a client. The AWS CLI asks every 15 seconds whether a machine runs.
const limit = 8 * time.Minute

func TestClients(t *testing.T) {
	harness.Long(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	rounds, err := strconv.Atoi(cmp.Or(os.Getenv("K8S_CLIENT_ROUNDS"), "1"))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := ensureRoot(ctx, suite.Cache)
	if err != nil {
		t.Fatal(err)
	}
	status := labStatus(t)
	public := publicKey(t)
	settings := map[string]string{
		"endpoint": status.Endpoints.API, "operator": status.Endpoints.Operator + "/32",
		"public_key": strings.TrimSpace(string(public)),
	}
	vars, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"ENDPOINT=" + settings["endpoint"], "OPERATOR=" + settings["operator"]}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		env = append(env, name+"="+suite.Getenv(name))
	}
	playbook := []string{"ansible-playbook", "--extra-vars", "@/work/settings.json"}
	recap := regexp.MustCompile(`ok=\d+ +changed=(\d+) +unreachable=0 +failed=0 `)
	last := regexp.MustCompile(`(?m)^changed=(\d+)$`)
	t.Run("all", func(t *testing.T) {
		for _, c := range []client{
			{"cli", []string{"sh", "/work/cli.sh", "create"}, []string{"sh", "/work/cli.sh", "destroy"}, last},
			{"boto", []string{"python3", "/work/boto.py", "create"}, []string{"python3", "/work/boto.py", "destroy"}, last},
			{"ansible", append(playbook, "/work/ansible-create.yml"), append(playbook, "/work/ansible-destroy.yml"), recap},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				r := runner{T: t, client: c, tree: tree, env: env, work: t.TempDir()}
				if err := os.CopyFS(r.work, os.DirFS("testdata")); err != nil {
					t.Fatal(err)
				}
				for name, content := range map[string][]byte{"settings.json": vars, "key.pub": public} {
					if err := os.WriteFile(filepath.Join(r.work, name), content, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				for range rounds {
					r.round()
				}
			})
		}
	})
	if left := labStatus(t).Account; left.Total != 0 {
		t.Errorf("left in the account: %+v", left)
	}
	// What a client asks for and the local EC2 does not serve, the client may take for an answer.
	out, err := suite.Lab(ctx, "logs", "--calls")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		for _, code := range []string{"InvalidAction", "UnknownParameter", "InternalError"} {
			if strings.Contains(line, `"code":"`+code+`"`) {
				t.Errorf("a call was not served: %s", line)
			}
		}
	}
}

// publicKey returns the public half of the suite's key, as authorized_keys has it.
func publicKey(t *testing.T) []byte {
	t.Helper()
	private, err := os.ReadFile(suite.SSH)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return ssh.MarshalAuthorizedKey(signer.PublicKey())
}

func labStatus(t *testing.T) (status lab.Status) {
	t.Helper()
	out, err := suite.Lab(t.Context(), "status", "--json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &status)
	}
	if err != nil {
		t.Fatalf("status of the lab: %v\n%s", err, out)
	}
	return status
}

// runner is one client at work.
type runner struct {
	*testing.T
	client
	tree root
	env  []string
	work string
}

// round creates, again, and destroys, again.
func (r *runner) round() {
	r.Helper()
	if r.run(r.create) == "0" {
		r.Error("the first creation changed nothing")
	}
	made := r.made()
	if n := r.run(r.create); n != "0" {
		r.Errorf("the second creation changed %s things", n)
	}
	if again := r.made(); !slices.Equal(again, made) {
		r.Errorf("the second creation made\n%v of\n%v", again, made)
	}
	r.login()
	if r.run(r.destroy) == "0" {
		r.Error("the first destruction changed nothing")
	}
	if n := r.run(r.destroy); n != "0" {
		r.Errorf("the second destruction changed %s things", n)
	}
	if left := r.made(); len(left) > 0 {
		r.Errorf("left: %v", left)
	}
}

// run runs a command of the client, and returns how much it says that it changed.
func (r *runner) run(args []string) string {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	out, err := r.tree.command(ctx, r.work, r.env, args...).CombinedOutput()
	if err != nil {
		r.Fatalf("%v: %v\n%s", args, err, out)
	}
	said := r.changed.FindSubmatch(out)
	if said == nil {
		r.Fatalf("%v does not say how much it changed:\n%s", args, out)
	}
	return string(said[1])
}

// made returns the ids of what the client has made, sorted. Everything has its name.
func (r *runner) made() []string {
	r.Helper()
	o := labStatus(r.T).Account
	var ids []string
	for _, i := range o.Instances {
		if i.Name == r.name {
			ids = append(ids, i.ID)
		}
	}
	for _, list := range [][]ec2.NamedOverview{o.VPCs, o.Subnets, o.Gateways, o.RouteTables, o.Groups, o.Addresses, o.KeyPairs} {
		for _, n := range list {
			if n.Name == r.name || n.Detail == r.name {
				ids = append(ids, n.ID)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// login reaches the machine at the address that the client got for it. Ansible does so itself.
func (r *runner) login() {
	r.Helper()
	raw, err := os.ReadFile(filepath.Join(r.work, "address"))
	if err != nil {
		r.Fatal(err)
	}
	address, err := netip.ParseAddr(strings.TrimSpace(string(raw)))
	if err != nil {
		r.Fatal(err)
	}
	harness.Eventually(r.T, 2*time.Minute, "a login", func() error {
		_, err := suite.Lab(r.Context(), "ssh", "-i", suite.SSH, r.name, "--", "true")
		return err
	})
	if r.name != "ansible" {
		return
	}
	key, err := os.ReadFile(suite.SSH)
	if err == nil {
		err = os.WriteFile(filepath.Join(r.work, "key"), key, 0o600)
	}
	if err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	out, err := r.tree.command(ctx, r.work, append(r.env, "ANSIBLE_HOST_KEY_CHECKING=False"), "ansible", "all", "-i", address.String()+",",
		"-u", "admin", "--private-key", "/work/key", "-m", "ansible.builtin.ping").CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"pong"`) {
		r.Errorf("ansible's ping: %v\n%s", err, out)
	}
}
